"""Whether what was acknowledged is still there after the worst day."""

from __future__ import annotations

import hashlib
import shlex
from datetime import timedelta
from pathlib import Path

from engrain.core.errors import EngrainError
from engrain.core.formats import manifests
from engrain.core.formats.manifests import MANIFEST_SUFFIX, SERVER_BACKUP_ADVICE, BackupManifest, parse_backup_time
from engrain.core.model.filters import parse_filter
from engrain.core.model.queries import ListQuery
from engrain.core.model.results import Verdict, count_noun, report_failure, report_pass, report_warning
from engrain.health.context import MAX_SORTED_MEMORIES, Check, CheckContext, describe_age, find_worst
from engrain.maintenance.backups import names_in
from engrain.maintenance.clock_guard import memories
from engrain.ports.storage import Backed

MAX_HASHED_BYTES = 256 << 20  # bytes; a larger backup is known by its size alone
NEW_STORE_AGE = timedelta(days=1)
MAX_MANUAL_BACKUP_AGE = timedelta(days=7)  # the age at which a backup that somebody thought of is an old one
BACKUP_SLACK = timedelta(minutes=5)


def check_engine(look: CheckContext) -> Verdict:
    return look.found("engine") or report_pass(f"{look.store.backend}, in this process alone")


def check_power_cut(look: CheckContext) -> Verdict:
    own = look.found("sync") or report_warning(
        "the store is in memory, so that nothing outlives this process", 'open a file instead: Memory("agent.db")'
    )
    found = find_worst([own, *look.beside("redis durability")])
    return found or own


def check_integrity(look: CheckContext) -> Verdict:
    return look.found("integrity") or report_pass("nothing of it is in files that could be damaged")


def check_schema(look: CheckContext) -> Verdict:
    found = look.found("schema")
    if found is None:
        return report_pass("the store is in memory, and of this version of engrain")
    if found.state == "pass":
        return report_pass(f"{found.why}, the one that this engrain writes")
    return report_failure(
        f"the schema is of {found.why}, not {look.store.schema}", "restart every program that has it open"
    )


def check_file_system(look: CheckContext) -> Verdict:
    return look.found("file system") or report_pass(f"no file of its own: {look.store.backend}")


def check_backup(look: CheckContext) -> Verdict:
    store, policies = look.store, look.services.policies
    if not isinstance(look.services.items, Backed):
        return report_pass(f"a {store.backend} store is {SERVER_BACKUP_ADVICE.rstrip('.')}")
    if store.location == ":memory:" or not store.items:
        return report_pass("there is nothing to back up yet")
    if not policies.backup_folder:
        return _check_manual_backup(look)
    folder, stem = Path(policies.backup_folder).expanduser(), Path(store.location).stem
    taken = {at: folder / name for name in names_in(look.services, folder) if (at := parse_backup_time(stem, name))}
    if not taken:
        return report_failure(f"there is no backup in {folder}", look.run("maintain"))
    newest = max(taken)
    told = f"the newest backup, {taken[newest].name}, was taken {describe_age(newest, look.now)}"
    if wrong := _find_damage(taken[newest]):
        # As long as it has that name, no other is due.
        aside = f"`mv {shlex.join([str(taken[newest]), f'{taken[newest]}.damaged'])}`"
        mend = f"{aside}, {look.run('maintain')}; look at that disk, and delete the damaged file"
        return report_failure(f"{told} and {wrong}", mend)
    if look.now - newest > timedelta(hours=2 * policies.backup_hours) + BACKUP_SLACK:
        return report_warning(f"{told}, though one is due every {policies.backup_hours:g} hours", look.run("maintain"))
    return report_pass(f"{told} and is whole")


def _check_manual_backup(look: CheckContext) -> Verdict:
    """Where it went nobody knows but who asked for it; the audit log has when."""
    last = look.last("backup")
    if last is not None and look.now - last <= MAX_MANUAL_BACKUP_AGE:
        return report_pass(f"the last backup was taken by hand, {describe_age(last, look.now)}")
    if last is None and _is_new(look):
        return report_pass(
            f"nothing is older than a day ({count_noun(look.store.items, 'item')}); a backup is due tomorrow"
        )
    old = f"the last was taken by hand {describe_age(last, look.now)}" if last else "none was ever taken"
    why = f"nothing takes backups of {count_noun(look.store.items, 'item')} by itself, and {old}"
    once = look.run("backup", "FILE")
    return report_warning(why, f'backup_folder = "…" in [lifecycle] and engrain maintain daily; at once: {once}')


def _is_new(look: CheckContext) -> bool:
    """Whoever's memory is looked at: it is the whole store that is backed up."""
    every, old = memories(look.services), parse_filter({"recorded_at": {"<=": look.now - NEW_STORE_AGE}})
    if len(every) > MAX_SORTED_MEMORIES:
        return False  # so many are worth a backup on the first day
    return not any(look.services.items.page(ListQuery(one, old, history=True, limit=1)) for one in every)


def _find_damage(path: Path) -> str:
    try:
        manifest = manifests.read_backup_manifest(
            path.with_name(path.name + MANIFEST_SUFFIX).read_bytes(), path.name + MANIFEST_SUFFIX
        )
        size = path.stat().st_size
        if size != manifest.bytes:
            return f"has {size:,} bytes instead of {manifest.bytes:,}"
        return _find_change(path, manifest)
    except (OSError, EngrainError) as exc:
        return f"cannot be read: {str(exc).rstrip('.')}"


def _find_change(path: Path, manifest: BackupManifest) -> str:
    if manifest.bytes > MAX_HASHED_BYTES:
        return ""
    with path.open("rb") as file:
        same = hashlib.file_digest(file, "sha256").hexdigest() == manifest.sha256
    return "" if same else "is no longer what was written"


CHECKS = (
    Check(7, "durability", "engine", "Is the engine free of faults that lose writes?", check_engine),
    Check(8, "durability", "power cut", "Does an acknowledged write survive a power cut?", check_power_cut),
    Check(9, "durability", "integrity", "Is every page and every reference sound?", check_integrity),
    Check(10, "durability", "schema", "Is the schema the one that this version knows?", check_schema),
    Check(11, "durability", "file system", "Is the file where locks and logs work?", check_file_system),
    Check(12, "durability", "backup", "Is there a recent backup that is whole?", check_backup),
)  # fmt: skip
