"""The embedded store keeps every contract."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from engrain_conformance import (
    DumpRestoreSuite,
    EpisodesSuite,
    ErasureSuite,
    HoldSuite,
    ItemStoreSuite,
    LateWriteSuite,
    OutcomesSuite,
    RecordsSuite,
    SessionLogSuite,
    TransactionSuite,
    VectorIndexSuite,
    WordIndexSuite,
)
from engrain_conformance.clock import SetClock
from engrain_conformance.drafts import ANA, MODEL, fact
from engrain_conformance.machine import compare_with_reference

from engrain.core.errors import InvalidInput
from engrain.core.identity import Scope
from engrain.core.model.items import Vectors
from engrain.core.model.plans import Add, Plan
from engrain.stores.sqlite import SqliteStore, writer

Open = Callable[[], SqliteStore]


class Sqlite:
    @pytest.fixture
    def another(self, tmp_path: Path, clock: SetClock) -> Iterator[Open]:
        opened: list[SqliteStore] = []

        def open_store() -> SqliteStore:
            opened.append(SqliteStore(tmp_path / "store.db", clock=clock))
            return opened[-1]

        yield open_store
        if opened and not opened[-1].dialect.closed:
            assert opened[-1].whole()  # the checksums and digests of all that the test has written
        for store in opened:
            store.close()

    @pytest.fixture
    def store(self, another: Open) -> SqliteStore:
        return another()


class TestItems(Sqlite, ItemStoreSuite):
    in_full_only = (
        "test_every_comparison_answers_like_the_oracle",  # random filters are tried by default
        "test_no_two_versions_hold_at_once_after_any_history[1]",
        "test_no_two_versions_hold_at_once_after_any_history[2]",
    )

    def test_wrong_vectors_fail_their_own_plan_alone(self, store: SqliteStore) -> None:
        drafts = [fact("One."), fact("Two.", vectors=Vectors(MODEL, (b"1",))), fact("Three.")]
        one, two, three = store.apply_many([Plan(ANA, (Add(draft),)) for draft in drafts])
        assert isinstance(two, InvalidInput)
        assert not isinstance(one, Exception)
        assert not isinstance(three, Exception)
        assert not store.dialect.codes

    def test_many_plans_are_one_commit(self, store: SqliteStore, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(writer, "GROUP_SECONDS", 60)  # a busy machine may take longer than a group lasts

        def count() -> int:
            ((commits,),) = store.snapshot(lambda db: db.rows("select commits from counter where n = 0"))
            return int(commits)

        before = count()
        store.apply_many([Plan(Scope(user=f"user-{number}"), (Add(fact("Tea.")),)) for number in range(50)])
        assert count() - before <= 2, "the first may be taken before the others are handed over"


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


class TestRecords(Sqlite, RecordsSuite):
    pass


class TestTogether(Sqlite, TransactionSuite):
    pass


class TestMoving(Sqlite, DumpRestoreSuite):
    pass


@pytest.mark.parametrize("examples", [3, pytest.param(20, marks=pytest.mark.slow)])
def test_random_plans_do_what_they_do_to_the_reference(examples: int) -> None:
    compare_with_reference(lambda clock: SqliteStore(":memory:", clock=clock), examples)


class TestHolds(Sqlite, HoldSuite):
    pass


class TestLate(Sqlite, LateWriteSuite):
    pass


class TestErasing(Sqlite, ErasureSuite):
    pass
