"""Whatever write, sync or truncation fails or is the last: nothing acknowledged is lost, and the store opens clean."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from counting import choose_points
from faults import At, Faults, PowerCut, Snapshots
from writing import SCOPE, add, assert_kept, few, texts

from engrain.core.errors import DiskFull, OutcomeUnknown, StoreError
from engrain.core.model.plans import Forget, Plan
from engrain.stores.sqlite import SqliteStore

# A connection that cannot be closed, because the fault lasts, complains once more when it is collected.
pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


@pytest.fixture(params=["wal", "truncate"])
def journal(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """The write-ahead log, and the rollback journal of a file on a network."""
    if request.param == "truncate":
        monkeypatch.setattr("engrain.stores.sqlite.opening.detect_file_system", lambda path: "nfs4")
    return str(request.param)


def _points(folder: Path) -> int:
    folder.mkdir()
    with Faults(lambda operation, path: None) as vfs:
        few(folder / "store.db", folder / "notes")
        return vfs.count


def _run(folder: Path, number: int, failure: str, lasting: bool) -> At:
    folder.mkdir()
    fault = At(number, failure, lasting)
    with Faults(fault), contextlib.suppress(StoreError):
        few(folder / "store.db", folder / "notes")
    return fault


def _matrix(tmp_path: Path, failure: str, step: int) -> tuple[int, int]:
    points = _points(tmp_path / "dry")
    assert points > 60
    for lasting in (False, True):
        for number in choose_points(range(1, points + 1, step)):
            folder = tmp_path / f"{failure}-{lasting}-{number}"
            fault = _run(folder, number, failure, lasting)
            assert fault.happened
            assert_kept(folder / "store.db", folder / "notes")
            shutil.rmtree(folder)
    return 2 * len(choose_points(range(1, points + 1, step))), 2 * points


@pytest.mark.parametrize("step", [61, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("failure", ["EIO", "ENOSPC"])
def test_a_failing_disk_loses_nothing_and_raises_a_typed_error(
    tmp_path: Path, journal: str, failure: str, step: int, report_counts: Callable[..., None]
) -> None:
    tried, points = _matrix(tmp_path, failure, step)
    report_counts(faults=tried, of=points)


def _after_each(tmp_path: Path, kind: type[Snapshots], step: int) -> tuple[int, int]:
    work, copies = tmp_path / "work", tmp_path / "copies"
    work.mkdir()
    snapshots = kind(work, copies)
    with Faults(snapshots):
        few(work / "store.db", work / "notes")
    assert len(snapshots.taken) > 60
    chosen = choose_points(snapshots.taken[::step])
    for copy in chosen:
        assert_kept(copy / "store.db", copy / "notes")
    return len(chosen), len(snapshots.taken)


@pytest.mark.parametrize("step", [37, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("kind", [Snapshots, PowerCut])
def test_killed_or_without_power_at_any_point_it_opens_clean(
    tmp_path: Path, journal: str, kind: type[Snapshots], step: int, report_counts: Callable[..., None]
) -> None:
    tried, points = _after_each(tmp_path, kind, step)
    report_counts(**{"power cuts" if kind is PowerCut else "kills": tried}, of=points)


def _filled(path: Path) -> str:
    store = SqliteStore(path)
    first = add(store, "before")
    store.close()
    return first


def test_a_sync_that_fails_leaves_the_outcome_unknown_and_repeating_it_is_safe(tmp_path: Path) -> None:
    _filled(tmp_path / "store.db")

    def fail(operation: str, path: str) -> None:
        if failing and operation == "sync" and path.endswith("-wal"):
            At(1, "EIO", lasting=False)(operation, path)

    failing = False
    with Faults(fail):
        store = SqliteStore(tmp_path / "store.db")
        add(store, "the log is there now")
        failing = True
        with pytest.raises(OutcomeUnknown):
            add(store, "perhaps")
        left = tmp_path / "left"
        shutil.copytree(tmp_path, left, ignore=lambda *_: {"left"})
        failing = False
        first = add(store, "perhaps")
        assert add(store, "perhaps") == first
        store.close()
    # It was durable after all, had the process ended then: so "unknown" is the truth, and repeating adds nothing.
    other = SqliteStore(left / "store.db")
    assert "perhaps" in texts(other)
    add(other, "perhaps")
    assert texts(other).count("perhaps") == 1
    other.close()


def test_a_full_disk_keeps_nothing_of_the_write_and_says_so(tmp_path: Path) -> None:
    first = _filled(tmp_path / "store.db")

    def fail(operation: str, path: str) -> None:
        if failing and operation == "write":
            At(1, "ENOSPC", lasting=False)(operation, path)

    failing = False
    with Faults(fail):
        store = SqliteStore(tmp_path / "store.db")
        failing = True
        with pytest.raises(DiskFull):
            add(store, "too much")
        with pytest.raises(DiskFull):
            store.apply(Plan(SCOPE, (Forget(first),)))
        assert texts(store) == ["before"]
        failing = False
        assert add(store, "enough room")
        assert set(texts(store)) == {"before", "enough room"}
        store.close()
