"""The command that copies a whole store to another."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING

import click

from engrain.cli.progress import progress
from engrain.cli.session import Session
from engrain.cli.verbs import verb
from engrain.core.errors import EngrainError, InvalidInput, ReadOnlyStore

if TYPE_CHECKING:
    from engrain.core.audit import Entry
    from engrain.ports import AuditLog


@verb(
    "copy",
    examples=(
        "engrain copy agent.db backup.db",
        "engrain copy agent.db postgresql://host/engrain",
        "engrain copy agent.db large.toml",
    ),
    prints="How many rows of each kind are in both stores now, and the hash that both have.",
    whole=True,
)
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
def copy_memory(cli: Session, source: str, target: str) -> None:
    """Copy the whole store, all memories in it, to another; then read both and compare.

    TO is a new store, or one to which an earlier copy was interrupted: it goes on there. Items keep their ids, times,
    versions and sources; what was forgotten stays forgotten; episodes that have expired are left out. Stop writing to
    FROM meanwhile: if something is written all the same, the command says so, and is run once more.

    Each is a path, a URL or a .toml file. A .toml file whose episodes or tasks are in Redis is copied with them. In
    Postgres the role must be allowed to see all memories: the policy "upkeep", or BYPASSRLS. A single memory goes by
    `engrain export` and `engrain load`.
    """
    if _same(source, target):
        raise InvalidInput("FROM and TO are the same store.")
    Session(source).must_exist()
    from engrain.core.clock import system_clock
    from engrain.lifecycle.copying import compare, transfer
    from engrain.wiring import open_movable

    now, read = system_clock(), 0
    with closing(open_movable(source, made=False)) as begins, closing(open_movable(target)) as ends:
        with progress("Copying", None, cli.json) as done:

            def count(rows: int) -> None:
                nonlocal read
                read += rows
                done(rows)

            recorded = _Recorded(begins, source, target)
            written = transfer(begins, ends, count, now, begin=recorded.begin)
            if written:
                recorded.end()
                transfer(begins, ends, done, now, ("audit",))
        with progress("Comparing", 2 * read, cli.json) as done:
            copied = compare(begins, ends, done, now, written)
    cli.answer(copied, lambda: [f"Copied: {copied}."])


class _Recorded:
    """In the source, whence it comes to the copy as well. Begun first: one that is cut off leaves a part of it, and a
    receipt must know."""

    def __init__(self, begins: object, source: str, target: str) -> None:
        self._begins, self._source = begins, source
        scheme, named, _ = target.partition("://")
        self._told: dict[str, str | int] = {"to": scheme if named else "file"}

    def begin(self) -> None:
        # Where it cannot be written now, the end says so.
        with suppress(EngrainError):
            if entry := self._append("copy_begun"):
                self._told["begun"] = entry.n

    def end(self) -> None:
        try:
            self._append("copy")
        except EngrainError as exc:
            click.echo(f"The copy is not recorded in the audit log of FROM: {exc}", err=True)

    def _append(self, what: str) -> Entry | None:
        from engrain.wiring import open_movable

        try:
            return _appended(self._begins, what, self._told)
        except ReadOnlyStore:
            # It was opened to be read, so that nothing is made there that was not there; now it is known to be.
            with closing(open_movable(self._source)) as writable:
                return _appended(writable, what, self._told)


def _appended(store: object, what: str, told: Mapping[str, str | int]) -> Entry | None:
    audit: AuditLog | None = getattr(store, "audit", None)
    return None if audit is None else audit.append(what, told)


def _same(source: str, target: str) -> bool:
    return source == target or ("://" not in source + target and Path(source).resolve() == Path(target).resolve())
