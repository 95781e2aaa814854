"""A folder of Markdown files that nothing leads out of: no link is followed, and a write replaces a whole file."""

from __future__ import annotations

import errno
import os
import secrets
import stat
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event

from engrain.core.errors import (
    ConfigError,
    Conflict,
    DiskFull,
    EngrainError,
    InvalidInput,
    ReadOnlyStore,
    StoreBusy,
    StoreError,
    TooLarge,
)
from engrain.core.markdown.sync_state import CONFLICTS, MEMORY, OVERFLOW, SOUL, SYNC_BASE, parse_log_day

MAX_FILE = 4_000_000
MAX_BASE = 64_000_000
HIDDEN, DAYS, IGNORE = ".engrain", "memory", ".gitignore"
PAUSE = 0.02

_NAMES = (SOUL, MEMORY, OVERFLOW, CONFLICTS, SYNC_BASE)
_TEMP = ".tmp"
# A link is refused, not followed; a pipe is opened without waiting for its other end, and then refused.
_SAFE = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
_FOLDER = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)


class FolderFiles:
    """The folder itself may be reached through a link: its path is the caller's own. Nothing inside may be one."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        if os.open not in os.supports_dir_fd or not hasattr(os, "O_NOFOLLOW"):
            raise ConfigError("this system cannot open files without following links, which a folder of files needs.")
        if not isinstance(path, (str, os.PathLike)) or not os.fspath(path) or "\x00" in str(path):
            raise ConfigError(f"{path!r} is not the path of a folder.")
        self._path = Path(path).expanduser().absolute()

    @property
    def path(self) -> str:
        return str(self._path)

    @contextmanager
    def lock(self, timeout: float) -> Iterator[None]:
        with self._inside(HIDDEN, make=True) as hidden:
            assert hidden is not None
            with _told("lock"):
                file = os.open("lock", os.O_RDWR | os.O_CREAT | _SAFE, 0o660, dir_fd=hidden)
            try:
                with _told(HIDDEN):
                    _wait(file, timeout, self._path)
                    _tidy(hidden)
                yield
            finally:
                os.close(file)

    def days(self) -> list[str]:
        with self._inside(DAYS) as folder, _told(DAYS):
            names = [] if folder is None else [f"{DAYS}/{name}" for name in os.listdir(folder)]
        return sorted(name for name in names if parse_log_day(name))

    def read(self, name: str) -> bytes | None:
        with self._inside(_part(name)) as folder:
            return None if folder is None else _read(folder, name)

    def write(self, name: str, data: bytes, was: bytes | None) -> None:
        temp = secrets.token_hex(8) + _TEMP
        with self._inside(HIDDEN, make=True) as hidden, self._inside(_part(name), make=True) as folder:
            assert hidden is not None
            assert folder is not None
            try:
                with _told(name):
                    old = _stat(folder, _file(name))
                    _must_be_writable(old, name)
                    _fill(hidden, temp, data, old)
                # As late as can be: what somebody saves from here on is seen by the next sync or overwritten by this.
                self._unchanged(folder, name, was)
                with _told(name):
                    os.rename(temp, _file(name), src_dir_fd=hidden, dst_dir_fd=folder)
                    os.fsync(folder)
            except BaseException:
                with suppress(OSError):
                    os.unlink(temp, dir_fd=hidden)
                raise

    def remove(self, name: str, was: bytes | None) -> None:
        with self._inside(_part(name)) as folder:
            if folder is not None:
                self._unchanged(folder, name, was)
                with _told(name), suppress(FileNotFoundError):
                    os.unlink(_file(name), dir_fd=folder)
                    os.fsync(folder)

    def leave(self) -> None:
        with self._inside(HIDDEN) as hidden:
            for name in ("lock", IGNORE) if hidden is not None else ():
                with suppress(OSError):
                    os.unlink(name, dir_fd=hidden)
        for one in (self._path / HIDDEN, self._path / DAYS, self._path):
            with suppress(OSError):
                one.rmdir()

    def signature(self, *, base: bool = False) -> object:
        days = [_file(name) for name in self.days()]
        parts = {None: [SOUL, MEMORY], DAYS: [_file(OVERFLOW), _file(CONFLICTS), *days]}
        if base:
            parts[HIDDEN] = [_file(SYNC_BASE)]
        found = []
        for part, names in parts.items():
            with self._inside(part) as folder, _told(part or self.path):
                found += [None if folder is None else _stamp(_stat(folder, name)) for name in names]
        return (*days, *found)

    def ticks(self, seconds: float, stop: Event) -> Iterator[None]:
        yield
        try:
            from watchfiles import watch
        except ImportError:
            while not stop.wait(seconds):
                yield
            return
        with self._inside(None, make=True):
            waited = int(seconds * 1_000)
            for _ in watch(self._path, stop_event=stop, rust_timeout=waited, yield_on_timeout=True, debounce=200):
                yield

    @contextmanager
    def _inside(self, part: str | None, make: bool = False) -> Iterator[int | None]:
        """The folder, or a folder in it, opened; None if it is not there and not to be made."""
        opened: list[int] = []
        at = self.path
        try:
            try:
                if make:
                    self._path.mkdir(0o770, exist_ok=True)
                opened.append(os.open(self._path, _FOLDER))
                if part:
                    at = part
                    if make:
                        with suppress(FileExistsError):
                            os.mkdir(part, 0o770, dir_fd=opened[0])
                    opened.append(os.open(part, _FOLDER | _SAFE, dir_fd=opened[0]))
            except OSError as exc:
                if make or not isinstance(exc, FileNotFoundError):
                    raise _failure(exc, at) from exc
            yield opened[-1] if len(opened) == 1 + bool(part) else None
        finally:
            for one in opened:
                os.close(one)

    def _unchanged(self, folder: int, name: str, was: bytes | None) -> None:
        if _read(folder, name) != was:
            raise Conflict(f"{name} was changed by somebody else just now. Sync again.")


def _part(name: str) -> str | None:
    if name not in _NAMES and parse_log_day(name) is None:
        raise InvalidInput(f"{name!r} is not one of {', '.join(_NAMES)} or memory/YYYY-MM-DD.md.")
    return name.rpartition("/")[0] or None


def _file(name: str) -> str:
    return name.rpartition("/")[2]


def _stat(folder: int, file: str) -> os.stat_result | None:
    try:
        return os.stat(file, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _stamp(seen: os.stat_result | None) -> tuple[int, ...] | None:
    """Nobody sets the time of the last change (ctime) back, as tools do with that of the last writing."""
    return seen and (seen.st_mtime_ns, seen.st_ctime_ns, seen.st_size, seen.st_ino, seen.st_dev)


def _read(folder: int, name: str) -> bytes | None:
    limit = MAX_BASE if name == SYNC_BASE else MAX_FILE
    with _told(name):
        try:
            file = os.open(_file(name), os.O_RDONLY | _SAFE, dir_fd=folder)
        except FileNotFoundError:
            return None
        with open(file, "rb") as opened:
            _must_be_plain(os.fstat(file), name)
            data = opened.read(limit + 1)
    if len(data) > limit:
        raise TooLarge(f"{name} has more than {limit:,} bytes, which is the limit. Shorten it.")
    return data


def _must_be_plain(seen: os.stat_result, name: str) -> None:
    if not stat.S_ISREG(seen.st_mode):
        raise InvalidInput(f"{name} is not a plain file. Put one in its place, or move it away.")
    if seen.st_nlink > 1:
        # The other name may be anywhere, and a file that others can reach is not this folder's own.
        raise InvalidInput(f"{name} has another name (a hard link). Put a copy in its place.")


def _must_be_writable(seen: os.stat_result | None, name: str) -> None:
    # The system would let us: a file is replaced by whoever may write in its folder.
    if seen is not None and not seen.st_mode & 0o222:
        raise ReadOnlyStore(f"{name} is read-only, and is to be changed. Make it writable, or undo what changed.")


def _fill(folder: int, temp: str, data: bytes, old: os.stat_result | None) -> None:
    file = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFE, 0o660, dir_fd=folder)
    with open(file, "wb") as opened:
        if old is not None:
            with suppress(PermissionError):
                os.fchown(file, old.st_uid, old.st_gid)
            os.fchmod(file, stat.S_IMODE(old.st_mode))
        opened.write(data)
        opened.flush()
        os.fsync(file)


def _tidy(hidden: int) -> None:
    """What a sync that was killed has left goes; and none of this is for version control."""
    if _stat(hidden, IGNORE) is None:
        _fill(hidden, IGNORE, b"*\n", None)
    for name in os.listdir(hidden):
        if name.endswith(_TEMP):
            with suppress(OSError):
                os.unlink(name, dir_fd=hidden)


def _wait(file: int, timeout: float, path: Path) -> None:
    ends = time.monotonic() + timeout
    while not _take(file):
        if time.monotonic() >= ends:
            raise StoreBusy(f"another process has been syncing {path} for more than {timeout:g} s. Try again.")
        time.sleep(PAUSE)


if sys.platform == "win32":

    def _take(file: int) -> bool:
        raise ConfigError("a folder of files is not kept in step on Windows yet.")

else:
    import fcntl

    def _take(file: int) -> bool:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True


@contextmanager
def _told(name: str) -> Iterator[None]:
    """The system's errors as ours."""
    try:
        yield
    except OSError as exc:
        raise _failure(exc, name) from exc


def _failure(exc: OSError, name: str) -> EngrainError:
    if exc.errno in (errno.ELOOP, errno.EMLINK, errno.ENXIO):
        return InvalidInput(f"{name} is a link or a device, and is not followed. Put a plain file in its place.")
    if exc.errno in (errno.ENOTDIR, errno.EISDIR, errno.EEXIST):
        return InvalidInput(f"{name} is a link, a file or a folder where something else is needed. Move it away.")
    if exc.errno == errno.ENOENT:
        return ConfigError(f"the folder {name} cannot be made: the one that it is to be in is not there.")
    if exc.errno in (errno.ENOSPC, errno.EDQUOT):
        return DiskFull(f"{name} cannot be written: the disk is full. The file is as it was; free some space.")
    if exc.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return ReadOnlyStore(f"{name} cannot be read or written: {exc.strerror}.")
    return StoreError(f"{name} cannot be read or written: {exc.strerror}.")
