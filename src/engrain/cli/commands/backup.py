"""The commands that take a backup of a store, and bring one back."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from engrain.cli.progress import progress
from engrain.cli.session import DEFAULT_STORE, Session
from engrain.cli.shown import faint, many
from engrain.cli.verbs import verb
from engrain.core.erasure_words import counted
from engrain.core.errors import InvalidInput

if TYPE_CHECKING:
    from engrain.core.backups import Restored
    from engrain.lifecycle.erasure.receipts import Receipt

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
        done = memory.backup(path, key=key)
    cli.answer(done, lambda: [f"Backed up to {done}."])


@verb(
    "restore",
    examples=(
        "engrain restore agent-monday.db agent.db --replace",
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
def restore(cli: Session, source: str, target: str, **chosen: Any) -> None:
    """Bring a backup back, without what was forgotten or erased since it was taken.

    The backup is checked first; if anything is wrong with it, TO stays as it is. Close the programs that use TO.
    The present store is TO itself if it is replaced, else the one of --against, else that of --store. If it is damaged,
    it still says what was forgotten in it, as far as that can be read. If it is lost, receipts that were kept elsewhere
    say who was erased: give only those that you trust, for nobody can check them without the store. Of a store that can
    be read and receipts both are asked. If TO is whole it is always asked: --alone, or another store than it with
    --against, is then refused. The backup itself is never changed.
    """
    from engrain.memory.restoring import restore_backup

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


def _restored(done: Restored) -> Iterator[str]:
    yield f"Restored {done}."
    if out := counted(done.kept_out or {}):
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
