"""The command that copies a whole store to another."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import click

from engrain.cli.progress import progress
from engrain.cli.session import Session
from engrain.cli.verbs import verb
from engrain.core.errors import InvalidInput


@verb(
    "copy",
    examples=("engrain copy agent.db backup.db", "engrain copy agent.db postgresql://host/engrain"),
    prints="How many rows of each kind are in both stores now, and the hash that both have.",
)
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
def copy_memory(cli: Session, source: str, target: str) -> None:
    """Copy the whole store, all memories in it, to another; then read both and compare.

    TO is a new store, or one to which an earlier copy was interrupted: it goes on there. Items keep their ids, times,
    versions and sources; what was forgotten stays forgotten. Stop writing to FROM meanwhile: if something is written
    all the same, the command says so, and is run once more.
    """
    if _same(source, target):
        raise InvalidInput("FROM and TO are the same store.")
    Session(source).must_exist()
    from engrain.lifecycle.copying import copy
    from engrain.wiring import open_movable

    bar = progress("Copying", None, cli.json)
    with closing(open_movable(source)) as begins, closing(open_movable(target)) as ends, bar as done:
        copied = copy(begins, ends, done)
    cli.answer(copied, lambda: [f"Copied: {copied}."])


def _same(source: str, target: str) -> bool:
    return source == target or ("://" not in source + target and Path(source).resolve() == Path(target).resolve())
