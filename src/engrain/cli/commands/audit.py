"""The commands that show the audit log and check that nobody changed it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from engrain.cli.command import MemoryGroup
from engrain.cli.context import CommandContext
from engrain.cli.output import bold, dim
from engrain.core.validation import count_noun

if TYPE_CHECKING:
    from engrain.core.model.audit import AuditEntry, AuditResult


@click.group(
    "audit",
    cls=MemoryGroup,
    invoke_without_command=True,
    examples=("engrain audit", "engrain audit --after 100 --json", "engrain audit verify"),
    prints="Each entry with its number, time, action and counts; for an erasure, the id of its receipt. With --json, "
    "JSON Lines: one entry a line.",
)
@click.option("--after", type=int, help="Start after the entry with this number; default: the newest entries.")
@click.option("--limit", "-n", type=int, default=1_000, show_default=True, help="Maximum number of entries.")
@click.pass_context
def audit(ctx: click.Context, after: int | None, limit: int) -> None:
    """Show what was forgotten, erased, held and copied, without any content."""
    if ctx.invoked_subcommand:
        return
    cli: CommandContext = ctx.obj
    with cli.open_memory() as memory:
        entries = memory.store.audit(after=after, limit=limit)
        width = max((len(_format_action(entry)) for entry in entries), default=0)
        count = cli.print_each(entries, lambda entry: [_format_entry(entry, width)])
    if not count and not cli.json:
        click.echo(dim("The audit log is empty."), err=True)
    elif count and after is None and entries[0].n > 1 and not cli.json:
        click.echo(dim(f"The newest {count:,} entries. All entries: engrain audit --after 0"), err=True)


@audit.subcommand(
    "verify",
    examples=("engrain audit verify", "engrain audit verify --head 12:3c939b28c059a24995b5d6c023a4ad97"),
    prints="The number of entries and the current head, or what is wrong. Exit code 1 if anything is wrong.",
)
@click.option("--head", metavar="N:HASH", help="A head that you kept elsewhere: it must still be in the log.")
def verify(cli: CommandContext, head: str | None) -> None:
    """Check that no entry was changed, removed, moved, or cut off at the end.

    Someone who can write the file can replace or forge the whole log. Keep the printed head somewhere else: --head
    detects that too.
    """
    with cli.open_memory() as memory:
        found = memory.store.verify_audit(head=head)
    cli.print_result(
        {**asdict(found), "checkpoint": found.checkpoint}, lambda: found.faults or _format_intact(found, head)
    )
    click.get_current_context().exit(int(not found))


def _format_intact(found: AuditResult, head: str | None) -> Iterator[str]:
    yield f"{count_noun(found.entries, 'entry', 'entries')}, each linked to the one before: the chain is intact."
    if head is not None:
        yield "The given head is in the log."
    if found.entries:
        yield dim(f"Keep this head elsewhere, for --head: {found.checkpoint}")


def _format_action(entry: AuditEntry) -> str:
    by = entry.details.get("by")
    return entry.what.replace("_", " ") + (f" ({'item' if by == 'id' else by})" if by is not None else "")


def _format_entry(entry: AuditEntry, width: int) -> str:
    first = {name: entry.details[name] for name in ("receipt", "format") if name in entry.details}
    rest = {name: value for name, value in entry.details.items() if name != "by" and name not in first}
    details = ", ".join([*_format_details(first), *_format_details(entry.details.get("counts", rest))])
    action = _format_action(entry)
    padded = f"{' ' * (width - len(action))}  {dim(details)}" if details else ""
    return f"{entry.n:>5}  {entry.at:%Y-%m-%d %H:%M}  {bold(action)}{padded}"


def _format_details(details: Mapping[str, Any]) -> list[str]:
    """Name and value of each detail that is set, such as "item 5"."""
    found = []
    for name, value in details.items():
        if isinstance(value, (list, dict)) and value:  # the receipt ids of a restore
            found.append(f"{name.removesuffix('s') if len(value) == 1 else name} {' and '.join(map(str, value))}")
        elif value:
            found.append(f"{name.replace('_', ' ')} {value}")
    return found
