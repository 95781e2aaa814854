"""Write a store to a checked copy while others write, check such a copy, and put one in the place of a store."""

from __future__ import annotations

import contextlib
import errno
import glob
import hashlib
import os
import struct
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

from engrain import __version__
from engrain.core.clock import Clock
from engrain.core.errors import (
    Conflict,
    DiskFull,
    EngrainError,
    InvalidInput,
    NewerStore,
    NotADatabase,
    NotFound,
    StoreBusy,
    StoreCorrupt,
    StoreError,
    TooLarge,
    WrongKey,
)
from engrain.core.formats import manifests
from engrain.core.formats.manifests import MANIFEST_SUFFIX, BackupManifest
from engrain.core.identity import hash_keyed
from engrain.core.model.audit import AuditHead, read_head
from engrain.ports.plain_files import read_plain
from engrain.stores.sqlite.checksums import find_damage
from engrain.stores.sqlite.connection import Connection, require_encryption
from engrain.stores.sqlite.dialect import SqliteDialect
from engrain.stores.sqlite.lock import FileLock
from engrain.stores.sqlite.opening import (
    NO_FOLLOW,
    RENUMBER_LOGS,
    StoreFile,
    as_immutable,
    check_key,
    identify_file,
    inspect_path,
    open_connection,
    sync_folder,
    write_copy,
)
from engrain.stores.sqlite.pool import Pool
from engrain.stores.sqlite.schema import APPLICATION_ID, latest_version, list_tables, open_outside
from engrain.stores.sqlite.syntax import load_sql

_SQL = load_sql()
_LOCK_SECONDS = 10.0
_COPY_END = ".restoring"


class Backups:
    """Methods of the store; it supplies the attributes."""

    dialect: SqliteDialect
    _clock: Clock
    _file: StoreFile
    _pool: Pool

    @property
    def code(self) -> str:
        return hash_keyed(self.dialect.key, "backups")

    def backup(self, target: Path, key: str | None = None) -> BackupManifest:
        path = _check_target(target)
        if key is not None:
            check_key(key)
            require_encryption()
        least = self._last_change()
        part = path.with_name(path.name + ".part")
        with _lock_part(part):
            return self._write_backup(path, part, key, least)

    def whole(self) -> bool:
        """Every page and every row of the store itself is sound."""

        def is_sound(db: Connection) -> bool:
            return db.rows("pragma quick_check(1)") == [("ok",)] and not find_damage(db)

        try:
            return self.dialect.snapshot(is_sound)
        except StoreCorrupt:
            return False

    def _write_backup(self, path: Path, part: Path, key: str | None, least: int) -> BackupManifest:
        manifest_path = path.with_name(path.name + MANIFEST_SUFFIX)
        written = False
        try:
            _check_target(path)  # again: another backup may have taken the name
            # A store in memory has one connection, which is outside a transaction while it is read.
            run = self._pool.run_bare if self._file.path else self.dialect.snapshot
            run(lambda db: write_copy(db, part, key))
            copy = StoreFile(part, "truncate", key=key or self._file.key)
            _renumber_logs(copy)
            manifest = self._make_manifest(as_immutable(copy), least)
            # The file first: a manifest never stands without its backup.
            part.replace(path)
            written = True
            write_file(manifest_path, manifests.write_backup_manifest(manifest))
            sync_folder(path.parent)
        except BaseException as exc:
            left = _remove(part, *((path, manifest_path) if written else ()))
            rest = f"Remove it: {', '.join(map(str, left))}." if left else "Nothing is left of it."
            if isinstance(exc, DiskFull) or (isinstance(exc, OSError) and exc.errno in (errno.ENOSPC, errno.EDQUOT)):
                raise DiskFull(f"there is no room for the backup {path}: its disk is full. {rest}") from exc
            if isinstance(exc, OSError):
                raise StoreError(f"the backup {path} could not be written: {exc.strerror}. {rest}") from exc
            raise
        return manifest

    def _make_manifest(self, copy: StoreFile, least: int) -> BackupManifest:
        """Check the copy, which must hold a state between the start of the backup and now."""
        assert copy.path is not None
        with open_outside(copy) as (db, version):
            try:
                rows = count_rows(db, copy, version)
            except StoreCorrupt as exc:
                raise StoreCorrupt(
                    f"the store is damaged, and no backup of it was made. Run: engrain doctor. ({exc})"
                ) from exc
            ((change,),) = db.rows(_SQL["find_last_change"])
        most = self._last_change()
        if not least <= change <= most:
            raise StoreCorrupt(
                f"the copy is of another moment: it ends with change {change}, and the store was between {least} and "
                f"{most}. Run the backup again; if it fails again, run: engrain doctor."
            )
        size, sha = hash_file(copy.path)
        now, encrypted = self._clock(), copy.key is not None
        return BackupManifest(now, latest_version(), rows["item"], size, sha, encrypted, __version__, rows, self.code)

    def _last_change(self) -> int:
        ((change,),) = self.dialect.snapshot(lambda db: db.rows(_SQL["find_last_change"]))
        return int(change)


def _renumber_logs(copy: StoreFile) -> None:
    """So that no log of the store is taken for one of the copy, should somebody put it in the place of the store."""
    assert copy.path is not None
    with contextlib.closing(open_connection(copy)) as db:
        db.rows("pragma journal_mode = off")
        db.run(RENUMBER_LOGS)
    with copy.path.open("rb+") as file:
        os.fsync(file.fileno())


def check_backup(path: Path, key: str | None) -> tuple[StoreFile, BackupManifest]:
    """A backup that is whole, to be opened. Any other file is a typed error, and nothing is changed."""
    if not path.is_file():
        raise NotFound(f"there is no backup {path}. Give the path of a file that engrain backup wrote.")
    manifest_path = path.with_name(path.name + MANIFEST_SUFFIX)
    if not manifest_path.is_file():
        raise NotADatabase(
            f"{path} is no backup: {manifest_path.name} is not beside it. "
            f"A store is copied with: engrain copy {path} TO."
        )
    try:
        manifest = manifests.read_backup_manifest(read_plain(manifest_path), str(manifest_path))
        # The sizes come first: a file of terabytes is cheap to make and slow to hash.
        sizes = {manifest.bytes, path.stat().st_size, read_size(path)}
        whole = len(sizes) == 1 and hash_file(path) == (manifest.bytes, manifest.sha256)
    except TooLarge as exc:
        raise StoreCorrupt(f"{manifest_path} is not the manifest of an engrain backup: {exc}") from exc
    except OSError as exc:
        raise StoreError(f"{path} cannot be read: {exc.strerror}.") from exc
    if manifest.schema > latest_version():
        raise NewerStore(f"{path} was written by a newer engrain. Upgrade: pip install -U engrain.")
    if not whole:
        raise StoreCorrupt(
            f"{path} is damaged, cut short, or was written to: it is not the file that its manifest describes. "
            "Restore another backup."
        )
    if manifest.encrypted and key is None:
        raise WrongKey(f"{path} is encrypted. Give its key: ENGRAIN_BACKUP_KEY, or ENGRAIN_KEY.")
    file = as_immutable(inspect_path(path, read_only=True, key=key if manifest.encrypted else None))
    try:
        with open_outside(file) as (db, version):
            if count_rows(db, file, version) != manifest.rows:
                raise StoreCorrupt(f"{path} does not hold the rows that its manifest counts. Restore another backup.")
    except WrongKey:
        raise WrongKey(
            f"{file.path} cannot be read with this key: it has another one. Check ENGRAIN_BACKUP_KEY, or ENGRAIN_KEY."
        ) from None
    return file, manifest


def count_rows(db: Connection, file: StoreFile, version: int) -> dict[str, int]:
    """The rows of each table, in a file whose every page, row and reference is sound."""
    try:
        bad = [row[0] for row in db.rows("pragma integrity_check(1)") if row[0] != "ok"]
        broken = db.rows("pragma foreign_key_check")
        if version == latest_version():
            bad += find_damage(db)
    except EngrainError as exc:
        raise StoreCorrupt(f"{file.path} is damaged: {exc}") from exc
    if bad or broken:
        raise StoreCorrupt(f"{file.path} is damaged: {bad[0] if bad else 'rows point to rows that are gone'}.")
    return {name: db.rows(f"select count(*) from {name}")[0][0] for name in list_tables(version)}


def hash_file(path: Path) -> tuple[int, str]:
    """The size of a file, and its sha256."""
    with path.open("rb") as file:
        return os.fstat(file.fileno()).st_size, hashlib.file_digest(file, "sha256").hexdigest()


def read_size(path: Path) -> int:
    """The size of a database by its own header; that of the file if the header is encrypted."""
    with path.open("rb") as file:
        head, size = file.read(32), os.fstat(file.fileno()).st_size
    if len(head) < 32 or not head.startswith(b"SQLite format 3\x00"):
        return size
    page_bytes, pages = struct.unpack(">16xH10xI", head)
    return int(pages * (65_536 if page_bytes == 1 else page_bytes))


def write_file(path: Path, content: bytes) -> None:
    part = path.with_name(path.name + ".part")
    try:
        # Whatever is there goes: the rest of a process that was killed, or a link that leads the bytes elsewhere.
        part.unlink(missing_ok=True)
        with open(part, "xb", opener=lambda name, flags: os.open(name, flags | NO_FOLLOW, 0o600)) as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        _remove(part)
        raise


def _check_target(target: Path) -> Path:
    path = Path(target).expanduser().absolute()
    if "\x00" in str(path):
        raise InvalidInput(f"a backup cannot be written to {str(path)!r}: no path has a null character.")
    try:
        if path.exists() or path.with_name(path.name + MANIFEST_SUFFIX).exists():
            raise InvalidInput(f"{path} is there already. Give a backup a new name.")
        if not path.parent.is_dir():
            raise InvalidInput(f"the folder {path.parent} does not exist. Make it first.")
    except OSError as exc:
        raise InvalidInput(f"a backup cannot be written to {path}: {exc.strerror}.") from exc
    return path


@contextlib.contextmanager
def _lock_part(part: Path) -> Iterator[None]:
    """Keep other backups off this file. The rest of a process that was killed is taken over."""
    busy = f"another backup is being written to {part.stem}. Wait for it, or give this one a new name."
    try:
        file = os.open(part, os.O_CREAT | os.O_WRONLY | NO_FOLLOW, 0o600)
    except OSError as exc:
        raise StoreError(f"the backup {part} could not be written: {exc.strerror}.") from exc
    try:
        _lock_whole(file, busy)
        # The backup that wrote it may have ended in between, and have given it its name.
        if identify_file(str(part), remote=False) != (os.fstat(file).st_dev, os.fstat(file).st_ino):
            raise StoreBusy(busy)
        yield
    finally:
        os.close(file)


def _lock_whole(file: int, busy: str) -> None:
    """StoreBusy if another process holds it. Windows has no such lock."""
    if sys.platform != "win32":
        import fcntl

        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as exc:
            raise StoreBusy(busy) from exc


def _remove(*paths: Path) -> list[Path]:
    """Remove files, and return those that are still there."""
    for path in paths:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
    return [path for path in paths if path.exists()]


# Restoring


def read_audit_head(path: Path, key: str | None) -> AuditHead | None:
    """The end of a store's audit log, which every removal moves on. None without a log or a store.

    Conflict while an erasure is running."""
    if not path.exists():
        return None
    with open_outside(inspect_path(path, read_only=True, key=key)) as (db, _):
        if db.rows("select 1 from erasure limit 1"):
            raise Conflict("an erasure is under way in the present store. Complete it first: engrain erase --resume.")
        rows = db.rows(_SQL["find_meta"], {"name": "audit"})
        return read_head(rows[0][0]) if rows else AuditHead()


def check_damaged(path: Path, error: StoreError) -> None:
    """After a store could not be read: raise if its key is wrong or it is another program's, not if it is damaged."""
    with path.open("rb") as file:
        header = file.read(72)
    # Three constants of every SQLite header, which encryption leaves readable.
    if header[21:24] != b"\x40\x20\x20":
        return
    if not header.startswith(b"SQLite format 3\x00"):
        raise WrongKey(
            f"{path} is encrypted with a key that was not given, so it cannot say what was forgotten in it. Set "
            "ENGRAIN_KEY. If the key is lost or the file is damaged, move it away and restore to a new path."
        ) from error
    if header[68:72] != APPLICATION_ID.to_bytes(4, "big"):
        raise error


@contextlib.contextmanager
def prepare_copy(target: Path) -> Iterator[Path]:
    """A path beside the target, where a store is prepared before anybody can open it. Its files are removed afterwards.

    StoreBusy while another process does the same in this folder."""
    copy = _sibling(target, _COPY_END)
    with _lock_folder(target.parent):
        _remove_copy(copy)
        try:
            yield copy
        finally:
            _remove_copy(copy)


@contextlib.contextmanager
def _lock_folder(folder: Path) -> Iterator[None]:
    if sys.platform == "win32":
        yield
        return
    file = os.open(folder, os.O_RDONLY)
    try:
        with contextlib.suppress(OSError):  # of a file system that cannot lock a folder
            _lock_whole(file, f"another restore into {folder} is under way. Wait for it, then try again.")
        yield
    finally:
        os.close(file)


def replace_store(copy: Path, target: Path, check: Callable[[], None]) -> None:
    """Rename the copy at once: a program that opens the target finds the old store or the new one.

    StoreBusy if the old one is in use. `check` runs last, when nobody can write to the old one any more."""
    lock = FileLock(_sibling(target, "-lock"))
    new = identify_file(str(copy), remote=False)
    try:
        lock.acquire(_LOCK_SECONDS)
        for log in (_sibling(target, "-wal"), _sibling(target, "-journal")):
            # Frames of the old file would be taken for those of the new one.
            if log.exists() and log.stat().st_size:
                raise StoreBusy(
                    f"{target} is in use: close the programs that have it open, then try again. "
                    f"If there are none, and it is to be lost, remove {log.name}."
                )
        check()
        lock.queue.write_note()  # the commits of the old one
        copy.replace(target)
        for end in ("-wal", "-shm", "-journal"):
            _sibling(target, end).unlink(missing_ok=True)
        sync_folder(target.parent)
    except OSError as exc:
        if identify_file(str(target), remote=False) != new:
            raise StoreError(f"{target} could not be replaced: {exc.strerror}. It is as it was.") from exc
        raise StoreError(
            f"{target} is the restored store now, but its folder could not be synced: {exc.strerror}. After a power "
            "cut the old store may be back: look which one it is before you use it."
        ) from exc
    finally:
        lock.close()


def remove_killed_restore(target: Path) -> None:
    """Remove the copy of a restore that was killed: it may hold texts that were forgotten since the backup."""
    copy = _sibling(target, _COPY_END)
    # Windows does not tell a running restore from a killed one.
    if sys.platform == "win32" or not any(path.exists() for path in _list_files(copy)):
        return
    with contextlib.suppress(OSError, StoreBusy), _lock_folder(target.parent):
        _remove_copy(copy)


def _remove_copy(copy: Path) -> None:
    older = copy.parent.glob(f"{glob.escape(copy.name)}-before-v*") if copy.parent.is_dir() else ()
    _remove(*_list_files(copy), *older)


def _list_files(copy: Path) -> list[Path]:
    return [copy, *(_sibling(copy, end) for end in ("-wal", "-shm", "-journal", "-lock"))]


def _sibling(path: Path, end: str) -> Path:
    return path.with_name(path.name + end)
