"""Workers of durable tasks, to be killed, stopped and raced in processes of their own."""

from __future__ import annotations

import json
import os
import random
import signal
import time
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


def worker(path: Path, tasks: int, seed: int) -> None:
    """Goes through the tasks in an order of its own until all are done."""
    outside = Outside(path.with_suffix(".out"))
    order = random.Random(seed)
    with open_memory(path) as memory:
        left = [f"task {number}" for number in range(tasks)]
        while left:
            name = order.choice(left)
            try:
                with memory.task(name, lease=5) as run:
                    if run.status == "running":
                        one_task(run, outside, name)
                left.remove(name)
            except TaskClaimed:
                time.sleep(0.002)


def one_task(run: Run, outside: Outside, name: str) -> None:
    run.step("plan", lambda: {"plan": name})
    run.effect("ship", outside.do, name, on_ambiguous=outside.done)
    run.remember_step("note", f"{name} was shipped.")
