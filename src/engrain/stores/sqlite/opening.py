"""Decide how a path can be opened, and open connections to it that way."""

from __future__ import annotations

import contextlib
import os
import re
import sys
import warnings
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from engrain.core.errors import EngrainError, InvalidInput, NotADatabase, ReadOnlyStore, StoreError, WrongKey
from engrain.stores.sqlite.engine import (
    OLDEST,
    Connection,
    Engine,
    Sealed,
    check_ciphers,
    connect,
    engine_name,
    engine_version,
    uri,
)

Journal = Literal["wal", "truncate", "memory"]

# Before this version a checkpoint could overwrite frames of the log that were not yet in the file.
WAL_SAFE = (3, 51, 3)
BUSY_MILLISECONDS = 10_000
# Shared memory, which a write-ahead log needs, does not reach across machines.
_NETWORK = {
    "nfs", "nfs4", "cifs", "smb3", "smbfs", "afs", "ceph", "9p", "lustre", "gpfs", "beegfs", "glusterfs", "ocfs2",
    "gfs2", "orangefs", "pvfs2", "davfs", "vboxsf",
}  # fmt: skip
# How the names of our own copies go on after that of the store.
_OURS = re.compile(r"(\.restoring|(\.restoring)?-before-v\d+(\.part)?)(-wal|-shm|-journal|-lock)?")
_NETWORK_FUSE = ("sshfs", "rclone", "s3fs", "glusterfs", "gcsfuse", "ceph", "davfs", "mergerfs", "goofys", "juicefs")


@dataclass(frozen=True, slots=True)
class Site:
    """A place that can be opened. `why` says what keeps it from a write-ahead log."""

    path: Path | None
    engine: Literal["apsw", "stdlib"]
    journal: Journal
    read_only: bool = False
    immutable: bool = False
    why: str = ""
    remote: bool = False
    key: str | None = field(default=None, repr=False)  # shown to nobody

    @property
    def version(self) -> str:
        return ".".join(map(str, engine_version(self.engine)))

    def unwritable(self) -> str:
        """Why it is only read."""
        if self.path is None or all(os.access(one, os.W_OK) for one in (self.path, self.path.parent)):
            return f"{self.path} was opened read-only. Open it without read_only to write."
        return f"{self.path} can only be read: you may not write to it and its folder. Ask its owner for the right."

    def files(self) -> list[Path]:
        """Every file of the store that is there now."""
        if self.path is None:
            return []
        around = [self.path, *(self.beside(end) for end in ("-wal", "-shm", "-journal", "-lock"))]
        return [one for one in (*around, *self.backups()) if one.exists()]

    def log_size(self) -> int:
        """Bytes in the write-ahead log."""
        log = self.beside("-wal")
        return log.stat().st_size if log.exists() else 0

    def beside(self, end: str) -> Path:
        assert self.path is not None
        return self.path.with_name(self.path.name + end)

    def backups(self) -> list[Path]:
        """Copies beside it: from before an upgrade, and what a restore that was killed has left. What only begins like
        them is somebody's own."""
        if self.path is None or not self.path.parent.is_dir():
            return []
        start = len(self.path.name)
        there = [one for one in self.path.parent.iterdir() if one.name.startswith(self.path.name)]
        return sorted(one for one in there if _OURS.fullmatch(one.name[start:]))


def survey(location: str | os.PathLike[str], engine: Engine | Sealed, read_only: bool) -> Site:
    key = checked_key(engine.key) if isinstance(engine, Sealed) else None
    name = engine_name(engine.engine if isinstance(engine, Sealed) else engine)
    if engine_version(name) < OLDEST:
        raise StoreError(f"SQLite {'.'.join(map(str, engine_version(name)))} is too old. Run: pip install apsw.")
    if os.fspath(location) == ":memory:":
        return Site(None, name, "memory")
    path = Path(os.path.realpath(os.path.expanduser(os.fspath(location))))
    try:
        _check_path(path, read_only)
    except OSError as exc:
        raise StoreError(f"{path} cannot be looked at: {exc.strerror}.") from exc
    remote = _remote(path)
    why = _no_wal(remote, name)
    if why and engine_version(name) < WAL_SAFE:
        warnings.warn(f"engrain: {why} Writes are safe but slower. Run: pip install -U apsw.", stacklevel=4)
    return Site(path, name, "truncate" if why else "wal", read_only, why=why, remote=bool(remote), key=key)


def checked_key(key: object) -> str:
    if not isinstance(key, str) or not key or "\x00" in key:
        raise InvalidInput("the key of an encrypted file is a text that is not empty.")
    return key


def _check_path(path: Path, read_only: bool) -> None:
    if path.is_dir():
        raise NotADatabase(f"{path} is a folder. Give the path of a file in it, such as {path / 'agent.db'}.")
    if not path.parent.is_dir():
        raise StoreError(f"the folder {path.parent} does not exist. Make it first.")
    if not path.exists():
        if read_only:
            raise StoreError(f"{path} does not exist, and a read-only store cannot be made.")
        return
    # What is in it is left to SQLite: to open and close the file here would drop the locks of an open connection.
    if not path.is_file():
        raise NotADatabase(f"{path} is not a file. Give the path of an engrain store, or of a new file.")


def _no_wal(remote: str, engine: Literal["apsw", "stdlib"]) -> str:
    version = engine_version(engine)
    if version < WAL_SAFE:
        return (
            f"SQLite {'.'.join(map(str, version))} can lose writes with a write-ahead log "
            f"(needs {'.'.join(map(str, WAL_SAFE))}), so the rollback journal is used."
        )
    return f"the file is on a network file system ({remote}), so the rollback journal is used." if remote else ""


def _remote(path: Path) -> str:
    """The network file system that the file is on, if it is on one."""
    kind = file_system(path)
    if kind in _NETWORK or any(kind == f"fuse.{one}" for one in _NETWORK_FUSE):
        return kind
    return "share" if str(path).startswith("\\\\") else ""


def file_system(path: Path, mounts: str = "/proc/mounts") -> str:
    """The type of the file system as Linux names it; "" where that cannot be known."""
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


Identity = tuple[int, int]


def identity(name: str, remote: bool) -> Identity | None:
    """Which file stands there now; None if there is none. Numbers of files on a network may change."""
    try:
        found = os.stat(name)
    except OSError:
        return None
    return (0, 0) if remote else (found.st_dev, found.st_ino)


def open_connection(site: Site, create: bool = False) -> Connection:
    mode: Literal["ro", "rw", "rwc"] = "ro" if site.read_only else "rwc" if create else "rw"
    where = ":memory:" if site.path is None else uri(site.path, mode, site.immutable)
    if create and site.path is not None:
        if site.key is not None:
            check_ciphers(
                site.engine
            )  # before there is a file, which the next one without a key would fill in the clear
        _make_for_us_alone(site.path)
    db = connect(where, site.engine, site.key)
    try:
        if site.key is not None:
            _check_key(db, site, where)
        _set_up(db, site)
    except BaseException as exc:
        db.close()
        # On a disk that is mounted read-only SQLite says no more than that it cannot open the file.
        if type(exc) is StoreError and not site.read_only and site.path and not os.access(site.path, os.W_OK):
            raise ReadOnlyStore(site.unwritable()) from exc
        raise
    return db


def _make_for_us_alone(path: Path) -> None:
    """A new file is not for every user of the machine; SQLite gives its log the same rights."""
    with contextlib.suppress(OSError):  # it is there, or SQLite says why it cannot be made
        os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o660))


def _check_key(db: Connection, site: Site, where: str) -> None:
    try:
        db.rows("select count(*) from sqlite_master")
    except NotADatabase:
        if _plain(where, site):
            raise WrongKey(
                f"{site.path} is not encrypted, but a key was given (ENGRAIN_KEY, or Memory(key=…)). Leave it out, "
                "or make an encrypted copy: engrain backup --encrypt."
            ) from None
        raise WrongKey(
            f"{site.path} cannot be read with this key: it has another one, or is no engrain store. "
            "Check ENGRAIN_KEY, or Memory(key=…)."
        ) from None


def _plain(where: str, site: Site) -> bool:
    try:
        db = connect(where, site.engine)
        try:
            db.rows("select count(*) from sqlite_master")
        finally:
            db.close()
    except EngrainError:
        return False
    return True


def _set_up(db: Connection, site: Site) -> None:
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


def set_journal(db: Connection, site: Site) -> Journal:
    """Asks for the site's journal; the answer is what the file has now, because others may hold it open."""
    if site.path is None:
        return "memory"
    if site.read_only:
        return "wal" if db.rows("pragma journal_mode")[0][0] == "wal" else "truncate"
    # The change itself is journalled, and that journal must not come back when the power fails: its removal is synced.
    db.rows("pragma synchronous = extra")
    (mode,) = db.rows(f"pragma journal_mode = {site.journal}")[0]
    db.rows("pragma synchronous = full")
    if site.journal == "truncate" and mode == "wal":
        raise StoreError(
            f"{site.path} is in use with a write-ahead log by another process. {site.why} Close the other."
        )
    if mode not in ("wal", "truncate"):
        db.rows("pragma journal_mode = truncate")
    return "wal" if mode == "wal" else "truncate"


def readable(site: Site) -> Site:
    """A read-only site that SQLite can read even where it may not make the log's index beside the file."""
    if not site.read_only or site.path is None:
        return site
    try:
        db = open_connection(site)
        try:
            db.rows("select count(*) from sqlite_master")
        finally:
            db.close()
    except (NotADatabase, WrongKey):
        raise
    except StoreError as exc:
        if site.log_size():
            raise ReadOnlyStore(
                f"{site.path} has a log with newer writes beside it, and its folder cannot be written. "
                "Open it once where it can, or copy all of its files."
            ) from exc
        why = "opened as it stands."
        return Site(site.path, site.engine, "truncate", read_only=True, immutable=True, why=why, key=site.key)
    return site


def find_engine(path: Path, engine: Engine, keys: Iterable[str | None]) -> Engine | Sealed:
    """The engine with the first of the keys that opens the store; None is no key. The error is that of the first."""
    errors: list[StoreError] = []
    for key in dict.fromkeys(keys):
        found = engine if key is None else Sealed(key, engine)
        try:
            open_connection(survey(path, found, read_only=True)).close()
        except (WrongKey, NotADatabase) as exc:
            errors.append(exc)
        else:
            return found
    raise errors[0]
