"""Workers of durable tasks, to be killed, stopped and raced in processes of their own."""

from __future__ import annotations

import json
import multiprocessing
import os
import random
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from task_classes import TASK, Outside, open_memory

from engrain import LeaseLost, Run, TaskClaimed
from engrain.ingest import write
from engrain.tasks.lease import LeaseHolder


def twenty_five(path: Path, fatal: int) -> None:
    """25 steps; at one of them the process is killed, after an effect that must not happen twice."""
    outside = Outside(path.with_suffix(".out"))
    with open_memory(path) as memory, memory.task(TASK) as run:
        run.effect("mail", outside.do, "mail")
        for number in range(1, 26):
            if number == fatal:
                run.step(f"step {number}", lambda: os.kill(os.getpid(), signal.SIGKILL))
            run.step(f"step {number}", outside.do, str(number))


def thinking(path: Path, fatal: int | None) -> None:
    """Notes in working memory what it does, in its steps and between them."""
    with open_memory(path) as memory, memory.task(TASK) as run:
        for number in range(6):
            run.working.add(f"before {number}")
            if number == fatal:
                run.step(f"step {number}", lambda: os.kill(os.getpid(), signal.SIGKILL))
            run.step(f"step {number}", run.working.add_thought, f"in {number}")
        thoughts = [[item.text for item in run.working.items], run.working.scratchpad]
        path.with_suffix(".told").write_text(json.dumps(thoughts))


def zombie(path: Path, where: str) -> None:
    """Holds a short lease, tells that it has come to a place, and is stopped there by the test."""
    outside = Outside(path.with_suffix(".out"))

    def come_to(place: str) -> None:
        if place == where:
            path.with_suffix(".there").touch()
            while not path.with_suffix(".go").exists():
                time.sleep(0.005)

    def send() -> None:
        outside.do("mail")
        come_to("in the effect")

    assure, drafts = LeaseHolder.ensure_time_left, write.build_drafts

    def assured(tenure: LeaseHolder) -> None:
        if where == "before the effect":
            tenure.stop()  # the thread that shows signs of life wakes up even later
        come_to("before the effect")
        assure(tenure)

    def embedded(*given: Any) -> Any:
        come_to("in a memory step")
        return drafts(*given)

    LeaseHolder.ensure_time_left, write.build_drafts = assured, embedded  # type: ignore[method-assign]
    try:
        with open_memory(path) as memory, memory.task(TASK, lease=2) as run:
            run.step("one", outside.do, "one")
            run.step("two", lambda: come_to("in a step"))
            run.effect("mail", send)
            run.remember_step("note", "Written by the zombie.")
            come_to("at the end")
    except LeaseLost as lost:
        path.with_suffix(".told").write_text(f"LeaseLost: {lost}")


class SharedState:
    """What the workers share with the test that kills them: how many tasks there are, and which workers are in one."""

    def __init__(self, workers: int, tasks: int) -> None:
        self.tasks = multiprocessing.RawValue("i", tasks)
        self.last = multiprocessing.RawValue("b", 0)  # 1: no task follows
        self.in_task = multiprocessing.RawArray("b", workers)

    @contextmanager
    def mark_in_task(self, worker: int) -> Iterator[None]:
        """A worker that is killed in the block leaves its mark."""
        self.in_task[worker] = 1
        try:
            yield
        finally:
            self.in_task[worker] = 0


def worker(path: Path, shared: SharedState, number: int, seed: int) -> None:
    """Goes through the tasks in an order of its own until all are done."""
    outside = Outside(path.with_suffix(".out"))
    order, done = random.Random(seed), set[int]()
    with open_memory(path) as memory:
        while True:
            last = shared.last.value  # before the tasks: none is added after it
            left = [task for task in range(shared.tasks.value) if task not in done]
            if not left and last:
                return
            if not left:
                time.sleep(0.0005)
                continue
            task = order.choice(left)
            try:
                with memory.task(f"task {task}", lease=5) as run:
                    if run.status == "running":
                        with shared.mark_in_task(number):
                            one_task(run, outside, f"task {task}")
                done.add(task)
            except TaskClaimed:
                time.sleep(0.002)


def one_task(run: Run, outside: Outside, name: str) -> None:
    run.step("plan", lambda: {"plan": name})
    run.effect("ship", outside.do, name, on_ambiguous=outside.done)
    run.remember_step("note", f"{name} was shipped.")
