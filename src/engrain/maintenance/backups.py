"""Take backups of a store, and remove old ones."""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path

from engrain.core.errors import ConfigError, EngrainError, StoreError, tolerate
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
from engrain.core.model.results import MaintenanceAction
from engrain.maintenance.passes import REMOVED, MaintenanceContext, MaintenancePass, PassResult, ReportProgress
from engrain.ports import Services
from engrain.ports.plain_files import read_plain
from engrain.ports.storage import Backed, make_private_folder
from engrain.privacy.audit import record

ABANDONED_AFTER = timedelta(hours=6)


@dataclass(frozen=True, slots=True)
class Rotation:
    """A folder of backups: how often one is taken, and how many are kept."""

    folder: Path
    every: timedelta
    keep: int


def back_up(services: Services, path: Path, key: str | None = None, rotation: str | None = None) -> BackupInfo:
    """Back up the store. `rotation` is the code of the folder that removes its old backups."""
    store = services.items
    if not isinstance(store, Backed):
        raise ConfigError(f"a {services.items.status().backend} store is {SERVER_BACKUP_ADVICE}")
    # Recorded first: a killed backup leaves a part of it, and a receipt must know.
    entry = record(services, "backup_begun", {"rotation": rotation} if rotation else {})
    begun = {"begun": entry.n} if entry else {}
    try:
        manifest = store.backup(path, key)
    except BaseException:
        with tolerate(EngrainError):
            record(services, "backup_failed", begun)
        raise
    record(services, "backup", {"items": manifest.items, "encrypted": manifest.encrypted, **begun})
    return BackupInfo(str(path), manifest)


def plan_backups(context: MaintenanceContext) -> list[MaintenancePass]:
    """Plan to write the backup that is due, and to remove those beyond the number to keep."""
    services, policies, now = context.services, context.policies, context.now
    if not policies.backup_folder:
        return []
    folder, every = Path(policies.backup_folder).expanduser(), timedelta(hours=policies.backup_hours)
    rotation = Rotation(folder, every, policies.backup_keep)
    new, old = plan_rotation(services, rotation, now)

    def write_new(report: ReportProgress) -> None:
        if new:
            take_due_backup(services, rotation, new, now)
        report(1)

    def remove_old(report: ReportProgress) -> PassResult:
        removed: list[MaintenanceAction] = []
        for action in removals:
            if remove_old_backup(services, rotation, action.id, now):
                removed.append(action)
                report(1)
        return PassResult(tuple(removed))

    reason = f"the last one is more than {policies.backup_hours:g} hours old, or there is none"
    writes = (MaintenanceAction("write", new, reason),) if new else ()
    surplus = f"beyond the newest {rotation.keep}"
    removals = tuple(MaintenanceAction("remove", name, surplus) for name in old)
    return [
        MaintenancePass("backed_up", writes, ("wrote", "write"), "backup", f"in {folder}", write_new),
        MaintenancePass("backups_dropped", removals, REMOVED, "backup", f"{surplus} in {folder}", remove_old),
    ]


def plan_rotation(services: Services, rotation: Rotation, now: datetime) -> tuple[str | None, list[str]]:
    """Return the name of the backup that is due, or None, and the names of those to remove."""
    stem, names = _store_name(services), list_backups(services, rotation.folder)
    times = [at for name in names if (at := parse_backup_time(stem, name))]
    new = make_backup_name(stem, now) if is_backup_due(times, now, rotation.every) else None
    return new, _find_removable(stem, [*names, *([new] if new else [])], rotation, now)


def take_due_backup(services: Services, rotation: Rotation, name: str, now: datetime) -> BackupInfo:
    """Write the backup that is due. Make its folder if it does not exist."""
    try:
        make_private_folder(rotation.folder)
    except OSError as exc:
        link = os.path.islink(rotation.folder) and not os.path.exists(rotation.folder)
        why = f"it is a link to {os.readlink(rotation.folder)}, which is not there" if link else exc.strerror
        raise StoreError(f"the folder of backups {rotation.folder} cannot be made: {why}.") from exc
    remove_partial_backups(services, rotation, now)
    return back_up(services, rotation.folder / name, rotation=hash_folder(services, rotation.folder))


def remove_partial_backups(services: Services, rotation: Rotation, now: datetime) -> None:
    """Remove partial files of killed processes."""
    stem = _store_name(services)
    for file in rotation.folder.glob(f"{stem}-*.db.part"):
        begun = parse_backup_time(stem, file.name.removesuffix(".part"))
        if begun is not None and abs(now - begun) > ABANDONED_AFTER:
            with contextlib.suppress(OSError):
                file.unlink(missing_ok=True)


def remove_old_backup(services: Services, rotation: Rotation, name: str, now: datetime) -> bool:
    """Remove a backup. False if it is still needed: the new one may have failed."""
    if name not in _find_removable(_store_name(services), list_backups(services, rotation.folder), rotation, now):
        return False
    path = rotation.folder / name
    try:
        path.unlink(missing_ok=True)
        path.with_name(name + MANIFEST_SUFFIX).unlink(missing_ok=True)
    except OSError as exc:
        raise StoreError(f"the old backup {path} cannot be removed: {exc.strerror}.") from exc
    return True


def hash_folder(services: Services, folder: Path) -> str:
    """Return the code of this store's backups in a folder. The audit log has it instead of the path."""
    place = folder.expanduser().resolve() / _store_name(services)
    return hashlib.blake2b(str(place).encode(), digest_size=8).hexdigest()


def _store_name(services: Services) -> str:
    return Path(services.items.status().location).stem


def list_backups(services: Services, folder: Path) -> list[str]:
    """List the complete backups of this store.

    A file without a manifest may still be written. Another store may have the same name and the same folder.
    """
    files = _list_files(folder)
    found = [name for name in files if name + MANIFEST_SUFFIX in files]
    known = ("", services.items.code) if isinstance(services.items, Backed) else ()
    return sorted(name for name in found if _read_store_code(folder / (name + MANIFEST_SUFFIX)) in known)


def _find_removable(stem: str, names: Sequence[str], rotation: Rotation, now: datetime) -> list[str]:
    """Find the backups beyond the number to keep.

    Backups without a manifest, left by a killed process, are removed as well if they are older than all kept ones.
    """
    old = find_surplus_backups(stem, names, rotation.keep, now + rotation.every)
    remaining = [at for name in names if name not in old and (at := parse_backup_time(stem, name))]
    if len(remaining) < rotation.keep:
        return old
    oldest_kept = min((*remaining, now - ABANDONED_AFTER))
    files = _list_files(rotation.folder)
    unlisted = [name for name in files if name + MANIFEST_SUFFIX not in files]
    abandoned = [name for name in unlisted if (at := parse_backup_time(stem, name)) and at < oldest_kept]
    return [*sorted(abandoned), *old]


def _list_files(folder: Path) -> set[str]:
    try:
        return {file.name for file in folder.iterdir()}
    except OSError:
        return set()  # writing there reports the error


def _read_store_code(manifest: Path) -> str:
    try:
        return read_backup_manifest(read_plain(manifest), manifest.name).store
    except (OSError, EngrainError):
        return ""  # reading the backup reports the error
