"""The commands that take a backup of a store, and bring one back."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

from engrain.cli.progress import progress
from engrain.cli.session import DEFAULT_STORE, Session
from engrain.cli.verbs import verb
from engrain.core.errors import InvalidInput

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
def restore(cli: Session, source: str, target: str, replace: bool, against: str | None, alone: bool) -> None:
    """Bring a backup back, without what was forgotten or erased since it was taken.

    The backup is checked first; if anything is wrong with it, TO stays as it is. Close the programs that use TO.
    The present store is TO itself if it is replaced, else the one of --against, else that of --store. If it is damaged,
    it still says what was forgotten in it, as far as that can be read.
    """
    from engrain.memory.restoring import goal_of, restore_backup

    if alone and against:
        raise click.UsageError("--alone says that there is no present store: leave out --against.")
    if not alone and against is None and not goal_of(target).exists():
        against = _present(cli)
    key = os.environ.get(KEY_VARIABLE) or None
    with progress("Restoring", None, cli.json):
        done = restore_backup(source, target, against=against, key=key, over=replace, alone=alone)
    cli.answer(done, lambda: [f"Restored {done}."])


def _present(cli: Session) -> str:
    store = cli.store or DEFAULT_STORE
    if "://" not in store and not Path(store).expanduser().exists():
        raise InvalidInput(
            "what was forgotten since the backup must not come back: name the present store with --against STORE, "
            "or say --alone if there is none."
        )
    return store


def _backup_key() -> str:
    if key := os.environ.get(KEY_VARIABLE) or os.environ.get("ENGRAIN_KEY"):
        return key
    if not sys.stdin.isatty():
        raise InvalidInput(f"--encrypt needs a key: set {KEY_VARIABLE}.")
    asked: str = click.prompt("Key of the backup", hide_input=True, confirmation_prompt=True, err=True)
    return asked
