"""SIGKILL and disk errors at every system call of a restore: one whole store stands, and an error says which."""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from functools import cache
from itertools import product
from pathlib import Path

import pytest
import restore_program
from counting import choose_points
from tracing import Traced, needs_strace, needs_tracing, run_traced

from engrain import Memory
from engrain.memory.transfer import restore_backup

CALLS = ("pwrite64", "fdatasync", "fsync", "ftruncate", "unlink", "rename")
BY_DEFAULT = (("pwrite64", "ENOSPC"), ("rename", "EIO"))
FORGOTTEN, KEPT, NEWER = "Ana's bank code is 4711.", "Ana lives in Quito.", "Ana likes tea."
OLD, RESTORED = [NEWER, KEPT], [KEPT]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that has forgotten a text since its backup, and has a newer one."""
    folder = tmp_path_factory.mktemp("template")
    with Memory(folder / "agent.db", user="ana") as memory:
        id = memory.remember(FORGOTTEN)
        memory.remember(KEPT)
        memory.store.backup(folder / "backup.db")
        assert not memory.forget(id).pending
        memory.remember(NEWER)
    return folder


def restore(template: Path, folder: Path, *rules: str) -> subprocess.CompletedProcess[str]:
    shutil.copytree(template, folder)
    program = [sys.executable, restore_program.__file__, str(folder / "backup.db"), str(folder / "agent.db")]
    options = ["-f", "-qq", "-o", str(folder.with_suffix(".calls")), *(word for one in rules for word in ("-e", one))]
    return subprocess.run(["strace", *options, *program], capture_output=True, text=True, check=False)


@cache
def count_calls(template: Path) -> dict[str, int]:
    """The most calls of each kind in one thread of a restore: strace counts each thread's on their own."""
    folder = template.with_name("dry")
    assert restore(template, folder, f"trace={','.join(CALLS)}").stdout == "restored\n"
    lines = folder.with_suffix(".calls").read_text().splitlines()
    threads = {call: Counter(line.split()[0] for line in lines if f" {call}(" in line) for call in CALLS}
    return {call: max(counts.values(), default=0) for call, counts in threads.items()}


def spread_points(count: int, points: int | None) -> list[int]:
    if points is None or count <= points:
        return choose_points(range(1, count + 1))
    return sorted({1 + (count - 1) * n // (points - 1) for n in range(points)})


def read_texts(folder: Path) -> list[str]:
    with Memory(folder / "agent.db", user="ana") as memory:
        return sorted(item.text for item in memory.list())


def assert_clean(folder: Path) -> None:
    """After an open, no file but the backup holds the forgotten text."""
    for path in folder.iterdir():
        assert "restoring" not in path.name
        assert path.name == "backup.db" or FORGOTTEN.encode() not in path.read_bytes(), path.name


def restore_traced(template: Path, folder: Path, fatal: int | None = None) -> Traced:
    shutil.copytree(template, folder)
    return run_traced(lambda: restore_backup(folder / "backup.db", folder / "agent.db", force=True), fatal, CALLS)


@needs_tracing
@pytest.mark.parametrize("points", [4, pytest.param(None, marks=pytest.mark.slow)])
def test_a_killed_restore_leaves_one_whole_store(
    template: Path, tmp_path: Path, points: int | None, report_counts: Callable[..., None]
) -> None:
    restore_traced(template, tmp_path / "first")  # it reads files of data that later ones have in memory
    done = restore_traced(template, tmp_path / "whole")
    assert done.status == 0
    chosen = spread_points(done.calls, points)
    found: Counter[bool] = Counter()
    for number in chosen:
        folder = tmp_path / str(number)
        assert restore_traced(template, folder, number).killed
        texts = read_texts(folder)
        assert texts in (OLD, RESTORED)
        found[texts == OLD] += 1
        assert_clean(folder)
        shutil.rmtree(folder)
    report_counts(kills=len(chosen), of=done.calls)
    assert points or min(found[True], found[False]) > 0


@needs_strace
@pytest.mark.parametrize("points", [2, pytest.param(None, marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    ("call", "error"),
    [
        pytest.param(call, error, marks=() if (call, error) in BY_DEFAULT else pytest.mark.slow)
        for call, error in product(CALLS, ("EIO", "ENOSPC"))
    ],
)
def test_an_error_of_a_restore_says_which_store_stands(
    template: Path, tmp_path: Path, call: str, error: str, points: int | None, report_counts: Callable[..., None]
) -> None:
    chosen = spread_points(count_calls(template)[call], points)
    if points is None:
        report_counts(**{error: len(chosen)}, of=count_calls(template)[call])
    for number in chosen:
        folder = tmp_path / str(number)
        done = restore(template, folder, f"trace={call}", f"inject={call}:error={error}:when={number}")
        assert done.returncode == 0, done.stderr
        new = done.stdout == "restored\n" or "is the restored store now" in done.stdout
        assert read_texts(folder) == (RESTORED if new else OLD), (number, done.stdout)
        assert_clean(folder)
        shutil.rmtree(folder)
