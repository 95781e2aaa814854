"""The Postgres store keeps every contract behind a pooler in transaction mode, without being told of it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest
from engrain_conformance import (
    DumpRestoreSuite,
    EpisodesSuite,
    ErasureSuite,
    HoldSuite,
    ItemStoreSuite,
    LateWriteSuite,
    OutcomesSuite,
    SessionLogSuite,
    TransactionSuite,
    VectorIndexSuite,
    WordIndexSuite,
)
from engrain_conformance.drafts import add, list_items, message
from engrain_conformance.machine import compare_with_reference
from pgbouncer_server import PGBOUNCER, pgbouncer
from schemas import empty_schema
from servers import postgres
from test_postgres import Postgres

from engrain.stores.postgres import PostgresStore

needed = pytest.mark.skipif(PGBOUNCER is None, reason="pgbouncer is not installed")


@pytest.fixture
def pooled() -> Iterator[str]:
    with empty_schema() as schema:
        yield f"{postgres().url(port=pgbouncer())}?schema={schema}&pool=8"


@needed
def test_two_who_share_their_sessions_do_not_meet_each_others_prepared_statements(pooled: str) -> None:
    one, two = PostgresStore(pooled), PostgresStore(pooled)
    for n in range(12):
        add(one, message(f"By one {n}."))
        list_items(two)
        add(two, message(f"By two {n}."))
    assert len(list_items(one)) == len(list_items(two)) == 24
    one.close()
    two.close()


@needed
@pytest.mark.slow
class Pooled(Postgres):
    @pytest.fixture
    def url(self, pooled: str) -> str:
        return pooled


class TestItems(Pooled, ItemStoreSuite):
    pass


class TestVectors(Pooled, VectorIndexSuite):
    pass


class TestWords(Pooled, WordIndexSuite):
    pass


class TestSessions(Pooled, SessionLogSuite):
    pass


class TestEpisodes(Pooled, EpisodesSuite):
    pass


class TestOutcomes(Pooled, OutcomesSuite):
    pass


class TestMoving(Pooled, DumpRestoreSuite):
    pass


class TestTogether(Pooled, TransactionSuite):
    pass


class TestHolds(Pooled, HoldSuite):
    pass


class TestErasing(Pooled, ErasureSuite):
    pass


class TestLate(Pooled, LateWriteSuite):
    pass


@needed
@pytest.mark.slow
def test_random_plans_do_what_they_do_to_the_reference() -> None:
    schemas = (f"{postgres().url(port=pgbouncer())}?schema=pooled_machine_{n}" for n in count())
    compare_with_reference(lambda clock: PostgresStore(next(schemas), clock=clock), examples=2)
