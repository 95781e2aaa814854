"""A file system for SQLite that counts writes, syncs and truncations, and fails or stops at a chosen one."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw

Act = Callable[[str, str], None]

CODES = {
    "EIO": {
        "write": apsw.SQLITE_IOERR_WRITE,
        "sync": apsw.SQLITE_IOERR_FSYNC,
        "truncate": apsw.SQLITE_IOERR_TRUNCATE,
    },
    # SQLite reports any errno of fsync and ftruncate as an I/O error.
    "ENOSPC": {
        "write": apsw.SQLITE_FULL,
        "sync": apsw.SQLITE_IOERR_FSYNC,
        "truncate": apsw.SQLITE_IOERR_TRUNCATE,
    },
}


# Kept, because a thread of a failed store may still open a file while its file system is unregistered.
_used: list[apsw.VFS] = []


class Faults(apsw.VFS):
    """The default file system, with `act(operation, path)` called before each operation."""

    def __init__(self, act: Act, name: str = "faults") -> None:
        self.act = act
        self.count = 0
        self.log: list[tuple[str, str]] = []
        self._base = apsw.vfs_names()[0]
        super().__init__(name, self._base, makedefault=True)
        _used.append(self)

    def xOpen(self, name: Any, flags: list[int]) -> Any:  # noqa: N802
        return File(self, self._base, name, flags)

    def xDelete(self, name: str, syncdir: bool) -> None:  # noqa: N802
        super().xDelete(name, syncdir)
        if syncdir:
            self.act("delete", name)

    def happens(self, operation: str, path: str) -> None:
        self.count += 1
        self.log.append((operation, path))
        self.act(operation, path)

    def __enter__(self) -> Faults:
        return self

    def __exit__(self, *_: object) -> None:
        self.unregister()


class File(apsw.VFSFile):
    def __init__(self, vfs: Faults, base: str, name: Any, flags: list[int]) -> None:
        self._vfs = vfs
        self._path = name.filename() if isinstance(name, apsw.URIFilename) else str(name)
        super().__init__(base, name, flags)

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        self._vfs.happens("write", self._path)
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:  # noqa: N802
        self._vfs.happens("sync", self._path)
        super().xSync(flags)

    def xTruncate(self, size: int) -> None:  # noqa: N802
        self._vfs.happens("truncate", self._path)
        super().xTruncate(size)


class At:
    """Fails the operation of that number: once, or from then on."""

    def __init__(self, number: int, failure: str, lasting: bool) -> None:
        self.left = number
        self.failure = failure
        self.lasting = lasting
        self.happened = False

    def __call__(self, operation: str, path: str) -> None:
        if operation == "delete":
            return
        self.left -= 1
        if self.left == 0 or (self.lasting and self.left < 0):
            self.happened = True
            raise apsw.exception_for(CODES[self.failure][operation])


class Snapshots:
    """Copies the files before every operation: what a process that is killed there leaves behind."""

    def __init__(self, folder: Path, into: Path) -> None:
        self.folder = folder
        self.into = into
        self.taken: list[Path] = []

    def __call__(self, operation: str, path: str) -> None:
        if operation == "delete":
            return
        copy = self.into / f"{len(self.taken):04d}"
        shutil.copytree(self.folder, copy)
        self.taken.append(copy)


class PowerCut(Snapshots):
    """Keeps of each file only what was synced: what is left when the power fails there. A file that was removed is
    still there, unless its folder was synced."""

    def __init__(self, folder: Path, into: Path) -> None:
        super().__init__(folder, into)
        self.durable = into / "durable"
        self.durable.mkdir(parents=True)

    def __call__(self, operation: str, path: str) -> None:
        if operation == "delete":
            (self.durable / Path(path).name).unlink(missing_ok=True)
            return
        if not self.taken:  # a new store is written and synced as one file, before SQLite opens it
            for new in self.folder.glob("*.db"):
                shutil.copy(new, self.durable)
        copy = self.into / f"{len(self.taken):04d}"
        shutil.copytree(self.durable, copy)
        if (self.folder / "notes").exists():
            shutil.copy(self.folder / "notes", copy)
        self.taken.append(copy)
        if operation == "sync":
            shutil.copy(path, self.durable)


class Slow:
    """A disk whose sync takes its time."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds

    def __call__(self, operation: str, path: str) -> None:
        if operation == "sync":
            time.sleep(self.seconds)
