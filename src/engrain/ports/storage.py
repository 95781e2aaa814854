"""The contract of a store that can be backed up while it is written to."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from threading import Event
from typing import Protocol, TypeVar, runtime_checkable

from engrain.core.formats.manifests import BackupManifest
from engrain.core.identity import Scope
from engrain.core.model.queries import Finding
from engrain.core.model.rows import ChangeToken, Key, Row, RowKind


@runtime_checkable
class Backed(Protocol):
    @property
    def code(self) -> str:
        """Of this store, and of what is restored from its backups: the manifests of them have it."""

    def backup(self, target: Path, key: str | None = None) -> BackupManifest:
        """All that was committed at one moment, in one file that is read again and checked, with its manifest beside
        it; writers go on meanwhile. What was forgotten before leaves no bytes in it.

        With a key it is encrypted with that, else with the store's own, if it has one. InvalidInput if the target is
        there already. If it fails, nothing is left at the target."""


@runtime_checkable
class Deployed(Protocol):
    """What is not the store's own health, which `check` looks at, but what stands around it. Nothing is changed."""

    def deployment(self) -> list[Finding]:
        """By the names "sync" (what an acknowledged write survives), "file system", "rights" (who else can read it),
        "encryption" and "owners" (items of nobody beside those of somebody); what does not apply is left out."""

    def search_state(self, scope: Scope) -> Finding:
        """Whether searches in this scope have what makes them fast."""


def on_encrypted_disk(path: Path, devices: str = "/sys/dev/block") -> bool:
    """Where Linux says so; elsewhere it cannot be seen."""
    number = path.stat().st_dev
    mapped = Path(devices) / f"{os.major(number)}:{os.minor(number)}" / "dm" / "uuid"
    try:
        return mapped.read_text().startswith("CRYPT-")
    except OSError:
        return False


Answer = TypeVar("Answer")


@runtime_checkable
class Movable(Protocol):
    """A store whose rows, of every scope, can be read one after the other and written as they are. For the rim, not for
    callers who are inside a scope."""

    def dump(self, kind: RowKind, after: Key | None, limit: int, scope: Scope | None = None) -> list[Row]:
        """The rows of one kind whose key comes after this one, in the order of their keys, at most so many; with a
        scope, its rows and no others. Those of OWN are the store's: with a scope there are none of them but the row of
        kind "store". What is being erased, or hidden by a hold, is not shown."""

    def still(self, do: Callable[[], Answer]) -> Answer:
        """What this thread reads here in `do` is of one moment, whatever others write meanwhile. It writes nothing
        there, and `do` may be called twice. A fork may end the moment early, and a store in memory may have none."""

    def standing(self, scopes: Sequence[Scope]) -> ChangeToken:
        """Its mark changes when something of these scopes is forgotten, and when any erasure begins or ends."""

    def restore(
        self, rows: Sequence[Row], since: ChangeToken | None = None, done: Callable[[int], None] | None = None
    ) -> None:
        """In one transaction, each in place of the row that has its key. In the order of ROW_KINDS, since a row may
        name one of an earlier kind; of the items, those with the lower ids first. One that names an item or a task
        which is not there is a Conflict, and so is an item whose id is another scope's.

        The row of kind "store" comes first of all: a store that holds rows under another key is a Conflict. A hold that
        hides shuts its user's scopes. What was restored is found as if it had been written here, by words and by
        meaning, and stands in every outbox.

        With `since`, a Conflict if its mark is another by now: nothing is forgotten or erased between this look and the
        end of the transaction. `done` is told now and then how many more rows were written."""

    def close(self) -> None:
        """As ItemStore.close."""


class Folder(Protocol):
    """A few files by known names: SOUL.md, MEMORY.md, memory/overflow.md, memory/conflicts.md, memory/YYYY-MM-DD.md,
    and .engrain/mirror.json. Any other name is InvalidInput; so is a link, a device or anything but a plain file under
    one of these names, wherever it leads. No method reads or writes outside the folder."""

    @property
    def path(self) -> str: ...

    def lock(self, timeout: float) -> AbstractContextManager[None]:
        """One holder at a time, in this and in other processes; freed when its process dies. Makes the folder if it
        is not there. StoreBusy after the time-out."""

    def days(self) -> list[str]:
        """The names of the daily logs that are there, in order."""

    def read(self, name: str) -> bytes | None:
        """None if there is no such file; TooLarge if it is beyond the limit."""

    def write(self, name: str, data: bytes, was: bytes | None) -> None:
        """Replaces the file as a whole: whoever reads sees the old or the new one, also after a crash. Its mode stays.
        Conflict if it is no longer as it `was`, None for not there."""

    def remove(self, name: str, was: bytes | None) -> None:
        """Conflict if it is no longer as it `was`."""

    def leave(self) -> None:
        """Removes the folder itself, if nothing of anybody is left in it."""

    def signature(self, *, base: bool = False) -> object:
        """Differs from what it was when one of the files that people edit may have changed, or with `base` the file
        mirror.json. A change within the same tick of the file system's clock as the one before may not show."""

    def ticks(self, seconds: float, stop: Event) -> Iterator[None]:
        """At once, then again after so many seconds or when a file changed, until `stop` is set."""
