"""The contract of a folder of files that people edit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager
from threading import Event
from typing import Protocol


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
