"""Workers are killed, stopped and raced: each task is done once, and a late worker changes nothing."""

from __future__ import annotations

import json
import os
import random
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
import task_program
from forked import end_forked, join_forked, run_forked, start_forked
from task_classes import TASK, Outside, open_memory

from engrain import Memory, StepAmbiguous, TaskClaimed

if not hasattr(os, "fork"):
    pytest.skip("kills need a system that forks", allow_module_level=True)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "store.db"
    open_memory(path).close()
    return path


def test_a_process_killed_in_step_18_of_25_continues_there(path: Path) -> None:
    assert run_forked(task_program.twenty_five, path, 18) == -signal.SIGKILL
    outside = Outside(path.with_suffix(".out"))
    assert outside.lines() == ["mail", *map(str, range(1, 18))]
    assert run_forked(task_program.twenty_five, path, 0) == 0
    assert outside.lines() == ["mail", *map(str, range(1, 26))]


def test_working_memory_survives_a_killed_process(path: Path) -> None:
    for fatal in (2, 4):
        assert run_forked(task_program.thinking, path, fatal) == -signal.SIGKILL
        with open_memory(path) as memory, memory.task(TASK) as run:
            assert run.working.scratchpad == tuple(f"in {number}" for number in range(fatal))
            run.execution.close(KeyboardInterrupt())
    assert run_forked(task_program.thinking, path, None) == 0
    items, thoughts = json.loads(path.with_suffix(".told").read_text())
    assert items == [f"before {number}" for number in range(6)]
    assert thoughts == [f"in {number}" for number in range(6)]


PLACES = ["in a memory step"]
MORE = [
    pytest.param(where, marks=pytest.mark.slow)
    for where in ("before the effect", "in the effect", "in a step", "at the end")
]


@pytest.mark.parametrize("where", [*PLACES, *MORE])
def test_a_stopped_worker_that_wakes_up_late_changes_nothing(path: Path, where: str) -> None:
    outside = Outside(path.with_suffix(".out"))
    process = start_forked(task_program.zombie, path, where)
    with open_memory(path) as memory:
        wait_for(path.with_suffix(".there"))
        assert process.pid
        os.kill(process.pid, signal.SIGSTOP)
        path.with_suffix(".go").touch()
        with pytest.raises(TaskClaimed), memory.task(TASK):
            pass
        taken_over(memory, outside)
        before = (memory.tasks.timeline(TASK), memory.list(), outside.lines())
        os.kill(process.pid, signal.SIGCONT)
        join_forked(process)
        assert path.with_suffix(".told").read_text().startswith("LeaseLost:")
        assert (memory.tasks.timeline(TASK), memory.list(), outside.lines()) == before
        note = "Written by the zombie." if where == "at the end" else "Written by the second worker."
        assert [item.text for item in memory.list()] == [note]
    assert outside.lines() == ["one", "mail"]


def taken_over(memory: Memory, outside: Outside) -> None:
    ends = time.monotonic() + 180
    while True:
        try:
            with memory.task(TASK) as run:
                run.step("one", outside.do, "one")
                run.step("two", lambda: None)
                run.effect("mail", lambda: outside.do("mail"))
                if any(one.name == "note" for one in memory.tasks.timeline(TASK).steps):
                    return
                run.remember_step("note", "Written by the second worker.")
            return
        except TaskClaimed:
            assert time.monotonic() < ends, "the lease of a stopped worker never ran out"
            time.sleep(0.05)
        except StepAmbiguous as halted:
            memory.tasks.resolve(TASK, halted.step, "done" if "mail" in outside.lines() else "failed")


@pytest.mark.parametrize(("workers", "tasks", "kills"), [(3, 24, 3), pytest.param(8, 400, 100, marks=pytest.mark.slow)])
def test_many_workers_and_random_kills_do_each_task_once(
    path: Path, workers: int, tasks: int, kills: int, report_counts: Callable[..., None]
) -> None:
    # Each kill adds further tasks: else a quick machine has done all of them after a few kills.
    shared = task_program.SharedState(workers, workers)
    running = [start_forked(task_program.worker, path, shared, number, number) for number in range(workers)]
    chance, ends = random.Random(workers * tasks), time.monotonic() + 150
    met = started = 0
    while met < kills:
        victim = wait_for_worker_in_task(shared, chance, ends)
        time.sleep(chance.uniform(0, 0.01))
        end_forked(running[victim])
        met += shared.in_task[victim]  # else its task was over
        shared.in_task[victim] = 0
        shared.tasks.value += tasks // kills
        started += 1
        running[victim] = start_forked(task_program.worker, path, shared, victim, workers + started)
    tasks = shared.tasks.value = max(tasks, shared.tasks.value)
    shared.last.value = 1
    assert [join_forked(one) for one in running] == [0] * workers
    names = [f"task {number}" for number in range(tasks)]
    assert Counter(Outside(path.with_suffix(".out")).lines()) == Counter(names)
    with open_memory(path) as memory:
        assert Counter(one.task for one in memory.tasks.list(status="done", limit=2 * tasks)) == Counter(names)
        assert Counter(item.text for item in memory.list(limit=2 * tasks)) == Counter(
            f"{one} was shipped." for one in names
        )
    report_counts(tasks=tasks, kills=met)


def wait_for_worker_in_task(shared: task_program.SharedState, chance: random.Random, ends: float) -> int:
    """Return one of the workers that are in a task. If none is for a while, all tasks are done: add one."""
    while time.monotonic() < ends:
        until = time.monotonic() + 0.1
        while time.monotonic() < until:
            if found := [number for number, there in enumerate(shared.in_task) if there]:
                return chance.choice(found)
            time.sleep(0.0005)
        shared.tasks.value += 1
    raise AssertionError("too few workers were killed in a task")


def wait_for(path: Path) -> None:
    ends = time.monotonic() + 180
    while not path.exists():
        assert time.monotonic() < ends, f"{path.name} never came"
        time.sleep(0.01)
