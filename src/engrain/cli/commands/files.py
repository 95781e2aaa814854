"""Commands about a folder of Markdown files beside the memory: sync, watch, status."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import click

from engrain.cli.command import Verb
from engrain.cli.context import Session
from engrain.cli.output import faint, line, many, safe, table
from engrain.core.errors import EngrainError

if TYPE_CHECKING:
    from engrain.core.markdown.sync_state import MirrorStatus, SyncResult
    from engrain.memory import Memory
    from engrain.mirror.mirror import Mirror


class FileGroup(Verb, click.Group):
    """A verb of the memory with verbs of its own."""


def verb(name: str, *, examples: tuple[str, ...], prints: str) -> Callable[[Callable[..., Any]], click.Command]:
    def made(function: Callable[..., Any]) -> click.Command:
        command = files.command(name, cls=Verb, examples=examples, prints=prints)
        for option in (_BY, _BYTES, _LINES):
            function = option(function)
        return command(click.pass_obj(function))

    return made


_LINES = click.option("--max-lines", type=int, default=200, show_default=True, help="How long MEMORY.md may get.")
_BYTES = click.option("--max-bytes", type=int, default=25_000, show_default=True, help="The same in bytes.")
_BY = click.option(
    "--by",
    type=click.Choice(["user", "agent", "document"]),
    default="user",
    show_default=True,
    help="Whose word the files are.",
)


@click.group(
    "files",
    cls=FileGroup,
    examples=("engrain files sync notes", "engrain files watch notes", "engrain files status notes"),
    prints="What was done, a line for each file and each change. With --json, one document.",
)
def files() -> None:
    """Keep SOUL.md, MEMORY.md and memory/YYYY-MM-DD.md in step with the memory."""


@verb(
    "sync",
    examples=(
        "engrain files sync notes",
        "engrain files sync notes --dry-run",
        "engrain files sync notes --accept-deletions",
    ),
    prints="What was written and what was taken in; conflicts, and deletions that are held back.",
)
@click.argument("folder")
@click.option("--dry-run", is_flag=True, help="Change nothing; say what would be done.")
@click.option("--accept-deletions", is_flag=True, help="Forget what is gone from the files, however much it is.")
@click.option("--restore-deletions", is_flag=True, help="Put lines back whose deletion is held back.")
def sync(
    cli: Session, folder: str, dry_run: bool, accept_deletions: bool, restore_deletions: bool, **options: Any
) -> None:
    """Take in what was changed in the files, then write what changed in the memory."""
    with cli.memory(makes=not dry_run) as memory:
        done = _mirror(memory, folder, options).sync(
            dry_run=dry_run, accept_deletions=accept_deletions, restore_deletions=restore_deletions
        )
    cli.answer(done, lambda: _lines(done, folder))


@verb(
    "watch",
    examples=("engrain files watch notes", "engrain files watch notes --every 5 --json"),
    prints="A line for each change, as it comes. With --json, JSON Lines: one sync a line. Ctrl-C ends it.",
)
@click.argument("folder")
@click.option("--every", type=float, default=1.0, show_default=True, metavar="SECONDS", help="How often to look.")
def watch(cli: Session, folder: str, every: float, **options: Any) -> None:
    """Sync whenever a file or the memory changes, until Ctrl-C."""

    def report(outcome: SyncResult | EngrainError) -> None:
        if isinstance(outcome, EngrainError):
            click.echo(f"{click.style('Error:', fg='red', bold=True)} {safe(str(outcome))}", err=True)
        elif cli.json:
            click.echo(line(outcome))
        else:
            for text in _lines(outcome, folder):
                click.echo(text)

    with cli.memory(makes=True) as memory, _mirror(memory, folder, options) as mirror:
        if not cli.json:
            click.echo(faint(f"Watching {safe(mirror.path)}. Ctrl-C ends it."), err=True)
        mirror.watch(every, report)


@verb(
    "status",
    examples=("engrain files status notes", "engrain files status notes --json"),
    prints="How full MEMORY.md is, what waits for a decision, and what a sync would do.",
)
@click.argument("folder")
def status(cli: Session, folder: str, **options: Any) -> None:
    """Show how a folder stands; nothing is changed."""
    with cli.memory() as memory:
        found = _mirror(memory, folder, options).status()
    cli.answer(found, lambda: _status(found, folder))


def _mirror(memory: Memory, folder: str, options: dict[str, Any]) -> Mirror:
    return memory.mirror(folder, **options)


def _lines(done: SyncResult, folder: str) -> Iterator[str]:
    yield from map(safe, done.lines)
    if not done:
        yield faint("Both sides agree: nothing to do.")
    if done.held_back:
        count = many(len(done.held_back), "deletion is", "deletions are")
        yield f"{count} held back. To carry them out, or to put the lines back:"
        yield f"  engrain files sync {safe(folder)} --accept-deletions"
        yield f"  engrain files sync {safe(folder)} --restore-deletions"
    if any(one.action == "kept out" for one in done.taken):
        yield "What is kept out was forgotten here. To have it after all: engrain remember"


def _status(found: MirrorStatus, folder: str) -> Iterator[str]:
    entries, rest = (many(count, "entry", "entries") for count in (found.entries, found.overflow))
    size = f"{found.lines:,} of {found.max_lines:,} lines, {found.bytes:,} of {found.max_bytes:,} bytes"
    yield from table(
        [
            ("folder", found.folder),
            ("MEMORY.md", f"{entries}, {size}"),
            ("overflow", rest),
            ("daily logs", f"{found.days:,}"),
            ("conflicts", f"{found.conflicts:,}" + " in memory/conflicts.md" * bool(found.conflicts)),
        ]
    )
    yield from _lines(found.pending, folder)
