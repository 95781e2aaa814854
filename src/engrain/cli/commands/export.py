"""The command that writes a memory to a file."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import click

from engrain.cli.command import verb
from engrain.cli.context import Session, counted, something
from engrain.cli.output import many, progress, safe
from engrain.core.errors import Conflict, NotFound
from engrain.core.validation import suggest_name

if TYPE_CHECKING:
    from engrain.memory import Memory
    from engrain.transfer.export import ExportResult

LONGEST = 100  # characters of an agent's name in that of a file


@verb(
    "export",
    examples=(
        "engrain export ana.jsonl --user ana",
        "engrain export ana.md --user ana --format markdown --all-agents",
        "engrain export whole.jsonl --vectors --overwrite",
    ),
    prints="How many lines of each kind were written, and the hash of them all.",
)
@click.argument("path", metavar="FILE")
@click.option(
    "--format",
    "form",
    type=click.Choice(["jsonl", "markdown"]),
    default="jsonl",
    help="jsonl, which `engrain load` reads (default); markdown, for people.",
)
@click.option(
    "--all-agents", is_flag=True, help="A file for each agent that knows --user: what `engrain erase` erases."
)
@click.option("--vectors", is_flag=True, help="With the vectors, so that a load need not make them again.")
@click.option("--overwrite", is_flag=True, help="Take the place of a file that is there.")
def export(cli: Session, path: str, all_agents: bool, **how: Any) -> None:
    """Write all that this memory holds to a file.

    Facts and their versions, what was said, episodes, procedures and how they turned out, tasks and their steps; with
    ids, times, sources and trust. Only you can read the file. The same memory gives the same JSON Lines.
    """
    if path == "-":
        raise click.UsageError("an export is written whole or not at all, to a file: give it a name.")
    if all_agents:
        _export_all(cli, path, how)
        return
    with cli.memory() as memory:
        agents = _agents(cli, memory)
        others = [agent for agent in agents if agent != cli.agent] if cli.user else []
        if others:
            _check_here(cli, memory, others)
        exported = _exported(cli, memory, path, how)
    if others:
        told = f"{many(len(others), 'more memory', 'more memories')} here: {_named(others)}"
        click.echo(f"note: {safe(str(cli.user))} has {told}. --all-agents writes them too.", err=True)
    cli.answer(_told(exported, path), lambda: [_line(exported, path)])


def _export_all(cli: Session, path: str, how: dict[str, Any]) -> None:
    if cli.user is None or cli.agent is not None:
        raise click.UsageError("--all-agents is for one --user, whatever the --agent.")
    with cli.memory() as memory:
        agents = _agents(cli, memory) or [None]
    files = _files(path, agents)
    _check_free(files, how["overwrite"])
    done: dict[str, ExportResult] = {}
    try:
        for file, agent in files.items():
            with replace(cli, agent=agent).memory() as memory:
                done[file] = _exported(cli, memory, file, how)
    except BaseException:
        if done:
            click.echo(f"note: written before it failed: {', '.join(map(safe, done))}.", err=True)
        raise
    if cli.json:
        cli.answer_each([_told(one, file) for file, one in done.items()], lambda _: [])
        return
    for file, one in done.items():
        click.echo(_line(one, file))


def _exported(cli: Session, memory: Memory, path: str, how: dict[str, Any]) -> ExportResult:
    with progress("Exporting", None, cli.json) as done:
        return memory.export(path, progress=done, **how)


def _agents(cli: Session, memory: Memory) -> list[str | None]:
    """Those that know the user. NotFound if nothing is kept of them, so that a mistyped name, or one that was left out,
    gets no file."""
    whole = memory.memories()
    every = [one for one in whole if one.tenant == cli.tenant]
    found = [one.agent for one in every if one.user == cli.user]
    if cli.user is None:
        if cli.agent not in found and any(one.user for one in whole) and not something(memory):
            whose = f"of the agent {cli.agent!r} alone" if cli.agent else "without a user"
            raise NotFound(f"nothing is kept here {whose}. Name a user with --user: `engrain memories` lists them.")
        return found
    if found or something(memory):
        return found
    guess = suggest_name(cli.user, [one.user for one in every if one.user])
    raise NotFound(f"nothing is kept of the user {cli.user!r} here.{guess} `engrain memories` lists all.")


def _check_here(cli: Session, memory: Memory, others: Sequence[str | None]) -> None:
    """NotFound if only others know the user: an empty file would say that nothing is kept of them."""
    if memory.list(limit=1, history=True) or counted(memory):
        return
    raise NotFound(
        f"this memory ({memory.scope}) is empty, and no file was written. The user is known to: {_named(others)}. "
        "Name one with --agent, or write a file for each: --all-agents."
    )


def _named(agents: Sequence[str | None]) -> str:
    return ", ".join(f"agent={safe(agent)}" if agent else "no agent" for agent in agents)


def _files(path: str, agents: Sequence[str | None]) -> dict[str, str | None]:
    """The agent of each file."""
    files: dict[str, str | None] = {}
    for agent in agents:
        files[_file(path, agent, {one.lower() for one in files})] = agent
    return files


def _check_free(files: Iterable[str], overwrite: bool) -> None:
    """All of them before the first is written."""
    there = [file for file in files if os.path.lexists(file)]
    if there and not overwrite:
        verb = "is" if len(there) == 1 else "are"
        raise Conflict(
            f"{', '.join(there)} {verb} there already, and nothing was written. Choose another name, or --overwrite."
        )


def _file(path: str, agent: str | None, taken: set[str]) -> str:
    """With the agent before the ending, as a name that every file system takes."""
    if agent is None:
        return path
    whole, name = Path(path), quote(agent, safe=" ")
    found = str(whole.with_name(f"{whole.stem}.{name[:LONGEST]}{whole.suffix}"))
    if len(name) <= LONGEST and found.lower() not in taken:
        return found
    digest = hashlib.blake2b(agent.encode(), digest_size=4).hexdigest()
    return str(whole.with_name(f"{whole.stem}.{name[:LONGEST]}-{digest}{whole.suffix}"))


def _told(exported: ExportResult, path: str) -> dict[str, Any]:
    return {"file": path, "rows": exported.rows, "hash": exported.hash}


def _line(exported: ExportResult, path: str) -> str:
    told = f"; hash {exported.hash}" if exported.hash else ""
    return f"Wrote {exported} to {safe(path)}{told}."
