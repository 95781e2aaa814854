"""The task journal in SQLite keeps every contract, and answers random calls like the reference."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from engrain_conformance import MemoryStepSuite, TaskJournalSuite
from engrain_conformance.clock import SetClock
from engrain_conformance.drafts import ANA, BEN
from engrain_conformance.reference import ReferenceStore
from test_sqlite import Sqlite

from engrain.core.errors import EngrainError, LeaseLost
from engrain.core.model.tasks import Claim, Lease, StepEnd, StepStart, TaskEnd, TaskQuery
from engrain.ports.tasks import TaskJournal
from engrain.stores.sqlite import SqliteStore

CALLS = 400


class TestTasks(Sqlite, TaskJournalSuite):
    pass


class TestMemorySteps(Sqlite, MemoryStepSuite):
    pass


@pytest.mark.slow
class InMemory:
    @pytest.fixture
    def store(self, clock: SetClock) -> Iterator[SqliteStore]:
        store = SqliteStore(":memory:", clock=clock)
        yield store
        store.close()


class TestTasksInMemory(InMemory, TaskJournalSuite):
    pass


class TestMemoryStepsInMemory(InMemory, MemoryStepSuite):
    pass


def answer(call: Callable[[TaskJournal], Any], journal: TaskJournal) -> Any:
    try:
        return call(journal)
    except (EngrainError, LeaseLost) as exc:
        return type(exc)


def random_call(chance: random.Random, clock: SetClock, leases: list[Lease]) -> Callable[[TaskJournal], Any]:
    scope, task = chance.choice([ANA, BEN]), chance.choice(["a", "b"])
    name, occurrence = chance.choice(["x", "y"]), chance.choice([0, 1])
    status = chance.choice(["done", "failed", "ambiguous", "skipped"])
    result = chance.choice([None, "1", "long " * 2_000])
    start = StepStart(name, occurrence, "effect", str(chance.random()), "k", "1", chance.choice([1, 1, 2, 3]))
    end = StepEnd(name, occurrence, status, result, chance.choice([None, "why"]), chance.choice([0.0, 1.5]))
    kept = replace(end, snapshot=chance.choice([None, None, name]))
    task_end = TaskEnd(chance.choice(["done", "waiting", "parked", "failed", "running"]), "so")
    deadline = chance.choice([None, clock() + timedelta(seconds=chance.choice([5, 50]))])
    claim = Claim(scope, task, chance.choice(["one", "two"]), 10, "goal", "1", deadline, chance.choice(["", "one"]))
    calls: list[Callable[[TaskJournal], Any]] = [
        lambda journal: journal.claim(claim),
        lambda journal: journal.resolve(scope, task, end),
        lambda journal: journal.signal(scope, task, name, "1"),
        lambda journal: journal.tasks(TaskQuery(None, (), stale=True)),
    ]
    if leases:
        lease = chance.choice(leases[-4:])
        calls += [
            lambda journal: journal.extend(lease, 10),
            lambda journal: journal.begin(lease, start),
            lambda journal: journal.begin(lease, start),
            lambda journal: journal.finish(lease, kept),
            lambda journal: journal.finish(lease, kept),
            lambda journal: journal.record(lease, start, kept),
            lambda journal: journal.record(lease, start, kept),
            lambda journal: journal.keep(lease, name),
        ]
        if chance.random() < 0.3:
            calls += [
                lambda journal: journal.end(lease, task_end),
                lambda journal: journal.overrule(scope, task, task_end),
                lambda journal: sorted(one.task for one in journal.expire(clock())),
                lambda journal: journal.prune(clock() - timedelta(seconds=20)),
                lambda journal: journal.remove(scope, task),
            ]
    return chance.choice(calls)


@pytest.mark.parametrize("seed", range(6))
def test_random_calls_answer_like_the_reference(seed: int) -> None:
    chance, clock = random.Random(seed), SetClock()
    store, reference = SqliteStore(":memory:", clock=clock), ReferenceStore(clock=clock)
    leases: list[Lease] = []
    for _ in range(CALLS):
        call = random_call(chance, clock, leases)
        found, expected = answer(call, store.journal), answer(call, reference.journal)
        assert found == expected
        if isinstance(found, Lease):
            leases.append(found)
        clock.advance(chance.choice([0, 0, 1, 4, 11]))
        if chance.random() < 0.1:
            for scope in (ANA, BEN):
                for task in ("a", "b"):
                    assert store.journal.steps(scope, task) == reference.journal.steps(scope, task)
            assert store.journal.tasks(TaskQuery()) == reference.journal.tasks(TaskQuery())
    store.close()
