"""The command that erases again, in a store that was set back, what was erased since."""

from __future__ import annotations

import click

from engrain.cli.progress import progress
from engrain.cli.session import Session
from engrain.cli.verbs import verb
from engrain.core.erasure_words import counted


@verb(
    "replay",
    examples=(
        "engrain replay postgresql://host/restored --against postgresql://host/engrain",
        "engrain replay postgresql://host/engrain --receipts receipts/",
        "engrain replay new.db --against agent.db",
    ),
    prints="How many rows of each kind were taken out.",
    whole=True,
)
@click.argument("restored", metavar="RESTORED")
@click.option("--against", metavar="STORE", help="The present store, which knows what was forgotten and erased since.")
@click.option(
    "--receipts", metavar="FILE|DIR", multiple=True, help="Receipts of erasures: the people in them are removed again."
)
def replay(cli: Session, restored: str, against: str | None, receipts: tuple[str, ...]) -> None:
    """Remove from RESTORED what was forgotten or erased since its backup.

    For a database that the server's own tools have restored, such as pg_restore, and for a store that `engrain restore`
    made at a new path. Run it before any program opens RESTORED. It is one transaction: if it is interrupted, run it
    again. Redis and vector servers beside RESTORED are not changed.
    """
    from engrain.memory.replay import replay_erasures

    if not against and not receipts:
        raise click.UsageError("say who knows what was erased since: --against STORE, --receipts FILE|DIR, or both.")
    Session(restored).must_exist()
    with progress("Taking out", None, cli.json):
        done = replay_erasures(restored, against, receipts=receipts)
    cli.answer(done, lambda: [str(done), *([f"They are: {out}."] if (out := counted(done.rows)) else [])])
