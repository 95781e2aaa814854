"""Read and write the files of a mirror's folder: no link is followed, and a write replaces a whole file."""

from __future__ import annotations

import errno
import os
import secrets
import stat
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event

from engrain.core import errors
from engrain.core.markdown.three_way_merge import CONFLICTS, MEMORY, OVERFLOW, SOUL, SYNC_BASE, parse_log_day

with suppress(ImportError):  # Windows has none, and FolderFiles refuses it
    import fcntl

MAX_FILE_BYTES = 4_000_000
MAX_BASE_BYTES = 64_000_000
HIDDEN_FOLDER, DAYS_FOLDER, IGNORE_FILE = ".engrain", "memory", ".gitignore"
LOCK_PAUSE_SECONDS = 0.02

_NAMES = (SOUL, MEMORY, OVERFLOW, CONFLICTS, SYNC_BASE)
_TEMP_SUFFIX = ".tmp"
# A link is refused, not followed; a pipe is opened without waiting for its other end, and then refused.
_SAFE_FLAGS = getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_CLOEXEC", 0)
_FOLDER_FLAGS = os.O_RDONLY | getattr(os, "O_DIRECTORY", 0) | getattr(os, "O_CLOEXEC", 0)


class FolderFiles:
    """A Folder on disk. Its own path may contain links, because the caller gave it. Nothing inside may be a link."""

    def __init__(self, path: str | os.PathLike[str]) -> None:
        if os.open not in os.supports_dir_fd or not hasattr(os, "O_NOFOLLOW"):
            raise errors.ConfigError("this system cannot open files without following links, which a mirror needs.")
        if not isinstance(path, (str, os.PathLike)) or not os.fspath(path) or "\x00" in str(path):
            raise errors.ConfigError(f"{path!r} is not the path of a folder.")
        self._path = Path(path).expanduser().absolute()

    @property
    def path(self) -> str:
        return str(self._path)

    @contextmanager
    def lock(self, timeout: float) -> Iterator[None]:
        with self._open_folder(HIDDEN_FOLDER, make=True) as hidden:
            assert hidden is not None
            with _translate_errors("lock"):
                file = os.open("lock", os.O_RDWR | os.O_CREAT | _SAFE_FLAGS, 0o600, dir_fd=hidden)
            try:
                with _translate_errors(HIDDEN_FOLDER):
                    _wait_for_lock(file, timeout, self._path)
                    _clean_hidden_folder(hidden)
                yield
            finally:
                os.close(file)

    def days(self) -> list[str]:
        with self._open_folder(DAYS_FOLDER) as folder, _translate_errors(DAYS_FOLDER):
            names = [] if folder is None else [f"{DAYS_FOLDER}/{name}" for name in os.listdir(folder)]
        return sorted(name for name in names if parse_log_day(name))

    def read(self, name: str) -> bytes | None:
        with self._open_folder(_subfolder_of(name)) as folder:
            return None if folder is None else _read_file(folder, name)

    def write(self, name: str, data: bytes, was: bytes | None) -> None:
        temp = secrets.token_hex(8) + _TEMP_SUFFIX
        with (
            self._open_folder(HIDDEN_FOLDER, make=True) as hidden,
            self._open_folder(_subfolder_of(name), make=True) as folder,
        ):
            assert hidden is not None
            assert folder is not None
            try:
                with _translate_errors(name):
                    old = _stat_file(folder, _file_name(name))
                    _check_writable(old, name)
                    _write_new_file(hidden, temp, data, old)
                # As late as possible: a file that somebody saves after this check is overwritten.
                self._check_unchanged(folder, name, was)
                with _translate_errors(name):
                    os.rename(temp, _file_name(name), src_dir_fd=hidden, dst_dir_fd=folder)
                    os.fsync(folder)
            except BaseException:
                with suppress(OSError):
                    os.unlink(temp, dir_fd=hidden)
                raise

    def remove(self, name: str, was: bytes | None) -> None:
        with self._open_folder(_subfolder_of(name)) as folder:
            if folder is not None:
                self._check_unchanged(folder, name, was)
                with _translate_errors(name), suppress(FileNotFoundError):
                    os.unlink(_file_name(name), dir_fd=folder)
                    os.fsync(folder)

    def leave(self) -> None:
        with self._open_folder(HIDDEN_FOLDER) as hidden:
            for name in ("lock", IGNORE_FILE) if hidden is not None else ():
                with suppress(OSError):
                    os.unlink(name, dir_fd=hidden)
        for folder in (self._path / HIDDEN_FOLDER, self._path / DAYS_FOLDER, self._path):
            with suppress(OSError):
                folder.rmdir()

    def signature(self) -> object:
        days = [_file_name(name) for name in self.days()]
        parts = {None: [SOUL, MEMORY], DAYS_FOLDER: [_file_name(OVERFLOW), _file_name(CONFLICTS), *days]}
        found = []
        for part, names in parts.items():
            with self._open_folder(part) as folder, _translate_errors(part or self.path):
                found += [None if folder is None else _stamp_of(_stat_file(folder, name)) for name in names]
        return (*days, *found)

    def ticks(self, seconds: float, stop: Event) -> Iterator[None]:
        yield
        try:
            from watchfiles import watch
        except ImportError:
            while not stop.wait(seconds):
                yield
            return
        with self._open_folder(None, make=True):
            waited = int(seconds * 1_000)
            for _ in watch(self._path, stop_event=stop, rust_timeout=waited, yield_on_timeout=True, debounce=200):
                yield

    @contextmanager
    def _open_folder(self, part: str | None, make: bool = False) -> Iterator[int | None]:
        """Open the folder, or a folder in it; None if it does not exist and `make` is False."""
        opened: list[int] = []
        at = self.path
        try:
            try:
                if make:
                    self._path.mkdir(0o700, exist_ok=True)
                opened.append(os.open(self._path, _FOLDER_FLAGS))
                if part:
                    at = part
                    if make:
                        with suppress(FileExistsError):
                            os.mkdir(part, 0o700, dir_fd=opened[0])
                    opened.append(os.open(part, _FOLDER_FLAGS | _SAFE_FLAGS, dir_fd=opened[0]))
            except OSError as exc:
                if make or not isinstance(exc, FileNotFoundError):
                    raise _translate_error(exc, at) from exc
            yield opened[-1] if len(opened) == 1 + bool(part) else None
        finally:
            for descriptor in opened:
                os.close(descriptor)

    def _check_unchanged(self, folder: int, name: str, was: bytes | None) -> None:
        if _read_file(folder, name) != was:
            raise errors.Conflict(f"{name} was changed by somebody else during the sync. Sync again.")


def _subfolder_of(name: str) -> str | None:
    if name not in _NAMES and parse_log_day(name) is None:
        raise errors.InvalidInput(f"{name!r} is not one of {', '.join(_NAMES)} or memory/YYYY-MM-DD.md.")
    return name.rpartition("/")[0] or None


def _file_name(name: str) -> str:
    return name.rpartition("/")[2]


def _stat_file(folder: int, file: str) -> os.stat_result | None:
    try:
        return os.stat(file, dir_fd=folder, follow_symlinks=False)
    except FileNotFoundError:
        return None


def _stamp_of(seen: os.stat_result | None) -> tuple[int, ...] | None:
    """Return the file's stamps. The ctime is among them because tools set the mtime back, but never the ctime."""
    return seen and (seen.st_mtime_ns, seen.st_ctime_ns, seen.st_size, seen.st_ino, seen.st_dev)


def _read_file(folder: int, name: str) -> bytes | None:
    limit = MAX_BASE_BYTES if name == SYNC_BASE else MAX_FILE_BYTES
    with _translate_errors(name):
        try:
            file = os.open(_file_name(name), os.O_RDONLY | _SAFE_FLAGS, dir_fd=folder)
        except FileNotFoundError:
            return None
        with open(file, "rb") as opened:
            _check_plain(os.fstat(file), name)
            data = opened.read(limit + 1)
    if len(data) > limit:
        raise errors.TooLarge(f"{name} has more than {limit:,} bytes, which is the limit. Shorten it.")
    return data


def _check_plain(seen: os.stat_result, name: str) -> None:
    if not stat.S_ISREG(seen.st_mode):
        raise errors.InvalidInput(f"{name} is not a plain file. Put one in its place, or move it away.")
    if seen.st_nlink > 1:
        # The other name may be outside the folder.
        raise errors.InvalidInput(f"{name} has another name (a hard link). Put a copy in its place.")


def _check_writable(seen: os.stat_result | None, name: str) -> None:
    # The system would allow it: replacing a file needs only write access to its folder.
    if seen is not None and not seen.st_mode & 0o222:
        raise errors.ReadOnlyStore(f"{name} is read-only, but has to change. Make it writable, or undo the change.")


def _write_new_file(folder: int, temp: str, data: bytes, old: os.stat_result | None) -> None:
    file = os.open(temp, os.O_WRONLY | os.O_CREAT | os.O_EXCL | _SAFE_FLAGS, 0o600, dir_fd=folder)
    with open(file, "wb") as opened:
        if old is not None:
            with suppress(PermissionError):
                os.fchown(file, old.st_uid, old.st_gid)
            os.fchmod(file, stat.S_IMODE(old.st_mode))
        opened.write(data)
        opened.flush()
        os.fsync(file)


def _clean_hidden_folder(hidden: int) -> None:
    """Remove the files of a killed sync, and keep the hidden folder out of version control."""
    if _stat_file(hidden, IGNORE_FILE) is None:
        _write_new_file(hidden, IGNORE_FILE, b"*\n", None)
    for name in os.listdir(hidden):
        if name.endswith(_TEMP_SUFFIX):
            with suppress(OSError):
                os.unlink(name, dir_fd=hidden)


def _wait_for_lock(file: int, timeout: float, path: Path) -> None:
    ends = time.monotonic() + timeout
    while True:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as exc:
            if time.monotonic() >= ends:
                busy = f"another process has been syncing {path} for more than {timeout:g} s. Try again."
                raise errors.StoreBusy(busy) from exc
            time.sleep(LOCK_PAUSE_SECONDS)
        else:
            return


@contextmanager
def _translate_errors(name: str) -> Iterator[None]:
    """Translate the system's errors into ours."""
    try:
        yield
    except OSError as exc:
        raise _translate_error(exc, name) from exc


def _describe_wrong_kind(name: str) -> str:
    if os.path.isfile(name):  # the folder itself: a name inside of it is no path from here
        return f"{name} is a file. Give the path of a folder."
    return f"{name} is a link, a file or a folder where another kind is needed. Move it away."


def _translate_error(exc: OSError, name: str) -> errors.EngrainError:
    if exc.errno in (errno.ELOOP, errno.EMLINK, errno.ENXIO):
        return errors.InvalidInput(f"{name} is a link or a device, and is not followed. Put a plain file in its place.")
    if exc.errno in (errno.ENOTDIR, errno.EISDIR, errno.EEXIST):
        return errors.InvalidInput(_describe_wrong_kind(name))
    if exc.errno == errno.ENOENT:
        return errors.ConfigError(f"the folder {name} cannot be created: its parent does not exist.")
    if exc.errno in (errno.ENOSPC, errno.EDQUOT):
        return errors.DiskFull(f"{name} cannot be written: the disk is full. The file is unchanged. Free some space.")
    if exc.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
        return errors.ReadOnlyStore(f"{name} cannot be read or written: {exc.strerror}.")
    return errors.StoreError(f"{name} cannot be read or written: {exc.strerror}.")
