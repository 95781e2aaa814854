"""Copy a store to a file that is known to be whole, while others write, and check such a file."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from urllib.parse import quote

from engrain.core.errors import (
    DiskFull,
    EngrainError,
    InvalidInput,
    NewerStore,
    NotADatabase,
    NotFound,
    StoreBusy,
    StoreCorrupt,
    StoreError,
    WrongKey,
)
from engrain.core.formats import manifests
from engrain.core.formats.manifests import MANIFEST_SUFFIX, BackupManifest
from engrain.core.identity import hash_keyed
from engrain.stores.sqlite.connection import Connection, EncryptedEngine, Engine, require_encryption
from engrain.stores.sqlite.handle import Handle
from engrain.stores.sqlite.migrate import latest, version
from engrain.stores.sqlite.opening import StoreFile, check_key, inspect_path, open_connection
from engrain.stores.sqlite.sql import load
from engrain.version import __version__

_SQL = load("care.sql")
_CHUNK = 1 << 20
_NO_LINK = getattr(os, "O_NOFOLLOW", 0)
_NOTHING = "Nothing is left of it."


class Backing(Handle):
    @property
    def code(self) -> str:
        return hash_keyed(self._key, "backups")

    def backup(self, target: Path, key: str | None = None) -> BackupManifest:
        path = _free(target)
        if key is not None:
            check_key(key)
            require_encryption(self._site.engine)
        ((least,),) = self.snapshot(lambda db: db.rows(_SQL["seq"]))
        part = path.with_name(path.name + ".part")
        with _alone(part):
            return self._backed(path, part, key, least)

    def _backed(self, path: Path, part: Path, key: str | None, least: int) -> BackupManifest:
        beside = path.with_name(path.name + MANIFEST_SUFFIX)
        written = False
        try:
            _free(path)  # one that was being written may be there by now
            # A store in memory has one connection, which is outside a transaction while it is read.
            run = self._pool.bare if self._site.path else self.snapshot
            run(lambda db: write_copy(db, part, key))
            copy = StoreFile(
                part, self._site.engine, "truncate", read_only=True, immutable=True, key=key or self._site.key
            )
            manifest = self._examined(copy, least)
            # The file first: a manifest is never there without what it speaks of.
            part.replace(path)
            written = True
            put_file(beside, manifests.write_backup_manifest(manifest))
            sync_folder(path.parent)
        except BaseException as exc:
            _drop(part, *((path, beside) if written else ()))
            if isinstance(exc, DiskFull) or (isinstance(exc, OSError) and exc.errno in (errno.ENOSPC, errno.EDQUOT)):
                raise DiskFull(f"there is no room for the backup {path}: its disk is full. {_NOTHING}") from exc
            if isinstance(exc, OSError):
                raise StoreError(f"the backup {path} could not be written: {exc.strerror}. {_NOTHING}") from exc
            raise
        return manifest

    def whole(self) -> bool:
        """Whether every page of the store itself is sound."""
        try:
            return bool(self.snapshot(lambda db: db.rows("pragma quick_check(1)"))[0][0] == "ok")
        except StoreCorrupt:
            return False

    def _examined(self, copy: StoreFile, least: int) -> BackupManifest:
        assert copy.path is not None
        with closing(open_connection(copy)) as db:
            rows = sound(db, copy)
            ((seq,),) = db.rows(_SQL["seq"])
        ((most,),) = self.snapshot(lambda db: db.rows(_SQL["seq"]))
        if not least <= seq <= most:
            raise StoreCorrupt(f"the copy has change {seq}, where the store was between {least} and {most}.")
        size, sha = hashed(copy.path)
        now, sealed = self._clock(), copy.key is not None
        return BackupManifest(now, latest(), rows["item"], size, sha, sealed, __version__, rows, self.code)


def write_copy(db: Connection, target: Path, key: str | None) -> None:
    """Only what stands, page by page anew: free pages, and what was forgotten in them, do not come along. The copy is
    on disk when this returns; "" as the key makes it plain."""
    # Nobody else may read it, from its first byte on. What is there is not unlinked: a backup holds it as its own.
    os.close(os.open(target, os.O_CREAT | os.O_WRONLY | os.O_TRUNC | _NO_LINK, 0o600))
    target.chmod(0o600)
    where = target.absolute().as_uri()
    db.run("vacuum into ?", (where if key is None else f"{where}?key={quote(key, safe='')}",))
    with target.open("rb+") as file:
        os.fsync(file.fileno())


def checked(path: Path, engine: Engine, key: str | None) -> tuple[StoreFile, BackupManifest]:
    """A backup that is whole, to be opened; every other is a typed error, and nothing is changed."""
    if not path.is_file():
        raise NotFound(f"there is no backup {path}.")
    beside = path.with_name(path.name + MANIFEST_SUFFIX)
    if not beside.is_file():
        raise NotADatabase(
            f"{path} is no backup: {beside.name} is not beside it. A store is copied with: engrain copy {path} TO."
        )
    try:
        manifest = manifests.read_backup_manifest(beside.read_bytes(), str(beside))
        whole = hashed(path) == (manifest.bytes, manifest.sha256)
    except OSError as exc:
        raise StoreError(f"{path} cannot be read: {exc.strerror}.") from exc
    if manifest.schema > latest():
        raise NewerStore(f"{path} was written by a newer engrain. Upgrade: pip install -U engrain.")
    if not whole:
        raise StoreCorrupt(
            f"{path} is damaged, cut short, or was written to: it is not the file that its manifest speaks of."
        )
    if manifest.encrypted and key is None:
        raise WrongKey(f"{path} is encrypted. Give its key: ENGRAIN_BACKUP_KEY, or ENGRAIN_KEY.")
    chosen = EncryptedEngine(key, engine) if key is not None and manifest.encrypted else engine
    found = inspect_path(path, chosen, read_only=True)
    site = StoreFile(found.path, found.engine, "truncate", read_only=True, immutable=True, key=found.key)
    with closing(_unlocked(site)) as db:
        if sound(db, site) != manifest.rows:
            raise StoreCorrupt(f"{path} does not hold the rows that its manifest counts.")
    return site, manifest


def _unlocked(site: StoreFile) -> Connection:
    try:
        return open_connection(site)
    except WrongKey:
        raise WrongKey(
            f"{site.path} cannot be read with this key: it has another one. Check ENGRAIN_BACKUP_KEY, or ENGRAIN_KEY."
        ) from None


def sound(db: Connection, site: StoreFile) -> dict[str, int]:
    """The rows of each table in a file whose every page and reference is sound."""
    version(db, site)
    try:
        bad = [row[0] for row in db.rows("pragma integrity_check(1)") if row[0] != "ok"]
        broken = db.rows("pragma foreign_key_check")
    except EngrainError as exc:
        raise StoreCorrupt(f"{site.path} is damaged: {exc}") from exc
    if bad or broken:
        raise StoreCorrupt(f"{site.path} is damaged: {bad[0] if bad else 'rows point to rows that are gone'}.")
    tables = db.rows("select name from sqlite_master where type = 'table' and name not like 'sqlite_%' order by name")
    return {name: db.rows(f'select count(*) from "{name}"')[0][0] for (name,) in tables}


def hashed(path: Path) -> tuple[int, str]:
    """How many bytes, and their sha256."""
    known, size = hashlib.sha256(), 0
    with path.open("rb") as file:
        while piece := file.read(_CHUNK):
            known.update(piece)
            size += len(piece)
    return size, known.hexdigest()


def listed(folder: Path) -> Iterator[Path]:
    """The files that have a manifest beside them."""
    if folder.is_dir():
        yield from (one for one in sorted(folder.iterdir()) if one.with_name(one.name + MANIFEST_SUFFIX).is_file())


def put_file(path: Path, raw: bytes) -> None:
    part = path.with_name(path.name + ".part")
    try:
        # Whatever is there goes: of a process that was killed, or a link that would lead the bytes elsewhere.
        part.unlink(missing_ok=True)
        with open(part, "xb", opener=lambda name, flags: os.open(name, flags | _NO_LINK, 0o600)) as file:
            file.write(raw)
            file.flush()
            os.fsync(file.fileno())
        part.replace(path)
    except BaseException:
        _drop(part)
        raise


def sync_folder(folder: Path) -> None:
    if os.name != "posix":
        return
    file = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(file)
    finally:
        os.close(file)


def _free(target: Path) -> Path:
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
def _alone(part: Path) -> Iterator[None]:
    """The file is that of the one who writes it; what a process that was killed left of one is taken over."""
    try:
        file = os.open(part, os.O_CREAT | os.O_WRONLY | _NO_LINK, 0o600)
    except OSError as exc:
        raise StoreError(f"the backup {part} could not be written: {exc.strerror}.") from exc
    try:
        if not _taken(file, part):
            raise StoreBusy(
                f"another backup is being written to {part.stem}. Wait for it, or give this one a new name."
            )
        yield
    finally:
        os.close(file)


def _taken(file: int, part: Path) -> bool:
    if sys.platform == "win32":
        return True
    import fcntl

    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        # The one that wrote it may have ended in between, and have given it its name.
        return part.stat().st_ino == os.fstat(file).st_ino
    except (BlockingIOError, FileNotFoundError):
        return False


def _drop(*paths: Path) -> None:
    for path in paths:
        with contextlib.suppress(OSError):
            path.unlink(missing_ok=True)
