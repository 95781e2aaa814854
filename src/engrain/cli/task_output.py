"""Lines for people about durable tasks: one line a task, and a timeline of its steps."""

from __future__ import annotations

import json
import shlex
from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING

import click

from engrain.cli.output import faint, safe, strong, wrapped
from engrain.core.model.tasks import CHECKPOINT_VERSION, ENDED_STATUSES
from engrain.tasks.serialization import decode

if TYPE_CHECKING:
    from engrain.core.model.tasks import StepRecord, TaskRecord
    from engrain.tasks.admin import Timeline

COLOURS = {"running": "cyan", "waiting": "cyan", "done": "green", "parked": "yellow", "failed": "red", "expired": "red"}
MARKS = {
    "done": ("✓", "green"), "failed": ("✗", "red"), "ambiguous": ("?", "yellow"), "skipped": ("–", "white"),
    "intent": ("…", "cyan"),
}  # fmt: skip


def task_lines(task: TaskRecord) -> Iterator[str]:
    # A checkpoint is held by nobody: whoever wrote it last may be gone.
    held = task.version != CHECKPOINT_VERSION or task.status in ENDED_STATUSES
    status = click.style((task.status if held else "kept").ljust(9), fg=COLOURS.get(task.status))
    yield f"{status} {strong(safe(task.task))}" + (f"  {safe(task.goal)}" if task.goal else "")
    parts = [f"started {task.started_at:%Y-%m-%d %H:%M}"]
    if task.ended_at:
        parts.append(f"ended {task.ended_at:%Y-%m-%d %H:%M}")
    if task.worker and held:
        parts.append(f"run by {worker(task.worker)}")
    if task.epoch > 1 and task.version != CHECKPOINT_VERSION:
        parts.append(f"claimed {task.epoch} times")
    if task.version:
        parts.append("a checkpoint" if task.version == CHECKPOINT_VERSION else f"version {task.version}")
    yield faint(" " * 10 + safe(" · ".join(parts)))
    if task.outcome:
        yield from wrapped(task.outcome, " " * 10)


def timeline_lines(found: Timeline) -> Iterator[str]:
    yield from task_lines(found.task)
    yield ""
    if found.task.version == CHECKPOINT_VERSION:
        yield from wrapped(json.dumps(decode(found.task.snapshot), ensure_ascii=False, indent=2))
        return
    left = max((len(label(step)) for step in found.steps), default=0)
    for step in found.steps:
        yield from step_lines(step, found.task, left)
    if not found.steps:
        yield faint("No step yet.")


def step_lines(step: StepRecord, task: TaskRecord, left: int = 24) -> Iterator[str]:
    mark, colour = MARKS[step.status]
    line = f"{click.style(mark, fg=colour, bold=True)} {safe(label(step)).ljust(min(left, 40))}  {step.kind.ljust(6)}  "
    said = [took(step.ended_at - step.began_at) if step.ended_at else f"begun {step.began_at:%H:%M:%S}"]
    if step.attempt > 1:
        said.append(f"attempt {step.attempt}")
    if step.kind in ("sleep", "event") and step.status == "intent" and step.input:
        said.append(f"until {step.input}")
    yield line + faint(" · ".join(said))
    if step.error:
        yield from (faint(text) for text in wrapped(step.error, "    "))
    if step.status == "ambiguous" or (step.status == "intent" and step.kind == "effect" and task.worker is None):
        number = f" --occurrence {step.occurrence}" if step.occurrence else ""
        yield from wrapped(f"It may or may not have happened. Look for its key {step.key}, then say so:", "    ")
        yield f"    engrain tasks resolve {_quoted(task.task)} {_quoted(step.name)} done|failed|skipped{number}"


def _quoted(name: str) -> str:
    return shlex.quote(safe(name))


def label(step: StepRecord) -> str:
    return step.name + (f" #{step.occurrence}" if step.occurrence else "")


def took(time: timedelta) -> str:
    seconds = time.total_seconds()
    if seconds < 1:
        return f"{1000 * seconds:.0f} ms"
    return f"{seconds:.1f} s" if seconds < 120 else f"{seconds / 60:.0f} min"


def worker(name: str) -> str:
    """Host and process; the rest only serves to tell workers apart."""
    parts = name.split("/")
    return f"process {parts[2]} on {parts[0]}" if len(parts) == 5 else name
