"""SIGKILL at any call to the file system: the erasure still completes, and nothing is left."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import erase_program
import pytest
from counting import choose_points
from forked import run_forked

sys.path.insert(0, str(Path(__file__).parents[1] / "paths"))

from erasing_kit import fill, found, opened

if not hasattr(os, "fork"):
    pytest.skip("kills need a system that forks", allow_module_level=True)

PROGRAM = str(Path(erase_program.__file__))
STRACE = shutil.which("strace")
POINTS = 25  # of each call, from the first to the last


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
        assert erased[0].details["verified"]["prints"] > 0, number
        assert memory.store.verify_audit(), number
        assert memory.list() == []
    assert found(folder) == {}, number
    with opened(folder / "agent.db", user="ben", background=False) as ben:
        assert [item.text for item in ben.list()] == ["Ben lives in Oslo."]
        assert [one for one in ben.store.doctor(ben.scope) if one.state == "fail"] == []


@pytest.mark.slow
@pytest.mark.skipif(STRACE is None, reason="strace is not installed: apt-get install strace")
@pytest.mark.parametrize("call", ["pwrite64", "fdatasync", "ftruncate", "unlink"])
def test_killed_at_any_system_call_it_still_completes(
    tmp_path: Path, filled: Path, call: str, report_counts: Callable[..., None]
) -> None:
    whole = shutil.copytree(filled, tmp_path / "whole")
    dry = _traced(whole, f"trace={call}")
    assert dry.returncode == 0, dry.stderr
    count = sum(f"{call}(" in line for line in (tmp_path / "calls").read_text().splitlines())
    chosen = sorted({1 + (count - 1) * n // (POINTS - 1) for n in range(POINTS)} if count else ())
    chosen = choose_points(chosen)
    report_counts(kills=len(chosen), of=count)
    for number in chosen:
        folder = shutil.copytree(filled, tmp_path / str(number))
        killed = _traced(folder, f"trace={call}", f"inject={call}:signal=KILL:when={number}")
        assert killed.returncode in (-signal.SIGKILL, 128 + signal.SIGKILL, 0), (number, killed.stderr)
        _completes(folder, number)
        shutil.rmtree(folder)


def _traced(folder: Path, *rules: str) -> subprocess.CompletedProcess[str]:
    options = ["-f", "-qq", "-o", str(folder.parent / "calls"), *(word for rule in rules for word in ("-e", rule))]
    program = [sys.executable, PROGRAM, str(folder / "agent.db")]
    return subprocess.run([str(STRACE), *options, *program], capture_output=True, text=True, check=False)
