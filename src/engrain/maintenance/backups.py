"""Take backups of a store, and let go of old ones."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from engrain.core.errors import ConfigError, EngrainError, StoreError
from engrain.core.formats.manifests import (
    MANIFEST_SUFFIX,
    SERVER_BACKUP_ADVICE,
    BackupInfo,
    find_surplus_backups,
    is_backup_due,
    make_backup_name,
    parse_backup_time,
    read_backup_manifest,
)
from engrain.ports import Services
from engrain.ports.storage import Backed
from engrain.privacy.audit import record

ABANDONED = timedelta(hours=6)


@dataclass(frozen=True, slots=True)
class Rotation:
    """A folder of backups: one every so often, the newest of them kept."""

    folder: Path
    every: timedelta
    keep: int


def back_up(services: Services, path: Path, key: str | None = None, rotation: str | None = None) -> BackupInfo:
    """`rotation` is the code of the folder that lets go of it by itself."""
    store = services.items
    if not isinstance(store, Backed):
        raise ConfigError(f"a {services.items.status().backend} store is {SERVER_BACKUP_ADVICE}")
    # First of all: one that is killed leaves a part of it, and a receipt must know.
    entry = record(services, "backup_begun", {"rotation": rotation} if rotation else {})
    begun = {"begun": entry.n} if entry else {}
    try:
        manifest = store.backup(path, key)
    except BaseException:
        with contextlib.suppress(EngrainError):
            record(services, "backup_failed", begun)
        raise
    record(services, "backup", {"items": manifest.items, "encrypted": manifest.encrypted, **begun})
    return BackupInfo(str(path), manifest)


def planned(services: Services, rotation: Rotation, now: datetime) -> tuple[str | None, list[str]]:
    """The name of the backup that is due, and the names of those that then go."""
    stem, names = _stem(services), names_in(services, rotation.folder)
    times = [at for name in names if (at := parse_backup_time(stem, name))]
    new = make_backup_name(stem, now) if is_backup_due(times, now, rotation.every) else None
    return new, _going(stem, [*names, *([new] if new else [])], rotation, now)


def take(services: Services, rotation: Rotation, name: str, now: datetime) -> BackupInfo:
    """The backup that is due. Its folder is made if it is not there."""
    try:
        rotation.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as exc:
        link = os.path.islink(rotation.folder) and not os.path.exists(rotation.folder)
        why = f"it is a link to {os.readlink(rotation.folder)}, which is not there" if link else exc.strerror
        raise StoreError(f"the folder of backups {rotation.folder} cannot be made: {why}.") from exc
    clear(services, rotation, now)
    return back_up(services, rotation.folder / name, rotation=code_of(services, rotation.folder))


def clear(services: Services, rotation: Rotation, now: datetime) -> None:
    """Remove what a process that was killed left half written: nobody else would."""
    stem = _stem(services)
    for one in rotation.folder.glob(f"{stem}-*.db.part"):
        begun = parse_backup_time(stem, one.name.removesuffix(".part"))
        if begun is not None and abs(now - begun) > ABANDONED:
            with contextlib.suppress(OSError):
                one.unlink(missing_ok=True)


def drop(services: Services, rotation: Rotation, name: str, now: datetime) -> bool:
    """False if it is still needed: the one that was to take its place may have failed."""
    if name not in _going(_stem(services), names_in(services, rotation.folder), rotation, now):
        return False
    path = rotation.folder / name
    try:
        path.unlink(missing_ok=True)
        path.with_name(name + MANIFEST_SUFFIX).unlink(missing_ok=True)
    except OSError as exc:
        raise StoreError(f"the old backup {path} cannot be removed: {exc.strerror}.") from exc
    return True


def code_of(services: Services, folder: Path) -> str:
    """The backups of this store in a folder, as the audit log names them: no path stands there."""
    place = folder.expanduser().resolve() / _stem(services)
    return hashlib.blake2b(str(place).encode(), digest_size=8).hexdigest()


def _stem(services: Services) -> str:
    return Path(services.items.status().location).stem


def names_in(services: Services, folder: Path) -> list[str]:
    """Of whole backups of this store: a file whose manifest is not there may still be in the making, and another store
    may have the same name and the same folder."""
    there = _files(folder)
    found = [name for name in there if name + MANIFEST_SUFFIX in there]
    known = ("", services.items.code) if isinstance(services.items, Backed) else ()
    return sorted(name for name in found if _store_of(folder / (name + MANIFEST_SUFFIX)) in known)


def _going(stem: str, names: Sequence[str], rotation: Rotation, now: datetime) -> list[str]:
    """The oldest of these backups beyond those that are kept; and what was left without a manifest by a process that
    was killed, when it is older than all that stay."""
    old = find_surplus_backups(stem, names, rotation.keep, now + rotation.every)
    stay = [at for name in names if name not in old and (at := parse_backup_time(stem, name))]
    there = _files(rotation.folder)
    loose = {
        name: at for name in there if name + MANIFEST_SUFFIX not in there and (at := parse_backup_time(stem, name))
    }
    over = min((*stay, now - ABANDONED)) if len(stay) >= rotation.keep else None
    return [*sorted(name for name, at in loose.items() if over and at < over), *old]


def _files(folder: Path) -> set[str]:
    try:
        return {one.name for one in folder.iterdir()}
    except OSError:
        return set()  # to write there says why not


def _store_of(manifest: Path) -> str:
    try:
        return read_backup_manifest(manifest.read_bytes(), manifest.name).store
    except (OSError, EngrainError):
        return ""  # to read the backup says what is wrong with it
