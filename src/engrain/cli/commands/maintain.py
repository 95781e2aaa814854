"""The command that cares for a memory: what matters is kept, what is over goes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from engrain.cli.known import check_known
from engrain.cli.progress import progress
from engrain.cli.session import Session
from engrain.cli.shown import many, safe
from engrain.cli.verbs import verb

if TYPE_CHECKING:
    from engrain.core.maintained import Doing, Maintained


@verb(
    "maintain",
    examples=(
        "engrain maintain --dry-run --each",
        "engrain maintain",
        "engrain --user ana maintain",
        "engrain --store engrain.toml maintain --reembed",
        "engrain maintain --json",
    ),
    prints="A line for each pass that has something to do: how much it did, or with --dry-run would do. With --each, "
    "every pass, and every thing, whose it is and why.",
)
@click.option("--dry-run", is_flag=True, help="Change nothing; say what would be done.")
@click.option("--each", is_flag=True, help="Name every item, episode and task, with the reason.")
@click.option("--reembed", is_flag=True, help="Give everything vectors of the present model, and drop those of others.")
@click.option("--trust-clock", is_flag=True, help="The clock is right, although it has gone on by half a year.")
@click.option("--everyone", is_flag=True, help="Every memory of the store, though a user, agent or tenant is set.")
def maintain(cli: Session, dry_run: bool, each: bool, reembed: bool, trust_clock: bool, everyone: bool) -> None:
    """Keep what matters and remove what is over, as the table [lifecycle] of the settings says.

    In every memory of the store; if a user, an agent or a tenant is named, in that one memory.

    Episodes that matter last, those whose time is over go; knowledge that matters little and was rarely used goes;
    items without vectors get some; tasks that ended a week ago go; with a folder for them, backups are taken. A dry run
    says exactly what a real one then does. docs/lifecycle.md has every pass and every setting.
    """
    with cli.memory() as memory, progress("Caring", None, cli.json) as told:
        everyone = everyone or not (cli.user or cli.agent or cli.tenant)
        if not everyone:
            check_known(memory)
        wanted = {"dry_run": dry_run, "reembed": reembed, "trust_clock": trust_clock, "everyone": everyone}
        done = memory.maintain(**wanted, progress=told)
    cli.answer(done, lambda: _lines(done, each))
    if done.trouble:
        click.get_current_context().exit(1)


def _lines(done: Maintained, each: bool) -> Iterator[str]:
    where = f" in {many(done.memories, 'memory', 'memories')}" if done.memories > 1 else ""
    busy = [line for line, count in zip(done.lines, done.counts.values(), strict=True) if count or each]
    if busy and where:
        yield f"Care{where}:"
    yield from busy
    if each:
        yield from (safe(f"  {_whose(one)}{one}") for one in done.each)
    if not done.each and not done.trouble and not each:
        yield f"Nothing to do{where}."
    yield from (safe(f"not done: {one}") for one in done.trouble)


def _whose(one: Doing) -> str:
    return f"{one.scope}: " if one.scope else ""
