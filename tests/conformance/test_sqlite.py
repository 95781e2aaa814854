"""The embedded store keeps every contract, through apsw and through Python's own SQLite."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import ClassVar

import pytest
from engrain_conformance import (
    EpisodesSuite,
    ErasingSuite,
    HoldSuite,
    ItemStoreSuite,
    LateSuite,
    MovingSuite,
    OutcomesSuite,
    SessionLogSuite,
    TogetherSuite,
    VectorIndexSuite,
    WordIndexSuite,
)
from engrain_conformance.clock import SetClock
from engrain_conformance.machine import compare_with_reference

from engrain.stores.sqlite import SqliteStore
from engrain.stores.sqlite.engine import Engine

Open = Callable[[], SqliteStore]


class Sqlite:
    engine: ClassVar[Engine] = "apsw"

    @pytest.fixture
    def another(self, tmp_path: Path, clock: SetClock) -> Iterator[Open]:
        opened: list[SqliteStore] = []

        def open_store() -> SqliteStore:
            with warnings.catch_warnings():
                # An older engine says that it is older; test_sqlite_files looks at that.
                warnings.simplefilter("ignore")
                opened.append(SqliteStore(tmp_path / "store.db", clock=clock, engine=self.engine))
            return opened[-1]

        yield open_store
        for store in opened:
            store.close()

    @pytest.fixture
    def store(self, another: Open) -> SqliteStore:
        return another()


class TestItems(Sqlite, ItemStoreSuite):
    pass


class TestVectors(Sqlite, VectorIndexSuite):
    pass


class TestWords(Sqlite, WordIndexSuite):
    pass


class TestSessions(Sqlite, SessionLogSuite):
    pass


class TestEpisodes(Sqlite, EpisodesSuite):
    pass


class TestOutcomes(Sqlite, OutcomesSuite):
    pass


class TestTogether(Sqlite, TogetherSuite):
    pass


class TestMoving(Sqlite, MovingSuite):
    pass


class TestMovingOfTheStandardLibrary(Sqlite, MovingSuite):
    engine = "stdlib"


class TestItemsOfTheStandardLibrary(Sqlite, ItemStoreSuite):
    engine = "stdlib"


class TestVectorsOfTheStandardLibrary(Sqlite, VectorIndexSuite):
    engine = "stdlib"


class TestWordsOfTheStandardLibrary(Sqlite, WordIndexSuite):
    engine = "stdlib"


class TestSessionsOfTheStandardLibrary(Sqlite, SessionLogSuite):
    engine = "stdlib"


class TestEpisodesOfTheStandardLibrary(Sqlite, EpisodesSuite):
    engine = "stdlib"


class TestOutcomesOfTheStandardLibrary(Sqlite, OutcomesSuite):
    engine = "stdlib"


class TestTogetherOfTheStandardLibrary(Sqlite, TogetherSuite):
    engine = "stdlib"


def test_random_plans_do_what_they_do_to_the_reference() -> None:
    compare_with_reference(lambda clock: SqliteStore(":memory:", clock=clock), examples=5)


class TestHolds(Sqlite, HoldSuite):
    pass


class TestLate(Sqlite, LateSuite):
    pass


class TestErasing(Sqlite, ErasingSuite):
    pass
