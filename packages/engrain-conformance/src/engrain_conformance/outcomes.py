"""Tests of the Outcomes port: each task counts once for a version, and goes with the version."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from engrain.core.errors import NotFound, StoreClosed
from engrain.core.model.items import Citation
from engrain.core.model.procedures import Tally, Trial
from engrain.ports.items import ItemStore
from engrain.ports.sessions import Outcomes
from engrain_conformance.clock import START
from engrain_conformance.drafts import ANA, BEN, HOSTILE, add, correct, derived, fact, forget, hostile_scopes
from engrain_conformance.suite import Suite

MINUTE = timedelta(minutes=1)


def trial(procedure: str, task: str, success: bool = True, minutes: float = 0, note: str = "") -> Trial:
    return Trial(procedure, task, success, START + minutes * MINUTE, note)


def procedure(store: ItemStore, text: str = "Bake, then wait.", **values: Any) -> str:
    (id,) = add(store, fact(text, kind="procedure", **values))
    return id


class OutcomesSuite(Suite):
    def test_a_task_counts_once_and_the_first_word_stands(self, store: ItemStore, outcomes: Outcomes) -> None:
        id = procedure(store)
        first = trial(id, "t", success=False, note='It burnt: it\'s "black" 😀.')
        assert outcomes.count(ANA, first)
        for again in (first, replace(first, success=True, at=START + MINUTE, note="No, it was fine.")):
            assert not outcomes.count(ANA, again)
        assert outcomes.trials(ANA, id, 9) == [first]
        assert outcomes.tallies(ANA, [id]) == {id: Tally(0, 1, START)}

    def test_a_task_counts_for_every_version_it_used(self, store: ItemStore, outcomes: Outcomes) -> None:
        old = procedure(store, slot="bake")
        new = procedure(store, "Wait, then bake.", slot="bake")
        right = correct(store, new, fact("Wait, then bake it.")).id or ""
        for id in (old, new, right):
            assert outcomes.count(ANA, trial(id, "t"))
        assert outcomes.tallies(ANA, [old, new, right]) == {id: Tally(1, 0, START) for id in (old, new, right)}

    def test_successes_and_failures_are_summed(self, store: ItemStore, outcomes: Outcomes) -> None:
        one, two, never = (procedure(store, f"Way {n}.") for n in range(3))
        for n in range(7):
            outcomes.count(ANA, trial(one, f"task {n}", n % 3 == 0, -n))
        outcomes.count(ANA, trial(two, "task 0", minutes=0.5))
        assert outcomes.tallies(ANA, [two, never, one, "nothing", two]) == {
            one: Tally(3, 4, START),
            two: Tally(1, 0, START + MINUTE / 2),
        }
        assert outcomes.tallies(ANA, []) == {}

    def test_the_newest_trials_come_first(self, store: ItemStore, outcomes: Outcomes) -> None:
        id = procedure(store)
        made = [trial(id, task, minutes=minutes) for task, minutes in (("b", 1), ("a", 2), ("d", 0), ("c", 1))]
        for one in made:
            outcomes.count(ANA, one)
        assert [trial.task for trial in outcomes.trials(ANA, id, 9)] == ["a", "c", "b", "d"]
        assert [trial.task for trial in outcomes.trials(ANA, id, 2)] == ["a", "c"]
        assert outcomes.trials(ANA, id, 0) == outcomes.trials(ANA, "nothing", 9) == []

    def test_what_is_not_there_was_not_tried(self, store: ItemStore, outcomes: Outcomes) -> None:
        foreign = procedure(store)
        gone = procedure(store, "Gone.")
        forget(store, gone)
        for scope, id in ((ANA, "nothing"), (ANA, ""), (ANA, gone), (BEN, foreign)):
            with pytest.raises(NotFound):
                outcomes.count(scope, trial(id, "t"))
        assert outcomes.tallies(ANA, [foreign, gone]) == outcomes.tallies(BEN, [foreign]) == {}

    def test_forgetting_a_version_takes_its_trials_along(self, store: ItemStore, outcomes: Outcomes) -> None:
        said, kept = procedure(store, "Say it."), procedure(store, "Keep it.")
        (made,) = add(store, derived("Do it.", Citation(said), kind="procedure"))
        for id in (said, kept, made):
            outcomes.count(ANA, trial(id, "t", note="secret"))
        forget(store, said)
        assert outcomes.tallies(ANA, [said, kept, made]) == {kept: Tally(1, 0, START)}
        assert outcomes.trials(ANA, said, 9) == outcomes.trials(ANA, made, 9) == []

    def test_counting_changes_no_item(self, store: ItemStore, outcomes: Outcomes) -> None:
        id = procedure(store)
        before = (store.changes(ANA, 0, 9), store.get_many(ANA, [id]))
        outcomes.count(ANA, trial(id, "t"))
        assert (store.changes(ANA, 0, 9), store.get_many(ANA, [id])) == before

    def test_of_many_who_count_the_same_task_one_does(self, store: ItemStore, outcomes: Outcomes) -> None:
        id = procedure(store)
        with ThreadPoolExecutor(8) as pool:
            counted = list(pool.map(lambda n: outcomes.count(ANA, trial(id, f"t{n % 4}", n % 2 == 0)), range(32)))
        assert sum(counted) == len(outcomes.trials(ANA, id, 99)) == 4

    def test_another_handle_sees_it_at_once(
        self, store: ItemStore, outcomes: Outcomes, another: Callable[[], Any]
    ) -> None:
        id = procedure(store)
        other = another().outcomes
        assert other.count(ANA, trial(id, "t"))
        assert not outcomes.count(ANA, trial(id, "t"))
        assert outcomes.tallies(ANA, [id]) == other.tallies(ANA, [id]) == {id: Tally(1, 0, START)}

    # The wall

    def test_the_scope_is_never_crossed(self, store: ItemStore, outcomes: Outcomes) -> None:
        own = {}
        for n, scope in enumerate(hostile_scopes()):
            (own[scope],) = add(store, fact("The same.", kind="procedure"), scope=scope)
            for task in range(n % 3 + 1):
                assert outcomes.count(scope, trial(own[scope], f"{task}", note=f"of {n}"))
        for n, (scope, id) in enumerate(own.items()):
            assert outcomes.tallies(scope, list(own.values())) == {id: Tally(n % 3 + 1, 0, START)}
            assert {trial.note for trial in outcomes.trials(scope, id, 9)} == {f"of {n}"}

    def test_a_task_may_have_any_name(self, store: ItemStore, outcomes: Outcomes) -> None:
        id = procedure(store)
        for name in HOSTILE:
            assert outcomes.count(ANA, trial(id, name, note=name))
            assert not outcomes.count(ANA, trial(id, name))
        assert [trial.task for trial in outcomes.trials(ANA, id, 99)] == sorted(HOSTILE, reverse=True)
        for name in HOSTILE:
            assert outcomes.tallies(ANA, [name]) == {}

    def test_a_closed_store_counts_nothing(self, store: ItemStore, outcomes: Outcomes) -> None:
        id = procedure(store)
        store.close()
        calls: list[Callable[[], Any]] = [
            lambda: outcomes.count(ANA, trial(id, "t")),
            lambda: outcomes.tallies(ANA, [id]),
            lambda: outcomes.trials(ANA, id, 1),
        ]
        for call in calls:
            with pytest.raises(StoreClosed):
                call()
