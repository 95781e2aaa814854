"""Whether what was acknowledged is still there after the worst day."""

from __future__ import annotations

import hashlib
from datetime import timedelta
from pathlib import Path

from engrain.core import backups as manifests
from engrain.core.backups import MANIFEST, TOOLS, Manifest, taken_at
from engrain.core.checked import Verdict, failed, named, passed, several, warned
from engrain.core.errors import EngrainError
from engrain.core.journal import CHECKPOINT, TaskQuery, TaskRecord
from engrain.lifecycle.care.backups import names_in
from engrain.lifecycle.checkup.looking import Look, Point, ago, worst
from engrain.ports.backups import Backed

READ_AGAIN = 256 << 20  # bytes; a larger backup is known by its size alone
MOST = 1_000
BY_HAND = timedelta(days=7)  # the age at which a backup that somebody thought of is an old one
SLACK = timedelta(minutes=5)


def engine(look: Look) -> Verdict:
    return look.found("engine") or passed(f"{look.store.backend}, in this process alone")


def sync(look: Look) -> Verdict:
    own = look.found("sync") or warned(
        "the store is in memory, so that nothing outlives this process", 'open a file instead: Memory("agent.db")'
    )
    found = worst([own, *look.beside("redis durability")])
    return found or own


def integrity(look: Look) -> Verdict:
    return look.found("integrity") or passed("nothing of it is in files that could be damaged")


def schema(look: Look) -> Verdict:
    found = look.found("schema")
    if found is None:
        return passed("the store is in memory, and of this version of engrain")
    if found.state == "pass":
        return passed(f"{found.why}, the one that this engrain writes")
    return failed(f"the schema is of {found.why}, not {look.store.schema}", "restart every program that has it open")


def disk(look: Look) -> Verdict:
    return look.found("disk") or passed(f"its disk is not seen from here: {look.store.backend} {look.store.location}")


def file_system(look: Look) -> Verdict:
    return look.found("file system") or passed(f"no file of its own: {look.store.backend}")


def backup(look: Look) -> Verdict:
    store, policies = look.store, look.kit.policies
    if not isinstance(look.kit.items, Backed):
        return passed(f"a {store.backend} store is {TOOLS.rstrip('.')}")
    if store.location == ":memory:" or not store.items:
        return passed("there is nothing to back up yet")
    if not policies.backup_folder:
        return _by_hand(look)
    folder, stem = Path(policies.backup_folder).expanduser(), Path(store.location).stem
    taken = {at: folder / name for name in names_in(folder) if (at := taken_at(stem, name))}
    if not taken:
        return failed(f"there is no backup in {folder}", "engrain maintain")
    newest = max(taken)
    told = f"the newest backup, {taken[newest].name}, was taken {ago(newest, look.now)}"
    if wrong := _damaged(taken[newest]):
        return failed(f"{told} and {wrong}", f"engrain backup {folder / 'NEW.db'}, and look at that disk")
    if look.now - newest > timedelta(hours=2 * policies.backup_hours) + SLACK:
        return warned(f"{told}, though one is due every {policies.backup_hours:g} hours", "engrain maintain")
    return passed(f"{told} and is whole")


def _by_hand(look: Look) -> Verdict:
    """Where it went nobody knows but who asked for it; the audit log has when."""
    last = look.last("backup")
    if last is not None and look.now - last <= BY_HAND:
        return passed(f"the last backup was taken by hand, {ago(last, look.now)}")
    old = f"the last was taken by hand {ago(last, look.now)}" if last else "none was ever taken"
    why = f"nothing takes backups of {several(look.store.items, 'item')} by itself, and {old}"
    return warned(why, 'backup_folder = "…" in [lifecycle] and engrain maintain daily; at once: engrain backup FILE')


def _damaged(path: Path) -> str:
    try:
        manifest = manifests.read(path.with_name(path.name + MANIFEST).read_bytes(), path.name + MANIFEST)
        size = path.stat().st_size
        if size != manifest.bytes:
            return f"has {size:,} bytes instead of {manifest.bytes:,}"
        return _changed(path, manifest)
    except (OSError, EngrainError) as exc:
        return f"cannot be read: {str(exc).rstrip('.')}"


def _changed(path: Path, manifest: Manifest) -> str:
    if manifest.bytes > READ_AGAIN:
        return ""
    with path.open("rb") as file:
        same = hashlib.file_digest(file, "sha256").hexdigest() == manifest.sha256
    return "" if same else "is no longer what was written"


def waiting_tasks(look: Look) -> Verdict:
    journal = look.kit.journal
    if journal is None:
        return passed("this store keeps no tasks")
    tasks = journal.tasks(TaskQuery(look.scope, ("running", "waiting", "parked", "expired", "failed"), limit=MOST))
    told = [f"{one.task} ({one.status})" for one in tasks if one.status in ("parked", "expired", "failed")]
    told += [
        f"{one.task} (ambiguous)" for one in tasks if one.status in ("running", "waiting") and _ambiguous(look, one)
    ]
    if told:
        why = f"{several(len(told), 'task waits', 'tasks wait')} for a person: {named(told)}"
        return warned(why, "engrain tasks show TASK says why; engrain tasks resolve, resume or cancel decides")
    return passed("no task waits for a person")


def _ambiguous(look: Look, task: TaskRecord) -> bool:
    assert look.kit.journal is not None
    return any(step.status == "ambiguous" for step in look.kit.journal.unsettled(look.scope, task.task))


def leases(look: Look) -> Verdict:
    if look.kit.journal is None:
        return passed("this store keeps no tasks")
    stale = look.kit.journal.tasks(TaskQuery(look.scope, ("running",), stale=True, limit=MOST))
    left = [one for one in stale if one.version != CHECKPOINT and one.until is not None]
    if not left:
        return passed("every task that runs has a worker that gives signs of life")
    told = named([f"{one.task} (silent since {ago(one.until, look.now)})" for one in left if one.until])
    why = f"{several(len(left), 'task was', 'tasks were')} left by a worker that gives no sign of life: {told}"
    return warned(why, "start its program again, which recovers it; or engrain tasks resume TASK")


POINTS = (
    Point(7, "durability", "engine", "Is the engine free of faults that lose writes?", engine),
    Point(8, "durability", "power cut", "Does an acknowledged write survive a power cut?", sync),
    Point(9, "durability", "integrity", "Is every page and every reference sound?", integrity),
    Point(10, "durability", "schema", "Is the schema the one that this version knows?", schema),
    Point(11, "durability", "disk", "Is there room for more, and for a copy?", disk),
    Point(12, "durability", "file system", "Is the file where locks and logs work?", file_system),
    Point(13, "durability", "backup", "Is there a recent backup that is whole?", backup),
    Point(14, "durability", "waiting tasks", "Does a task wait for a person?", waiting_tasks),
    Point(15, "durability", "leases", "Was a task left by a worker that died?", leases),
)  # fmt: skip
