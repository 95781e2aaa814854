"""The file lock on which the writers of several processes queue."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from engrain.core.errors import DiskFull, ReadOnlyStore, StoreBusy, StoreError

# First come, first served. With one plain lock, or with SQLite's busy_timeout alone, the process that releases is the
# one that is awake and takes it again; with two, two processes can pass it to and fro while others wait (seen: 1.4 s).
# So each takes a number from the file, holds the byte of that number, and has its turn when no smaller byte is held
# and it gets through the door. Whoever finds the door free and nobody with a number goes in without one, which saves
# half of the calls and a write. The system frees the bytes of a process that dies.
COUNTER = 8
_DOOR = 1 << 9
_FIRST = 1 << 10  # where the bytes of the numbers begin; before them the counter with the lock on it, and the door
# Polled, because a lock that blocks knows no time-out, and a stopped process must not stop the others for ever.
_PAUSE = 0.0002
_LONG_WAIT = 0.1
_LONG_PAUSE = 0.001


class TicketQueue:
    """One per file and process, because the system grants these locks to processes: see `borrow_lock`."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.name = str(path)
        self._threads = threading.Lock()
        self._file: int | None = None
        self._databases: list[int] = []  # the last is of the file that is there
        self._pid = 0
        self._place: int | None = None
        self.holder: FileLock | None = None

    def take(self, holder: FileLock, timeout: float) -> None:
        ends = time.monotonic() + timeout
        took: list[bool] = []
        try:
            # A store is opened in its caller's thread. Through map, the answer is in the list before a signal can come.
            took.extend(map(self._threads.acquire, (True,), (timeout,)))
            if not took[0]:
                raise _busy(timeout)
            self.holder = holder
            self._stand(self._open(), ends, timeout)
        except OSError as exc:
            self.free()
            raise _failure(exc, self._path) from exc
        except BaseException:
            if took and took[0]:
                self.free()
            raise

    def _stand(self, file: int, ends: float, timeout: float) -> None:
        if _try(file, _DOOR, 1):
            if _nobody_from(file, _FIRST):
                return
            _unlock(file, _DOOR, 1)
        try:
            _wait(file, 0, COUNTER, ends, timeout)
            number = int.from_bytes(_read(file, COUNTER, 0), "little")
            _write(file, (number + 1).to_bytes(COUNTER, "little"), 0)
            self._place = number
            _wait(file, _FIRST + number, 1, ends, timeout)
        finally:
            _unlock(file, 0, COUNTER)
        if number:
            _wait(file, _FIRST, number, ends, timeout)
        _wait(file, _DOOR, 1, ends, timeout)

    def free(self) -> None:
        try:
            if self._file is not None:
                _unlock_all(self._file, self._place)
                self._place = None
        finally:
            self.holder = None
            self._threads.release()

    def _open(self) -> int:
        if self._file is None or self._pid != os.getpid():
            self._file = os.open(self._path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o666)
            self._pid = os.getpid()
        return self._file

    def reset(self) -> None:
        """In a forked child: nobody here holds it."""
        self._threads = threading.Lock()
        self.holder = None
        self._place = None

    def database(self, path: Path) -> int:
        try:
            # Another file may stand there by now, while a store of the one before is still open.
            if not self._databases or not os.path.samestat(os.fstat(self._databases[-1]), os.stat(path)):
                binary = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
                self._databases.append(os.open(path, os.O_RDWR | binary))
        except OSError as exc:
            raise _failure(exc, path) from exc
        return self._databases[-1]

    def close(self) -> None:
        for file in (self._file, *self._databases):
            if file is not None:
                os.close(file)
        self._file, self._databases = None, []


class FileLock:
    """One store's claim to its file."""

    def __init__(self, path: Path, queue: TicketQueue | None = None) -> None:
        self._path = path
        self.queue = queue or TicketQueue(path)

    def claim_again(self) -> FileLock:
        """For another thread of the same store; it ends with this one."""
        return FileLock(self._path, self.queue)

    def acquire(self, timeout: float) -> None:
        self.queue.take(self, timeout)

    def release(self) -> None:
        """Nothing if it is not held; also if an interrupted call has left it."""
        if self.queue.holder is self:
            self.queue.free()

    @contextlib.contextmanager
    def hold(self, timeout: float) -> Iterator[None]:
        """For a block; one inside another has it already."""
        if self.queue.holder is self:
            yield
            return
        self.acquire(timeout)
        try:
            yield
        finally:
            self.release()

    def database(self, path: Path) -> int:
        """The database's own file, for bytes that SQLite does not reach; open as long as its connections are."""
        return self.queue.database(path)

    def close(self) -> None:
        self.queue.close()


_known: dict[str, tuple[TicketQueue, int]] = {}
_guard = threading.Lock()


def borrow_lock(path: Path) -> FileLock:
    """A claim to this file, through the process's one queue for it; to be returned once."""
    with _guard:
        queue, users = _known.get(str(path)) or (TicketQueue(path), 0)
        _known[str(path)] = queue, users + 1
        return FileLock(path, queue)


def return_lock(lock: FileLock) -> None:
    lock.release()
    # Closed by the last user only: closing any handle of a file drops all of the process's locks on it, SQLite's too.
    with _guard:
        queue, users = _known.pop(lock.queue.name)
        if users > 1:
            _known[queue.name] = queue, users - 1
        else:
            queue.close()


def _reset_all() -> None:
    global _guard
    _guard = threading.Lock()
    for queue, _ in _known.values():
        queue.reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_all)


def _wait(file: int, start: int, length: int, ends: float, timeout: float) -> None:
    began = 0.0
    while not _try(file, start, length):
        now = time.monotonic()
        began = began or now
        if now >= ends:
            raise _busy(timeout)
        time.sleep(_PAUSE if now - began < _LONG_WAIT else _LONG_PAUSE)


def _busy(timeout: float) -> StoreBusy:
    return StoreBusy(
        f"another process held the store for more than {timeout:g} s. Look for a stopped one, or try again."
    )


def _failure(exc: OSError, path: Path) -> StoreError:
    if exc.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return ReadOnlyStore(f"{path.parent} cannot be written: {exc.strerror}. Open the store read-only.")
    if exc.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull(f"{path.parent} has no space left. Nothing was written; free some space and repeat it.")
    return StoreError(f"{path} cannot be opened or written: {exc.strerror}.")


if sys.platform == "win32":
    import msvcrt

    def _try(file: int, start: int, length: int) -> bool:
        os.lseek(file, start, os.SEEK_SET)
        try:
            msvcrt.locking(file, msvcrt.LK_NBLCK, length)
        except OSError:
            return False
        return True

    def _unlock(file: int, start: int, length: int) -> None:
        os.lseek(file, start, os.SEEK_SET)
        with contextlib.suppress(OSError):
            msvcrt.locking(file, msvcrt.LK_UNLCK, length)

    def _unlock_all(file: int, place: int | None) -> None:
        # Exactly what was locked, and in the same pieces.
        _unlock(file, _DOOR, 1)
        if place:
            _unlock(file, _FIRST, place)
        if place is not None:
            _unlock(file, _FIRST + place, 1)

    def _nobody_from(file: int, start: int) -> bool:
        """It cannot be asked here: there is no lock that several may hold."""
        return False

    def _read(file: int, size: int, at: int) -> bytes:
        os.lseek(file, at, os.SEEK_SET)
        return os.read(file, size)

    def _write(file: int, what: bytes, at: int) -> int:
        os.lseek(file, at, os.SEEK_SET)
        return os.write(file, what)

else:
    import fcntl

    _read, _write = os.pread, os.pwrite

    _NOW, _SHARED_NOW, _UNLOCK = fcntl.LOCK_EX | fcntl.LOCK_NB, fcntl.LOCK_SH | fcntl.LOCK_NB, fcntl.LOCK_UN

    def _try(file: int, start: int, length: int, how: int = _NOW) -> bool:
        try:
            fcntl.lockf(file, how, length, start)
        except OSError as exc:
            if exc.errno in (errno.EACCES, errno.EAGAIN):
                return False
            raise StoreError(f"this file system has no locks: {exc.strerror}. Move the store to a local disk.") from exc
        return True

    def _unlock(file: int, start: int, length: int) -> None:
        fcntl.lockf(file, _UNLOCK, length, start)

    def _unlock_all(file: int, place: int | None) -> None:
        fcntl.lockf(file, _UNLOCK)

    def _nobody_from(file: int, start: int) -> bool:
        """Whether nobody holds a byte from there on; to find out, all are held for a moment, as several may."""
        if not _try(file, start, 0, _SHARED_NOW):
            return False
        fcntl.lockf(file, _UNLOCK, 0, start)
        return True
