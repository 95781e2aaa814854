"""The passes over what lies beside the items: tasks that ended, the folder of files, the folder of backups."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from engrain.core.errors import StoreError
from engrain.core.markdown.sync_state import MEMORY, SOUL, SYNC_BASE, read_base
from engrain.core.model.results import MaintenanceAction
from engrain.core.model.tasks import ENDED_STATUSES, TaskQuery
from engrain.maintenance import backups
from engrain.maintenance.backups import Rotation
from engrain.maintenance.passes import ALL, REMOVED, Done, MaintenanceContext, MaintenancePass, Tell
from engrain.mirror.mirror import Mirror
from engrain.ports.storage import Folder
from engrain.privacy.erase import resume_erasures


def prune(care: MaintenanceContext) -> MaintenancePass:
    """In all memories of the store, of which this one's are told."""
    journal, kept = care.services.journal, timedelta(days=care.policies.task_days)
    before = care.now - kept
    ended = (
        []
        if journal is None or care.held or care.leapt
        else journal.tasks(TaskQuery(care.scope, ENDED_STATUSES, limit=ALL))
    )
    old = [one for one in ended if one.ended_at is not None and one.ended_at < before]

    def act(tell: Tell) -> None:
        if journal is not None:
            journal.prune(before)
        tell(len(old))

    why = f"{{}} {{:%Y-%m-%d}}, more than {care.policies.task_days:g} days ago"
    each = tuple(MaintenanceAction("remove", one.task, why.format(one.status, one.ended_at), one.goal) for one in old)
    which = f"that ended more than {care.policies.task_days:g} days ago"
    return MaintenancePass("pruned", each, REMOVED, "task", which, act, always=not care.leapt)


def belongs_to(folder: Folder) -> str | None:
    """The id of the scope that a folder was last in step with; None if it is new."""
    base = read_base((folder.read(SYNC_BASE) or b"").decode("utf-8", "replace"))
    return base.scope if base else None


def has_files(folder: Folder) -> bool:
    """Whether somebody wrote into a folder that no memory has met."""
    return any(folder.read(name) for name in (MEMORY, SOUL)) or bool(folder.days())


def mirror(care: MaintenanceContext, folder: Folder, changes: bool) -> MaintenancePass:
    mirror = Mirror(care.services, care.scope, folder)
    found = mirror.pending()
    # What the round itself takes from the memory is still to come to the files.
    due = changes or bool(found.written or found.taken)

    def act(tell: Tell) -> None:
        _make(Path(mirror.path).parent)
        mirror.sync()
        tell(1)

    each = (MaintenanceAction("sync", mirror.path, "the files and the memory were not in step"),) if due else ()
    return MaintenancePass("mirrored", each, ("synced", "sync"), "folder", "of files", act)


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise StoreError(f"the folder {folder} cannot be made: {exc.strerror}.") from exc


def backed_up(care: MaintenanceContext) -> list[MaintenancePass]:
    policies = care.policies
    if not policies.backup_folder:
        return []
    folder, every = Path(policies.backup_folder).expanduser(), timedelta(hours=policies.backup_hours)
    return _backups(care, Rotation(folder, every, policies.backup_keep))


def _backups(care: MaintenanceContext, rotation: Rotation) -> list[MaintenancePass]:
    new, old = backups.planned(care.services, rotation, care.now)

    def take(tell: Tell) -> None:
        if new:
            backups.take(care.services, rotation, new, care.now)
        tell(1)

    def drop(tell: Tell) -> Done:
        dropped: list[MaintenanceAction] = []
        for one in gone:
            if backups.drop(care.services, rotation, one.id, care.now):
                dropped.append(one)
                tell(1)
        return Done(tuple(dropped))

    hours = f"{rotation.every / timedelta(hours=1):g}"
    due = (
        (MaintenanceAction("write", new, f"the last one is more than {hours} hours old, or there is none"),)
        if new
        else ()
    )
    gone = tuple(MaintenanceAction("remove", name, f"beyond the newest {rotation.keep}") for name in old)
    in_folder = f"in {rotation.folder}"
    return [
        MaintenancePass("backed_up", due, ("wrote", "write"), "backup", in_folder, take),
        MaintenancePass(
            "backups_dropped", gone, REMOVED, "backup", f"beyond the newest {rotation.keep} {in_folder}", drop
        ),
    ]


def planned(care: MaintenanceContext) -> list[MaintenancePass]:
    """Of the whole store, whoever began them; no pass where none is under way."""
    running = care.services.erasing.running() if care.services.erasing else []
    each = tuple(
        MaintenanceAction("complete", one.id, f"an erasure by {one.by}, begun {one.at:%Y-%m-%d}") for one in running
    )

    def act(tell: Tell) -> Done:
        answers = resume_erasures(care.services, lambda _: None)
        complete = {one.id for one in answers if one.receipt}
        waiting = [f"{one.id}: {one.why}" for one in answers if one.pending]
        tell(len(complete))
        told = f"{len(waiting):,} still to be completed: {' '.join(waiting)}" if waiting else ""
        return Done(tuple(one for one in each if one.id in complete), told)

    return [MaintenancePass("erased", each, ("completed", "complete"), "erasure", "under way", act)] if each else []
