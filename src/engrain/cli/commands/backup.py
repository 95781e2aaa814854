"""Commands for a whole store: backup, restore, replay, copy."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from engrain.cli.command import memory_command
from engrain.cli.context import CommandContext
from engrain.cli.output import dim, show_progress
from engrain.core.errors import InvalidInput, ReadOnlyStore
from engrain.core.model.results import describe_counts
from engrain.core.validation import count_noun

if TYPE_CHECKING:
    from engrain.core.formats.manifests import RestoreResult
    from engrain.core.model.audit import AuditEntry
    from engrain.ports.erasure import AuditLog


KEY_VARIABLE = "ENGRAIN_BACKUP_KEY"


@memory_command(
    "backup",
    examples=("engrain backup agent-monday.db", "ENGRAIN_BACKUP_KEY=… engrain backup agent-monday.db --encrypt"),
    prints="The file, its number of items and bytes, and that it was verified.",
)
@click.argument("path", metavar="TO")
@click.option("--encrypt", is_flag=True, help="Encrypt with the key in ENGRAIN_BACKUP_KEY, or ask for one.")
def backup(cli: CommandContext, path: str, encrypt: bool) -> None:
    """Copy the whole store, with every memory in it, to a new file while it is in use.

    The backup is a snapshot of one moment, and it is verified. Its sha256 is in TO.json next to it: keep both. It has
    no bytes of items that were forgotten before. A backup of an encrypted store has the store's key.
    """
    key = _read_backup_key() if encrypt else None
    with cli.open_memory() as memory, show_progress("Backing up", None, cli.json):
        done = memory.store.backup(path, key=key)
    cli.print_result(done, lambda: [f"Backed up to {done}."])


@memory_command(
    "restore",
    examples=(
        "engrain restore agent-monday.db new.db",
        "engrain restore agent-monday.db agent.db --force --yes",
        "engrain restore agent-monday.db agent.db --receipts receipts",
    ),
    prints="The new store, its number of items, and what was left out because it was forgotten since.",
)
@click.argument("source", metavar="BACKUP")
@click.argument("target", metavar="TO")
@click.option("--force", is_flag=True, help="Replace the store at TO.")
@click.option("--yes", "-y", is_flag=True, help="Confirm --force: what was written to TO since the backup is lost.")
@click.option("--receipts", metavar="FILE|DIR", multiple=True, help="Receipts of erasures: leave their users out.")
def restore(cli: CommandContext, source: str, target: str, force: bool, yes: bool, receipts: tuple[str, ...]) -> None:
    """Restore a backup, without what was forgotten or erased since it was taken.

    Close the programs that use TO first. The backup is verified before anything is written, and never changed. After
    an error TO is unchanged.

    With --force the store at TO is replaced. Items that were forgotten or erased in it since the backup stay out. If
    TO is new or damaged, forgotten items may return; the output then says so. --receipts keeps erased users out in
    every case. Use only your own receipts: without its store a receipt cannot be verified.
    """
    from engrain.memory.restore import restore_backup

    if force and not yes:
        raise click.UsageError(
            f"--force replaces {target}: what was written to it since the backup is lost. Add --yes."
        )
    key = os.environ.get(KEY_VARIABLE) or None
    with show_progress("Restoring", None, cli.json):
        done = restore_backup(source, target, key=key, force=force, receipts=receipts)
    cli.print_result(done, lambda: _format_restore(done))


def _format_restore(done: RestoreResult) -> Iterator[str]:
    yield f"Restored {done}."
    if out := describe_counts(done.kept_out):
        yield dim(f"Left out: {out}.")
    for id, rows in done.receipts.items():
        other = "it belongs to another store, or is older than this backup"
        yield f"Receipt {id}: {count_noun(rows, 'row') + ' left out' if rows else other}."
    if done.may_hold_forgotten:
        yield "Items that were forgotten after this backup may be back: no readable store lists them."
        yield f"If you have that store or receipts: engrain replay {done.path} --against STORE, or --receipts FILE|DIR."


def _read_backup_key() -> str:
    if key := os.environ.get(KEY_VARIABLE) or os.environ.get("ENGRAIN_KEY"):
        return key
    if not sys.stdin.isatty():
        raise InvalidInput(f"--encrypt needs a key: set {KEY_VARIABLE}.")
    asked: str = click.prompt("Key for the backup", hide_input=True, confirmation_prompt=True, err=True)
    return asked


@memory_command(
    "replay",
    examples=(
        "engrain replay postgresql://host/restored --against postgresql://host/engrain",
        "engrain replay postgresql://host/engrain --receipts receipts/",
        "engrain replay new.db --against agent.db",
    ),
    prints="The number of rows of each kind that were removed.",
    whole_store=True,
)
@click.argument("restored", metavar="RESTORED")
@click.option("--against", metavar="STORE", help="The current store, which lists what was forgotten and erased since.")
@click.option("--receipts", metavar="FILE|DIR", multiple=True, help="Receipts of erasures: remove their users again.")
def replay(cli: CommandContext, restored: str, against: str | None, receipts: tuple[str, ...]) -> None:
    """Remove from RESTORED what was forgotten or erased since its backup.

    Use it for a database that was restored by a tool such as pg_restore, and for a store that `engrain restore` made
    at a new path. Run it before any program opens RESTORED. It is one transaction: if it is interrupted, run it
    again. Redis and vector servers of RESTORED are not changed.
    """
    from engrain.memory.restore import replay_erasures

    if not against and not receipts:
        raise click.UsageError(
            "say where the later erasures are listed: --against STORE, --receipts FILE|DIR, or both."
        )
    CommandContext(restored).check_store_exists()
    with show_progress("Removing", None, cli.json):
        done = replay_erasures(restored, against, receipts=receipts)
    cli.print_result(done, lambda: [str(done), *([f"Removed: {out}."] if (out := describe_counts(done.rows)) else [])])


@memory_command(
    "copy",
    examples=(
        "engrain copy agent.db backup.db",
        "engrain copy agent.db postgresql://host/engrain",
        "engrain copy agent.db large.toml",
    ),
    prints="The number of rows of each kind in both stores, and their common hash.",
    whole_store=True,
)
@click.argument("source", metavar="FROM")
@click.argument("target", metavar="TO")
def copy_store(cli: CommandContext, source: str, target: str) -> None:
    """Copy the whole store, with every memory in it, to another; then compare both.

    FROM and TO are each a path, a URL or a .toml file. TO is a new store, or one where an earlier copy was
    interrupted: the copy then continues. Items keep their ids, times, versions and sources. Forgotten items stay
    forgotten, and expired episodes are left out. Do not write to FROM meanwhile: if it changes, the command says so,
    and you run it again.

    Episodes and tasks that a .toml file keeps in Redis are copied too. In Postgres the role must see all memories: the
    policy "maintenance", or BYPASSRLS. To move a single memory use `engrain export` and `engrain load`.
    """
    if _is_same(source, target):
        raise InvalidInput("FROM and TO are the same store.")
    CommandContext(source).check_store_exists()
    from engrain.factory import open_whole_store
    from engrain.transfer.copy import copy_recorded

    def record(what: str, details: Mapping[str, Any]) -> AuditEntry | None:
        try:
            return _append(start, what, details)
        except ReadOnlyStore:
            # It was opened read-only, so that no missing store is created; now it is known to exist.
            with closing(open_whole_store(source)) as writable:
                return _append(writable, what, details)

    with (
        closing(open_whole_store(source, create=False)) as start,
        closing(open_whole_store(target)) as end,
        show_progress("Copying", None, cli.json) as progress,
    ):
        copied = copy_recorded(start, end, target, record, progress)
    if copied.unrecorded:
        click.echo(f"The copy is not recorded in the audit log of FROM: {copied.unrecorded}", err=True)
    cli.print_result(copied, lambda: [f"Copied: {copied}."])


def _append(store: object, what: str, details: Mapping[str, Any]) -> AuditEntry | None:
    audit: AuditLog | None = getattr(store, "audit", None)
    return None if audit is None else audit.append(what, details)


def _is_same(source: str, target: str) -> bool:
    return source == target or ("://" not in source + target and Path(source).resolve() == Path(target).resolve())
