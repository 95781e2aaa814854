"""SIGKILL at every system call that changes a file: nothing acknowledged is lost, and the store opens clean."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import writing
from writing import assert_kept

CALLS = ("pwrite64", "fdatasync", "fsync", "ftruncate", "unlink", "write")
STRACE = shutil.which("strace")

pytestmark = pytest.mark.skipif(
    STRACE is None and not os.environ.get("CI"), reason="strace is not installed: apt-get install strace"
)


def _traced(folder: Path, *rules: str) -> subprocess.CompletedProcess[bytes]:
    folder.mkdir()
    program = [sys.executable, writing.__file__, "few", str(folder / "store.db"), str(folder / "notes")]
    options = ["-f", "-qq", "-o", str(folder / "calls"), *(word for rule in rules for word in ("-e", rule))]
    return subprocess.run([str(STRACE), *options, *program], capture_output=True, check=False)


def _count(tmp_path: Path, call: str) -> int:
    folder = tmp_path / "dry"
    done = _traced(folder, f"trace={call}")
    assert done.returncode == 0, done.stderr.decode()
    count = sum(f"{call}(" in line for line in (folder / "calls").read_text().splitlines())
    shutil.rmtree(folder)
    return count


def _chosen(count: int, points: int | None) -> list[int]:
    every = range(1, count + 1)
    if points is None or count <= points:
        return list(every)
    return sorted({1 + (count - 1) * n // (points - 1) for n in range(points)})


@pytest.mark.parametrize("points", [4, pytest.param(None, marks=pytest.mark.slow)])
@pytest.mark.parametrize("call", CALLS)
def test_killed_at_a_system_call(tmp_path: Path, call: str, points: int | None) -> None:
    count = _count(tmp_path, call)
    for number in _chosen(count, points):
        folder = tmp_path / str(number)
        done = _traced(folder, f"trace={call}", f"inject={call}:signal=KILL:when={number}")
        assert done.returncode in (-9, 137), (number, done.returncode, done.stderr.decode())
        assert_kept(folder / "store.db", folder / "notes")
        shutil.rmtree(folder)
