"""Hold the folder of an embedded vector store for this process alone."""

from __future__ import annotations

import os
from pathlib import Path

from engrain.core.errors import StoreBusy, StoreUnavailable


class Folder:
    """Held until `leave`, or until the process ends in whatever way: the operating system lets go of the lock."""

    def __init__(self, path: Path) -> None:
        self.path = path
        beside = path.with_name(f"{path.name}.lock")
        try:
            path.mkdir(parents=True, exist_ok=True)
            self._file = os.open(beside, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o600)
        except OSError as exc:
            raise StoreUnavailable(f"the folder {path} cannot be used: {exc}.") from exc
        try:
            _lock(self._file)
        except OSError as exc:
            os.close(self._file)
            raise StoreBusy(
                f"another process has {path} open. An embedded vector store serves one process: "
                "start a server for several, and give its host in the URL."
            ) from exc

    def leave(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


if os.name == "nt":
    import msvcrt

    def _lock(file: int) -> None:
        msvcrt.locking(file, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined]
else:
    import fcntl

    def _lock(file: int) -> None:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
