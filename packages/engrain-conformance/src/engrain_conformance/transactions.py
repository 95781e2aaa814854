"""Tests of a store that keeps items and episodes: one transaction, and forgetting reaches both."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from engrain.core.errors import Conflict, InvalidInput, NotFound, StoreClosed
from engrain.core.model.items import Citation
from engrain.core.model.plans import Add, Applied, Change, Forget, Plan, refer_to_step
from engrain.core.model.retention import TIERS
from engrain.core.model.sessions import Episode, EpisodeDraft, RawOutput
from engrain.core.model.tasks import Claim, StepEnd, StepStart, StepWrite
from engrain.ports.items import ItemStore
from engrain.ports.sessions import Episodes
from engrain.ports.tasks import TaskJournal
from engrain_conformance.clock import START
from engrain_conformance.drafts import ANA, BEN, add, correct, derived, fact, forget, list_items, message, texts
from engrain_conformance.episodes import episode, ids, raw
from engrain_conformance.suite import Suite


def episode_over(item: str, id: str = "", raw: RawOutput | None = None, **values: Any) -> EpisodeDraft:
    """An episode over a row of the log: it has no text of its own."""
    return EpisodeDraft(replace(episode(id, text="", **values), item=item), raw)


def add_message(store: ItemStore, text: str, *happenings: EpisodeDraft, **values: Any) -> Applied:
    """One message, with an episode over it unless others are given."""
    return store.apply(
        Plan(ANA, (Add(message(text)),), episodes=happenings or (episode_over(refer_to_step(0)),), **values)
    )


def list_episodes(episodes: Episodes) -> list[Episode]:
    return episodes.recent(ANA, None, 99, START)


class TransactionSuite(Suite):
    # One transaction

    def test_a_message_and_its_episode_are_one_write(self, store: ItemStore, episodes: Episodes) -> None:
        kept = episode_over(
            refer_to_step(0), session="monday", kind="turn", importance=0.7, data={"a": 1}, raw=raw("At length.")
        )
        (outcome,) = add_message(store, "Hello.", kept).outcomes
        item = outcome.id or ""
        wanted = replace(kept.episode, id=item, item=item)
        assert list_episodes(episodes) == episodes.recent(ANA, "monday", 9, START) == [wanted]
        assert episodes.raw(ANA, item, START) == "At length."

    def test_an_episode_keeps_the_id_it_has(self, store: ItemStore, episodes: Episodes) -> None:
        (first,) = add(store, message("Before."))
        add_message(
            store,
            "Now.",
            episode_over(refer_to_step(0), "mine"),
            episode_over(first, "yours"),
            EpisodeDraft(episode("alone"), raw()),
        )
        found = {episode.id: episode.item for episode in list_episodes(episodes)}
        assert (found["yours"], found["alone"]) == (first, None)
        assert found["mine"] in {item.id for item in list_items(store) if item.text == "Now."}
        assert episodes.raw(ANA, "alone", START) == "All of it."

    def test_an_episode_may_be_over_any_step_of_the_plan(self, store: ItemStore, episodes: Episodes) -> None:
        (old,) = add(store, fact("Old."))
        steps = (Add(message("One.")), Change(old, pinned=True), Add(fact("Two.")))
        outcomes = store.apply(
            Plan(ANA, steps, episodes=tuple(episode_over(refer_to_step(n)) for n in (2, 1, 0)))
        ).outcomes
        assert {outcome.item for outcome in list_episodes(episodes)} == {outcome.id for outcome in outcomes}

    def test_a_plan_without_steps_adds_its_episodes(self, store: ItemStore, episodes: Episodes) -> None:
        applied = store.apply(Plan(ANA, (), episodes=(EpisodeDraft(episode("a")), EpisodeDraft(episode("b", 1)))))
        assert applied.outcomes == ()
        assert ids(list_episodes(episodes)) == ["b", "a"]
        assert store.apply(Plan(ANA, ())).seq == applied.seq

    def test_episodes_of_a_plan_are_joined_and_trimmed_like_any_other(
        self, store: ItemStore, episodes: Episodes
    ) -> None:
        most = TIERS["episodic"].max_items or 0
        episodes.add(ANA, episode("first", 1, key="k", importance=0.9))
        happenings = [episode_over(refer_to_step(0), key="k", hours=2), EpisodeDraft(episode("last", 3, key="k"))]
        happenings += [EpisodeDraft(episode(f"{n:04}", -n)) for n in range(most + 5)]
        add_message(store, "Again.", *happenings)
        found = episodes.recent(ANA, "s", 9_999, START)
        assert (found[0].id, found[0].count, found[0].importance) == ("last", 3, 0.9)
        assert ids(found[1:]) == [f"{n:04}" for n in range(most - 1)]

    def test_a_plan_that_fails_leaves_no_episode(self, store: ItemStore, episodes: Episodes) -> None:
        before = episodes.add(ANA, episode("before", key="k"))
        steps = (Add(message("Said.")), Change("nothing", pinned=True))
        with pytest.raises(NotFound):
            store.apply(Plan(ANA, steps, episodes=(episode_over(refer_to_step(0), key="k"),)))
        with pytest.raises(Conflict):
            add_message(store, "Said.", episode_over(refer_to_step(0), key="k"), expect=("monday", 7))
        assert (list_episodes(episodes), list_items(store)) == ([before], [])

    @pytest.mark.parametrize("unknown", ["nothing", "", refer_to_step(1), refer_to_step(7)])
    def test_an_episode_over_an_unknown_item_is_refused(
        self, store: ItemStore, episodes: Episodes, unknown: str
    ) -> None:
        with pytest.raises(NotFound):
            add_message(store, "Said.", episode_over(refer_to_step(0)), episode_over(unknown, "x"))
        with pytest.raises(NotFound):
            episodes.add(ANA, episode_over(unknown, "x").episode)
        assert (list_episodes(episodes), list_items(store)) == ([], [])

    def test_an_episode_over_a_foreign_item_is_refused(self, store: ItemStore, episodes: Episodes) -> None:
        (foreign,) = add(store, message("Ben's."), scope=BEN)
        with pytest.raises(NotFound):
            add_message(store, "Said.", episode_over(foreign))
        with pytest.raises(NotFound):
            episodes.add(ANA, episode_over(foreign, "x").episode)
        assert episodes.add(BEN, episode_over(foreign, "x").episode).item == foreign
        assert list_episodes(episodes) == []

    def test_an_episode_with_neither_id_nor_item_is_refused(self, store: ItemStore, episodes: Episodes) -> None:
        with pytest.raises(InvalidInput):
            add_message(store, "Said.", EpisodeDraft(episode("")))
        assert (list_episodes(episodes), list_items(store)) == ([], [])

    def test_what_is_kept_out_has_no_episode(self, store: ItemStore, episodes: Episodes) -> None:
        (gone,) = add(store, fact("Secret."))
        forget(store, gone)
        steps = (Add(derived("Secret.")), Add(message("Said.")), Add(derived("So.", Citation(refer_to_step(0)))))
        happenings = (
            episode_over(refer_to_step(0)),
            episode_over(refer_to_step(1)),
            episode_over(refer_to_step(2)),
            episode_over(refer_to_step(0), "named"),
        )
        outcomes = store.apply(Plan(ANA, steps, episodes=happenings)).outcomes
        assert [outcome.status for outcome in outcomes] == ["kept_out", "added", "kept_out"]
        assert ids(list_episodes(episodes)) == [outcomes[1].id]

    def test_what_is_gone_has_no_episode(self, store: ItemStore, episodes: Episodes) -> None:
        (old,) = add(store, message("Old."))
        steps = (Change(old, pinned=True), Forget(old))
        store.apply(
            Plan(ANA, steps, episodes=(episode_over(refer_to_step(0), "a"), episode_over(refer_to_step(1), "b")))
        )
        once = Plan(ANA, (Add(message("Said."), "line 1"),), episodes=(episode_over(refer_to_step(0)),))
        (outcome,) = store.apply(once).outcomes
        forget(store, outcome.id or "")
        assert store.apply(once).outcomes[0].status == "repeated"
        assert list_episodes(episodes) == []

    # Repeats

    def test_a_repeated_plan_adds_no_episode(self, store: ItemStore, episodes: Episodes) -> None:
        happenings = (episode_over(refer_to_step(0), key="k"), EpisodeDraft(episode("alone", 1), raw()))
        first = add_message(store, "Hello.", *happenings, request_id="r")
        before = list_episodes(episodes)
        assert add_message(store, "Hello.", *happenings, request_id="r") == replace(first, repeated=True)
        assert list_episodes(episodes) == before
        episodes.remove(ANA, [one.id for one in before])
        add_message(store, "Hello.", *happenings, request_id="r")
        assert list_episodes(episodes) == []

    def test_a_step_that_is_done_adds_no_episode(
        self, store: ItemStore, episodes: Episodes, journal: TaskJournal
    ) -> None:
        lease = journal.claim(Claim(ANA, "t", "me", 60.0, "goal", "1"))
        start = StepStart("note", 0, "memory", "{}", "key", "1")
        record = StepWrite(lease, start, StepEnd("note", 0, "done"))
        assert not add_message(store, "Noted.", episode_over(refer_to_step(0), key="k"), record=record).repeated
        before = list_episodes(episodes)
        assert add_message(store, "Noted.", episode_over(refer_to_step(0), key="k"), record=record).repeated
        assert list_episodes(episodes) == before
        assert before[0].count == 1

    def test_a_message_at_its_place_again_has_one_episode(self, store: ItemStore, episodes: Episodes) -> None:
        plan = Plan(ANA, (Add(message("Hello.", number=3)),), episodes=(episode_over(refer_to_step(0), key="k"),))
        assert [store.apply(plan).outcomes[0].status for _ in range(2)] == ["added", "repeated"]
        assert [episode.count for episode in list_episodes(episodes)] == [1]

    # Forgetting

    def test_forgetting_an_item_takes_its_episodes_along(self, store: ItemStore, episodes: Episodes) -> None:
        (outcome,) = add_message(
            store,
            "Secret.",
            episode_over(refer_to_step(0), raw=raw()),
            episode_over(refer_to_step(0), "second", raw=raw()),
        ).outcomes
        add_message(store, "Kept.", episode_over(refer_to_step(0), "third", raw=raw()))
        (foreign,) = store.apply(
            Plan(BEN, (Add(message("Ben's.")),), episodes=(episode_over(refer_to_step(0), "second", raw()),))
        ).outcomes
        forget(store, outcome.id or "")
        assert ids(list_episodes(episodes)) == ["third"]
        found = [episodes.raw(ANA, id, START) for id in (outcome.id or "", "second", "third")]
        assert found == [None, None, "All of it."]
        assert [episode.item for episode in episodes.recent(BEN, None, 9, START)] == [foreign.id]
        assert episodes.raw(BEN, "second", START) == "All of it."

    def test_episodes_over_what_was_derived_or_corrected_go_too(self, store: ItemStore, episodes: Episodes) -> None:
        (said,) = add_message(store, "The code is 1111.").outcomes
        steps = (Add(derived("A code.", Citation(said.id or ""))),)
        store.apply(Plan(ANA, steps, episodes=(episode_over(refer_to_step(0)),)))
        right = correct(store, said.id or "", message("The code is 2222.", number=0))
        episodes.add(ANA, episode_over(right.id or "", "right").episode)
        assert len(list_episodes(episodes)) == 3
        forget(store, right.id or "")
        assert list_episodes(episodes) == []

    def test_cutting_an_item_takes_its_episodes_along(self, store: ItemStore, episodes: Episodes) -> None:
        (said,) = add_message(store, "I live in Lima.", episode_over(refer_to_step(0), raw=raw())).outcomes
        for keep_source, left in ((True, 1), (False, 0)):
            (made,) = add(store, derived(f"Lives in Lima {keep_source}.", Citation(said.id or "", 10, 14)))
            forget(store, made, keep_source)
            assert len(list_episodes(episodes)) == left
        assert episodes.raw(ANA, said.id or "", START) is None
        episodes.add(ANA, episode_over(said.id or "", said.id or "").episode)  # what is left may be shown
        assert episodes.raw(ANA, said.id or "", START) is None

    def test_an_episode_that_joined_another_stays_when_that_one_s_item_goes(
        self, store: ItemStore, episodes: Episodes
    ) -> None:
        (first,) = add_message(store, "Again?", episode_over(refer_to_step(0), key="k", raw=raw())).outcomes
        add_message(store, "Again!", episode_over(refer_to_step(0), "second", hours=1, key="k"))
        forget(store, first.id or "")
        assert [(episode.id, episode.count) for episode in list_episodes(episodes)] == [("second", 2)]

    def test_the_bytes_of_what_was_removed_are_purged(self, store: ItemStore, episodes: Episodes) -> None:
        (outcome,) = add_message(
            store, "Secret.", episode_over(refer_to_step(0), raw=raw("Secret at length."))
        ).outcomes
        episodes.add(ANA, episode("alone", text="Secret too."), raw("Secret as well."))
        assert episodes.remove(ANA, ["alone", outcome.id or ""]) == 2
        assert store.purge()
        assert not store.status().purge_pending
        assert texts(list_items(store)) == ["Secret."]

    # Items and episodes are two things

    def test_episodes_are_no_items(self, store: ItemStore, episodes: Episodes) -> None:
        (outcome,) = add_message(store, "Hello.").outcomes
        before = (
            store.changes(ANA, 0, 99),
            store.status().items,
            list_items(store, history=True),
            store.outbox("t", 9),
        )
        episodes.add(ANA, episode("alone"), raw())
        episodes.add(ANA, episode_over(outcome.id or "", "over").episode)
        store.apply(Plan(ANA, (), episodes=(EpisodeDraft(episode("planned"), raw()),)))
        episodes.remove(ANA, ["over"])
        episodes.expire(START + timedelta(days=9))
        after = (store.changes(ANA, 0, 99), store.status().items, list_items(store, history=True), store.outbox("t", 9))
        assert after == before
        assert store.rebuild() == 1
        assert len(list_episodes(episodes)) == 3
        assert not [fault for fault in store.check() if fault.state == "fail"]

    def test_a_closed_store_has_no_episodes(self, store: ItemStore, episodes: Episodes) -> None:
        store.close()
        calls: list[Callable[[], Any]] = [
            lambda: episodes.add(ANA, episode("a")),
            lambda: episodes.recent(ANA, None, 1, START),
            lambda: episodes.raw(ANA, "a", START),
            lambda: episodes.remove(ANA, ["a"]),
            lambda: episodes.trim(ANA, "s", 1),
            lambda: episodes.expire(START),
        ]
        for call in calls:
            with pytest.raises(StoreClosed):
                call()
