"""A worker is killed at every call to the storage and around each effect, for each class of step; another continues."""

# ruff: noqa: PT017  (what is reported is looked at where it is caught)

from __future__ import annotations

import ctypes
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from counting import choose_points
from dying import DyingVfs, Points
from task_classes import CASES, TASK, Outside, open_memory, play, played
from tracing import needs_strace

from engrain import Memory, StepAmbiguous
from engrain.core.model.tasks import StepRecord

if not hasattr(os, "fork"):
    pytest.skip("kills need a system that forks", allow_module_level=True)

# What may change a file or its locks. A kill at the n-th is a kill after the one before it.
CALLS = "openat,write,pwrite64,fdatasync,fsync,ftruncate,fallocate,unlink,fcntl"
# So many points of each class by default, by the driver and by the system; all of them in the slow run.
FEW, FEWER = 2, 1
_SET_PTRACER, _ANYBODY = 0x59616D61, -1


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store that is there already, so that the points lie in the task and not in the making of the file."""
    path = tmp_path / "store.db"
    with open_memory(path) as memory:
        memory.tasks.signal(TASK, "paid", {"sum": 3})
    return path


EVERY = pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow)])


# Kill


def forked(work: Callable[[], object]) -> int:
    pid = os.fork()
    if pid:
        return pid
    try:
        work()
        os._exit(0)
    except BaseException as exc:  # noqa: BLE001  # of a child that must not come back
        sys.__stderr__.write(f"{type(exc).__name__}: {exc}\n")  # type: ignore[union-attr]
    finally:
        os._exit(1)


def died(pid: int) -> bool:
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return True
    assert os.WEXITSTATUS(status) == 0, "the worker failed by itself"
    return False


def killed_in_the_driver(kind: str, path: Path, fatal: int | None) -> bool:
    """At a call of SQLite to its layer below; how many there were is noted beside the store."""

    def work() -> None:
        points = Points(fatal)
        vfs = DyingVfs(points)
        play(kind, path, points)
        vfs.unregister()
        path.with_suffix(".points").write_text(str(points.count))

    return died(forked(work))


def killed_in_the_system(kind: str, path: Path, fatal: tuple[str, int] | None) -> bool:
    """At a system call of some name, by strace; what calls there were is noted beside the store."""
    go, tell = os.pipe()

    def work() -> None:
        ctypes.CDLL(None).prctl(_SET_PTRACER, _ANYBODY, 0, 0, 0)
        os.read(go, 1)
        play(kind, path)

    pid = forked(work)
    options = ["-f", "-qq", "-o", str(path.with_suffix(".calls")), "-e", f"trace={CALLS}", "-p", str(pid)]
    options += ["-e", f"inject={fatal[0]}:signal=KILL:when={fatal[1]}"] if fatal else []
    tracer = subprocess.Popen(["strace", *options], stderr=subprocess.PIPE)
    try:
        while "TracerPid:\t0" in Path(f"/proc/{pid}/status").read_text():
            assert tracer.poll() is None, f"strace: {tracer.stderr and tracer.stderr.read()!r}"
            time.sleep(0.001)
        time.sleep(0.005)
        os.write(tell, b"!")
        return died(pid)
    finally:
        tracer.communicate()
        os.close(go)
        os.close(tell)


# Continue, and judge


def judged(kind: str, path: Path) -> str:
    """Let another worker continue, and see that every promise held; what became of the task."""
    outside = Outside(path.with_suffix(".out"))
    before = words(outside)
    with open_memory(path) as memory:
        steps = memory.tasks.timeline(TASK).steps if memory.tasks.list() else ()
        if kind in ("checkpoint", "snapshot"):
            acknowledged = max((int(line.split()[1]) for line in outside.lines() if line[0] == "k"), default=0)
            assert (memory.tasks.load_checkpoint(TASK) or {"at": 0})["at"] >= acknowledged, "what was kept is lost"
        fate = continued(kind, memory, outside, steps)
        after = words(outside)
        assert [one.name for one in steps if one.status == "done" and after[one.name] != before[one.name]] == []
        now = {(one.name, one.occurrence): one for one in memory.tasks.timeline(TASK).steps}
        for one in steps:
            same = now[one.name, one.occurrence]
            assert same == one or one.status == "intent", "a record that was settled has changed"
            assert same.input == one.input, "it was given another end to its sleep"
        assert memory.tasks.list()[0].status == "done"
        CASES[kind].check(memory, outside.lines())
        assert [one for one in memory.store.doctor(memory.scope) if one.state == "fail"] == []
    return fate


def words(outside: Outside) -> Counter[str]:
    return Counter(line.split()[0] for line in outside.lines())


def continued(kind: str, memory: Memory, outside: Outside, steps: tuple[StepRecord, ...]) -> str:
    """At once: the first worker is known to be dead. What is reported ambiguous is resolved by looking."""
    unclear = [one.name for one in steps if one.status == "intent" and one.kind == "effect"]
    fate = "found out" if unclear else "continued"
    for _ in range(3):
        try:
            played(kind, memory, outside)
        except StepAmbiguous as halted:
            assert kind == "halt"
            assert halted.step in unclear, "reported, although its outcome was known"
            fate = "reported"
            memory.tasks.resolve(TASK, halted.step, "done" if halted.step in outside.lines() else "failed")
        else:
            assert fate == "reported" or kind != "halt" or not unclear, "an effect was taken for done, or done again"
            return fate
    raise AssertionError("the task did not come to its end")


# The promises


@pytest.mark.parametrize("kind", CASES)
@EVERY
def test_a_kill_at_any_call_to_the_storage_breaks_no_promise(
    path: Path, tmp_path: Path, kind: str, every: bool, report_counts: Callable[..., None]
) -> None:
    whole = copied(path, tmp_path / "whole")
    assert not killed_in_the_driver(kind, whole, None)
    points = int(whole.with_suffix(".points").read_text())
    assert points > 20
    fates: Counter[str] = Counter()
    numbers = range(1, points + 1)
    for point in choose_points(numbers) if every else random.Random(kind).sample(numbers, FEW):
        one = copied(path, tmp_path / str(point))
        assert killed_in_the_driver(kind, one, point) or kind == "parallel", "the point was not met"
        fates[judged(kind, one)] += 1
    report_counts(kills=sum(fates.values()), of=points, **fates)
    assert not every or meaningful(kind, fates)


@needs_strace
@pytest.mark.parametrize(
    ("kind", "every"),
    [
        *((kind, False) for kind in ("step", "memory", "halt")),
        *(pytest.param(kind, True, marks=pytest.mark.slow) for kind in CASES),
    ],
)
def test_a_kill_at_any_system_call_breaks_no_promise(
    path: Path, tmp_path: Path, kind: str, every: bool, report_counts: Callable[..., None]
) -> None:
    whole = copied(path, tmp_path / "whole")
    assert not killed_in_the_system(kind, whole, None)
    points = calls_in(whole.with_suffix(".calls"))
    assert len(points) > 50
    fates: Counter[str] = Counter()
    for call, number in choose_points(points) if every else random.Random(kind).sample(points, FEWER):
        one = copied(path, tmp_path / f"{call} {number}")
        fates["not met"] += not killed_in_the_system(kind, one, (call, number))
        fates[judged(kind, one)] += 1
        shutil.rmtree(one.parent)
    missed = fates.pop("not met")
    report_counts(kills=sum(fates.values()) - missed, of=len(points), **fates)
    assert not every or meaningful(kind, fates)
    assert missed <= (len(points) // 4 if kind == "parallel" else 3)  # threads make them in another order


def calls_in(noted: Path) -> list[tuple[str, int]]:
    """Each call with its number. strace counts by thread and name."""
    made = Counter(tuple(line.partition("(")[0].split()[:2]) for line in noted.read_text().splitlines() if "(" in line)
    most: dict[str, int] = {}
    for (_, name), count in made.items():
        most[name] = max(most.get(name, 0), count)
    return [(name, number) for name, count in most.items() for number in range(1, count + 1)]


def meaningful(kind: str, fates: Counter[str]) -> bool:
    """Whether kills fell between an intent and its result: otherwise nothing was measured of effects."""
    return {"halt": fates["reported"], "probe": fates["found out"], "retry": fates["found out"],
            "undo": fates["found out"]}.get(kind, 1) > 0  # fmt: skip


def copied(path: Path, folder: Path) -> Path:
    folder.mkdir()
    shutil.copy(path, folder / path.name)
    return folder / path.name
