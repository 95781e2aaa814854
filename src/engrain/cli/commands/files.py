"""Commands that sync a folder of Markdown files with the memory: sync, watch, status."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import click

from engrain.cli.command import MemoryGroup
from engrain.cli.context import CommandContext
from engrain.cli.output import dim, escape, format_table, print_error
from engrain.core.errors import EngrainError
from engrain.core.validation import count_noun

if TYPE_CHECKING:
    from engrain.core.markdown.three_way_merge import MirrorStatus, SyncResult


_LINES = click.option("--max-lines", type=int, default=200, show_default=True, help="Maximum length of MEMORY.md.")
_BYTES = click.option("--max-bytes", type=int, default=25_000, show_default=True, help="Maximum size of MEMORY.md.")
_BY = click.option(
    "--by",
    type=click.Choice(["user", "agent", "document"]),
    default="user",
    show_default=True,
    help="Who writes the files: their trust follows from it.",
)


def subcommand(name: str, *, examples: tuple[str, ...], prints: str) -> Callable[[Callable[..., Any]], click.Command]:
    """Add a subcommand of `files` with the options that all of them share."""
    add = files.subcommand(name, examples=examples, prints=prints)
    return lambda function: add(_LINES(_BYTES(_BY(function))))


@click.group(
    "files",
    cls=MemoryGroup,
    examples=("engrain files sync notes", "engrain files watch notes", "engrain files status notes"),
    prints="One line for each written file and each change. With --json, one document.",
)
def files() -> None:
    """Sync SOUL.md, MEMORY.md and memory/YYYY-MM-DD.md with this memory."""


@subcommand(
    "sync",
    examples=(
        "engrain files sync notes",
        "engrain files sync notes --dry-run",
        "engrain files sync notes --accept-deletions",
    ),
    prints="The written files, the accepted changes, conflicts, and deletions that wait for confirmation.",
)
@click.argument("folder")
@click.option("--dry-run", is_flag=True, help="Change nothing; show what would be done.")
@click.option("--accept-deletions", is_flag=True, help="Forget every item whose line was deleted.")
@click.option("--restore-deletions", is_flag=True, help="Write lines back whose deletion waits for confirmation.")
def sync(
    cli: CommandContext, folder: str, dry_run: bool, accept_deletions: bool, restore_deletions: bool, **options: Any
) -> None:
    """Apply changes in the files to the memory, then write the memory's changes to the files."""
    with cli.open_memory(create=not dry_run) as memory:
        result = memory.mirror(folder, **options).sync(
            dry_run=dry_run, accept_deletions=accept_deletions, restore_deletions=restore_deletions
        )
    cli.print_result(result, lambda: _format_sync(result, folder))


@subcommand(
    "watch",
    examples=("engrain files watch notes", "engrain files watch notes --every 5 --json"),
    prints="One line for each change, as it happens. With --json, JSON Lines: one sync a line. Ctrl-C ends it.",
)
@click.argument("folder")
@click.option("--every", type=float, default=1.0, show_default=True, metavar="SECONDS", help="Time between two looks.")
def watch(cli: CommandContext, folder: str, every: float, **options: Any) -> None:
    """Sync whenever a file or the memory changes, until Ctrl-C."""

    def report(outcome: SyncResult | EngrainError) -> None:
        if isinstance(outcome, EngrainError):
            print_error(str(outcome))
        else:
            cli.print_each([outcome], lambda result: _format_sync(result, folder))

    with cli.open_memory(create=True) as memory, memory.mirror(folder, **options) as mirror:
        if not cli.json:
            click.echo(dim(f"Watching {escape(mirror.path)}. Ctrl-C ends it."), err=True)
        mirror.watch(every, report)


@subcommand(
    "status",
    examples=("engrain files status notes", "engrain files status notes --json"),
    prints="The size of MEMORY.md, open conflicts, and what a sync would do.",
)
@click.argument("folder")
def status(cli: CommandContext, folder: str, **options: Any) -> None:
    """Show the state of a folder; nothing is changed."""
    with cli.open_memory() as memory:
        found = memory.mirror(folder, **options).status()
    cli.print_result(found, lambda: _format_status(found, folder))


def _format_sync(result: SyncResult, folder: str) -> Iterator[str]:
    yield from map(escape, result.lines)
    if not result:
        yield dim("Files and memory agree: nothing to do.")
    if result.pending_deletions:
        waiting = count_noun(len(result.pending_deletions), "deletion waits", "deletions wait")
        yield f"{waiting} for confirmation. To forget the items, or to write the lines back:"
        yield f"  engrain files sync {escape(folder)} --accept-deletions"
        yield f"  engrain files sync {escape(folder)} --restore-deletions"
    if any(change.action == "kept out" for change in result.taken):
        yield "Lines that are kept out were forgotten here. To add one again: engrain remember"


def _format_status(found: MirrorStatus, folder: str) -> Iterator[str]:
    entries, overflow = (count_noun(count, "entry", "entries") for count in (found.entries, found.overflow))
    size = f"{found.lines:,} of {found.max_lines:,} lines, {found.bytes:,} of {found.max_bytes:,} bytes"
    yield from format_table(
        [
            ("folder", found.folder),
            ("MEMORY.md", f"{entries}, {size}"),
            ("overflow", overflow),
            ("daily logs", f"{found.days:,}"),
            ("conflicts", f"{found.conflicts:,}" + " in memory/conflicts.md" * bool(found.conflicts)),
        ]
    )
    yield from _format_sync(found.pending, folder)
