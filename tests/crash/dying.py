"""A layer below SQLite that kills its process at the point it is told to."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import apsw


class Points:
    """Every point at which this process may die: each call of SQLite to the file system, and around each effect."""

    def __init__(self, fatal: int | None = None) -> None:
        self.fatal = fatal
        self.count = 0

    def __call__(self) -> None:
        self.count += 1
        if self.count == self.fatal:
            os.kill(os.getpid(), signal.SIGKILL)
            signal.pause()


class DyingVfs(apsw.VFS):
    def __init__(self, points: Callable[[], None]) -> None:
        self._below = apsw.vfs_names()[0]
        super().__init__("dying", self._below, makedefault=True)
        self._points = points

    def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        self._points()
        return DyingFile(self._below, name, flags, self._points)

    def xDelete(self, name: str, sync: bool) -> None:  # noqa: N802
        self._points()
        super().xDelete(name, sync)


class DyingFile(apsw.VFSFile):
    def __init__(self, below: str, name: Any, flags: list[int], points: Callable[[], None]) -> None:
        super().__init__(below, name, flags)
        self._points = points

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        self._points()
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:  # noqa: N802
        self._points()
        super().xSync(flags)

    def xTruncate(self, size: int) -> None:  # noqa: N802
        self._points()
        super().xTruncate(size)

    def xLock(self, level: int) -> None:  # noqa: N802
        self._points()
        super().xLock(level)

    def xUnlock(self, level: int) -> None:  # noqa: N802
        self._points()
        super().xUnlock(level)
