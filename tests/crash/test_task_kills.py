"""Workers are killed, stopped and raced: no done step runs again, no effect is repeated or lost in silence."""

# ruff: noqa: PT017  (what is reported is looked at where it is caught)

from __future__ import annotations

import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest
import task_program
from task_program import CLASSES, TASK, Outside, open_memory, play

from engrain import StepAmbiguous, TaskClaimed

if not hasattr(os, "fork"):
    pytest.skip("kills need a system that forks", allow_module_level=True)

PROGRAM = str(Path(task_program.__file__))
ITEMS = {"The first note.", "The second note.", "The third note."}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A store that is there already, so that the points lie in the task and not in the making of the file."""
    path = tmp_path / "store.db"
    with open_memory(path) as memory:
        memory.signal(TASK, "paid", {"sum": 3})
    return path


def forked(kind: str, path: Path, fatal: int | None) -> int:
    """The number of points the child met; 0 if it was killed."""
    note = path.with_suffix(".points")
    pid = os.fork()
    if pid == 0:
        try:
            note.write_text(str(play(kind, path, fatal)))
        finally:
            os._exit(0)
    _, status = os.waitpid(pid, 0)
    if os.WIFSIGNALED(status):
        assert os.WTERMSIG(status) == signal.SIGKILL
        return 0
    return int(note.read_text())


def killed(kind: str, template: Path, folder: Path, fatal: int) -> str:
    """Kill a worker at one point, let another continue, and see that every promise held; what became of it."""
    folder.mkdir()
    path = folder / template.name
    shutil.copy(template, path)
    assert forked(kind, path, fatal) == 0, "the point was not met"
    outside = Outside(path.with_suffix(".out"))
    before = Counter(outside.lines())
    with open_memory(path) as memory:
        found = memory.tasks()
        steps = memory.timeline(TASK).steps if found else ()
        done = [one.name for one in steps if one.status == "done"]
        unclear = [one.name for one in steps if one.status == "intent" and one.kind == "effect"]
        fate = continued(kind, memory, outside, unclear)
        # What was recorded done has not run again.
        after = Counter(outside.lines())
        assert all(after[name] == before[name] for name in done)
        assert memory.tasks()[0].status == "done"
        if kind == "memory":
            assert sorted(item.text for item in memory.list()) == sorted(ITEMS)
        elif kind in ("effect", "probed"):
            assert after == {"one": 1, "two": 1}, "an effect was repeated or lost"
        assert [one for one in memory.check() if one.state == "fail"] == []
    return fate


def continued(kind: str, memory, outside: Outside, unclear: list[str]) -> str:  # type: ignore[no-untyped-def]
    """A second worker, at once: the first is known to be dead. What is reported ambiguous is resolved by looking."""
    fate = "continued"
    for _ in range(3):
        try:
            with memory.task(TASK) as run:
                CLASSES[kind](run, outside)
            return fate
        except StepAmbiguous as halted:
            assert kind == "effect"
            assert halted.step in unclear, "reported, although its outcome was known"
            fate = "reported"
            memory.resolve(TASK, halted.step, "done" if halted.step in outside.lines() else "failed")
    raise AssertionError("the task did not come to its end")


@pytest.mark.parametrize("kind", CLASSES)
@pytest.mark.parametrize("share", [0.12, pytest.param(1.0, marks=pytest.mark.slow)])
def test_a_kill_at_any_point_breaks_no_promise(path: Path, tmp_path: Path, kind: str, share: float) -> None:
    copy = tmp_path / "whole.db"
    shutil.copy(path, copy)
    points = forked(kind, copy, None)
    assert points > 30
    chosen = sorted(random.sample(range(1, points + 1), max(8, round(points * share))))
    fates = Counter(killed(kind, path, tmp_path / str(point), point) for point in chosen)
    print(kind, f"{len(chosen)} of {points} points:", dict(fates))  # noqa: T201
    if kind == "effect" and share == 1.0:
        assert fates["reported"] > 0, "no kill fell between intent and result: nothing was measured"


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which("strace"), reason="needs strace")
@pytest.mark.parametrize("kind", CLASSES)
def test_a_kill_at_any_system_call_breaks_no_promise(path: Path, tmp_path: Path, kind: str) -> None:
    """The same with the system's own calls, from a process that is started anew for each."""
    calls = "pwrite64,write,fdatasync,fsync,ftruncate,unlink,fcntl"
    fates: Counter[str] = Counter()
    point = 0
    while True:
        point += 3
        folder = tmp_path / f"call {point}"
        folder.mkdir()
        store = folder / "store.db"
        shutil.copy(path, store)
        inject = ["strace", "-f", "-qq", "-o", "/dev/null", "-P", str(store), "-P", f"{store}-wal"]
        inject += ["-P", str(store.with_suffix(".out"))]
        inject += ["-e", f"trace={calls}", "-e", f"inject={calls}:signal=KILL:when={point}"]
        ended = subprocess.run([*inject, sys.executable, PROGRAM, "play", str(store), kind], capture_output=True)
        if ended.returncode == 0:
            break
        outside = Outside(store.with_suffix(".out"))
        with open_memory(store) as memory:
            steps = memory.timeline(TASK).steps if memory.tasks() else ()
            unclear = [one.name for one in steps if one.status == "intent"]
            fates[continued(kind, memory, outside, unclear)] += 1
            if kind in ("effect", "probed"):
                assert Counter(outside.lines()) == {"one": 1, "two": 1}
            if kind == "memory":
                assert sorted(item.text for item in memory.list()) == sorted(ITEMS)
    print(kind, f"{point} calls:", dict(fates))  # noqa: T201
    assert fates.total() > 3


def test_a_process_killed_in_step_18_of_25_continues_there(path: Path) -> None:
    first = subprocess.run([sys.executable, PROGRAM, "twenty_five", str(path), "18"])
    assert first.returncode == -signal.SIGKILL
    outside = Outside(path.with_suffix(".out"))
    assert outside.lines() == ["mail", *map(str, range(1, 18))]
    second = subprocess.run([sys.executable, PROGRAM, "twenty_five", str(path), "0"])
    assert second.returncode == 0
    assert outside.lines() == ["mail", *map(str, range(1, 26))]


@pytest.mark.parametrize("where", ["in a step", "before the effect"])
def test_a_stopped_worker_that_wakes_up_late_changes_nothing(path: Path, where: str) -> None:
    outside = Outside(path.with_suffix(".out"))
    process = subprocess.Popen([sys.executable, PROGRAM, "zombie", str(path), where], stdout=subprocess.PIPE, text=True)
    wait_for(path.with_suffix(".there"))
    process.send_signal(signal.SIGSTOP)
    path.with_suffix(".go").touch()
    with open_memory(path) as memory:
        with pytest.raises(TaskClaimed), memory.task(TASK):
            pass
        taken_over(memory, outside, where)
        before = (memory.timeline(TASK), memory.list(), outside.lines())
        process.send_signal(signal.SIGCONT)
        told, _ = process.communicate(timeout=30)
        assert told.startswith("LeaseLost:")
        assert (memory.timeline(TASK), memory.list(), outside.lines()) == before
    assert outside.lines() == ["one", "mail"]


def taken_over(memory, outside: Outside, where: str) -> None:  # type: ignore[no-untyped-def]
    ends = time.monotonic() + 20
    while True:
        try:
            with memory.task(TASK) as run:
                run.step("one", outside.do, "one")
                if where == "in a step":
                    run.step("two", lambda: None)
                run.effect("mail", lambda: outside.do("mail"))
                run.remember_step("note", "Written by the second worker.")
            return
        except TaskClaimed:
            assert time.monotonic() < ends, "the lease of a stopped worker never ran out"
            time.sleep(0.05)
        except StepAmbiguous as halted:
            memory.resolve(TASK, halted.step, "failed")


@pytest.mark.parametrize(("workers", "tasks"), [(3, 24), pytest.param(8, 200, marks=pytest.mark.slow)])
def test_many_workers_and_random_kills_do_each_task_once(path: Path, workers: int, tasks: int) -> None:
    chance = random.Random(workers * tasks)
    running = [started(path, tasks, seed) for seed in range(workers)]
    seed, kills = workers, 0
    ends = time.monotonic() + 600
    while True:
        time.sleep(chance.uniform(0.02, 0.12))
        done = [pid for pid in running if os.waitpid(pid, os.WNOHANG)[0]]
        running = [pid for pid in running if pid not in done]
        if not running:
            break
        assert time.monotonic() < ends
        if done:
            continue  # the first to see all tasks done: the others will, too
        victim = chance.choice(running)
        os.kill(victim, signal.SIGKILL)
        os.waitpid(victim, 0)
        running.remove(victim)
        kills += 1
        running.append(started(path, tasks, seed := seed + 1))
        time.sleep(0.3)
    names = [f"task {number}" for number in range(tasks)]
    assert Counter(Outside(path.with_suffix(".out")).lines()) == Counter(names)
    with open_memory(path) as memory:
        assert Counter(one.task for one in memory.tasks(status="done", limit=1_000)) == Counter(names)
        assert Counter(item.text for item in memory.list(limit=1_000)) == Counter(
            f"{one} was shipped." for one in names
        )
    print(workers, "workers,", tasks, "tasks,", kills, "kills")  # noqa: T201
    assert kills > 0


def started(path: Path, tasks: int, seed: int) -> int:
    pid = os.fork()
    if pid == 0:
        try:
            task_program.worker(path, tasks, seed)
            os._exit(0)
        finally:
            os._exit(1)
    return pid


def wait_for(path: Path) -> None:
    ends = time.monotonic() + 30
    while not path.exists():
        assert time.monotonic() < ends, f"{path.name} never came"
        time.sleep(0.01)
