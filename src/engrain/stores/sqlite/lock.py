"""The file lock on which the writers of several processes queue."""

from __future__ import annotations

import errno
import os
import sys
import threading
import time
from pathlib import Path

from engrain.core.errors import DiskFull, ReadOnlyStore, StoreBusy, StoreError

# A writer that has just finished must not win again over those who wait, so there are two places in the file: only
# who holds NEXT may wait for TURN, and gives NEXT back once it has TURN. With one lock, or with SQLite's busy_timeout
# alone, the process that releases is the one that is awake and takes it again.
TURN, NEXT = 0, 1
# Polled, because a lock that blocks knows no time-out, and a stopped process must not stop the others for ever.
_TURN_PAUSE = 0.0001
_NEXT_PAUSE = 0.0005
_LONG_WAIT = 0.05
_LONG_PAUSE = 0.002


class FileLock:
    """One per file and process, because the system grants these locks to processes: see `borrow`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.name = str(path)
        self._threads = threading.Lock()
        self._file: int | None = None
        self._database: int | None = None
        self._pid = 0
        self._owner = 0
        self._depth = 0

    def acquire(self, timeout: float) -> None:
        """Again by the thread that has it: counts, and is released as often."""
        if self._owner == threading.get_ident():
            self._depth += 1
            return
        ends = time.monotonic() + timeout
        if not self._threads.acquire(timeout=timeout):
            raise _busy(timeout)
        try:
            fd = self._open()
            _wait(fd, NEXT, ends, _NEXT_PAUSE, timeout)
            try:
                _wait(fd, TURN, ends, _TURN_PAUSE, timeout)
            finally:
                _unlock(fd, NEXT)
        except BaseException:
            self._threads.release()
            raise
        self._owner, self._depth = threading.get_ident(), 1

    def release(self) -> None:
        self._depth -= 1
        if self._depth:
            return
        self._owner = 0
        try:
            if self._file is not None:
                _unlock(self._file, TURN)
        finally:
            self._threads.release()

    def _open(self) -> int:
        if self._file is None or self._pid != os.getpid():
            try:
                self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o666)
            except OSError as exc:
                raise _failure(exc, self._path) from exc
            self._pid = os.getpid()
        return self._file

    def reset(self) -> None:
        """In a forked child: nobody here holds it."""
        self._threads = threading.Lock()
        self._owner = self._depth = 0

    def database(self, path: Path) -> int:
        """The database's own file, for bytes that SQLite does not reach; open as long as its connections are."""
        if self._database is None:
            try:
                self._database = os.open(path, os.O_RDWR | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0))
            except OSError as exc:
                raise _failure(exc, path) from exc
        return self._database

    def close(self) -> None:
        for file in (self._file, self._database):
            if file is not None:
                os.close(file)
        self._file = self._database = None


_known: dict[str, tuple[FileLock, int]] = {}
_guard = threading.Lock()


def borrow(path: Path) -> FileLock:
    """The process's lock of this file; to be given back once."""
    with _guard:
        lock, users = _known.get(str(path)) or (FileLock(path), 0)
        _known[str(path)] = lock, users + 1
        return lock


def give_back(lock: FileLock) -> None:
    # Closed by the last user only: closing any handle of a file drops all of the process's locks on it, SQLite's too.
    with _guard:
        _, users = _known.pop(lock.name)
        if users > 1:
            _known[lock.name] = lock, users - 1
        else:
            lock.close()


def _reset_all() -> None:
    global _guard
    _guard = threading.Lock()
    for lock, _ in _known.values():
        lock.reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_all)


def _wait(fd: int, place: int, ends: float, pause: float, timeout: float) -> None:
    began = time.monotonic()
    while not _try(fd, place):
        now = time.monotonic()
        if now >= ends:
            raise _busy(timeout)
        time.sleep(pause if now - began < _LONG_WAIT else max(pause, _LONG_PAUSE if place == TURN else pause))


def _busy(timeout: float) -> StoreBusy:
    return StoreBusy(
        f"another process held the store for more than {timeout:g} s. Look for a stopped one, or try again."
    )


def _failure(exc: OSError, path: Path) -> StoreError:
    if exc.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return ReadOnlyStore(f"{path.parent} cannot be written: {exc.strerror}. Open the store read-only.")
    if exc.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull(f"{path.parent} has no space left. Nothing was written; free some space and repeat it.")
    return StoreError(f"{path} cannot be opened: {exc.strerror}.")


if sys.platform == "win32":
    import msvcrt

    def _try(fd: int, place: int) -> bool:
        os.lseek(fd, place, os.SEEK_SET)
        try:
            msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        return True

    def _unlock(fd: int, place: int) -> None:
        os.lseek(fd, place, os.SEEK_SET)
        msvcrt.locking(fd, msvcrt.LK_UNLCK, 1)

else:
    import fcntl

    def _try(fd: int, place: int) -> bool:
        try:
            fcntl.lockf(fd, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, place)
        except OSError as exc:
            if exc.errno in (errno.EACCES, errno.EAGAIN):
                return False
            raise StoreError(
                f"this file system knows no locks: {exc.strerror}. Move the store to a local disk."
            ) from exc
        return True

    def _unlock(fd: int, place: int) -> None:
        fcntl.lockf(fd, fcntl.LOCK_UN, 1, place)
