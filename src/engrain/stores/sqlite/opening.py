"""Decide how a path can be opened, and open connections to it that way."""

from __future__ import annotations

import contextlib
import os
import re
import stat
import struct
import sys
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Literal
from urllib.parse import quote

from engrain.core.errors import EngrainError, InvalidInput, NotADatabase, ReadOnlyStore, StoreError, WrongKey
from engrain.stores.sqlite.connection import Connection, connect, file_uri, require_encryption, require_safe_version

_MAGIC = bytes.fromhex("d9d505f920a163d7")
_HEAD_BYTES, _END_BYTES = 20, 16
_MAX_SECTOR_BYTES = 4_096  # before the first page of a journal
# Logs are numbered from a random number on, so that one of another store, or of a copy, is told from our own.
RENUMBER_LOGS = f"update counter set logs = random() & {(1 << 62) - 1} where n = 0"
NEXT_LOG = "update counter set logs = logs + 1 where n = 0"
_OPEN_FILES = ("/proc/self/fd", "/dev/fd")


def check_journal(path: Path, has_log: bool) -> None:
    """NotADatabase for a journal that deletes another file, empties the store, or is beside a store with a log.

    A journal can name another file, which SQLite deletes once it has undone the writes in the journal. It does so for
    transactions over several files, and engrain makes none. Before that it writes the pages of the journal into the
    store, and cuts it to the number of pages that the journal names. engrain writes a new store as one file, so that
    none of its journals names zero. `has_log`: this process would open the store with a write-ahead log.
    """
    journal = path.with_name(path.name + "-journal")
    try:
        with journal.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            head = os.pread(file.fileno(), _HEAD_BYTES, 0)
            tail = os.pread(file.fileno(), _END_BYTES, max(0, size - _END_BYTES))
    except FileNotFoundError:
        return
    if len(head) < _HEAD_BYTES or len(tail) < _END_BYTES:
        return  # nothing to undo: empty, or another process ended its transaction just now
    start, _, _, pages = struct.unpack(">8sIII", head)
    length, _, end = struct.unpack(">II8s", tail)
    if end == _MAGIC and length:
        raise NotADatabase(
            f"{journal} names another file, for SQLite to delete it: engrain did not write it. Move it away."
        )
    if start == _MAGIC and not pages and path.is_file() and path.stat().st_size:
        raise NotADatabase(f"{journal} would empty the store: engrain did not write it. Move it away.")
    if start == _MAGIC and has_log and _is_foreign(path, size, pages):
        raise NotADatabase(f"{journal} is not of this store, which has a write-ahead log instead. Move it away.")


def _is_foreign(path: Path, size: int, pages: int) -> bool:
    """A store with a write-ahead log has a journal only while it changes to or from that log, of its first page."""
    if not path.is_file() or (path.stat().st_dev, path.stat().st_ino) in find_open_files():
        return False  # a store that is open here was looked at before
    with path.open("rb") as file:
        page_bytes, *versions = struct.unpack(">16xHBB", file.read(20).ljust(20, b"\0"))
    page_bytes = 65_536 if page_bytes == 1 else page_bytes
    one_page = size <= _MAX_SECTOR_BYTES + page_bytes + 8
    return versions == [2, 2] and not (one_page and pages * page_bytes == path.stat().st_size)


def find_open_files() -> set[tuple[int, int]]:
    """The files that this process has open. Reading and closing one of them would drop its locks."""
    folder = next((folder for folder in _OPEN_FILES if os.path.isdir(folder)), None)
    found = set()
    for name in os.listdir(folder) if folder else ():
        try:
            status = os.fstat(int(name))
        except (OSError, ValueError):
            continue  # closed meanwhile
        found.add((status.st_dev, status.st_ino))
    return found


Journal = Literal["wal", "truncate", "memory"]
FileIdentity = tuple[int, int]

BUSY_MILLISECONDS = 10_000
NO_FOLLOW = getattr(os, "O_NOFOLLOW", 0)
# A write-ahead log needs shared memory, which does not reach across machines.
_NETWORK_TYPES = {
    "nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "ceph", "9p", "lustre", "gpfs", "beegfs", "glusterfs", "ocfs2",
    "gfs2", "orangefs", "pvfs2", "davfs", "vboxsf",
}  # fmt: skip
_NETWORK_FUSE = ("sshfs", "rclone", "s3fs", "glusterfs", "gcsfuse", "ceph", "davfs", "mergerfs", "goofys", "juicefs")
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")
# The ends of the names of our own copies.
_OWN_COPY = re.compile(r"(\.restoring|(\.restoring)?-before-v\d+(\.part)?)(-wal|-shm|-journal|-lock)?|-new-\d+-\d+")


@dataclass(frozen=True, slots=True)
class StoreFile:
    """A file that can be opened, and how. `no_wal` says why it has no write-ahead log."""

    path: Path | None
    journal: Journal
    read_only: bool = False
    immutable: bool = False
    no_wal: str = ""
    remote: bool = False
    key: str | None = field(default=None, repr=False)  # never shown

    def explain_read_only(self) -> str:
        if self.path is None or all(os.access(path, os.W_OK) for path in (self.path, self.path.parent)):
            return f"{self.path} was opened read-only. Open it without read_only to write."
        return f"{self.path} can only be read: you may not write to it and its folder. Ask its owner for the right."

    def files(self) -> list[Path]:
        """Every file of the store that exists now."""
        if self.path is None:
            return []
        around = [self.path, *(self.sibling(end) for end in ("-wal", "-shm", "-journal", "-lock"))]
        return [path for path in (*around, *self.own_copies()) if path.exists()]

    def log_size(self) -> int:
        """Bytes in the write-ahead log."""
        log = self.sibling("-wal")
        return log.stat().st_size if log.exists() else 0

    def sibling(self, end: str) -> Path:
        assert self.path is not None
        return self.path.with_name(self.path.name + end)

    def own_copies(self) -> list[Path]:
        """Copies from before an upgrade, and the rest of a restore that was killed. Similar names are not ours."""
        if self.path is None or not self.path.parent.is_dir():
            return []
        start = len(self.path.name)
        similar = [path for path in self.path.parent.iterdir() if path.name.startswith(self.path.name)]
        return sorted(path for path in similar if _OWN_COPY.fullmatch(path.name[start:]))


def inspect_path(location: str | os.PathLike[str], read_only: bool, key: str | None = None) -> StoreFile:
    """Decide how to open a path. A path that cannot be a store is an error."""
    require_safe_version()
    if key is not None:
        check_key(key)
    if os.fspath(location) == ":memory:":
        return StoreFile(None, "memory")
    path = Path(os.path.expanduser(os.fspath(location)))
    try:
        path = Path(os.path.realpath(path))  # an error if a link is replaced meanwhile
        network = _find_network_type(path)
        no_wal = (
            f"the file is on a network file system ({network}), so the rollback journal is used." if network else ""
        )
        _check_path(path, read_only)
        check_journal(path, has_log=not no_wal)
    except OSError as exc:
        raise StoreError(
            f"{path} cannot be looked at: {exc.strerror}. Check its name and the rights of its folder."
        ) from exc
    journal: Journal = "truncate" if no_wal else "wal"
    return StoreFile(path, journal, read_only, no_wal=no_wal, remote=bool(network), key=key)


def check_key(key: object) -> str:
    if not isinstance(key, str) or not key or "\x00" in key:
        raise InvalidInput("the key of an encrypted file is a text that is not empty.")
    return key


def _check_path(path: Path, read_only: bool) -> None:
    if path.is_dir():
        raise NotADatabase(f"{path} is a folder. Give the path of a file in it, such as {path / 'agent.db'}.")
    if not path.parent.is_dir():
        raise StoreError(f"the folder {path.parent} does not exist. Make it first.")
    _check_sibling_files(path)
    if not path.exists():
        if read_only:
            raise StoreError(f"{path} does not exist, and a read-only store cannot be made.")
        return
    # SQLite reads the content: to open and close the file here would drop the locks of an open connection.
    if not path.is_file():
        raise NotADatabase(f"{path} is not a file. Give the path of an engrain store, or of a new file.")


def _check_sibling_files(path: Path) -> None:
    """SQLite opens and obeys the files beside a store, and writes through a link. A pipe would hold it up for ever."""
    for end in ("-journal", "-wal", "-shm", "-lock"):
        beside = path.with_name(path.name + end)
        if (beside.is_symlink() or beside.exists()) and not stat.S_ISREG(beside.lstat().st_mode):
            raise NotADatabase(f"{beside} is not a plain file: engrain did not make it. Move it away.")


def _find_network_type(path: Path) -> str:
    """The type of the network file system; "" for a local disk."""
    kind = detect_file_system(path)
    if kind in _NETWORK_TYPES or any(kind == f"fuse.{name}" for name in _NETWORK_FUSE):
        return kind
    return "share" if str(path).startswith("\\\\") else ""


def detect_file_system(path: Path, mounts: str = "/proc/mounts") -> str:
    """The type of the file system as Linux names it; "" where it cannot be known."""
    if not sys.platform.startswith("linux"):
        return ""
    try:
        lines = Path(mounts).read_text(errors="surrogateescape").splitlines()
    except OSError:
        return ""
    best, kind = "", ""
    for line in lines:
        where, name = line.split(" ")[1:3]
        where = where.replace("\\040", " ").replace("\\011", "\t").replace("\\134", "\\")
        inside = where == "/" or str(path) == where or str(path).startswith(where + "/")
        if inside and len(where) >= len(best):  # the last of two mounts on one point hides the first
            best, kind = where, name
    return kind


@cache
def find_steady_clock() -> Callable[[], str] | None:
    """A function that gives "boot:microseconds", since boots cannot be compared with each other.

    None where the machine does not tell one boot from another: there the wall clock has to do."""
    try:
        boot = _BOOT_ID.read_text().strip()
    except OSError:
        return None
    return lambda: f"{boot}:{time.monotonic_ns() // 1000}"


def identify_file(name: str, remote: bool) -> FileIdentity | None:
    """The identity of the file that is there now; None if there is none. File numbers on a network may change."""
    try:
        found = os.stat(name)
    except OSError:
        return None
    return (0, 0) if remote else (found.st_dev, found.st_ino)


def open_connection(file: StoreFile, create: bool = False) -> Connection:
    mode: Literal["ro", "rw", "rwc"] = "ro" if file.read_only else "rwc" if create else "rw"
    where = ":memory:" if file.path is None else file_uri(file.path, mode, file.immutable)
    if create and file.path is not None:
        if file.key is not None:
            # Before the file exists: the next caller without a key would fill it unencrypted.
            require_encryption()
        _create_private_file(file.path)
    db = connect(where, file.key)
    try:
        if file.key is not None:
            _check_key_fits(db, file, where)
        _set_pragmas(db)
    except BaseException as exc:
        db.close()
        if type(exc) is NotADatabase:
            raise NotADatabase(
                f"{file.path} is not an SQLite database, or it is encrypted. Give the path of an engrain store; for an "
                "encrypted one, set ENGRAIN_KEY."
            ) from exc
        # On a disk that is mounted read-only SQLite only says that it cannot open the file.
        if type(exc) is StoreError and not file.read_only and file.path and not os.access(file.path, os.W_OK):
            raise ReadOnlyStore(file.explain_read_only()) from exc
        raise
    return db


def _create_private_file(path: Path) -> None:
    """Create a file that other users of the machine cannot read; SQLite gives its log the same rights."""
    with contextlib.suppress(OSError):  # it exists, or SQLite says why it cannot be made
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))


def sync_folder(folder: Path) -> None:
    """Make renames and new names in a folder durable."""
    if os.name != "posix":
        return
    file = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def write_copy(db: Connection, target: Path, key: str | None = None) -> None:
    """Rewrite every page into another file: free pages, which may hold forgotten rows, are left out.

    The copy is on disk when this returns. The key "" makes it plain."""
    # Private from its first byte on. A file that is there is not unlinked: the running backup holds a lock on it.
    os.close(os.open(target, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | NO_FOLLOW, 0o600))
    target.chmod(0o600)
    where = target.absolute().as_uri()
    db.run("vacuum into ?", (where if key is None else f"{where}?key={quote(key, safe='')}",))
    with target.open("rb+") as file:
        os.fsync(file.fileno())


def _check_key_fits(db: Connection, file: StoreFile, where: str) -> None:
    try:
        db.rows("select count(*) from sqlite_master")
    except NotADatabase:
        if _is_unencrypted(where, file):
            raise WrongKey(
                f"{file.path} is not encrypted, but a key was given (ENGRAIN_KEY, or Memory(key=…)). Leave it out, "
                "or make an encrypted copy: engrain backup --encrypt."
            ) from None
        raise WrongKey(
            f"{file.path} cannot be read with this key: it has another one, or is no engrain store. "
            "Check ENGRAIN_KEY, or Memory(key=…)."
        ) from None


def _is_unencrypted(where: str, file: StoreFile) -> bool:
    try:
        with contextlib.closing(connect(where)) as db:
            db.rows("select count(*) from sqlite_master")
    except EngrainError:
        return False
    return True


def _set_pragmas(db: Connection) -> None:
    for pragma in (
        f"busy_timeout = {BUSY_MILLISECONDS}",
        "foreign_keys = on",
        "trusted_schema = off",
        "secure_delete = on",
        "temp_store = memory",  # a forgotten text must not stay in a temporary file
        "synchronous = full",
        "fullfsync = on",  # macOS: an fsync alone stays in the drive's cache
        "checkpoint_fullfsync = on",
        "wal_autocheckpoint = 0",
        "journal_size_limit = 4194304",
        "cache_size = -16000",
    ):
        db.rows(f"pragma {pragma}")


def set_journal(db: Connection, file: StoreFile) -> Journal:
    """Ask for the file's journal, and return the one it has now: others may hold the file open."""
    if file.path is None:
        return "memory"
    if file.read_only:
        return "wal" if db.rows("pragma journal_mode")[0][0] == "wal" else "truncate"
    # The change itself is journalled. That journal must not come back when the power fails: its removal is synced.
    db.rows("pragma synchronous = extra")
    (mode,) = db.rows(f"pragma journal_mode = {file.journal}")[0]
    db.rows("pragma synchronous = full")
    if file.journal == "truncate" and mode == "wal":
        raise StoreError(
            f"{file.path} is in use with a write-ahead log by another process. {file.no_wal} Close the other."
        )
    if mode not in ("wal", "truncate"):
        db.rows("pragma journal_mode = truncate")
    return "wal" if mode == "wal" else "truncate"


def ensure_readable(file: StoreFile) -> StoreFile:
    """The same file, marked immutable if it is read-only and SQLite may not make the log's index beside it."""
    if not file.read_only or file.path is None:
        return file
    try:
        with contextlib.closing(open_connection(file)) as db:
            db.rows("select count(*) from sqlite_master")
    except (NotADatabase, WrongKey):
        raise
    except StoreError as exc:
        if file.log_size():
            raise ReadOnlyStore(
                f"{file.path} has a log with newer writes beside it, and its folder cannot be written. "
                "Open it once where it can, or copy all of its files."
            ) from exc
        return as_immutable(file, "opened as it stands.")
    return file


def as_immutable(file: StoreFile, reason: str = "") -> StoreFile:
    """The same file, to be read as bytes that nobody changes."""
    return StoreFile(file.path, "truncate", read_only=True, immutable=True, no_wal=reason, key=file.key)


def find_key(path: Path, keys: Iterable[str | None]) -> str | None:
    """The first key that opens the store; None is no key. The error is that of the first key."""
    errors: list[StoreError] = []
    for key in dict.fromkeys(keys):
        try:
            open_connection(inspect_path(path, read_only=True, key=key)).close()
        except (WrongKey, NotADatabase) as exc:
            errors.append(exc)
        else:
            return key
    raise errors[0]
