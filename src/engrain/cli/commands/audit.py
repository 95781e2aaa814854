"""The command that shows the audit log, and looks whether anybody touched it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from engrain.cli.command import Verb
from engrain.cli.context import Session
from engrain.cli.output import faint, many, strong

if TYPE_CHECKING:
    from engrain.core.model.audit import AuditEntry, AuditResult


class AuditGroup(Verb, click.Group):
    """A verb of the memory with a verb of its own."""


@click.group(
    "audit",
    cls=AuditGroup,
    invoke_without_command=True,
    examples=("engrain audit", "engrain audit --after 100 --json", "engrain audit verify"),
    prints="Each entry: its number, when, what, and counts; of an erasure the id of its receipt. With --json, JSON "
    "Lines: one entry a line.",
)
@click.option("--after", type=int, help="From the entry after this number on; without it the newest.")
@click.option("--limit", "-n", type=int, default=1_000, show_default=True, help="At most so many.")
@click.pass_context
def audit(ctx: click.Context, after: int | None, limit: int) -> None:
    """Show what was forgotten, erased, held and moved, without any content."""
    if ctx.invoked_subcommand:
        return
    cli: Session = ctx.obj
    with cli.memory() as memory:
        entries = memory.audit(after=after, limit=limit)
        width = max((len(_act(one)) for one in entries), default=0)
        count = cli.answer_each(entries, lambda one: [_line(one, width)])
    if not count and not cli.json:
        click.echo(faint("Nothing has been recorded here yet."), err=True)
    elif count and after is None and entries[0].n > 1 and not cli.json:
        click.echo(faint(f"The newest {count:,}. For those before: engrain audit --after 0"), err=True)


@audit.command(
    "verify",
    cls=Verb,
    examples=("engrain audit verify", "engrain audit verify --head 12:3c939b28c059a24995b5d6c023a4ad97"),
    prints="How many entries there are and a head to keep elsewhere, or what is wrong. Exit code 1 if anything is.",
)
@click.option("--head", metavar="N:HASH", help="One that was kept elsewhere: it must still be in the log.")
@click.pass_context
def verify(ctx: click.Context, head: str | None) -> None:
    """Look whether an entry was changed, removed, moved, or cut off at the end.

    Who can write the file can put back the whole log with its seal, or forge it. Keep the head that is printed here
    somewhere else: with --head, that is found too.
    """
    cli: Session = ctx.obj
    with cli.memory() as memory:
        found = memory.verify_audit(head=head)
    told = {**asdict(found), "kept": found.kept}
    cli.answer(told, lambda: found.faults or _whole(found, head))
    ctx.exit(int(not found))


def _whole(found: AuditResult, head: str | None) -> Iterator[str]:
    yield f"{many(found.entries, 'entry', 'entries')}, each chained to the one before: the chain is whole."
    if head is not None:
        yield "The head that was kept is among them."
    if found.entries:
        yield faint(f"To keep elsewhere, for --head: {found.kept}")


def _act(one: AuditEntry) -> str:
    by = f" ({'item' if one.details['by'] == 'id' else one.details['by']})" if "by" in one.details else ""
    return one.what.replace("_", " ") + by


def _line(one: AuditEntry, width: int) -> str:
    first = {name: one.details[name] for name in ("receipt", "form") if name in one.details}
    rest = {name: value for name, value in one.details.items() if name != "by" and name not in first}
    told = ", ".join([*_codes(first), *_codes(one.details.get("counts", rest))])
    act = _act(one)
    beside = f"{' ' * (width - len(act))}  {faint(told)}" if told else ""
    return f"{one.n:>5}  {one.at:%Y-%m-%d %H:%M}  {strong(act)}{beside}"


def _codes(details: Mapping[str, Any]) -> list[str]:
    """Those that say something, such as "item 5"."""
    return [_code(name, value) for name, value in details.items() if value]


def _code(name: str, value: Any) -> str:
    if isinstance(value, (list, dict)):  # of the receipts of a restore, their ids
        return f"{name.removesuffix('s') if len(value) == 1 else name} {' and '.join(map(str, value))}"
    return f"{name.replace('_', ' ')} {value}"
