"""The commands that take a backup of a store, and bring one back."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from engrain.cli.progress import progress
from engrain.cli.session import Session
from engrain.cli.shown import faint, many
from engrain.cli.verbs import verb
from engrain.core.erasure_words import counted
from engrain.core.errors import InvalidInput

if TYPE_CHECKING:
    from engrain.core.backups import Restored

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


def _restored(done: Restored) -> Iterator[str]:
    yield f"Restored {done}."
    if out := counted(done.kept_out):
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
