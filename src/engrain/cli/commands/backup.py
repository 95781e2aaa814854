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
from engrain.cli.context import DEFAULT_STORE, Session, confirm
from engrain.cli.output import faint, many, progress
from engrain.core.errors import InvalidInput, ReadOnlyStore
from engrain.core.model.results import describe_counts

if TYPE_CHECKING:
    from engrain.core.formats.manifests import RestoreResult
    from engrain.core.model.audit import Entry
    from engrain.ports import AuditLog
    from engrain.privacy.receipts import Receipt


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
        "engrain restore agent-monday.db agent.db --replace --yes",
        "engrain restore agent-monday.db new.db --against agent.db",
        "engrain restore agent-monday.db agent.db --receipts receipts",
    ),
    prints="The store that was made, how many items are in it, and what was kept out because it was forgotten since.",
)
@click.argument("source", metavar="BACKUP")
@click.argument("target", metavar="TO")
@click.option("--replace", is_flag=True, help="TO is there, and the backup takes its place.")
@click.option("--against", metavar="STORE", help="The present store, which knows what was forgotten since.")
@click.option(
    "--alone", is_flag=True, help="No store is left that could be asked: what was forgotten since comes back."
)
@click.option(
    "--receipts",
    metavar="FILE|DIR",
    multiple=True,
    help="Who was erased by these stays out, if the store is lost or older.",
)
@click.option("--yes", "-y", is_flag=True, help="Do not ask before TO is replaced.")
def restore(cli: Session, source: str, target: str, **chosen: Any) -> None:
    """Bring a backup back, without what was forgotten or erased since it was taken.

    The backup is checked first; if anything is wrong with it, TO stays as it is. Close the programs that use TO.
    The present store is TO itself if it is replaced, else the one of --against, else that of --store. If it is damaged,
    it still says what was forgotten in it, as far as that can be read. If it is lost, receipts that were kept elsewhere
    say who was erased: give only those that you trust, for nobody can check them without the store. Of a store that can
    be read and receipts both are asked. If TO is whole it is always asked: --alone, or another store than it with
    --against, is then refused. The backup itself is never changed.
    """
    from engrain.memory.restoring import goal_of, restore_backup

    if chosen["replace"] and goal_of(target).exists():
        confirm(f"Replace {target} by the backup?", chosen["yes"])
    against, alone = _against(cli, target, chosen), chosen["alone"]
    key = os.environ.get(KEY_VARIABLE) or None
    with progress("Restoring", None, cli.json):
        done = restore_backup(source, target, against=against, key=key, over=chosen["replace"], alone=alone)
    cli.answer(done, lambda: _restored(done))


def _against(cli: Session, target: str, chosen: Mapping[str, Any]) -> list[str | Receipt]:
    """Who says what was forgotten since."""
    from engrain.memory.receipts import read_receipts
    from engrain.memory.restoring import goal_of

    if chosen["against"] and chosen["alone"]:
        raise click.UsageError("--alone says that there is no present store: leave out --against.")
    receipts = read_receipts(chosen["receipts"])
    if chosen["against"]:
        return [chosen["against"], *receipts]
    if chosen["alone"] or goal_of(target).exists() or (receipts and not _there(cli)):
        return [*receipts]
    return [_present(cli), *receipts]


def _restored(done: RestoreResult) -> Iterator[str]:
    yield f"Restored {done}."
    if out := describe_counts(done.kept_out or {}):
        yield faint(f"Kept out: {out}.")
    for id, rows in done.receipts.items():
        told = f"{many(rows, 'row')} kept out" if rows else "nothing in this backup is from before it, or of this store"
        yield f"Receipt {id}: {told}."
    if done.kept_out is None:
        yield "Was anybody erased since? Name their receipts with --receipts FILE, and they stay out."


def _present(cli: Session) -> str:
    if not _there(cli):
        raise InvalidInput(
            "what was forgotten since the backup must not come back: name the present store with --against STORE, "
            "or, if it is lost, the receipts of erasures with --receipts FILE|DIR; say --alone if there is neither."
        )
    return cli.store or DEFAULT_STORE


def _there(cli: Session) -> bool:
    store = cli.store or DEFAULT_STORE
    return "://" in store or Path(store).expanduser().exists()


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

    def record(what: str, told: Mapping[str, Any]) -> Entry | None:
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


def _append(store: object, what: str, told: Mapping[str, Any]) -> Entry | None:
    audit: AuditLog | None = getattr(store, "audit", None)
    return None if audit is None else audit.append(what, told)


def _same(source: str, target: str) -> bool:
    return source == target or ("://" not in source + target and Path(source).resolve() == Path(target).resolve())
