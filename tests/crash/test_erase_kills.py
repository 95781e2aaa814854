"""SIGKILL at any call to the file system: the erasure still completes, and nothing is left."""

from __future__ import annotations

import os
import shutil
import signal
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

import erase_program
import pytest
from counting import choose_points
from forked import run_forked
from tracing import CALLS, needs_tracing, run_traced

sys.path.insert(0, str(Path(__file__).parents[1] / "paths"))

from erasing_kit import fill, found, opened

if not hasattr(os, "fork"):
    pytest.skip("kills need a system that forks", allow_module_level=True)

CHANGING = [name for name in CALLS if name not in ("openat", "fcntl")]


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    folder = tmp_path / "filled"
    folder.mkdir()
    with opened(folder / "agent.db") as memory, opened(folder / "agent.db", user="ben") as ben:
        fill(memory)
        (folder / "files").mkdir()
        memory.mirror(folder / "files").sync()
        ben.remember("Ben lives in Oslo.")
    return folder


@pytest.mark.parametrize("points", [2, pytest.param(None, marks=pytest.mark.slow)])
def test_killed_at_any_point_it_still_completes(
    tmp_path: Path, filled: Path, points: int | None, report_counts: Callable[..., None]
) -> None:
    whole = shutil.copytree(filled, tmp_path / "whole")
    assert run_forked(erase_program.erase, whole / "agent.db", None) == 0
    count = int((whole / "agent.points").read_text())
    few = [1 + (count - 1) * n // points for n in range(1, points + 1)] if points else []
    chosen = few or choose_points(range(1, count + 1))
    for number in chosen:
        folder = shutil.copytree(filled, tmp_path / str(number))
        assert run_forked(erase_program.erase, folder / "agent.db", number) in (-signal.SIGKILL, 0), number
        _completes(folder, number)
        shutil.rmtree(folder)
    report_counts(kills=len(chosen), of=count)


def _completes(folder: Path, number: int) -> None:
    with opened(folder / "agent.db", background=False) as memory:
        begun = memory.store.resume_erasures()
        if not begun and not memory.store.audit():
            # It died before the first stage was on disk: nothing has changed, and it can be asked for again.
            assert memory.list(), number
            begun = [memory.store.erase(user="ana", folders=[folder / "files"])]
        assert all(one.receipt for one in begun), number
        erased = [entry for entry in memory.store.audit() if entry.what == "erase"]
        assert len(erased) == 1, number
        assert erased[0].details["verified"]["samples"] > 0, number
        assert memory.store.verify_audit(), number
        assert memory.list() == []
    assert found(folder) == {}, number
    with opened(folder / "agent.db", user="ben", background=False) as ben:
        assert [item.text for item in ben.list()] == ["Ben lives in Oslo."]
        assert [one for one in ben.store.doctor(ben.scope) if one.state == "fail"] == []


@needs_tracing
@pytest.mark.slow
def test_killed_at_any_system_call_it_still_completes(
    tmp_path: Path, filled: Path, report_counts: Callable[..., None]
) -> None:
    for first in ("first", "whole"):  # the first run reads files of data that later ones have in memory
        whole = shutil.copytree(filled, tmp_path / first)
        done = run_traced(partial(erase_program.erase, whole / "agent.db", None), calls=CHANGING)
        assert done.status == 0
        _completes(whole, 0)
    chosen = choose_points(range(1, done.calls + 1))
    met = 0
    for number in chosen:
        folder = shutil.copytree(filled, tmp_path / str(number))
        killed = run_traced(partial(erase_program.erase, folder / "agent.db", None), number, CHANGING)
        assert killed.killed or killed.status == 0, number
        met += killed.killed
        _completes(folder, number)
        shutil.rmtree(folder)
    report_counts(kills=met, of=done.calls)
    assert met == len(chosen)
