"""Ctrl-C while a task is entered, worked on or left, wherever it lands: no claim outlives its call."""

from __future__ import annotations

import gc
import random
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from engrain_conformance.embedder import HashEmbedder
from test_interrupts import Interrupt

from engrain import Memory
from engrain.tasks import run as runs

SOURCE = str(Path(runs.__file__).parents[1])


def work(memory: Memory, task: str) -> None:
    with memory.task(task, goal="ship it", lease=3_600) as run:
        run.step("pack", lambda: 1)
        run.effect("mail", lambda: 2, on_ambiguous="retry")
        run.outcome = "sent"


def count_points(memory: Memory) -> int:
    counted = Interrupt(10**9, (SOURCE,))
    counted.during(lambda: work(memory, "counted"))
    return 10**9 - counted.left


def renewals() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name == "engrain-lease"]


@pytest.mark.parametrize("count", [100, pytest.param(2_000, marks=pytest.mark.slow)])
def test_no_claim_outlives_its_call(tmp_path: Path, count: int, report_counts: Callable[..., None]) -> None:
    chosen, ended = random.Random(count), Counter[str]()
    with Memory(tmp_path / "store.db", user="ana", embedder=HashEmbedder(), background=False) as memory:
        work(memory, "warm")
        points = count_points(memory)
        assert points > 200
        for number in range(count):
            # Every point of the run in turn, then any.
            point = number * points // min(count, points) if number < points else chosen.randrange(points)
            task, interrupt = f"task {number}", Interrupt(point, (SOURCE,))
            raised = interrupt.during(lambda: work(memory, task))  # noqa: B023
            assert interrupt.happened, point
            ended["raised" if raised else "swallowed"] += 1
            del raised
            found = memory.tasks.get(task)
            if found is not None and found.worker is not None:
                # At the first instant of __exit__: the thread gives it back when the run is dropped.
                gc.collect()
                for thread in renewals():
                    thread.join(180)
                ended["given back by the thread"] += 1
                found = memory.tasks.get(task)
            ended[found.status if found else "not begun"] += 1
            work(memory, task)  # TaskClaimed if the claim had outlived its call
            done = memory.tasks.get(task)
            assert done is not None
            assert done.status == "done"
            assert len(memory.list({"source": task})) == 1
        for thread in renewals():
            thread.join(180)
        assert renewals() == []
    report_counts(interrupts=count, points=points, **ended)


def test_a_run_that_is_dropped_gives_its_task_back(tmp_path: Path) -> None:
    with Memory(tmp_path / "store.db", user="ana", embedder=HashEmbedder(), background=False) as memory:
        run = memory.task("order", lease=3_600)
        run.__enter__()
        (thread,) = renewals()
        del run
        gc.collect()
        thread.join(180)
        work(memory, "order")
