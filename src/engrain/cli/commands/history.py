"""Commands that read sessions, episodes and procedures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from engrain.cli.command import memory_command
from engrain.cli.context import CommandContext
from engrain.cli.output import bold, dim, escape, wrap
from engrain.core.errors import NotFound
from engrain.core.validation import count_noun

if TYPE_CHECKING:
    from engrain.core.model.messages import Message
    from engrain.core.model.procedures import Procedure
    from engrain.core.model.sessions import Event, SessionInfo


@memory_command(
    "sessions",
    examples=("engrain sessions", "engrain sessions monday", "engrain sessions monday --json"),
    prints="The sessions, newest first, each with its summary; or the messages of SESSION.",
)
@click.argument("session", required=False)
@click.option("--limit", "-n", type=click.IntRange(1, 10_000), default=20, show_default=True, help="Maximum number.")
def sessions(cli: CommandContext, session: str | None, limit: int) -> None:
    """List sessions, or show the messages of one."""
    with cli.read_memory() as memory:
        if session is None:
            found = memory.sessions.list(limit)
            cli.print_result(
                found, lambda: [line for info in found for line in _format_session(info)] or ["No session yet."]
            )
            return
        if not any(info.session == session for info in memory.sessions.list(10_000)):
            raise NotFound(f"there is no session {session!r}. `engrain sessions` lists them.")
        messages = memory.sessions.messages(session, limit)
    cli.print_result(messages, lambda: [line for message in messages for line in _format_message(message)])


@memory_command(
    "episodes",
    examples=("engrain episodes", "engrain episodes --session monday", "engrain episodes --important"),
    prints="Recent events, newest first, each with its importance and the reasons for it.",
)
@click.option("--session", help="Only this session.")
@click.option(
    "--important", is_flag=True, help="The most important events of the last seven days, most important first."
)
@click.option("--limit", "-n", type=click.IntRange(1, 10_000), default=20, show_default=True, help="Maximum number.")
def episodes(cli: CommandContext, session: str | None, important: bool, limit: int) -> None:
    """List recent events."""
    if session and important:
        raise click.UsageError("--important covers all sessions: omit --session.")
    with cli.read_memory() as memory:
        found = memory.episodic.important(limit) if important else memory.episodic.recent(limit, session)
    cli.print_result(found, lambda: [line for event in found for line in _format_event(event)] or ["No recent event."])


@memory_command(
    "procedures",
    examples=("engrain procedures", "engrain procedures deploy", 'engrain procedures --goal "get a release out"'),
    prints="Each procedure and how often it worked; or every version of NAME; or procedures for a goal, best first.",
)
@click.argument("name", required=False)
@click.option("--goal", help="Find procedures for this goal.")
def procedures(cli: CommandContext, name: str | None, goal: str | None) -> None:
    """List procedures and how often each worked."""
    if name and goal:
        raise click.UsageError("Give a name or --goal, not both.")
    with cli.read_memory(embed_first=goal or "") as memory:
        if name and not memory.procedural.versions(name):
            raise NotFound(f"there is no procedure {name!r}. `engrain procedures` lists them.")
        if goal:
            found = memory.procedural.find(goal)
        elif name:
            found = memory.procedural.versions(name)
        else:
            found = [known for each in memory.procedural.names() if (known := memory.procedural.get(each))]
    cli.print_result(
        found, lambda: [line for procedure in found for line in _format_procedure(procedure)] or ["No procedure yet."]
    )


def _format_session(info: SessionInfo) -> Iterator[str]:
    last = f"{info.last_at:%Y-%m-%d %H:%M}" if info.last_at else ""
    messages = count_noun(info.messages, "message")
    yield f"{bold(escape(info.session))}  {dim(f'{messages}, last {last}')}"
    yield from wrap(info.summary or "no summary yet", "  ")


def _format_message(message: Message) -> Iterator[str]:
    yield bold(escape(message.speaker or message.role))
    yield from wrap(message.text, "  ")


def _format_event(event: Event) -> Iterator[str]:
    times = f", {event.count} times" if event.count > 1 else ""
    reasons = ", ".join(name for name, _ in event.why)
    when, importance = f"{event.happened_at:%Y-%m-%d %H:%M}", f"{event.importance:.2f}: {reasons}"
    yield f"{dim(when)}  {bold(event.kind)}{times}  {dim(importance)}"
    yield from wrap(event.text, "  ")


def _format_procedure(procedure: Procedure) -> Iterator[str]:
    tally = procedure.tally
    tried = tally.successes + tally.failures
    record = f"worked {tally.successes} of {tried} times, at least {procedure.rate:.0%}" if tried else "not tried yet"
    version = f"version {procedure.version}{'' if procedure.current else ', replaced'}, {record}"
    yield f"{bold(escape(procedure.name))}  {dim(version)}"
    if procedure.when:
        yield from wrap(f"when {procedure.when}", "  ")
    for number, step in enumerate(procedure.steps, 1):
        yield from wrap(f"{number}. {step}", "  ")
