"""SIGKILL at every system call that changes a file: nothing acknowledged is lost, and the store opens clean."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import writing
from counting import choose_points
from tracing import needs_strace
from writing import assert_kept

CALLS = ("pwrite64", "fdatasync", "fsync", "ftruncate", "unlink", "write")

pytestmark = needs_strace


def _traced(folder: Path, *rules: str) -> subprocess.CompletedProcess[bytes]:
    folder.mkdir()
    program = [sys.executable, writing.__file__, "few", str(folder / "store.db"), str(folder / "notes")]
    options = ["-f", "-qq", "-o", str(folder / "calls"), *(word for rule in rules for word in ("-e", rule))]
    return subprocess.run(["strace", *options, *program], capture_output=True, check=False)


def _count(tmp_path: Path, call: str) -> int:
    folder = tmp_path / "dry"
    done = _traced(folder, f"trace={call}")
    assert done.returncode == 0, done.stderr.decode()
    # Each thread's are counted on their own, as strace does.
    threads = Counter(line.split()[0] for line in (folder / "calls").read_text().splitlines() if f"{call}(" in line)
    shutil.rmtree(folder)
    return max(threads.values())


def _chosen(count: int, points: int | None) -> list[int]:
    every = range(1, count + 1)
    if points is None or count <= points:
        return choose_points(every)
    return sorted({1 + (count - 1) * n // (points - 1) for n in range(points)})


@pytest.mark.parametrize(
    ("call", "points"),
    [("pwrite64", 2), *(pytest.param(call, None, marks=pytest.mark.slow) for call in CALLS)],
)
def test_killed_at_a_system_call(
    tmp_path: Path, call: str, points: int | None, report_counts: Callable[..., None]
) -> None:
    count = _count(tmp_path, call)
    chosen, late = _chosen(count, points), 0
    for number in chosen:
        folder = tmp_path / str(number)
        done = _traced(folder, f"trace={call}", f"inject={call}:signal=KILL:when={number}")
        assert done.returncode in (0, -9, 137), (number, done.returncode, done.stderr.decode())
        late += done.returncode == 0
        assert_kept(folder / "store.db", folder / "notes")
        shutil.rmtree(folder)
    # The last one is not met where a run made fewer calls.
    assert late <= max(1, len(chosen) // 4), "most points were not met"
    report_counts(kills=len(chosen) - late, of=count)
