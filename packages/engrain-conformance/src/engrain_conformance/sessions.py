"""Tests of the SessionLog port: consecutive numbers, compare-and-set, and a summary with its cut-off."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from engrain.core.errors import Conflict
from engrain.core.model.items import Citation, Draft, SessionPosition
from engrain.core.model.plans import Add, Forget, Plan
from engrain.core.model.queries import Summary, UnprocessedSession
from engrain.ports.items import ItemStore
from engrain.ports.sessions import SessionLog
from engrain_conformance.clock import SetClock
from engrain_conformance.drafts import (
    ANA,
    BEN,
    HOSTILE,
    add,
    add_one,
    append_messages,
    correct,
    derived,
    fact,
    forget,
    get_item,
    hostile_scopes,
    list_items,
    message,
    texts,
    word_query,
)
from engrain_conformance.suite import Suite


def message_draft(text: str, **values: Any) -> Draft:
    """A message that leaves its place to the log."""
    return fact(text, kind="message", **values)


class SessionLogSuite(Suite):
    def test_messages_are_numbered_one_after_the_other(self, log: SessionLog) -> None:
        first = append_messages(log, ANA, "s", [message_draft("a"), message_draft("b")], None)
        second = append_messages(log, ANA, "s", [message_draft("c")], None)
        assert [outcome.place for outcome in (*first.outcomes, *second.outcomes)] == [0, 1, 2]
        assert {outcome.status for outcome in (*first.outcomes, *second.outcomes)} == {"added"}
        assert first.seq < second.seq
        assert (log.length(ANA, "s"), log.length(ANA, "unknown")) == (3, 0)
        assert append_messages(log, ANA, "s", [], None).outcomes == ()

    def test_the_same_words_twice_are_two_messages(self, log: SessionLog) -> None:
        append_messages(log, ANA, "s", [message_draft("Yes."), message_draft("Yes.")], None)
        append_messages(log, ANA, "s", [message_draft("Yes.")], None)
        assert texts(log.read(ANA, "s", 0, 10)) == ["Yes."] * 3

    def test_speaker_and_role_are_kept(self, store: ItemStore, log: SessionLog) -> None:
        (outcome,) = append_messages(
            log, ANA, "s", [message_draft("Hi.", position=SessionPosition("s", None, "Zoe", "user"))], None
        ).outcomes
        (item,) = log.read(ANA, "s", 0, 10)
        assert (item.id, item.kind, item.session, item.place) == (outcome.id, "message", "s", 0)
        assert (item.speaker, item.role) == ("Zoe", "user")
        assert get_item(store, outcome.id) == item

    def test_the_expected_length_is_compared(self, log: SessionLog) -> None:
        append_messages(log, ANA, "s", [message_draft("a"), message_draft("b")], 0)
        for wrong in (0, 1, 3):
            with pytest.raises(Conflict):
                append_messages(log, ANA, "s", [message_draft("c")], wrong)
        append_messages(log, ANA, "s", [message_draft("c")], 2)
        assert texts(log.read(ANA, "s", 0, 10)) == ["a", "b", "c"]

    def test_of_two_who_expect_the_same_one_wins(self, log: SessionLog) -> None:
        def write(n: int) -> bool:
            try:
                append_messages(log, ANA, "s", [message_draft(f"{n}a"), message_draft(f"{n}b")], 0)
            except Conflict:
                return False
            return True

        with ThreadPoolExecutor(8) as pool:
            assert sum(pool.map(write, range(8))) == 1
        assert log.length(ANA, "s") == 2

    def test_concurrent_writers_share_no_number(self, log: SessionLog) -> None:
        with ThreadPoolExecutor(8) as pool:
            done = list(
                pool.map(
                    lambda n: append_messages(log, ANA, "s", [message_draft(f"{n}a"), message_draft(f"{n}b")], None),
                    range(16),
                )
            )
        places = [[outcome.place or 0 for outcome in one.outcomes] for one in done]
        assert sorted(place for pair in places for place in pair) == list(range(32))
        assert all(second == first + 1 for first, second in places)

    def test_messages_are_read_in_order(self, log: SessionLog, clock: SetClock) -> None:
        for n in range(12):
            append_messages(log, ANA, "s", [message_draft(str(n))], None)
            clock.advance(-5)
        assert texts(log.read(ANA, "s", 0, 100)) == [str(n) for n in range(12)]
        assert texts(log.read(ANA, "s", 3, 4)) == ["3", "4", "5", "6"]
        assert texts(log.read(ANA, "s", 11, 4)) == ["11"]
        assert log.read(ANA, "s", 12, 4) == log.read(ANA, "unknown", 0, 4) == log.read(ANA, "s", 0, 0) == []
        assert texts(log.last(ANA, "s", 3)) == ["9", "10", "11"]
        assert len(log.last(ANA, "s", 100)) == 12
        assert log.last(ANA, "s", 0) == log.last(ANA, "unknown", 4) == []

    def test_a_text_added_with_a_place_is_in_the_log(self, store: ItemStore, log: SessionLog) -> None:
        add(
            store,
            message("first", "s"),
            fact("A fact said here.", position=SessionPosition("s")),
            message("tenth", "s", 10),
        )
        assert log.length(ANA, "s") == 11
        assert [(item.text, item.place) for item in log.read(ANA, "s", 0, 10)] == [("first", 0), ("tenth", 10)]
        assert append_messages(log, ANA, "s", [message_draft("next")], 11).outcomes[0].place == 11

    def test_a_forgotten_message_leaves_its_number(self, store: ItemStore, log: SessionLog) -> None:
        outcomes = append_messages(
            log, ANA, "s", [message_draft("a"), message_draft("b"), message_draft("c")], None
        ).outcomes
        forget(store, outcomes[2].id or "")
        forget(store, outcomes[0].id or "")
        assert log.length(ANA, "s") == 3
        assert texts(log.read(ANA, "s", 0, 10)) == texts(log.last(ANA, "s", 2)) == ["b"]
        assert append_messages(log, ANA, "s", [message_draft("d")], 3).outcomes[0].place == 3

    def test_a_corrected_message_is_read_as_corrected(self, store: ItemStore, log: SessionLog) -> None:
        outcomes = append_messages(
            log, ANA, "s", [message_draft("a"), message_draft("b"), message_draft("c")], None
        ).outcomes
        correct(store, outcomes[1].id or "", message_draft("B"))
        assert texts(log.read(ANA, "s", 0, 10)) == ["a", "B", "c"]
        assert texts(log.last(ANA, "s", 2)) == ["B", "c"]
        assert log.length(ANA, "s") == 3

    def test_a_forgotten_text_is_not_replayed(self, store: ItemStore, log: SessionLog) -> None:
        (outcome,) = append_messages(log, ANA, "s", [message_draft("Secret.")], None).outcomes
        forget(store, outcome.id or "")
        replay = [
            message_draft("a", derived=True),
            message_draft("Secret.", derived=True),
            message_draft("b", derived=True),
        ]
        outcomes = append_messages(log, ANA, "t", replay, None).outcomes
        assert [(outcome.status, outcome.place) for outcome in outcomes] == [
            ("added", 0),
            ("kept_out", None),
            ("added", 1),
        ]

    def test_messages_are_items_like_any_other(self, store: ItemStore, log: SessionLog, words: Any) -> None:
        (outcome,) = append_messages(log, ANA, "s", [message_draft("Some tea, please.")], None).outcomes
        assert texts(list_items(store)) == ["Some tea, please."]
        assert [hit.id for hit in words.best(word_query("tea")).hits] == [outcome.id]
        assert outcome.id in {change.id for change in store.changes(ANA, 0, 10).changes}

    def test_sessions_come_last_written_first(self, store: ItemStore, log: SessionLog) -> None:
        for session in ("a", "b", "c", "a"):
            append_messages(log, ANA, session, [message_draft("x")], None)
        append_messages(log, BEN, "d", [message_draft("x")], None)
        assert log.sessions(ANA, 10) == ["a", "c", "b"]
        assert log.sessions(ANA, 2) == ["a", "c"]
        add(store, message("y", "b"))
        assert log.sessions(ANA, 10) == ["b", "a", "c"]
        forget(store, log.read(ANA, "c", 0, 1)[0].id)
        assert log.sessions(ANA, 10) == ["b", "a"]
        (first, _) = log.read(ANA, "b", 0, 9)
        correct(store, first.id, message_draft("z"))
        assert log.sessions(ANA, 10) == ["b", "a"]
        for item in log.read(ANA, "b", 0, 9):
            forget(store, item.id)
        assert log.sessions(ANA, 10) == ["a"]

    # Summaries

    def test_a_summary_is_stored_version_by_version(self, log: SessionLog) -> None:
        append_messages(log, ANA, "s", [message_draft("a"), message_draft("b"), message_draft("c")], None)
        assert log.summary(ANA, "s") is None
        for wrong in (0, 2):
            with pytest.raises(Conflict):
                log.summarize(ANA, "s", Summary("Wrong.", 1, wrong))
        log.summarize(ANA, "s", Summary("A.", 1, 1))
        with pytest.raises(Conflict):
            log.summarize(ANA, "s", Summary("Also A.", 1, 1))
        log.summarize(ANA, "s", Summary("A and b.", 2, 2, "digest"))
        with pytest.raises(Conflict):
            log.summarize(ANA, "s", Summary("Late.", 1, 2))
        assert log.summary(ANA, "s") == Summary("A and b.", 2, 2, "digest")
        log.summarize(ANA, "s", Summary("", 3, 3, "it's a model"))
        assert log.summary(ANA, "s") == Summary("", 3, 3, "it's a model")
        log.summarize(ANA, "s", Summary("D.", 3, 4))
        assert log.summary(ANA, "s") == Summary("D.", 3, 4)
        assert log.summary(ANA, "other") is log.summary(BEN, "s") is None

    def test_forgetting_what_a_summary_covers_takes_its_text(self, store: ItemStore, log: SessionLog) -> None:
        outcomes = append_messages(
            log, ANA, "s", [message_draft("a secret"), message_draft("b"), message_draft("c")], None
        ).outcomes
        log.summarize(ANA, "s", Summary("A secret and b.", 2, 1, "model"))
        forget(store, outcomes[2].id or "")
        assert log.summary(ANA, "s") == Summary("A secret and b.", 2, 2, "model")
        made = add_one(store, derived("Made.", Citation(outcomes[0].id or "", 2, 8)))
        forget(store, made.id or "")
        assert log.summary(ANA, "s") == Summary("", 0, 3)
        log.summarize(ANA, "s", Summary("Again.", 2, 4))
        forget(store, outcomes[1].id or "")
        assert log.summary(ANA, "s") == Summary("", 0, 5)

    def test_a_summary_of_what_was_forgotten_meanwhile_is_refused(self, store: ItemStore, log: SessionLog) -> None:
        """Also where the forgotten words are behind the cut-off of the stored one, or where none was stored yet."""
        outcomes = append_messages(
            log, ANA, "s", [message_draft("a"), message_draft("b secret"), message_draft("c"), message_draft("d")], None
        ).outcomes
        forget(store, outcomes[3].id or "")
        for late in (1, 3):
            with pytest.raises(Conflict):
                log.summarize(ANA, "s", Summary("A, b secret, c, d.", 4, late))
        assert log.summary(ANA, "s") == Summary("", 0, 1)
        log.summarize(ANA, "s", Summary("A.", 1, 2))
        forget(store, add_one(store, derived("Made.", Citation(outcomes[1].id or "", 2, 8))).id or "")
        with pytest.raises(Conflict):
            log.summarize(ANA, "s", Summary("A, b secret, c.", 3, 3))
        assert log.summary(ANA, "s") == Summary("A.", 1, 3)

    def test_a_version_never_comes_back(self, store: ItemStore, log: SessionLog) -> None:
        """A slow writer who has read version 1 must not be taken for one who has read what stands there now."""
        outcomes = append_messages(
            log, ANA, "s", [message_draft("a"), message_draft("b"), message_draft("c")], None
        ).outcomes
        seen = 0
        for outcome in outcomes:
            log.summarize(ANA, "s", Summary("In sum.", 3, seen + 1))
            forget(store, outcome.id or "")
            stored = log.summary(ANA, "s")
            assert stored is not None
            assert stored.version > seen + 1
            seen = stored.version
        assert log.summary(ANA, "t") is log.summary(BEN, "s") is None

    def test_to_hide_a_fact_alone_changes_no_summary(self, store: ItemStore, log: SessionLog) -> None:
        (first,) = append_messages(log, ANA, "s", [message_draft("a secret")], None).outcomes
        log.summarize(ANA, "s", Summary("A secret.", 1, 1))
        made = add_one(store, derived("Made.", Citation(first.id or "", 2, 8)))
        store.apply(Plan(ANA, (Forget(made.id or "", keep_source=True),)))
        assert log.summary(ANA, "s") == Summary("A secret.", 1, 1)

    def test_a_window_that_was_cleared_stays_so(self, store: ItemStore, log: SessionLog) -> None:
        first, second = append_messages(log, ANA, "s", [message_draft("a secret"), message_draft("b")], None).outcomes
        log.summarize(ANA, "s", Summary("", 2, 1, "digest"))
        forget(store, add_one(store, derived("Made.", Citation(first.id or "", 2, 8))).id or "")
        forget(store, second.id or "")
        assert log.summary(ANA, "s") == Summary("", 2, 3, "digest")
        log.summarize(ANA, "s", Summary("Words.", 2, 4))
        forget(store, first.id or "")
        assert log.summary(ANA, "s") == Summary("", 0, 5)

    def test_a_plan_may_ask_that_nothing_was_forgotten_in_a_session(self, store: ItemStore, log: SessionLog) -> None:
        first = append_messages(log, ANA, "s", [message_draft("a secret"), message_draft("b")], None).outcomes[0]

        def sum_up(version: int) -> None:
            draft = derived(f"In sum, {version}.", Citation(first.id or ""), kind="summary")
            store.apply(Plan(ANA, (Add(draft),), summary_version=("s", version)))

        sum_up(0)
        with pytest.raises(Conflict):
            sum_up(1)
        forget(store, add_one(store, derived("Made.", Citation(first.id or "", 2, 8))).id or "")
        with pytest.raises(Conflict):
            sum_up(0)
        assert not [item for item in list_items(store) if item.kind == "summary"]
        sum_up(1)
        log.summarize(ANA, "s", Summary("B.", 2, 2))
        with pytest.raises(Conflict):
            sum_up(1)
        assert [item.text for item in list_items(store) if item.kind == "summary"] == ["In sum, 1."]

    def test_of_two_who_summarize_one_wins(self, log: SessionLog) -> None:
        append_messages(log, ANA, "s", [message_draft("a")], None)

        def write(n: int) -> bool:
            try:
                log.summarize(ANA, "s", Summary(f"By {n}.", 1, 1))
            except Conflict:
                return False
            return True

        with ThreadPoolExecutor(8) as pool:
            assert sum(pool.map(write, range(8))) == 1

    # Progress

    def test_progress_is_kept_for_each_work_and_never_goes_back(self, log: SessionLog) -> None:
        assert log.progress(ANA, "s", "extract") == 0
        append_messages(log, ANA, "s", [message_draft("a"), message_draft("b")], None)
        assert log.progress(ANA, "s", "extract") == 0
        for upto, seen in ((1, 1), (3, 3), (2, 3), (0, 3), (3, 3), (7, 7)):
            log.advance(ANA, "s", "extract", upto)
            assert log.progress(ANA, "s", "extract") == seen
        log.advance(ANA, "s", "summarise", 1)
        assert (log.progress(ANA, "s", "summarise"), log.progress(ANA, "s", "extract")) == (1, 7)
        assert log.progress(ANA, "t", "extract") == log.progress(BEN, "s", "extract") == 0
        assert log.length(ANA, "s") == 2

    def test_the_sessions_that_some_work_has_not_seen_come_newest_first(
        self, store: ItemStore, log: SessionLog
    ) -> None:
        assert log.behind(ANA, "extract", 9) == []
        for scope, session in ((ANA, "a"), (BEN, "a"), (ANA, "b"), (ANA, "a")):
            append_messages(log, scope, session, [message_draft("x"), message_draft("y")], None)
        log.summarize(ANA, "no messages", Summary("", 0, 1))
        log.advance(ANA, "unknown", "extract", 5)
        a, b, bens = (
            UnprocessedSession(ANA, "a", 0, 4),
            UnprocessedSession(ANA, "b", 0, 2),
            UnprocessedSession(BEN, "a", 0, 2),
        )
        assert log.behind(ANA, "extract", 9) == [a, b]
        assert log.behind(ANA, "extract", 1) == [a]
        assert log.behind(ANA, "extract", 0) == []
        log.advance(ANA, "a", "extract", 3)
        log.advance(ANA, "b", "extract", 2)
        assert log.behind(ANA, "extract", 9) == [UnprocessedSession(ANA, "a", 3, 4)]
        assert log.behind(ANA, "summarise", 9) == [a, b]
        assert log.behind(BEN, "extract", 1) == log.behind(BEN, "summarise", 9) == [bens]
        log.advance(ANA, "a", "extract", 99)
        add(store, message("z", "b"))
        assert log.behind(ANA, "extract", 9) == [UnprocessedSession(ANA, "b", 2, 3)]

    def test_of_many_who_advance_the_furthest_stands(self, log: SessionLog) -> None:
        with ThreadPoolExecutor(8) as pool:
            list(pool.map(lambda n: log.advance(ANA, "s", "extract", n), (5, 31, 2, 30, 9, 17, 31, 1)))
        assert log.progress(ANA, "s", "extract") == 31

    def test_a_work_may_have_any_name(self, log: SessionLog) -> None:
        append_messages(log, ANA, "s", [message_draft("x")] * (len(HOSTILE) + 1), None)
        for n, name in enumerate(HOSTILE):
            log.advance(ANA, "s", name, n + 1)
        for n, name in enumerate(HOSTILE):
            assert log.progress(ANA, "s", name) == n + 1
            assert log.behind(ANA, name, 9) == [UnprocessedSession(ANA, "s", n + 1, len(HOSTILE) + 1)]

    # The wall

    def test_sessions_of_one_name_are_kept_apart(self, log: SessionLog) -> None:
        scopes = hostile_scopes()
        for n, scope in enumerate(scopes):
            append_messages(log, scope, "s", [message_draft(f"of {n}")], 0)
            log.summarize(scope, "s", Summary(f"sum {n}", 1, 1))
            log.advance(scope, "s", "w", n % 2)
        for n, scope in enumerate(scopes):
            assert texts(log.read(scope, "s", 0, 9)) == texts(log.last(scope, "s", 9)) == [f"of {n}"]
            assert log.summary(scope, "s") == Summary(f"sum {n}", 1, 1)
            assert (log.length(scope, "s"), log.sessions(scope, 9)) == (1, ["s"])
            assert log.progress(scope, "s", "w") == n % 2
            assert log.behind(scope, "w", 99) == [UnprocessedSession(scope, "s", 0, 1)] * (n % 2 == 0)

    def test_a_session_may_have_any_name(self, log: SessionLog) -> None:
        for n, name in enumerate(HOSTILE):
            append_messages(log, ANA, name, [message_draft(f"of {n}")], 0)
            log.advance(ANA, name, "w", n)
        for n, name in enumerate(HOSTILE):
            assert texts(log.read(ANA, name, 0, 9)) == [f"of {n}"]
            assert log.progress(ANA, name, "w") == n
        assert log.sessions(ANA, 99) == list(reversed(HOSTILE))
        assert log.behind(ANA, "w", 99) == [UnprocessedSession(ANA, HOSTILE[0], 0, 1)]
