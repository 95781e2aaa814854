"""A task is done together with its outcome: whatever write or sync fails, neither is there without the other."""

from __future__ import annotations

import contextlib
import shutil
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from engrain_conformance.embedder import HashEmbedder
from faults import At, Faults

from engrain import Memory
from engrain.core.errors import EngrainError, LeaseLost

pytestmark = pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")


LEASE = 0.05


def open_memory(path: Path) -> Memory:
    return Memory(path, user="ana", embedder=HashEmbedder(), background=False)


def ship(memory: Memory) -> None:
    with memory.task("order", goal="ship it", lease=LEASE) as run:
        run.step("pack", lambda: 1)
        run.outcome = "sent with parcel 17"


def state(path: Path) -> tuple[bool, int]:
    with open_memory(path) as memory:
        found = memory.tasks.get("order")
        return found is not None and found.status == "done", len(memory.list({"source": "order"}))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "base.db"
    with open_memory(path) as memory:
        memory.remember("Tea.")
    return path


@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("failure", [pytest.param("EIO", marks=pytest.mark.slow), "ENOSPC"])
def test_a_failing_disk_leaves_no_task_done_without_its_outcome(
    path: Path, failure: str, step: int, report_counts: Callable[..., None]
) -> None:
    copy = path.with_name("copy.db")

    def run(fault: At) -> None:
        for old in path.parent.glob("copy.db*"):
            old.unlink()
        shutil.copy(path, copy)
        with Faults(fault), contextlib.suppress(EngrainError, LeaseLost), open_memory(copy) as memory:
            ship(memory)

    number, happened, tried = 1, True, 0
    while happened:
        fault = At(number, failure, lasting=False)
        run(fault)
        happened, number, tried = fault.happened, number + step, tried + fault.happened
        assert state(copy) in ((False, 0), (True, 1)), number
        time.sleep(2 * LEASE)  # a run whose end could not be recorded is over with its lease
        with open_memory(copy) as memory:
            ship(memory)
        assert state(copy) == (True, 1)
    assert number > 20
    if step == 1:
        report_counts(faults=tried, of=tried)


def test_an_outcome_that_cannot_be_kept_parks_the_task(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with open_memory(path) as memory:

        def fail(*_: object) -> None:
            raise EngrainError("no space")

        monkeypatch.setattr(memory.store.services.items, "apply", fail)
        with pytest.raises(EngrainError, match="no space"):
            ship(memory)
        monkeypatch.undo()
        found = memory.tasks.get("order")
        assert found is not None
        assert (found.status, memory.list({"source": "order"})) == ("parked", [])
        ship(memory)
    assert state(path) == (True, 1)
