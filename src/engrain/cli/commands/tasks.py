"""Commands about durable tasks: list, show, resume, resolve, signal, park, cancel, prune."""

from __future__ import annotations

import importlib
import json
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import click

from engrain.cli.command import Verb
from engrain.cli.context import Session, confirm
from engrain.cli.output import faint, line, many, safe
from engrain.cli.task_output import step_lines, task_lines, timeline_lines
from engrain.core.errors import EngrainError, InvalidInput, NotFound, TaskWaiting

if TYPE_CHECKING:
    from engrain.core.model.tasks import StepRecord, TaskRecord
    from engrain.memory import Memory

STATUSES = click.Choice(["running", "waiting", "parked", "done", "failed", "cancelled", "expired"])
LOOK = 0.3  # seconds between two looks at a task that runs


class TaskGroup(Verb, click.Group):
    """A verb of the memory with verbs of its own."""


def verb(name: str, *, examples: tuple[str, ...], prints: str) -> Callable[[Callable[..., Any]], click.Command]:
    def made(function: Callable[..., Any]) -> click.Command:
        return tasks.command(name, cls=Verb, examples=examples, prints=prints)(click.pass_obj(function))

    return made


@click.group(
    "tasks",
    cls=TaskGroup,
    invoke_without_command=True,
    examples=("engrain tasks", "engrain tasks --status parked", "engrain tasks show order-42"),
    prints="Each task with its status, newest first. With --json, JSON Lines: one task a line.",
)
@click.option("--status", type=STATUSES, multiple=True, help="Only these; may be given several times.")
@click.option("--limit", "-n", type=int, default=100, show_default=True, help="At most so many.")
@click.pass_context
def tasks(ctx: click.Context, status: tuple[Any, ...], limit: int) -> None:
    """List durable tasks, and look after them."""
    if ctx.invoked_subcommand:
        return
    cli: Session = ctx.obj
    with cli.looking() as memory:
        count = cli.answer_each(memory.tasks.list(status=status, limit=limit), task_lines)
    if not count and not cli.json:
        click.echo(faint("No such task." if status else "No task has been started here yet."), err=True)


@verb(
    "show",
    examples=("engrain tasks show order-42", "engrain tasks show order-42 --follow"),
    prints="The task, and each step: ✓ done, ✗ failed, ? ambiguous, – skipped, … under way; how long it took.",
)
@click.argument("task")
@click.option("--follow", "-f", is_flag=True, help="Print steps as they come, until the task ends or stops.")
def show(cli: Session, task: str, follow: bool) -> None:
    """Show a task with a timeline of its steps."""
    with cli.looking() as memory:
        found = memory.tasks.timeline(task)
        if not follow:
            cli.answer(found, lambda: timeline_lines(found))
            return
        if not cli.json:
            _echo(task_lines(found.task))
        for now, step in _watched(memory, task):
            _echo_step(cli, now, step)


@verb(
    "resume",
    examples=("engrain tasks resume order-42", "engrain tasks resume order-42 --work shop.orders:ship"),
    prints="How the task stands. With --work, each step as it comes.",
)
@click.argument("task")
@click.option("--work", metavar="MODULE:FUNCTION", help="Continue it here: FUNCTION is called with the run.")
def resume(cli: Session, task: str, work: str | None) -> None:
    """Let a parked task go on: a worker's recover() picks it up, or it is continued here."""
    function = _loaded(work) if work else None
    failed: Exception | None = None
    with cli.memory() as memory:
        version = memory.tasks.timeline(task).task.version
        if function is None:
            found = memory.tasks.resume(task)
        else:
            failed = _continue(cli, memory, (task, version), function)
            found = memory.tasks.timeline(task).task
    if failed is not None and cli.json:
        raise failed  # a program gets the document that it gets of every error
    cli.answer(found, lambda: task_lines(found))
    if failed is not None:
        click.echo(_own_lines(failed), nl=False, err=True)
        raise click.exceptions.Exit(1)


@verb(
    "resolve",
    examples=(
        "engrain tasks resolve order-42 mail done --note 'it is in the outbox'",
        "engrain tasks resolve order-42 charge done --result '{\"id\": 7}'",
        "engrain tasks resolve order-42 mail failed",
    ),
    prints="The step as it is recorded now.",
)
@click.argument("task")
@click.argument("step")
@click.argument("outcome", type=click.Choice(["done", "failed", "skipped"]))
@click.option("--occurrence", type=int, default=0, show_default=True, help="Which of several steps of that name.")
@click.option("--result", metavar="JSON", help="What the step returned, if it is done.")
@click.option("--note", default="", help="How you know; recorded with your word.")
def resolve(cli: Session, task: str, step: str, outcome: Any, result: str | None, **options: Any) -> None:
    """Settle an effect that may or may not have happened.

    done: it happened. failed: it did not, and is done again. skipped: it is left out.
    """
    value = _json(result, "--result")
    with cli.memory() as memory:
        found = memory.tasks.resolve(task, step, outcome, result=value, **options)
        owner = memory.tasks.timeline(task).task
    cli.answer(found, lambda: step_lines(found, owner))


@verb(
    "signal",
    examples=("engrain tasks signal order-42 approved", "engrain tasks signal order-42 answer --payload '\"yes\"'"),
    prints="That the task has the event now; or that it had one of that name, which counts.",
)
@click.argument("task")
@click.argument("event")
@click.option("--payload", metavar="JSON", help="What the task gets with it; else null.")
def signal(cli: Session, task: str, event: str, payload: str | None) -> None:
    """Deliver an event that a task waits for, such as an approval."""
    value = _json(payload, "--payload")
    with cli.memory() as memory:
        new = memory.tasks.signal(task, event, value)
        try:
            memory.tasks.timeline(task)
        except NotFound:
            click.echo(f"note: there is no task {safe(task)!r} yet: the event waits for it.", err=True)
    had = f"{safe(task)} had the event {safe(event)} already: the first one counts."
    told = f"{safe(task)} has the event {safe(event)}: it goes on where it waits, or at the next recover()."
    cli.answer({"task": task, "event": event, "new": new}, lambda: [told if new else had])


@verb(
    "park",
    examples=("engrain tasks park order-42 --why 'wait for Ana'",),
    prints="How the task stands. Whoever runs it is fenced off at its next write.",
)
@click.argument("task")
@click.option("--why", default="", help="Shown with the task.")
def park(cli: Session, task: str, why: str) -> None:
    """Stop a task until somebody resumes it."""
    with cli.memory() as memory:
        found = memory.tasks.park(task, why)
    cli.answer(found, lambda: task_lines(found))


@verb(
    "cancel",
    examples=("engrain tasks cancel order-42 --why 'no longer wanted'",),
    prints="How the task stands. It cannot be continued.",
)
@click.argument("task")
@click.option("--why", default="", help="Shown with the task.")
def cancel(cli: Session, task: str, why: str) -> None:
    """End a task for good."""
    with cli.memory() as memory:
        found = memory.tasks.cancel(task, why)
    cli.answer(found, lambda: task_lines(found))


@verb(
    "prune",
    examples=("engrain tasks prune --yes", "engrain tasks prune --days 30", "engrain tasks prune order-42"),
    prints="How many tasks were removed. Never one that has not ended. A backup from before still has them.",
)
@click.argument("task", required=False)
@click.option("--days", type=float, default=7.0, show_default=True, help="Those that ended so long ago.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
def prune(cli: Session, task: str | None, days: float, yes: bool) -> None:
    """Remove tasks that ended some time ago, with their steps; or this one, whenever it ended."""
    cli.must_exist()
    what = f"the tasks that ended {days:g} days ago" if task is None else f"task {task!r}"
    confirm(f"Remove {what} for good?", yes)
    with cli.memory() as memory:
        if task is None:
            count = memory.tasks.prune(days * 86_400)
        else:
            memory.tasks.remove(task)
            count = 1
    cli.answer({"removed": count}, lambda: [f"Removed {many(count, 'task')}."])


def _watched(
    memory: Memory, task: str, ended: threading.Event | None = None
) -> Iterator[tuple[TaskRecord, StepRecord]]:
    """Each step once when it begins to be seen and once when it is settled, until the task is over."""
    shown: set[tuple[str, int, int, str]] = set()
    while True:
        over = ended is not None and ended.is_set()
        found = memory.tasks.timeline(task)
        for step in found.steps:
            key = (step.name, step.occurrence, step.attempt, step.status)
            if key not in shown:
                shown.add(key)
                yield found.task, step
        if over or (ended is None and found.task.status != "running"):
            return
        time.sleep(LOOK)


def _continue(cli: Session, memory: Memory, task: tuple[str, str], function: Callable[[Any], Any]) -> Exception | None:
    """Run it on this thread while another prints what comes; an error of the function's own."""
    name, version = task
    ended = threading.Event()

    def printed() -> None:
        for now, step in _watched(memory, name, ended):
            _echo_step(cli, now, step)

    watcher = threading.Thread(target=printed, daemon=True)
    try:
        with suppress(TaskWaiting), memory.task(name, version=version) as run:
            watcher.start()
            try:
                function(run)
            finally:
                ended.set()
                watcher.join()
    except (EngrainError, BrokenPipeError):
        raise
    except Exception as exc:  # noqa: BLE001  # the task is parked with it, and its author is to see where
        return exc
    return None


def _own_lines(error: Exception) -> str:
    """Where it comes from, without the way through this command."""
    trace = error.__traceback__
    while trace is not None and trace.tb_frame.f_code.co_filename == __file__:
        trace = trace.tb_next
    return "".join(traceback.format_exception(error.with_traceback(trace)))


def _echo_step(cli: Session, task: TaskRecord, step: StepRecord) -> None:
    if cli.json:
        click.echo(line(step))
    else:
        _echo(step_lines(step, task))


def _echo(lines: Iterator[str]) -> None:
    for text in lines:
        click.echo(text)


def _loaded(work: str) -> Callable[[Any], Any]:
    module, found, name = work.partition(":")
    if not found:
        raise click.UsageError("--work names a function as MODULE:FUNCTION, such as shop.orders:ship.")
    sys.path.insert(0, "")
    try:
        function = getattr(importlib.import_module(module), name)
    except (ImportError, AttributeError) as exc:
        raise click.UsageError(f"--work: {exc}.") from exc
    if not callable(function):
        raise click.UsageError(f"--work: {work} is not a function.")
    return function  # type: ignore[no-any-return]


def _json(text: str | None, option: str) -> Any:
    if text is None:
        return None
    try:
        return json.loads(text)
    except ValueError as exc:
        raise InvalidInput(f"{option} is not JSON: {exc}.") from exc
