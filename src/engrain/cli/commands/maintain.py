"""The command that cares for a memory: what is over goes."""

from __future__ import annotations

import click

from engrain.cli.session import Session
from engrain.cli.verbs import verb


@verb(
    "maintain",
    examples=("engrain maintain --dry-run", "engrain maintain", "engrain maintain --json"),
    prints="A line for each pass: how much it removed, or with --dry-run would remove.",
)
@click.option("--dry-run", is_flag=True, help="Change nothing; say what would be done.")
def maintain(cli: Session, dry_run: bool) -> None:
    """Remove what is over: expired episodes, raw outputs past their day, tasks that ended a week ago."""
    with cli.memory() as memory:
        done = memory.maintain(dry_run=dry_run)
    cli.answer(done, lambda: done.lines)
