"""The commands that take a backup of a store, and bring one back."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from engrain.cli.command import verb
from engrain.cli.context import Session
from engrain.cli.output import faint, many, progress
from engrain.core.errors import InvalidInput, ReadOnlyStore
from engrain.core.model.results import describe_counts

if TYPE_CHECKING:
    from engrain.core.formats.manifests import RestoreResult
    from engrain.core.model.audit import AuditEntry
    from engrain.ports import AuditLog


KEY_VARIABLE = "ENGRAIN_BACKUP_KEY"


@verb(
    "backup",
    examples=("engrain backup agent-monday.db", "ENGRAIN_BACKUP_KEY=… engrain backup agent-monday.db --encrypt"),
    prints="The file, how many items and bytes are in it, and that it was read again and checked.",
)
@click.argument("path", metavar="TO")
@click.option("--encrypt", is_flag=True, help="With the key in ENGRAIN_BACKUP_KEY, or one that is asked for.")
def backup(cli: Session, path: str, encrypt: bool) -> None:
    """Copy the whole store, all memories in it, to a new file while it is in use.

    The copy is one moment of the store. It is read again and checked, and TO.json beside it has its sha256: keep both.
    What was forgotten before leaves no bytes in it. A backup of an encrypted store has the key of the store.
    """
    key = _backup_key() if encrypt else None
    with cli.memory() as memory, progress("Backing up", None, cli.json):
        done = memory.store.backup(path, key=key)
    cli.answer(done, lambda: [f"Backed up to {done}."])


@verb(
    "restore",
    examples=(
        "engrain restore agent-monday.db new.db",
        "engrain restore agent-monday.db agent.db --force --yes",
        "engrain restore agent-monday.db agent.db --receipts receipts",
    ),
    prints="The store that was made, how many items are in it, and what was kept out because it was forgotten since.",
)
@click.argument("source", metavar="BACKUP")
@click.argument("target", metavar="TO")
@click.option("--force", is_flag=True, help="Replace the store at TO.")
@click.option("--yes", "-y", is_flag=True, help="Confirm --force: what was written to TO since the backup is lost.")
@click.option(
    "--receipts", metavar="FILE|DIR", multiple=True, help="Receipts of erasures: the people in them stay out."
)
def restore(cli: Session, source: str, target: str, force: bool, yes: bool, receipts: tuple[str, ...]) -> None:
    """Restore a backup, without what was forgotten or erased since it was taken.

    The backup is checked first. After any error TO is as it was, and the backup is never changed. Close the programs
    that use TO. With --force the store at TO is replaced. First it says what was forgotten and erased in it since the
    backup, and that stays out. If it is damaged, or TO is new, forgotten items may be back, and the answer says so.
    Receipts of erasures keep erased people out in every case. Give only your own: nobody can check a receipt without
    its store.
    """
    from engrain.memory.restore import restore_backup

    if force and not yes:
        raise click.UsageError(
            f"--force replaces {target}: what was written to it since the backup is lost. Add --yes."
        )
    key = os.environ.get(KEY_VARIABLE) or None
    with progress("Restoring", None, cli.json):
        done = restore_backup(source, target, key=key, force=force, receipts=receipts)
    cli.answer(done, lambda: _restored(done))


def _restored(done: RestoreResult) -> Iterator[str]:
    yield f"Restored {done}."
    if out := describe_counts(done.kept_out):
        yield faint(f"Kept out: {out}.")
    for id, rows in done.receipts.items():
        named = (
            f"{many(rows, 'row')} kept out" if rows else "nothing in this backup is from before it, or of this store"
        )
        yield f"Receipt {id}: {named}."
    if done.may_hold_forgotten:
        yield "Items that were forgotten after this backup may be back: no readable store said which ones."
        yield f"If a store or receipts know: engrain replay {done.path} --against STORE, or --receipts FILE|DIR."


def _backup_key() -> str:
    if key := os.environ.get(KEY_VARIABLE) or os.environ.get("ENGRAIN_KEY"):
        return key
    if not sys.stdin.isatty():
        raise InvalidInput(f"--encrypt needs a key: set {KEY_VARIABLE}.")
    asked: str = click.prompt("Key of the backup", hide_input=True, confirmation_prompt=True, err=True)
    return asked


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
    from engrain.memory.restore import replay_erasures

    if not against and not receipts:
        raise click.UsageError("say who knows what was erased since: --against STORE, --receipts FILE|DIR, or both.")
    Session(restored).must_exist()
    with progress("Taking out", None, cli.json):
        done = replay_erasures(restored, against, receipts=receipts)
    cli.answer(done, lambda: [str(done), *([f"They are: {out}."] if (out := describe_counts(done.rows)) else [])])


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
    from engrain.factory import open_movable
    from engrain.transfer.copy import copy_recorded

    def record(what: str, told: Mapping[str, Any]) -> AuditEntry | None:
        try:
            return _append(begins, what, told)
        except ReadOnlyStore:
            # It was opened to be read, so that nothing is made there that was not there; now it is known to be.
            with closing(open_movable(source)) as writable:
                return _append(writable, what, told)

    with (
        closing(open_movable(source, made=False)) as begins,
        closing(open_movable(target)) as ends,
        progress("Copying", None, cli.json) as done,
    ):
        copied = copy_recorded(begins, ends, target, record, done)
    if copied.unrecorded:
        click.echo(f"The copy is not recorded in the audit log of FROM: {copied.unrecorded}", err=True)
    cli.answer(copied, lambda: [f"Copied: {copied}."])


def _append(store: object, what: str, told: Mapping[str, Any]) -> AuditEntry | None:
    audit: AuditLog | None = getattr(store, "audit", None)
    return None if audit is None else audit.append(what, told)


def _same(source: str, target: str) -> bool:
    return source == target or ("://" not in source + target and Path(source).resolve() == Path(target).resolve())
