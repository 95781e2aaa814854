"""An item store and an index that is fed from it, for the tests of every vector server."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from engrain_conformance import VectorIndexSuite
from engrain_conformance.clock import SetClock
from engrain_conformance.drafts import EMBEDDER

from engrain.stores.sqlite import SqliteStore
from engrain.stores.vectors.outbox_index import OutboxVectorIndex


class FedSuite(VectorIndexSuite):
    """Everything is fed before each question. A test file gives `server`."""

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
    def vectors(self, store: SqliteStore, server: Any, clock: SetClock) -> OutboxVectorIndex:
        return OutboxVectorIndex(store, server, EMBEDDER, clock)

    @pytest.fixture
    def feed(self, vectors: OutboxVectorIndex) -> Callable[[], None]:
        return lambda: feed_all(vectors)


class HalfFedSuite(FedSuite):
    """The server is always behind, and the rest is in the outbox."""

    @pytest.fixture
    def feed(self, vectors: OutboxVectorIndex) -> Callable[[], None]:
        return lambda: vectors.feed(7) and None


def feed_all(index: OutboxVectorIndex) -> None:
    while index.feed(100):
        pass
