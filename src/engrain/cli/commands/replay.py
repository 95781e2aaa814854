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
    ),
    prints="How many rows of each kind were taken out.",
    whole=True,
)
@click.argument("restored", metavar="RESTORED")
@click.option("--against", metavar="STORE", help="The present store, which knows what was forgotten and erased since.")
@click.option("--receipts", metavar="FILE|DIR", multiple=True, help="If it is lost: whom these name goes again.")
def replay(cli: Session, restored: str, against: str | None, receipts: tuple[str, ...]) -> None:
    """Take out of RESTORED what was forgotten or erased since the moment that it was set back to.

    For a store that the server's own tools have brought back, such as pg_restore; a backup of engrain's own is brought
    back by `engrain restore`, which does this by itself. Before any program opens RESTORED; if it is cut off, set
    RESTORED back once more. Its servers beside (Redis, a vector server) are not looked at.
    """
    from engrain.memory.receipts import read_receipts
    from engrain.memory.replaying import replay_erasures

    if bool(against) == bool(receipts):
        raise click.UsageError("say who knows what was erased since: one of --against STORE and --receipts FILE|DIR.")
    Session(restored).must_exist()
    with progress("Taking out", None, cli.json):
        done = replay_erasures(restored, against or read_receipts(receipts))
    cli.answer(done, lambda: [str(done), *([f"They are: {out}."] if (out := counted(done.rows)) else [])])
