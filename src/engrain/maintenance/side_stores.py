"""Plan the passes beside the items: running erasures, ended tasks, mirrored folders and backups."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from engrain.core.errors import StoreError
from engrain.core.markdown.sync_state import MEMORY, SOUL, SYNC_BASE, read_base
from engrain.core.model.results import MaintenanceAction
from engrain.core.model.tasks import ENDED_STATUSES, TaskQuery
from engrain.maintenance import backups
from engrain.maintenance.passes import (
    NO_LIMIT,
    REMOVED,
    MaintenanceContext,
    MaintenancePass,
    PassResult,
    ReportProgress,
)
from engrain.mirror.mirror import Mirror
from engrain.ports.storage import Folder
from engrain.privacy.erase import resume_erasures


def plan_erasures(context: MaintenanceContext) -> list[MaintenancePass]:
    """Plan to complete the running erasures of the whole store; no pass if there are none."""
    running = context.services.erasing.running() if context.services.erasing else []
    if not running:
        return []

    def act(report: ReportProgress) -> PassResult:
        answers = resume_erasures(context.services, lambda _: None)
        complete = {one.id for one in answers if one.receipt}
        waiting = [f"{one.id}: {one.why}" for one in answers if one.pending]
        report(len(complete))
        trouble = f"{len(waiting):,} still to be completed: {' '.join(waiting)}" if waiting else ""
        return PassResult(tuple(one for one in actions if one.id in complete), trouble)

    actions = tuple(
        MaintenanceAction("complete", one.id, f"an erasure by {one.by}, begun {one.at:%Y-%m-%d}") for one in running
    )
    return [MaintenancePass("erased", actions, ("completed", "complete"), "erasure", "under way", act)]


def plan_task_pruning(context: MaintenanceContext) -> MaintenancePass:
    """Plan to prune the tasks of all scopes, and list the actions of this one."""
    journal, days = context.services.journal, context.policies.task_days
    before = context.now - timedelta(days=days)
    blocked = journal is None or context.is_held or context.clock_jumped
    query = TaskQuery(context.scope, ENDED_STATUSES, limit=NO_LIMIT)
    ended = journal.tasks(query) if journal is not None and not blocked else []
    old = [one for one in ended if one.ended_at is not None and one.ended_at < before]

    def act(report: ReportProgress) -> None:
        if journal is not None:
            journal.prune(before)
        report(len(old))

    why = f"{{}} {{:%Y-%m-%d}}, more than {days:g} days ago"
    actions = tuple(
        MaintenanceAction("remove", one.task, why.format(one.status, one.ended_at), one.goal) for one in old
    )
    qualifier = f"that ended more than {days:g} days ago"
    return MaintenancePass("pruned", actions, REMOVED, "task", qualifier, act, always=not context.clock_jumped)


def read_folder_scope(folder: Folder) -> str | None:
    """Return the id of the scope that a folder last mirrored; None if it is new."""
    base = read_base((folder.read(SYNC_BASE) or b"").decode("utf-8", "replace"))
    return base.scope if base else None


def has_files(folder: Folder) -> bool:
    return any(folder.read(name) for name in (MEMORY, SOUL)) or bool(folder.days())


def plan_mirror(context: MaintenanceContext, folder: Folder, changed: bool) -> list[MaintenancePass]:
    """Plan to sync the folder of this scope. `changed` says that earlier passes change the scope's items."""
    mirror = Mirror(context.services, context.scope, folder)
    pending = mirror.pending()

    def act(report: ReportProgress) -> None:
        parent = Path(mirror.path).parent
        try:
            parent.mkdir(parents=True, exist_ok=True)
        except OSError as exc:
            raise StoreError(f"the folder {parent} cannot be made: {exc.strerror}.") from exc
        mirror.sync()
        report(1)

    due = changed or bool(pending.written or pending.taken)
    actions = (MaintenanceAction("sync", mirror.path, "the files and the memory were not in step"),) if due else ()
    return [MaintenancePass("mirrored", actions, ("synced", "sync"), "folder", "of files", act)]


def plan_backups(context: MaintenanceContext) -> list[MaintenancePass]:
    """Plan to write the backup that is due, and to remove those beyond the number to keep."""
    services, policies, now = context.services, context.policies, context.now
    if not policies.backup_folder:
        return []
    folder, every = Path(policies.backup_folder).expanduser(), timedelta(hours=policies.backup_hours)
    rotation = backups.Rotation(folder, every, policies.backup_keep)
    new, old = backups.plan_rotation(services, rotation, now)

    def write_new(report: ReportProgress) -> None:
        if new:
            backups.take_due_backup(services, rotation, new, now)
        report(1)

    def remove_old(report: ReportProgress) -> PassResult:
        removed: list[MaintenanceAction] = []
        for action in removals:
            if backups.remove_old_backup(services, rotation, action.id, now):
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
