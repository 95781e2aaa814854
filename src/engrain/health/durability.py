"""Check that acknowledged writes survive power cuts, damage and loss."""

from __future__ import annotations

import hashlib
import shlex
from datetime import timedelta
from pathlib import Path

from engrain.core.errors import EngrainError
from engrain.core.formats.manifests import (
    MANIFEST_SUFFIX,
    SERVER_BACKUP_ADVICE,
    parse_backup_time,
    read_backup_manifest,
)
from engrain.core.model.filters import parse_filter
from engrain.core.model.queries import ListQuery
from engrain.core.model.results import Verdict, report_failure, report_pass, report_warning
from engrain.core.validation import count_noun
from engrain.health.run_checks import MAX_SORTED_MEMORIES, Check, CheckContext, describe_age, find_worst, report_own
from engrain.maintenance.backups import list_backups
from engrain.maintenance.passes import list_scopes
from engrain.ports.plain_files import open_plain, read_plain
from engrain.ports.storage import Backed

MAX_HASHED_BYTES = 256 << 20  # of a larger backup only the size is checked
NEW_STORE_AGE = timedelta(days=1)
MAX_MANUAL_BACKUP_AGE = timedelta(days=7)
BACKUP_SLACK = timedelta(minutes=5)


def check_power_cut(context: CheckContext) -> Verdict:
    in_memory = "the store is in memory, so nothing survives this process"
    own = context.find_own("sync") or report_warning(in_memory, 'open a file instead: Memory("agent.db")')
    return find_worst([own, *context.find_on_servers("redis durability")]) or own


def check_schema(context: CheckContext) -> Verdict:
    found = context.find_own("schema")
    if found is None:
        return report_pass("the store is in memory, and of this version of engrain")
    if found.state == "pass":
        return report_pass(f"{found.why}, the one that this engrain writes")
    return report_failure(
        f"the schema is of {found.why}, not {context.store.schema}", "restart every program that has it open"
    )


def check_backup(context: CheckContext) -> Verdict:
    store, policies = context.store, context.services.policies
    if not isinstance(context.services.items, Backed):
        return report_pass(f"a {store.backend} store is {SERVER_BACKUP_ADVICE.rstrip('.')}")
    if store.location == ":memory:" or not store.items:
        return report_pass("there is nothing to back up yet")
    if not policies.backup_folder:
        return _check_manual_backup(context)
    folder, stem = Path(policies.backup_folder).expanduser(), Path(store.location).stem
    taken = {
        at: folder / name for name in list_backups(context.services, folder) if (at := parse_backup_time(stem, name))
    }
    if not taken:
        return report_failure(f"there is no backup in {folder}", context.build_command("maintain"))
    newest = max(taken)
    newest_text = f"the newest backup, {taken[newest].name}, was taken {describe_age(newest, context.now)}"
    if wrong := _find_damage(taken[newest]):
        # Maintenance takes no new backup while a file of that name exists.
        aside = f"`mv {shlex.join([str(taken[newest]), f'{taken[newest]}.damaged'])}`"
        fix = f"{aside}, {context.build_command('maintain')}; look at that disk, and delete the damaged file"
        return report_failure(f"{newest_text} and {wrong}", fix)
    if context.now - newest > timedelta(hours=2 * policies.backup_hours) + BACKUP_SLACK:
        return report_warning(
            f"{newest_text}, though one is due every {policies.backup_hours:g} hours", context.build_command("maintain")
        )
    return report_pass(f"{newest_text} and is intact")


def _check_manual_backup(context: CheckContext) -> Verdict:
    """Check the age of the last manual backup. The audit log has its time, but not its place."""
    last = context.find_last_recorded("backup")
    if last is not None and context.now - last <= MAX_MANUAL_BACKUP_AGE:
        return report_pass(f"the last backup was taken by hand, {describe_age(last, context.now)}")
    if last is None and _is_new(context):
        return report_pass(
            f"nothing is older than a day ({count_noun(context.store.items, 'item')}); a backup is due tomorrow"
        )
    old = f"the last was taken by hand {describe_age(last, context.now)}" if last else "none was ever taken"
    why = f"no backups of {count_noun(context.store.items, 'item')} are scheduled, and {old}"
    once = context.build_command("backup", "FILE")
    return report_warning(why, f'backup_folder = "…" in [lifecycle] and engrain maintain daily; at once: {once}')


def _is_new(context: CheckContext) -> bool:
    """Check the age of the whole store, because a backup has all of it."""
    every, old = list_scopes(context.services), parse_filter({"recorded_at": {"<=": context.now - NEW_STORE_AGE}})
    if len(every) > MAX_SORTED_MEMORIES:
        return False  # a store with so many memories needs a backup on its first day
    return not any(context.services.items.page(ListQuery(scope, old, history=True, limit=1)) for scope in every)


def _find_damage(path: Path) -> str:
    try:
        name = path.name + MANIFEST_SUFFIX
        manifest = read_backup_manifest(read_plain(path.with_name(name)), name)
        size = path.stat().st_size
        if size != manifest.bytes:
            return f"has {size:,} bytes instead of {manifest.bytes:,}"
        if size > MAX_HASHED_BYTES:
            return ""
        with open_plain(path) as file:
            same = hashlib.file_digest(file, "sha256").hexdigest() == manifest.sha256
        return "" if same else "was changed after it was written"
    except (OSError, EngrainError) as exc:
        return f"cannot be read: {str(exc).rstrip('.')}"


CHECKS = (
    Check(7, "durability", "engine", "Is the engine free of faults that lose writes?",
          report_own("engine", "{store.backend}, in this process alone")),
    Check(8, "durability", "power cut", "Does an acknowledged write survive a power cut?", check_power_cut),
    Check(9, "durability", "integrity", "Is every page and every reference sound?",
          report_own("integrity", "the store has no files that could be damaged")),
    Check(10, "durability", "schema", "Is the schema the one that this version knows?", check_schema),
    Check(11, "durability", "file system", "Is the file where locks and logs work?",
          report_own("file system", "no file of its own: {store.backend}")),
    Check(12, "durability", "backup", "Is there a recent, intact backup?", check_backup),
)  # fmt: skip
