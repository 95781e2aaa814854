"""The file lock on which the writers of several processes queue."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
import struct
import sys
import threading
import time
from collections.abc import Iterator
from copy import copy
from pathlib import Path

from engrain.core.errors import DiskFull, NotADatabase, ReadOnlyStore, StoreBusy, StoreError

# First come, first served. With one plain lock, or with SQLite's busy_timeout alone, the process that releases is the
# one that is awake and takes it again; with two, two processes can pass it to and fro while others wait (seen: 1.4 s).
# So each takes a number from the file, holds the byte of that number, and has its turn when no smaller byte is held
# and it gets the write byte. A process that finds the write byte free, and nobody with a number, needs no number: that
# saves half of the calls and a write. The system frees the bytes of a process that dies.
_COUNTER_BYTES = 8
_NOTE_AT, _NOTE_BYTES = 16, 16
_WRITE_BYTE = 1 << 9
_FIRST_TICKET = 1 << 10  # before the bytes of the numbers stand the counter, which has a lock too, and the write byte
# Polled, because a lock that blocks knows no time-out, and a stopped process must not stop the others for ever.
_PAUSE_SECONDS = 0.0002
_LONG_WAIT_SECONDS = 0.1
_LONG_PAUSE_SECONDS = 0.001
# A link would lead our writes into another file.
_SAFE_FLAGS = sum(getattr(os, name, 0) for name in ("O_CLOEXEC", "O_NOFOLLOW", "O_NONBLOCK"))


class TicketQueue:
    """One per file and process, because the system grants these locks to processes."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.name = str(path)
        self._threads = threading.Lock()
        self._file: int | None = None
        self._databases: list[int] = []  # the last one is the present file
        self._pid = 0
        self._ticket: int | None = None
        self.holder: FileLock | None = None

    def take(self, holder: FileLock, timeout: float) -> None:
        ends = time.monotonic() + timeout
        took: list[bool] = []
        try:
            # A store is opened in its caller's thread. Through map, the answer is in the list before a signal can come.
            took.extend(map(self._threads.acquire, (True,), (timeout,)))
            if not took[0]:
                raise _make_busy_error(timeout, os.getpid())
            self.holder = holder
            self._wait_for_turn(self._open(), ends, timeout)
        except OSError as exc:
            self.free()
            raise _translate_error(exc, self._path) from exc
        except BaseException:
            if took and took[0]:
                self.free()
            raise

    def _wait_for_turn(self, file: int, ends: float, timeout: float) -> None:
        if _try_lock(file, _WRITE_BYTE, 1):
            if _is_free_from(file, _FIRST_TICKET):
                return
            _unlock(file, _WRITE_BYTE, 1)
        try:
            _wait_for_lock(file, 0, _COUNTER_BYTES, ends, timeout)
            number = int.from_bytes(read_at(file, _COUNTER_BYTES, 0), "little")
            write_at(file, (number + 1).to_bytes(_COUNTER_BYTES, "little"), 0)
            self._ticket = number
            _wait_for_lock(file, _FIRST_TICKET + number, 1, ends, timeout)
        finally:
            _unlock(file, 0, _COUNTER_BYTES)
        if number:
            _wait_for_lock(file, _FIRST_TICKET, number, ends, timeout)
        _wait_for_lock(file, _WRITE_BYTE, 1, ends, timeout)

    def free(self) -> None:
        try:
            if self._file is not None:
                _unlock_all(self._file, self._ticket)
                self._ticket = None
        finally:
            self.holder = None
            self._threads.release()

    def _open(self) -> int:
        if self._file is None or self._pid != os.getpid():
            self._file = _open_plain_file(self._path, os.O_CREAT, self._mode())
            self._pid = os.getpid()
        return self._file

    def _mode(self) -> int:
        """The rights of the store's file, which its owner may have shared, as SQLite gives them to its log."""
        try:
            return os.stat(self.name.removesuffix("-lock")).st_mode & 0o666
        except OSError:
            return 0o600

    def read_note(self) -> tuple[bytes, int]:
        """The store that last wrote here, and the number of its last commit: no bytes and 0 if there is none."""
        with contextlib.suppress(OSError):  # no writer has been here, or it may not be read
            if self._file is None or self._pid != os.getpid():
                self._file = _open_plain_file(self._path)
                self._pid = os.getpid()
            note = read_at(self._file, _NOTE_BYTES, _NOTE_AT)
            return note[:8], int.from_bytes(note[8:], "little")
        return b"", 0

    def write_note(self, store: bytes = b"", commits: int = 0) -> None:
        """Note a commit beside the file. It is not synced: it may be older than the file, and never newer."""
        with contextlib.suppress(OSError):  # the commit is durable, and its caller is not to hear otherwise
            write_at(self._open(), store[:8].ljust(8, b"\0") + commits.to_bytes(8, "little"), _NOTE_AT)

    def reset(self) -> None:
        """In a forked child, where nobody holds it."""
        self._threads = threading.Lock()
        self.holder = None
        self._ticket = None

    def database(self, path: Path) -> int:
        """The database's own file, for bytes that SQLite does not reach; open as long as its connections are."""
        try:
            # Another file may stand there by now, while a store of the one before is still open.
            if not self._databases or not os.path.samestat(os.fstat(self._databases[-1]), os.stat(path)):
                binary = getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
                self._databases.append(os.open(path, os.O_RDWR | binary))
        except OSError as exc:
            raise _translate_error(exc, path) from exc
        return self._databases[-1]

    def close(self) -> None:
        for file in (self._file, *self._databases):
            if file is not None:
                os.close(file)
        self._file, self._databases = None, []


_queues: dict[str, tuple[TicketQueue, int]] = {}  # with the number of its users
_guard = threading.Lock()


class FileLock:
    """One store's claim to its file, through the process's one queue for it; to be closed once."""

    def __init__(self, path: Path) -> None:
        with _guard:
            self.queue, users = _queues.get(str(path)) or (TicketQueue(path), 0)
            _queues[str(path)] = self.queue, users + 1

    def claim_again(self) -> FileLock:
        """For another thread of the same store; it ends with this one."""
        return copy(self)

    def acquire(self, timeout: float) -> None:
        self.queue.take(self, timeout)

    def release(self) -> None:
        """Does nothing if it is not held. An interrupted call may have left it held."""
        if self.queue.holder is self:
            self.queue.free()

    @contextlib.contextmanager
    def hold(self, timeout: float) -> Iterator[None]:
        """Hold it for a block, which may be inside another."""
        if self.queue.holder is self:
            yield
            return
        self.acquire(timeout)
        try:
            yield
        finally:
            self.release()

    def close(self) -> None:
        self.release()
        # By the last user only: closing any handle of a file drops all of the process's locks on it, SQLite's too.
        with _guard:
            queue, users = _queues.pop(self.queue.name)
            if users > 1:
                _queues[queue.name] = queue, users - 1
            else:
                queue.close()


def _reset_queues() -> None:
    global _guard
    _guard = threading.Lock()
    for queue, _ in _queues.values():
        queue.reset()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_reset_queues)


def _wait_for_lock(file: int, start: int, length: int, ends: float, timeout: float) -> None:
    started = 0.0
    while not _try_lock(file, start, length):
        now = time.monotonic()
        started = started or now
        if now >= ends:
            raise _make_busy_error(timeout, _find_holder(file, _WRITE_BYTE, 1) or _find_holder(file, start, length))
        time.sleep(_PAUSE_SECONDS if now - started < _LONG_WAIT_SECONDS else _LONG_PAUSE_SECONDS)


def _open_plain_file(path: Path, more: int = 0, mode: int = 0o600) -> int:
    file = os.open(path, os.O_RDWR | more | _SAFE_FLAGS, mode)
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise _make_foreign_error(path)
    return file


def _make_foreign_error(path: Path) -> NotADatabase:
    return NotADatabase(f"{path} is not a plain file: engrain did not make it. Move it away.")


def _make_busy_error(timeout: float, pid: int | None) -> StoreBusy:
    who = f"process {pid}" if pid else "another process"
    if pid == os.getpid():
        who = f"another thread of this process ({pid})"
    return StoreBusy(f"{who} held the store for more than {timeout:g} s. Look if it is stopped, or try again.")


def _translate_error(exc: OSError, path: Path) -> StoreError:
    if exc.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return ReadOnlyStore(f"{path.parent} cannot be written: {exc.strerror}. Open the store read-only.")
    if exc.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull(f"{path.parent} has no space left. Nothing was written; free some space and repeat it.")
    if exc.errno in (errno.ELOOP, errno.EISDIR):
        return _make_foreign_error(path)
    return StoreError(f"{path} cannot be opened or written: {exc.strerror}.")


if sys.platform == "win32":
    import msvcrt

    def _try_lock(file: int, start: int, length: int) -> bool:
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

    def _unlock_all(file: int, ticket: int | None) -> None:
        # Exactly what was locked, and in the same pieces.
        _unlock(file, _WRITE_BYTE, 1)
        if ticket:
            _unlock(file, _FIRST_TICKET, ticket)
        if ticket is not None:
            _unlock(file, _FIRST_TICKET + ticket, 1)

    def _is_free_from(file: int, start: int) -> bool:
        """Windows cannot tell: it has no lock that several may hold."""
        return False

    def _find_holder(file: int, start: int, length: int) -> int | None:
        """Windows does not tell."""
        return None

    def read_at(file: int, size: int, at: int) -> bytes:
        os.lseek(file, at, os.SEEK_SET)
        return os.read(file, size)

    def write_at(file: int, what: bytes, at: int) -> int:
        os.lseek(file, at, os.SEEK_SET)
        return os.write(file, what)

else:
    import fcntl

    read_at, write_at = os.pread, os.pwrite

    _NOW, _SHARED_NOW, _UNLOCK = fcntl.LOCK_EX | fcntl.LOCK_NB, fcntl.LOCK_SH | fcntl.LOCK_NB, fcntl.LOCK_UN

    def _try_lock(file: int, start: int, length: int, how: int = _NOW) -> bool:
        try:
            fcntl.lockf(file, how, length, start)
        except OSError as exc:
            if exc.errno in (errno.EACCES, errno.EAGAIN):
                return False
            raise StoreError(f"this file system has no locks: {exc.strerror}. Move the store to a local disk.") from exc
        return True

    def _unlock(file: int, start: int, length: int) -> None:
        fcntl.lockf(file, _UNLOCK, length, start)

    def _unlock_all(file: int, ticket: int | None) -> None:
        fcntl.lockf(file, _UNLOCK)

    # The order of the fields of struct flock: type, whence, start, length, pid; or start, length, pid, type, whence.
    _LINUX_FLOCK, _BSD_FLOCK = "@hhqqi4x", "@qqihh"

    def _find_holder(file: int, start: int, length: int) -> int | None:
        """The process that holds a lock in this range; None if nobody does, or it cannot be known."""
        linux = sys.platform.startswith("linux")
        if linux:
            asked = struct.pack(_LINUX_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, start, length, 0)
        else:
            asked = struct.pack(_BSD_FLOCK, start, length, 0, fcntl.F_WRLCK, os.SEEK_SET)
        try:
            found = fcntl.fcntl(file, fcntl.F_GETLK, asked)
        except OSError:
            return None
        if linux:
            kind, _, _, _, pid = struct.unpack(_LINUX_FLOCK, found)
        else:
            _, _, pid, kind, _ = struct.unpack(_BSD_FLOCK, found)
        return int(pid) if kind != fcntl.F_UNLCK and pid > 0 else None

    def _is_free_from(file: int, start: int) -> bool:
        """Nobody holds a byte from there on. To find out, all of them get a shared lock for a moment."""
        if not _try_lock(file, start, 0, _SHARED_NOW):
            return False
        fcntl.lockf(file, _UNLOCK, 0, start)
        return True
