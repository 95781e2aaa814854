"""Tests of requests: a repeated one gets the first answer and changes nothing."""

from __future__ import annotations

import threading
from datetime import timedelta

import pytest

from engrain.core.errors import Conflict
from engrain.core.model.plans import Add, Applied, Change, Correct, Outcome, Plan, Request
from engrain.ports.items import ItemStore
from engrain_conformance.clock import SetClock
from engrain_conformance.drafts import ANA, BEN, add, fact, forget, list_items, texts
from engrain_conformance.suite import Suite

ASKED = Request("r", "this")


class RequestSuite(Suite):
    def test_a_write_is_done_once(self, store: ItemStore) -> None:
        def do() -> Applied:
            return Applied(tuple(Outcome(id, "added") for id in add(store, fact("Tea."), fact("Rain."))), value=[True])

        assert store.answer(ANA, ASKED) is None
        first = store.once(ANA, ASKED, do)
        again = store.once(ANA, ASKED, lambda: pytest.fail("it is done already"))
        assert not first.repeated
        assert again.repeated
        assert (again.outcomes, again.value) == (first.outcomes, first.value) == (first.outcomes, [True])
        assert store.answer(ANA, ASKED) == again
        assert len(list_items(store)) == 2

    def test_an_error_keeps_nothing_of_it(self, store: ItemStore) -> None:
        def do() -> Applied:
            add(store, fact("Tea."))
            raise ZeroDivisionError

        with pytest.raises(ZeroDivisionError):
            store.once(ANA, ASKED, do)
        assert list_items(store) == []
        assert not store.once(ANA, ASKED, Applied).repeated

    def test_all_that_it_writes_is_one_transaction(self, store: ItemStore) -> None:
        half_done = threading.Event()
        seen: list[list[str]] = []

        def look() -> None:
            half_done.wait(10)
            seen.append(texts(list_items(store)))

        def do() -> Applied:
            add(store, fact("One."))
            half_done.set()
            reader.join(0.5)
            add(store, fact("Two."))
            return Applied()

        reader = threading.Thread(target=look)
        reader.start()
        store.once(ANA, ASKED, do)
        reader.join(30)
        assert seen in ([[]], [["Two.", "One."]])

    def test_what_runs_in_a_transaction_is_written_together_or_not_at_all(self, store: ItemStore) -> None:
        def add_and_fail() -> None:
            add(store, fact("Tea."))
            assert texts(list_items(store)) == ["Tea.", "Rain."]  # it reads what it wrote
            raise ZeroDivisionError

        assert len(store.in_transaction(lambda: add(store, fact("Rain.")))) == 1
        with pytest.raises(ZeroDivisionError):
            store.in_transaction(add_and_fail)
        assert texts(list_items(store)) == ["Rain."]

    def test_without_a_request_it_is_done_every_time(self, store: ItemStore) -> None:
        assert [store.once(ANA, None, Applied).repeated for _ in range(2)] == [False, False]
        assert store.answer(ANA, None) is None

    def test_an_id_is_for_one_request_of_one_scope(self, store: ItemStore) -> None:
        store.once(ANA, ASKED, Applied)
        with pytest.raises(Conflict):
            store.once(ANA, Request("r", "that"), Applied)
        with pytest.raises(Conflict):
            store.answer(ANA, Request("r", "that"))
        with pytest.raises(Conflict):
            store.apply(Plan(ANA, (Add(fact("Tea.")),), request_id="r"))
        assert not store.once(BEN, Request("r", "that"), Applied).repeated

    def test_a_plan_may_say_what_was_asked(self, store: ItemStore) -> None:
        (old,) = add(store, fact("Lima."))
        changed = store.apply(Plan(ANA, (Change(old, importance=0.9),), "u", asked="change it"))
        correction = Plan(ANA, (Correct(old, fact("Quito.")),), "c", asked="correct it")
        forget(store, store.apply(correction).outcomes[0].id or "")
        assert store.answer(ANA, Request("c", "correct it")) == store.apply(correction)
        assert store.apply(Plan(ANA, (), "u", asked="change it")).outcomes == changed.outcomes
        with pytest.raises(Conflict):
            store.answer(ANA, Request("c", "correct something else"))

    def test_an_old_answer_is_dropped_but_not_that_of_an_import(self, store: ItemStore, clock: SetClock) -> None:
        imported = Add(fact("Tea.", occurred_at=clock()), "import-1")
        store.once(ANA, ASKED, Applied)
        store.apply(Plan(ANA, (imported,), request_id="plan"))
        clock.advance(2 * 86_400)
        store.once(ANA, Request("new", "this"), Applied)
        assert store.drop_answers(clock() - timedelta(days=3)) == 0
        assert store.drop_answers(clock() - timedelta(days=1)) == 2
        assert store.drop_answers(clock() - timedelta(days=1)) == 0
        assert store.answer(ANA, ASKED) is None
        assert store.answer(ANA, Request("new", "this"))
        assert store.apply(Plan(ANA, (imported,), request_id="plan")).outcomes[0].status == "repeated"
        assert len(list_items(store)) == 1
