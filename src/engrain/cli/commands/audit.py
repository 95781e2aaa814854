"""The command that shows the audit log, and looks whether anybody touched it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from engrain.cli.session import Session
from engrain.cli.shown import faint, many, strong
from engrain.cli.verbs import Verb

if TYPE_CHECKING:
    from engrain.core.audit import Entry


class AuditGroup(Verb, click.Group):
    """A verb of the memory with a verb of its own."""


@click.group(
    "audit",
    cls=AuditGroup,
    invoke_without_command=True,
    examples=("engrain audit", "engrain audit --after 100 --json", "engrain audit verify"),
    prints="Each entry: its number, when, what, and counts. With --json, JSON Lines: one entry a line.",
)
@click.option("--after", type=int, default=0, show_default=True, help="From the entry after this number on.")
@click.option("--limit", "-n", type=int, default=1_000, show_default=True, help="At most so many.")
@click.pass_context
def audit(ctx: click.Context, after: int, limit: int) -> None:
    """Show what was forgotten, erased, held and moved, without any content."""
    if ctx.invoked_subcommand:
        return
    cli: Session = ctx.obj
    with cli.memory() as memory:
        count = cli.answer_each(memory.audit(after=after, limit=limit), lambda one: [_line(one)])
    if not count and not cli.json:
        click.echo(faint("Nothing has been recorded here yet."), err=True)


@audit.command(
    "verify",
    cls=Verb,
    examples=("engrain audit verify",),
    prints="How many entries there are, or what is wrong. The exit code is 1 if anything is.",
)
@click.pass_context
def verify(ctx: click.Context) -> None:
    """Look whether an entry was changed, removed, moved, or cut off at the end."""
    cli: Session = ctx.obj
    with cli.memory() as memory:
        found = memory.verify_audit()
    whole = f"{many(found.entries, 'entry', 'entries')}, each chained to the one before: nobody touched them."
    cli.answer(found, lambda: found.faults or [whole])
    ctx.exit(int(not found))


def _line(one: Entry) -> str:
    counts = one.details.get("counts", one.details)
    told = ", ".join(f"{name} {value}" for name, value in counts.items() if value)
    by = f" by {one.details['by']}" if "by" in one.details else ""
    return f"{one.n:>5}  {one.at:%Y-%m-%d %H:%M}  {strong(one.what)}{by}  {faint(told)}"
