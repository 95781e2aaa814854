"""A memory of several stores moves as one: items in SQLite, episodes and tasks in Redis."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from engrain_conformance import DumpRestoreSuite
from engrain_conformance.clock import SetClock
from redis_server import redis_cluster, redis_server

from engrain.core.model.rows import RowKind
from engrain.stores.composite import CompositeStore
from engrain.stores.redis import RedisStore
from engrain.stores.sqlite import SqliteStore

IN_REDIS: tuple[RowKind, ...] = ("episode", "task", "step", "event")


class Pair:
    """Both stores as one, as far as the suite asks."""

    def __init__(self, items: SqliteStore, beside: RedisStore) -> None:
        self._items = items
        self.episodes, self.journal = beside.episodes, beside.journal
        self._beside = beside
        whole = CompositeStore(items, dict.fromkeys(IN_REDIS, beside.moving), self._close)
        self.dump, self.restore, self.preview, self.close = whole.dump, whole.restore, whole.preview, whole.close

    def _close(self) -> None:
        self._items.close()
        self._beside.close()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._items, name)


class TestMoving(DumpRestoreSuite):
    @pytest.fixture
    def url(self) -> str:
        redis_server().client.flushall()
        return redis_server().url

    @pytest.fixture
    def store(self, url: str, tmp_path: Path, clock: SetClock) -> Iterator[Pair]:
        store = Pair(SqliteStore(tmp_path / "items.db", clock=clock), RedisStore(url, clock=clock))
        yield store
        store.close()


@pytest.mark.slow
class TestMovingToACluster(TestMoving):
    @pytest.fixture
    def url(self) -> str:
        for server in redis_cluster():
            server.client.flushall()
        return f"{redis_cluster()[0].url}?cluster=on"
