"""Commands for durable tasks: list, show, resume, resolve, signal, park, cancel, prune."""

from __future__ import annotations

import json
import shlex
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import click

from engrain.cli.command import MemoryGroup, parse_json
from engrain.cli.context import CommandContext, confirm
from engrain.cli.output import bold, dim, escape, print_lines, wrap
from engrain.core.errors import NotFound
from engrain.core.model.tasks import CHECKPOINT_VERSION, ENDED_STATUSES
from engrain.core.validation import count_noun

if TYPE_CHECKING:
    from engrain.core.model.tasks import StepRecord, TaskRecord
    from engrain.memory import Memory
    from engrain.tasks.manage_tasks import Timeline

POLL_SECONDS = 0.3  # between two reads of a running task
STATUS_COLOURS = {
    "running": "cyan", "waiting": "cyan", "done": "green", "parked": "yellow", "failed": "red", "expired": "red",
    "cancelled": None,
}  # fmt: skip
STEP_MARKS = {
    "done": ("✓", "green"), "failed": ("✗", "red"), "ambiguous": ("?", "yellow"), "skipped": ("–", "white"),
    "intent": ("…", "cyan"),
}  # fmt: skip


@click.group(
    "tasks",
    cls=MemoryGroup,
    invoke_without_command=True,
    examples=("engrain tasks", "engrain tasks --status parked", "engrain tasks show order-42"),
    prints="Each task with its status, newest first. With --json, JSON Lines: one task a line.",
)
@click.option(
    "--status", type=click.Choice(list(STATUS_COLOURS)), multiple=True, help="Only tasks in this state; repeatable."
)
@click.option("--limit", "-n", type=int, default=100, show_default=True, help="Maximum number of tasks.")
@click.pass_context
def tasks(ctx: click.Context, status: tuple[Any, ...], limit: int) -> None:
    """List durable tasks and control them."""
    if ctx.invoked_subcommand:
        return
    cli: CommandContext = ctx.obj
    with cli.read_memory() as memory:
        count = cli.print_each(memory.tasks.list(status=status, limit=limit), _format_task)
    if not count and not cli.json:
        click.echo(dim("No such task." if status else "No task has been started here yet."), err=True)


@tasks.subcommand(
    "show",
    examples=("engrain tasks show order-42", "engrain tasks show order-42 --follow"),
    prints="The task, and each step: ✓ done, ✗ failed, ? ambiguous, – skipped, … running; with its duration.",
)
@click.argument("task")
@click.option("--follow", "-f", is_flag=True, help="Print steps as they happen, until the task ends or stops.")
def show(cli: CommandContext, task: str, follow: bool) -> None:
    """Show a task and the timeline of its steps."""
    with cli.read_memory() as memory:
        found = memory.tasks.timeline(task)
        if not follow:
            cli.print_result(found, lambda: _format_timeline(found))
            return
        if not cli.json:
            print_lines(_format_task(found.task))
        _print_steps(cli, memory, task)


@tasks.subcommand(
    "resume",
    examples=("engrain tasks resume order-42",),
    prints="The task and its state.",
)
@click.argument("task")
def resume(cli: CommandContext, task: str) -> None:
    """Let a parked task continue with the next recover() of a worker."""
    with cli.open_memory() as memory:
        found = memory.tasks.resume(task)
    cli.print_result(found, lambda: _format_task(found))


@tasks.subcommand(
    "resolve",
    examples=(
        "engrain tasks resolve order-42 mail done --note 'it is in the outbox'",
        "engrain tasks resolve order-42 charge done --result '{\"id\": 7}'",
        "engrain tasks resolve order-42 mail failed",
    ),
    prints="The step as it is now recorded.",
)
@click.argument("task")
@click.argument("step")
@click.argument("outcome", type=click.Choice(["done", "failed", "skipped"]))
@click.option(
    "--occurrence", type=int, default=0, show_default=True, help="Which one, if several steps have that name."
)
@click.option("--result", metavar="JSON", help="The result of a step that is done.")
@click.option("--note", default="", help="How you know; recorded with the outcome.")
def resolve(cli: CommandContext, task: str, step: str, outcome: Any, result: str | None, **options: Any) -> None:
    """Record whether an interrupted effect happened.

    done: it happened. failed: it did not, and runs again. skipped: it never runs.
    """
    value = parse_json(result, "--result")
    with cli.open_memory() as memory:
        found = memory.tasks.resolve(task, step, outcome, result=value, **options)
        owner = memory.tasks.timeline(task).task
    cli.print_result(found, lambda: _format_step(found, owner))


@tasks.subcommand(
    "signal",
    examples=("engrain tasks signal order-42 approved", "engrain tasks signal order-42 answer --payload '\"yes\"'"),
    prints="Whether the event is new. If the task already has an event of that name, the first one counts.",
)
@click.argument("task")
@click.argument("event")
@click.option("--payload", metavar="JSON", help="The value that the task receives; default: null.")
def signal(cli: CommandContext, task: str, event: str, payload: str | None) -> None:
    """Send an event that a task waits for, such as an approval."""
    value = parse_json(payload, "--payload")
    with cli.open_memory() as memory:
        new = memory.tasks.signal(task, event, value)
        try:
            memory.tasks.timeline(task)
        except NotFound:
            click.echo(f"note: there is no task {escape(task)!r} yet: the event waits for it.", err=True)
    repeated = f"{escape(task)} already has the event {escape(event)}: the first one counts."
    fresh = (
        f"{escape(task)} has the event {escape(event)}. It continues now if it is waiting, or at the next recover()."
    )
    cli.print_result({"task": task, "event": event, "new": new}, lambda: [fresh if new else repeated])


@tasks.subcommand(
    "park",
    examples=("engrain tasks park order-42 --why 'wait for Ana'",),
    prints="The task and its state. A worker that still runs it is stopped at its next write.",
)
@click.argument("task")
@click.option("--why", default="", help="Shown with the task.")
def park(cli: CommandContext, task: str, why: str) -> None:
    """Pause a task until somebody resumes it."""
    with cli.open_memory() as memory:
        found = memory.tasks.park(task, why)
    cli.print_result(found, lambda: _format_task(found))


@tasks.subcommand(
    "cancel",
    examples=("engrain tasks cancel order-42 --why 'no longer wanted'",),
    prints="The task and its state. It cannot be continued.",
)
@click.argument("task")
@click.option("--why", default="", help="Shown with the task.")
def cancel(cli: CommandContext, task: str, why: str) -> None:
    """End a task for good."""
    with cli.open_memory() as memory:
        found = memory.tasks.cancel(task, why)
    cli.print_result(found, lambda: _format_task(found))


@tasks.subcommand(
    "prune",
    examples=("engrain tasks prune --yes", "engrain tasks prune --days 30", "engrain tasks prune order-42"),
    prints="The number of removed tasks. Only ended tasks are removed. Older backups still have them.",
)
@click.argument("task", required=False)
@click.option(
    "--days", type=float, default=7.0, show_default=True, help="Remove tasks that ended at least this many days ago."
)
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
def prune(cli: CommandContext, task: str | None, days: float, yes: bool) -> None:
    """Remove ended tasks and their steps: old ones, or the one that is named."""
    cli.check_store_exists()
    what = f"the tasks that ended at least {days:g} days ago" if task is None else f"task {task!r}"
    confirm(f"Remove {what} for good?", yes)
    with cli.open_memory() as memory:
        if task is None:
            count = memory.tasks.prune(days * 86_400)
        else:
            memory.tasks.remove(task)
            count = 1
    cli.print_result({"removed": count}, lambda: [f"Removed {count_noun(count, 'task')}."])


def _print_steps(cli: CommandContext, memory: Memory, task: str) -> None:
    """Print each step whenever its state changes, until the task ends."""
    shown: set[tuple[str, int, int, str]] = set()
    while True:
        found = memory.tasks.timeline(task)
        for step in found.steps:
            key = (step.name, step.occurrence, step.attempt, step.status)
            if key not in shown:
                shown.add(key)
                cli.print_each([step], lambda step, task=found.task: _format_step(step, task))  # type: ignore[misc]
        if found.task.status != "running":
            return
        time.sleep(POLL_SECONDS)


def _format_task(task: TaskRecord) -> Iterator[str]:
    is_checkpoint = task.version == CHECKPOINT_VERSION
    # Nobody runs a checkpoint: its last writer may be gone.
    runs = not is_checkpoint or task.status in ENDED_STATUSES
    status = click.style((task.status if runs else "kept").ljust(9), fg=STATUS_COLOURS.get(task.status))
    yield f"{status} {bold(escape(task.task))}" + (f"  {escape(task.goal)}" if task.goal else "")
    parts = [f"started {task.started_at:%Y-%m-%d %H:%M}"]
    if task.ended_at:
        parts.append(f"ended {task.ended_at:%Y-%m-%d %H:%M}")
    if task.worker and runs:
        # A worker's other parts only tell processes apart.
        host, *_, process = task.worker.split("/")[:3]
        parts.append(f"run by process {process} on {host}" if task.worker.count("/") == 4 else f"run by {task.worker}")
    if task.epoch > 1 and not is_checkpoint:
        parts.append(f"claimed {task.epoch} times")
    if task.version:
        parts.append("a checkpoint" if is_checkpoint else f"version {task.version}")
    yield dim(" " * 10 + escape(" · ".join(parts)))
    if task.outcome:
        yield from wrap(task.outcome, " " * 10)


def _format_timeline(timeline: Timeline) -> Iterator[str]:
    from engrain.tasks.result_encoding import decode

    yield from _format_task(timeline.task)
    yield ""
    if timeline.task.version == CHECKPOINT_VERSION:
        yield from wrap(json.dumps(decode(timeline.task.snapshot), ensure_ascii=False, indent=2))
        return
    left = max((len(_label(step)) for step in timeline.steps), default=0)
    for step in timeline.steps:
        yield from _format_step(step, timeline.task, left)
    if not timeline.steps:
        yield dim("No step yet.")


def _format_step(step: StepRecord, task: TaskRecord, left: int = 24) -> Iterator[str]:
    mark, colour = STEP_MARKS[step.status]
    name = escape(_label(step)).ljust(min(left, 40))
    details = [f"started {step.began_at:%H:%M:%S}"]
    if step.ended_at:
        seconds = (step.ended_at - step.began_at).total_seconds()
        short = f"{1000 * seconds:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"
        details = [short if seconds < 120 else f"{seconds / 60:.0f} min"]
    if step.attempt > 1:
        details.append(f"attempt {step.attempt}")
    if step.kind in ("sleep", "event") and step.status == "intent" and step.input:
        details.append(f"until {step.input}")
    yield f"{click.style(mark, fg=colour, bold=True)} {name}  {step.kind.ljust(6)}  {dim(' · '.join(details))}"
    if step.error:
        yield from map(dim, wrap(step.error, "    "))
    if step.status == "ambiguous" or (step.status == "intent" and step.kind == "effect" and task.worker is None):
        number = f" --occurrence {step.occurrence}" if step.occurrence else ""
        yield from wrap(f"It may or may not have happened. Look for its key {step.key}, then record it:", "    ")
        words = shlex.join([escape(task.task), escape(step.name)])
        yield f"    engrain tasks resolve {words} done|failed|skipped{number}"


def _label(step: StepRecord) -> str:
    return step.name + (f" #{step.occurrence}" if step.occurrence else "")
