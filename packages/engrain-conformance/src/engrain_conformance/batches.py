"""Tests of apply_many: plans of several scopes at once, each with its own outcome."""

from __future__ import annotations

import threading
from dataclasses import replace

from engrain.core.errors import Conflict, EngrainError, NotFound
from engrain.core.identity import Scope
from engrain.core.model.items import Citation, Draft
from engrain.core.model.plans import Add, Applied, Plan
from engrain.ports.items import ItemStore
from engrain_conformance.drafts import ANA, BEN, add, derived, fact, list_items, message, texts
from engrain_conformance.suite import Suite


def plan(draft: Draft, scope: Scope = ANA, request_id: str | None = None) -> Plan:
    return Plan(scope, (Add(draft),), request_id)


def list_statuses(answers: list[Applied | EngrainError]) -> list[object]:
    return [type(answer) if isinstance(answer, EngrainError) else answer.outcomes[0].status for answer in answers]


class BatchSuite(Suite):
    def test_plans_of_several_scopes_are_applied_in_their_order(self, store: ItemStore) -> None:
        users = [Scope(user=f"user-{number}") for number in range(5)]
        plans = [plan(message(f"Turn {turn}."), user) for turn in range(4) for user in users]
        answers = store.apply_many(plans)
        places = [answer.outcomes[0].place for answer in answers if isinstance(answer, Applied)]
        assert places == [turn for turn in range(4) for _ in users]
        for user in users:
            assert sorted(texts(list_items(store, user))) == [f"Turn {turn}." for turn in range(4)]

    def test_a_plan_that_fails_changes_nothing_and_fails_no_other(self, store: ItemStore) -> None:
        lonely = derived("Rests on nothing.", Citation("gone"))
        stale = Plan(BEN, (Add(message("Late.")),), expect=("monday", 7))
        half = Plan(ANA, (Add(fact("Half.")), Add(lonely)))
        answers = store.apply_many([plan(fact("One.")), half, stale, plan(lonely, BEN), plan(fact("Two."))])
        assert list_statuses(answers) == ["added", NotFound, Conflict, NotFound, "added"]
        assert sorted(texts(list_items(store))) == ["One.", "Two."]
        assert list_items(store, BEN) == []

    def test_later_plans_see_what_earlier_ones_wrote(self, store: ItemStore) -> None:
        first = plan(fact("Tea.", slot="user.drink"), request_id="r")
        other = plan(fact("Coffee.", slot="user.drink"))
        answers = store.apply_many([first, first, other, plan(fact("Milk."), request_id="r"), other])
        assert list_statuses(answers) == ["added", "added", "replaced", Conflict, "repeated"]
        answer, again = answers[:2]
        assert isinstance(answer, Applied)
        assert again == replace(answer, repeated=True)

    def test_more_plans_than_one_transaction_takes(self, store: ItemStore) -> None:
        users = [Scope(user=f"user-{number}") for number in range(7)]
        answers = store.apply_many([plan(fact(f"Fact {number}."), users[number % 7]) for number in range(600)])
        assert list_statuses(answers) == ["added"] * 600
        assert sum(len(list_items(store, user, limit=1_000)) for user in users) == 600
        assert store.apply_many([]) == []

    def test_batches_of_several_threads_lose_nothing(self, store: ItemStore) -> None:
        def work(name: int) -> None:
            for start in range(0, 40, 10):
                plans = [
                    plan(fact(f"Fact {number} of {name}."), Scope(user=f"u{name}"))
                    for number in range(start, start + 10)
                ]
                found[name] += list_statuses(store.apply_many(plans))
                add(store, fact(f"Single {start} of {name}."))

        found: list[list[object]] = [[] for _ in range(4)]
        threads = [threading.Thread(target=work, args=(name,)) for name in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert found == [["added"] * 40] * 4
        assert [len(list_items(store, Scope(user=f"u{name}"))) for name in range(4)] == [40] * 4
        assert len(list_items(store)) == 16
