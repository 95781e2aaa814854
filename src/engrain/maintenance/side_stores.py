"""The passes over what lies beside the items: tasks that ended, the folder of files, the folder of backups."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

from engrain.core.errors import StoreError
from engrain.core.markdown.sync_state import BASE, MEMORY, SOUL, base_of
from engrain.core.model.results import Doing
from engrain.core.model.tasks import ENDED, TaskQuery
from engrain.maintenance import backups
from engrain.maintenance.backups import Rotation
from engrain.maintenance.passes import ALL, REMOVED, Done, Pass, Round, Tell
from engrain.mirror.mirror import Mirror
from engrain.ports.storage import Folder
from engrain.privacy.erase import resume_erasures


def prune(care: Round) -> Pass:
    """In all memories of the store, of which this one's are told."""
    journal, kept = care.kit.journal, timedelta(days=care.policies.task_days)
    before = care.now - kept
    ended = [] if journal is None or care.held or care.leapt else journal.tasks(TaskQuery(care.scope, ENDED, limit=ALL))
    old = [one for one in ended if one.ended_at is not None and one.ended_at < before]

    def act(tell: Tell) -> None:
        if journal is not None:
            journal.prune(before)
        tell(len(old))

    why = f"{{}} {{:%Y-%m-%d}}, more than {care.policies.task_days:g} days ago"
    each = tuple(Doing("remove", one.task, why.format(one.status, one.ended_at), one.goal) for one in old)
    which = f"that ended more than {care.policies.task_days:g} days ago"
    return Pass("pruned", each, REMOVED, "task", which, act, always=not care.leapt)


def belongs_to(folder: Folder) -> str | None:
    """The id of the scope that a folder was last in step with; None if it is new."""
    base = base_of((folder.read(BASE) or b"").decode("utf-8", "replace"))
    return base.scope if base else None


def has_files(folder: Folder) -> bool:
    """Whether somebody wrote into a folder that no memory has met."""
    return any(folder.read(name) for name in (MEMORY, SOUL)) or bool(folder.days())


def mirror(care: Round, folder: Folder, changes: bool) -> Pass:
    mirror = Mirror(care.kit, care.scope, folder)
    found = mirror.pending()
    # What the round itself takes from the memory is still to come to the files.
    due = changes or bool(found.written or found.taken)

    def act(tell: Tell) -> None:
        _make(Path(mirror.path).parent)
        mirror.sync()
        tell(1)

    each = (Doing("sync", mirror.path, "the files and the memory were not in step"),) if due else ()
    return Pass("mirrored", each, ("synced", "sync"), "folder", "of files", act)


def _make(folder: Path) -> None:
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise StoreError(f"the folder {folder} cannot be made: {exc.strerror}.") from exc


def backed_up(care: Round) -> list[Pass]:
    policies = care.policies
    if not policies.backup_folder:
        return []
    folder, every = Path(policies.backup_folder).expanduser(), timedelta(hours=policies.backup_hours)
    return _backups(care, Rotation(folder, every, policies.backup_keep))


def _backups(care: Round, rotation: Rotation) -> list[Pass]:
    new, old = backups.planned(care.kit, rotation, care.now)

    def take(tell: Tell) -> None:
        if new:
            backups.take(care.kit, rotation, new, care.now)
        tell(1)

    def drop(tell: Tell) -> Done:
        dropped: list[Doing] = []
        for one in gone:
            if backups.drop(care.kit, rotation, one.id, care.now):
                dropped.append(one)
                tell(1)
        return Done(tuple(dropped))

    hours = f"{rotation.every / timedelta(hours=1):g}"
    due = (Doing("write", new, f"the last one is more than {hours} hours old, or there is none"),) if new else ()
    gone = tuple(Doing("remove", name, f"beyond the newest {rotation.keep}") for name in old)
    in_folder = f"in {rotation.folder}"
    return [
        Pass("backed_up", due, ("wrote", "write"), "backup", in_folder, take),
        Pass("backups_dropped", gone, REMOVED, "backup", f"beyond the newest {rotation.keep} {in_folder}", drop),
    ]


def planned(care: Round) -> list[Pass]:
    """Of the whole store, whoever began them; no pass where none is under way."""
    running = care.kit.erasing.running() if care.kit.erasing else []
    each = tuple(Doing("complete", one.id, f"an erasure by {one.by}, begun {one.at:%Y-%m-%d}") for one in running)

    def act(tell: Tell) -> Done:
        answers = resume_erasures(care.kit, lambda _: None)
        complete = {one.id for one in answers if one.receipt}
        waiting = [f"{one.id}: {one.why}" for one in answers if one.pending]
        tell(len(complete))
        told = f"{len(waiting):,} still to be completed: {' '.join(waiting)}" if waiting else ""
        return Done(tuple(one for one in each if one.id in complete), told)

    return [Pass("erased", each, ("completed", "complete"), "erasure", "under way", act)] if each else []
