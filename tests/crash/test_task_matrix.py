"""A worker is killed at every call to the storage and around each effect, for each class of step; another continues."""

# ruff: noqa: PT017  (what is reported is looked at where it is caught)

from __future__ import annotations

import os
import random
import shutil
import signal
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
from counting import choose_points
from dying import DyingVfs, Points
from forked import run_forked
from task_classes import CASES, TASK, Outside, open_memory, play, played
from tracing import needs_tracing, run_traced

from engrain import Memory, StepAmbiguous
from engrain.core.model.tasks import StepRecord

if not hasattr(os, "fork"):
    pytest.skip("kills need a system that forks", allow_module_level=True)

# So many points of each class by default, by the driver and by the system; all of them in the slow run.
FEW, FEWER = 2, 1
# So often is a point of threads tried to be met.
TRIES = 60


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store that is there already, so that the points lie in the task and not in the making of the file."""
    path = tmp_path / "store.db"
    with open_memory(path) as memory:
        memory.tasks.signal(TASK, "paid", {"sum": 3})
    return path


EVERY = pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow)])


# Kill


def killed_in_the_driver(kind: str, path: Path, fatal: int | None) -> bool:
    """At a call of SQLite to its layer below; how many there were is noted beside the store."""

    def work() -> None:
        points = Points(fatal)
        vfs = DyingVfs(points)
        play(kind, path, points)
        vfs.unregister()
        path.with_suffix(".points").write_text(str(points.count))

    status = run_forked(work)
    assert status in (0, -signal.SIGKILL), "the worker failed by itself"
    return status != 0


def killed_at(kind: str, path: Path, folder: Path, kill: Callable[[str, Path], bool]) -> Path:
    """Return a store whose worker was killed. Threads that share a commit make fewer calls, and need more tries."""
    for number in range(TRIES if kind == "parallel" else 1):
        one = copied(path, folder / str(number))
        if kill(kind, one):
            return one
    raise AssertionError("the point was not met")


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
        kill = partial(killed_in_the_driver, fatal=point)
        fates[judged(kind, killed_at(kind, path, tmp_path / str(point), kill))] += 1
        shutil.rmtree(tmp_path / str(point))
    report_counts(kills=sum(fates.values()), of=points, **fates)
    assert not every or meaningful(kind, fates)


@needs_tracing
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
    # A first run reads files of data that later ones, whose parent has read them, do not.
    play(kind, copied(path, tmp_path / "first"))
    whole = copied(path, tmp_path / "whole")
    done = run_traced(partial(play, kind, whole))
    assert done.status == 0
    assert done.calls > 50
    fates: Counter[str] = Counter()
    numbers = range(1, done.calls + 1)
    for point in choose_points(numbers) if every else random.Random(kind).sample(numbers, FEWER):

        def kill(kind: str, one: Path, point: int = point) -> bool:
            return run_traced(partial(play, kind, one), point).killed

        fates[judged(kind, killed_at(kind, path, tmp_path / str(point), kill))] += 1
        shutil.rmtree(tmp_path / str(point))
    report_counts(kills=sum(fates.values()), of=done.calls, **fates)
    assert not every or meaningful(kind, fates)


def meaningful(kind: str, fates: Counter[str]) -> bool:
    """Whether kills fell between an intent and its result: otherwise nothing was measured of effects."""
    return {"halt": fates["reported"], "probe": fates["found out"], "retry": fates["found out"],
            "undo": fates["found out"]}.get(kind, 1) > 0  # fmt: skip


def copied(path: Path, folder: Path) -> Path:
    folder.mkdir(parents=True)
    shutil.copy(path, folder / path.name)
    return folder / path.name
