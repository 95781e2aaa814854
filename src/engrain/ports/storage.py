"""The contracts of stored bytes: backups, deployment, rows that can be moved, and the mirror's folder."""

from __future__ import annotations

import os
import stat
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from itertools import chain
from pathlib import Path
from threading import Event
from typing import Protocol, TypeVar, runtime_checkable

from engrain.core.errors import StoreCorrupt
from engrain.core.formats.manifests import BackupManifest
from engrain.core.identity import Scope
from engrain.core.model.queries import Finding
from engrain.core.model.rows import ChangeToken, Key, Row, RowKind
from engrain.core.validation import count_noun


@runtime_checkable
class Backed(Protocol):
    @property
    def code(self) -> str:
        """The code of this store and of everything restored from its backups, which their manifests contain."""

    def backup(self, target: Path, key: str | None = None) -> BackupManifest:
        """Write a snapshot of everything committed to one file, read it again to check it, and put a manifest next to
        it.

        Writers continue meanwhile. Data forgotten before leaves no bytes in it. The backup is encrypted with the given
        key, or else with the store's own, if it has one. InvalidInput if the target exists. On failure, nothing is left
        at the target.
        """


@runtime_checkable
class Deployed(Protocol):
    """The environment of a store, in contrast to its own health, which `check` examines. Nothing is changed."""

    def deployment(self) -> list[Finding]:
        """Return findings by name; one that does not apply is left out.

        "sync" (what an acknowledged write survives), "file system", "rights" (who else can read it), "encryption",
        "owners" (items without a user next to items of users).
        """

    def search_state(self, scope: Scope) -> Finding:
        """Report whether searches in this scope have what makes them fast."""


def make_private_folder(path: Path) -> None:
    """Make a folder and its missing parents. Only their owner can look into them."""
    if not path.parent.is_dir():
        make_private_folder(path.parent)
    path.mkdir(mode=0o700, exist_ok=True)


def is_open_to_others(path: Path) -> bool:
    """Tell if somebody else, of the owner's group or not, can reach and read a file, or look into a folder."""
    try:
        modes = [part.stat().st_mode for part in (path.resolve(), *path.resolve().parents)]
    except OSError:  # a log may go at any time
        return False
    # To pass through a folder takes the right to execute it.
    others = [stat.S_IXOTH if stat.S_ISDIR(mode) else stat.S_IROTH for mode in modes]
    by_others = all(mode & bit for mode, bit in zip(modes, others, strict=True))
    by_group = modes[0] & others[0] << 3 and all(mode & (stat.S_IXGRP | stat.S_IXOTH) for mode in modes[1:])
    return sys.platform != "win32" and bool(by_group or by_others)


def on_encrypted_disk(path: Path, devices: str = "/sys/dev/block") -> bool:
    """Return True if Linux reports an encrypted disk. Other systems do not tell."""
    number = path.stat().st_dev
    mapped = Path(devices) / f"{os.major(number)}:{os.minor(number)}" / "dm" / "uuid"
    try:
        return mapped.read_text().startswith("CRYPT-")
    except OSError:
        return False


def check_slots(twice: int) -> Finding:
    """Report slots with two values that hold now."""
    if not twice:
        return Finding("slots", "pass", "no slot has two values that hold now")
    fix = "engrain slots shows them; engrain forget ID the one that is wrong"
    return Finding("slots", "fail", f"{twice:,} slots have two values that hold now", fix)


def check_owners(ownerless_items: int, owned_memories: int) -> Finding:
    """Report items without a user next to memories of users: nearly always a program forgot to pass the user."""
    if ownerless_items and owned_memories:
        why = f"{ownerless_items:,} of its items belong to nobody, beside the memories of {owned_memories:,} users"
        return Finding(
            "owners", "warn", why, "engrain list, without --user, shows them; give every Memory(…) its user="
        )
    why = f"every item belongs to somebody; users with a memory: {owned_memories:,}"
    if ownerless_items:
        why = f"one memory without a user, with {count_noun(ownerless_items, 'item')}, and no user's beside it"
    return Finding("owners", "pass", why)


Answer = TypeVar("Answer")
PAGE_SIZE = 500


@runtime_checkable
class Movable(Protocol):
    """A store whose rows of every scope can be read in order and written unchanged.

    For transfer only: it crosses scopes.
    """

    def dump(self, kind: RowKind, after: Key | None, limit: int, scope: Scope | None = None) -> list[Row]:
        """Return at most `limit` rows of one kind after this key, in the order of their keys.

        With a scope, only its rows; of the store's own kinds (STORE_KINDS), only the row of kind "store". Data that is
        being erased or hidden by a hold is not returned.
        """

    def on_snapshot(self, do: Callable[[], Answer]) -> Answer:
        """Run `do` on a snapshot: this thread's reads in it are of one moment, whatever others write meanwhile.

        `do` must not write, and may be called twice. A fork may end the snapshot early, and a store in memory may have
        none.
        """

    def preview(self, do: Callable[[], Answer]) -> Answer:
        """Run `do` in one transaction and roll it back, whether it returns or raises. Reads in `do` see its writes.
        `do` may be called twice. Other writers may have to wait for it. Never called inside another transaction."""

    def change_token(self, scopes: Sequence[Scope]) -> ChangeToken:
        """Return a token that changes when data of these scopes is forgotten, and when any erasure begins or ends."""

    def restore(
        self, rows: Sequence[Row], since: ChangeToken | None = None, done: Callable[[int], None] | None = None
    ) -> None:
        """Write rows in one transaction, each replacing the row with its key.

        The rows come in the order of ROW_KINDS, because a row may name one of an earlier kind; items come by ascending
        id. Conflict if a row names an item or a task that does not exist, or an item's id belongs to another scope.

        The row of kind "store" comes first: Conflict if the store holds rows under another key. A hold that hides data
        blocks its user's scopes. Restored rows are found by words and by meaning as if they had been written here, and
        are in every outbox.

        With `since`, Conflict if that token has changed: nothing is forgotten or erased between reading it and the end
        of the transaction. `done` is called now and then with the number of rows just written.
        """

    def close(self) -> None:
        """Close the store, like ItemStore.close."""


def iterate_rows(store: Movable, kind: RowKind, scope: Scope | None = None) -> Iterator[Row]:
    """Yield the rows of one kind, of one scope or of all, in the order of their keys."""
    return chain.from_iterable(iterate_pages(store, kind, scope))


def iterate_pages(store: Movable, kind: RowKind, scope: Scope | None = None) -> Iterator[list[Row]]:
    after: Key | None = None
    seen: set[Key] = set()
    while rows := store.dump(kind, after, PAGE_SIZE, scope):
        yield rows
        after = rows[-1].key
        if after in seen:  # of a forged scope, whose names are not those of its id
            raise StoreCorrupt(f"the rows of kind {kind} have keys that do not fit their scope. Restore a backup.")
        seen.add(after)


class Folder(Protocol):
    """A few files by known names in one folder. No method reads or writes outside it.

    The names are SOUL.md, MEMORY.md, memory/overflow.md, memory/conflicts.md, memory/YYYY-MM-DD.md and
    .engrain/mirror.json. Any other name is InvalidInput. So is a link, a device or anything but a plain file under one
    of these names, wherever it leads.
    """

    @property
    def path(self) -> str: ...

    def lock(self, timeout: float) -> AbstractContextManager[None]:
        """Lock the folder for one holder, across processes. The lock is freed when its process dies.

        Creates the folder if it does not exist. StoreBusy after the timeout.
        """

    def days(self) -> list[str]:
        """Return the names of the existing daily logs, in order."""

    def read(self, name: str) -> bytes | None:
        """Return the file's bytes; None if it does not exist. TooLarge if it is beyond the limit."""

    def write(self, name: str, data: bytes, was: bytes | None) -> None:
        """Replace the whole file: a reader sees the old or the new one, even after a crash. Its mode stays.

        Conflict if the file's content is no longer `was`; None means that it did not exist.
        """

    def remove(self, name: str, was: bytes | None) -> None:
        """Remove the file. Conflict if its content is no longer `was`."""

    def leave(self) -> None:
        """Remove the folder itself if it is empty."""

    def signature(self) -> object:
        """Return a value that differs if one of the files that people edit may have changed.

        A second change within one tick of the file system's clock may not show.
        """

    def ticks(self, seconds: float, stop: Event) -> Iterator[None]:
        """Yield at once, then after every `seconds` or when a file changed, until `stop` is set."""
