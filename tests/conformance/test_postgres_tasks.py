"""The task journal in Postgres keeps every contract, and answers random calls like the reference."""

from __future__ import annotations

import random
from datetime import timedelta

import pytest
from engrain_conformance import MemoryStepSuite, TaskJournalSuite
from engrain_conformance.clock import SetClock
from engrain_conformance.drafts import ANA, BEN
from engrain_conformance.reference import ReferenceStore
from test_postgres import Postgres
from test_sqlite_tasks import CALLS, answer, random_call

from engrain.core.model.tasks import Lease, TaskQuery
from engrain.stores.postgres import PostgresStore


class TestTasks(Postgres, TaskJournalSuite):
    pass


class TestMemorySteps(Postgres, MemoryStepSuite):
    pass


class TestRandomCalls(Postgres):
    @pytest.fixture
    def clock(self) -> SetClock:
        return SetClock()

    @pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in (1, 2))])
    def test_random_calls_answer_like_the_reference(self, store: PostgresStore, clock: SetClock, seed: int) -> None:
        chance = random.Random(seed)
        reference = ReferenceStore(clock=clock)
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
        assert store.journal.prune(clock() + timedelta(days=1)) == reference.journal.prune(clock() + timedelta(days=1))
