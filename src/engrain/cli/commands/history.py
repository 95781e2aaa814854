"""Commands about what happened and how things are done: sessions, episodes, procedures."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from engrain.cli.command import verb
from engrain.cli.context import Session
from engrain.cli.output import faint, many, safe, strong, wrapped
from engrain.core.errors import NotFound

if TYPE_CHECKING:
    from engrain.core.model.messages import Message
    from engrain.core.model.procedures import Procedure
    from engrain.core.model.sessions import Event, SessionInfo


@verb(
    "sessions",
    examples=("engrain sessions", "engrain sessions monday", "engrain sessions monday --json"),
    prints="The sessions, newest first, each with its summary; or the messages of the one that is named.",
)
@click.argument("session", required=False)
@click.option("--limit", "-n", type=click.IntRange(1, 10_000), default=20, show_default=True, help="How many.")
def sessions(cli: Session, session: str | None, limit: int) -> None:
    """List sessions, or show what was said in one."""
    with cli.looking() as memory:
        if session is None:
            found = memory.sessions(limit)
            cli.answer(found, lambda: [text for one in found for text in _listed(one)] or ["No session yet."])
            return
        if not any(one.session == session for one in memory.sessions(10_000)):
            raise NotFound(f"there is no session {session!r}. `engrain sessions` lists them.")
        said = memory.messages(limit, session=session)
    cli.answer(said, lambda: [text for one in said for text in _said(one)])


@verb(
    "episodes",
    examples=("engrain episodes", "engrain episodes --session monday", "engrain episodes --important"),
    prints="What happened lately, newest first, with what each is important for.",
)
@click.option("--session", help="Of one session only.")
@click.option("--important", is_flag=True, help="What matters most of the last seven days, the most important first.")
@click.option("--limit", "-n", type=click.IntRange(1, 10_000), default=20, show_default=True, help="How many.")
def episodes(cli: Session, session: str | None, important: bool, limit: int) -> None:
    """List what happened lately."""
    if session and important:
        raise click.UsageError("--important looks at all sessions: leave --session out.")
    with cli.looking() as memory:
        found = memory.episodic.important(limit) if important else memory.episodic.recent(limit, session)
    cli.answer(found, lambda: [text for one in found for text in _happened(one)] or ["Nothing happened lately."])


@verb(
    "procedures",
    examples=("engrain procedures", "engrain procedures deploy", 'engrain procedures --goal "get a release out"'),
    prints="Names with their record; or every version of the one that is named; or what fits a goal, best first.",
)
@click.argument("name", required=False)
@click.option("--goal", help="Find what fits a goal instead.")
def procedures(cli: Session, name: str | None, goal: str | None) -> None:
    """List ways of doing things, and how they turned out."""
    if name and goal:
        raise click.UsageError("Give a name or --goal, not both.")
    with cli.looking(embeds=goal or "") as memory:
        if name and not memory.procedural.versions(name):
            raise NotFound(f"there is no procedure {name!r}. `engrain procedures` lists them.")
        if goal:
            found = memory.procedural.find(goal)
        elif name:
            found = memory.procedural.versions(name)
        else:
            found = [one for known in memory.procedural.names() if (one := memory.procedural.get(known))]
    cli.answer(found, lambda: [text for one in found for text in _procedure(one)] or ["No procedure yet."])


def _listed(one: SessionInfo) -> Iterator[str]:
    when = f"{one.last_at:%Y-%m-%d %H:%M}" if one.last_at else ""
    said = faint(f"{many(one.messages, 'message')}, last {when}")
    yield f"{strong(safe(one.session))}  {said}"
    yield from wrapped(one.summary or "no summary yet", "  ")


def _said(one: Message) -> Iterator[str]:
    yield strong(safe(one.speaker or one.role))
    yield from wrapped(one.text, "  ")


def _happened(one: Event) -> Iterator[str]:
    times = f", {one.count} times" if one.count > 1 else ""
    why = ", ".join(name for name, _ in one.why)
    when, reasons = f"{one.happened_at:%Y-%m-%d %H:%M}", f"{one.importance:.2f}: {why}"
    yield f"{faint(when)}  {strong(one.kind)}{times}  {faint(reasons)}"
    yield from wrapped(one.text, "  ")


def _procedure(one: Procedure) -> Iterator[str]:
    tried = one.tally.successes + one.tally.failures
    record = f"worked {one.tally.successes} of {tried} times, at least {one.rate:.0%}" if tried else "not tried yet"
    version = f"version {one.version}{'' if one.current else ', replaced'}, {record}"
    yield f"{strong(safe(one.name))}  {faint(version)}"
    if one.when:
        yield from wrapped(f"when {one.when}", "  ")
    for number, step in enumerate(one.steps, 1):
        yield from wrapped(f"{number}. {step}", "  ")
