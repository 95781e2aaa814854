"""Episodes, the task journal and session state in Redis keep every contract, on one server and in a cluster."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from engrain_conformance import EpisodesSuite, SessionLogSuite, SessionStateSuite, TaskJournalSuite
from engrain_conformance.clock import SetClock
from engrain_conformance.drafts import ANA, BEN
from engrain_conformance.reference import ReferenceStore
from redis_server import redis_cluster, redis_server
from test_sqlite_tasks import CALLS, answer, random_call

from engrain.core.errors import StoreUnavailable
from engrain.core.identity import Scope
from engrain.core.model.tasks import Lease, TaskQuery
from engrain.stores.cached_log import CachedLog
from engrain.stores.redis import RedisStore
from engrain.stores.redis.episodes import RedisSessionState
from engrain.stores.sqlite import SqliteStore

Open = Callable[[], RedisStore]


class OneServer:
    @pytest.fixture
    def url(self) -> str:
        redis_server().client.flushall()
        return redis_server().url

    @pytest.fixture
    def another(self, url: str, clock: SetClock) -> Iterator[Open]:
        opened: list[RedisStore] = []

        def open_store() -> RedisStore:
            opened.append(RedisStore(url, clock=clock))
            return opened[-1]

        yield open_store
        for store in opened:
            store.close()

    @pytest.fixture
    def store(self, another: Open) -> RedisStore:
        return another()


class Cluster(OneServer):
    @pytest.fixture
    def url(self) -> str:
        for server in redis_cluster():
            server.client.flushall()
        return f"{redis_cluster()[0].url}?cluster=on"


class TestEpisodes(OneServer, EpisodesSuite):
    pass


class TestTasks(OneServer, TaskJournalSuite):
    pass


class TestEpisodesOfACluster(Cluster, EpisodesSuite):
    pass


class TestTasksOfACluster(Cluster, TaskJournalSuite):
    pass


class TestState(OneServer, SessionStateSuite):
    pass


class TestStateOfACluster(Cluster, SessionStateSuite):
    pass


class TestCachedLog(SessionLogSuite):
    """The log of a SQLite file, read through a cache in Redis."""

    @pytest.fixture
    def another(self, tmp_path: Path, clock: SetClock) -> Iterator[Callable[[], SqliteStore]]:
        opened: list[SqliteStore] = []

        def open_store() -> SqliteStore:
            opened.append(SqliteStore(tmp_path / "store.db", clock=clock))
            return opened[-1]

        yield open_store
        for store in opened:
            store.close()

    @pytest.fixture
    def store(self, another: Callable[[], SqliteStore]) -> SqliteStore:
        return another()

    @pytest.fixture
    def state(self) -> Iterator[RedisSessionState]:
        redis_server().client.flushall()
        opened = RedisStore(redis_server().url)
        yield opened.state
        opened.close()

    @pytest.fixture
    def log(self, store: SqliteStore, state: RedisSessionState) -> CachedLog:
        return CachedLog(store, store, state, "store")


class Moody(RedisSessionState):
    """A server that is emptied or away every other time it is asked."""

    asked = 0

    def kept(self, scope: Scope, session: str, name: str) -> str | None:
        self.asked += 1
        if self.asked % 4 == 1:
            redis_server().client.flushall()
        if self.asked % 4 == 3:
            raise StoreUnavailable("away")
        return super().kept(scope, session, name)


class TestCachedLogOfAMoodyServer(TestCachedLog):
    @pytest.fixture
    def state(self) -> Iterator[RedisSessionState]:
        opened = RedisStore(redis_server().url)
        yield Moody(opened._link, opened.guard)
        opened.close()


def listed(answer: Any) -> Any:
    """Between scopes, tasks of one moment have no order."""
    return sorted(answer, key=repr) if isinstance(answer, list) else answer


@pytest.mark.parametrize("seed", range(4))
def test_random_calls_answer_like_the_reference(seed: int) -> None:
    chance, clock = random.Random(seed), SetClock()
    redis_server().client.flushall()
    store, reference = RedisStore(redis_server().url, clock=clock), ReferenceStore(clock=clock)
    leases: list[Lease] = []
    for _ in range(CALLS):
        call = random_call(chance, clock, leases)
        found, expected = answer(call, store.journal), answer(call, reference.journal)
        assert listed(found) == listed(expected)
        if isinstance(found, Lease):
            leases.append(found)
        clock.advance(chance.choice([0, 0, 1, 4, 11]))
        if chance.random() < 0.1:
            for scope in (ANA, BEN):
                assert store.journal.tasks(TaskQuery(scope)) == reference.journal.tasks(TaskQuery(scope))
                for task in ("a", "b"):
                    assert store.journal.steps(scope, task) == reference.journal.steps(scope, task)
    store.close()
