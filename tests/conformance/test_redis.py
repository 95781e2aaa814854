"""Episodes, the task journal and session state in Redis keep every contract, on one server and in a cluster."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from engrain_conformance import EpisodesSuite, SessionStateSuite, TaskJournalSuite
from engrain_conformance.clock import SetClock
from engrain_conformance.drafts import ANA, BEN
from engrain_conformance.reference import ReferenceStore
from redis_server import redis_cluster, redis_server
from test_sqlite_tasks import CALLS, answer, random_call

from engrain.core.model.tasks import Lease, TaskQuery
from engrain.stores.redis import RedisStore

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
