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
from forked import run_forked, start_forked
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


MANY = 100
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
        process.join(180)
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


@pytest.mark.parametrize(("workers", "tasks"), [(3, 24), pytest.param(8, 400, marks=pytest.mark.slow)])
def test_many_workers_and_random_kills_do_each_task_once(
    path: Path, workers: int, tasks: int, report_counts: Callable[..., None]
) -> None:
    chance = random.Random(workers * tasks)
    running = [start_forked(task_program.worker, path, tasks, seed) for seed in range(workers)]
    seed, kills = workers, 0
    ends = time.monotonic() + 1_800
    while True:
        time.sleep(chance.uniform(0.02, 0.12))
        done = [one for one in running if not one.is_alive()]
        running = [one for one in running if one not in done]
        if not running:
            break
        assert time.monotonic() < ends
        if done:
            continue  # the first to see all tasks done: the others will, too
        victim = chance.choice(running)
        victim.kill()
        victim.join()
        running.remove(victim)
        kills += 1
        running.append(start_forked(task_program.worker, path, tasks, seed := seed + 1))
        time.sleep(0.3)
    names = [f"task {number}" for number in range(tasks)]
    assert Counter(Outside(path.with_suffix(".out")).lines()) == Counter(names)
    with open_memory(path) as memory:
        assert Counter(one.task for one in memory.tasks.list(status="done", limit=1_000)) == Counter(names)
        assert Counter(item.text for item in memory.list(limit=1_000)) == Counter(
            f"{one} was shipped." for one in names
        )
    assert kills >= (MANY if tasks > MANY else 1)
    report_counts(tasks=tasks, kills=kills)


def wait_for(path: Path) -> None:
    ends = time.monotonic() + 180
    while not path.exists():
        assert time.monotonic() < ends, f"{path.name} never came"
        time.sleep(0.01)
