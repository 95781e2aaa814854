"""The command that goes through the checklist."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from engrain.cli.command import verb
from engrain.cli.context import Session
from engrain.cli.output import faint, many, progress, safe, strong, width, wrapped
from engrain.core.errors import BackendMissing, ConfigError, EmptyText, InvalidInput, StoreError
from engrain.core.identity import Scope
from engrain.core.model.results import GROUPS, NOT_OPENED, split_commands, summarize_checks

if TYPE_CHECKING:
    from engrain.core.model.results import CheckResult
    from engrain.memory import Memory

MARKS = {"pass": ("✓", "green"), "warn": ("!", "magenta"), "fail": ("✗", "red"), "unknown": ("?", "yellow")}
POINTS = 35
EVERY = "every memory of the store"


@verb(
    "doctor",
    examples=(
        "engrain doctor",
        "engrain doctor --user ana",
        "engrain doctor --strict --json",
        "engrain doctor --rebuild",
    ),
    prints="35 points in groups, each as passed (✓), to be looked at (!), failed (✗) or not checked (?), with why and "
    "what mends it; docs/reference/checklist.md explains them. Exit code 0 if none failed, 1 on ✗ (with --strict on ! "
    "and ? as well) and if there is no such store, 2 if the command is not understood.",
)
@click.option("--rebuild", is_flag=True, help="First make every index anew from the stored texts.")
@click.option("--everyone", is_flag=True, help="Every memory of the store, though a user, agent or tenant is set.")
@click.option("--strict", is_flag=True, help="Exit code 1 if there is anything to look at, for scripts.")
def doctor(cli: Session, rebuild: bool, everyone: bool, strict: bool) -> None:
    """Go through the checklist of a memory in production.

    Of every memory of the store; if a user, an agent or a tenant is named, of that one memory.
    """
    everyone = everyone or not (cli.user or cli.agent or cli.tenant)
    scope = Scope(cli.tenant, cli.agent, cli.user)  # a name that cannot be is an error of who types it
    whose = EVERY if everyone else str(scope)
    about: dict[str, Any] = {"memory": whose, "rebuilt": None}
    points = _examined(cli, rebuild, about)
    failed = any(one.state == "fail" for one in points)
    counts = {state: sum(one.state == state for one in points) for state in MARKS}
    told = {"ok": not failed, **about, "counts": counts, "counted": summarize_checks(points), "findings": points}
    cli.answer(told, lambda: _report(points, about))
    if failed or (strict and any(one.state != "pass" for one in points)):
        click.get_current_context().exit(1)


def _examined(cli: Session, rebuild: bool, about: dict[str, Any]) -> list[CheckResult]:
    try:
        with cli.memory(read_only=not rebuild and _all_seen(cli)) as memory:
            if rebuild:
                with progress("Embedding", None, cli.json) as done:
                    about["rebuilt"] = memory.store.rebuild(progress=done)
            everyone = about["memory"] == EVERY
            about["empty"] = _empty(memory, everyone)
            with progress("Checking", POINTS, cli.json) as done:
                return memory.store.doctor(None if everyone else memory.scope, progress=done)
    except EmptyText:  # a name on the command line
        raise
    except (StoreError, ConfigError, BackendMissing, InvalidInput) as error:
        from engrain.health import explain_unopened

        return explain_unopened(error, cli.store)


def _empty(memory: Memory, everyone: bool) -> bool:
    try:
        return not (memory.store.memories() if everyone else memory.list(limit=1))
    except ValueError:  # a damaged row is there, and its point says so
        return False


def _all_seen(cli: Session) -> bool:
    """Whether a memory that is only read shows all of it: it leaves the servers alone that copies are brought to."""
    from engrain.config import settings

    chosen = settings(cli.store)
    return not (chosen.vectors or chosen.sessions)


def _report(points: Sequence[CheckResult], about: Mapping[str, Any]) -> Iterator[str]:
    if about["rebuilt"] is not None:
        yield f"Made every index anew from {many(about['rebuilt'], 'item')}."
    if "empty" not in about:
        yield "The store does not open."
    elif about["memory"] == EVERY:
        yield "The store is empty." if about["empty"] else "Looked at: every memory of the store."
    elif about["empty"]:
        # Most points then pass for want of anything to look at.
        yield f"The memory looked at, {about['memory']}, is empty. Name yours with --user, --agent, --tenant."
    else:
        yield f"The memory looked at: {about['memory']}."
    shown = [one for one in points if one.why != NOT_OPENED]
    left = max(len(one.name) for one in shown)
    for group in GROUPS:
        inside = [one for one in shown if one.group == group]
        if inside:
            well = sum(one.state == "pass" for one in inside)
            yield strong(group.capitalize()) + faint(f"  {well} of {len(inside)}")
        for one in inside:
            yield from _lines(one, left)
    yield ""
    if amiss := [f"{one.number} {one.name}" for one in shown if one.state != "pass"]:
        yield from wrapped(f"See above: {', '.join(amiss)}. docs/reference/checklist.md explains each.", longest=None)
    yield summarize_checks(points)


def _lines(one: CheckResult, left: int) -> Iterator[str]:
    mark, colour = MARKS[one.state]
    indent = " " * (left + 9)
    why = list(wrapped(one.why if one.why.endswith(("?", "!")) else f"{one.why}.", indent, longest=None))
    head = f"  {click.style(mark, fg=colour, bold=True)} {one.number:>2} {one.name.ljust(left)}  "
    yield head + why[0].lstrip()
    yield from why[1:]
    if one.mend:
        yield from _mend(one.mend, indent)


def _mend(mend: str, indent: str) -> Iterator[str]:
    """A command that does not fit has a line of its own, whole, so that it can be pasted."""
    text = "To mend: " + "".join(part for _, part in split_commands(mend))
    if len(indent + text) <= width():
        yield faint(indent + safe(text))
        return
    lead = "To mend: "
    for is_command, part in split_commands(mend):
        if is_command:
            if lead:
                yield faint(indent + lead.rstrip())
            yield indent + safe(part)
        elif part.strip(" ,;"):
            yield from (faint(line) for line in wrapped(lead + part.strip(" ,;"), indent, longest=None))
        lead = ""
