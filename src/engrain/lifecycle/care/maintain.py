"""One round of care over a memory: every pass says what it does, and a dry run says it beforehand."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

from engrain.core.errors import EngrainError, StoreClosed
from engrain.core.journal import ENDED, TaskQuery
from engrain.core.leaps import ENOUGH, Seen, leapt
from engrain.core.maintained import Doing, Maintained
from engrain.core.scope import Scope
from engrain.lifecycle.care import backups, consolidate, lapsing, moments
from engrain.lifecycle.care import reembed as vectors
from engrain.lifecycle.care.backups import Rotation
from engrain.lifecycle.care.rounds import ALL, REMOVED, UNWATCHED, Pass, Round, Tell, Watch
from engrain.lifecycle.folder.mirror import Mirror
from engrain.lifecycle.recording import record
from engrain.ports import Kit

__all__ = ["Maintained", "Watch", "maintain", "passes"]


def maintain(
    kit: Kit,
    scope: Scope,
    *,
    dry_run: bool = False,
    reembed: bool = False,
    trust_clock: bool = False,
    watch: Watch = UNWATCHED,
) -> Maintained:
    """Every pass is planned first, and then carried out: a dry run is the plan. With `trust_clock` the clock is right,
    however far it has gone on since it was last looked at."""
    now, known = kit.clock(), moments.seen(kit, scope)
    sudden = leapt(known, now) and not trust_clock
    planned = passes(Round(kit, scope, now, reembed, sudden))
    trouble = [_sudden(known, now)] if sudden else []
    if not dry_run:
        planned = [_carried_out(one, watch, trouble) for one in planned]
        gone = {one.name: len(one.each) for one in planned if one.each and one.verb is REMOVED}
        if gone:
            record(kit, "maintain", {"counts": gone}, scope)
        _sweep(kit, trouble)
        moments.note(kit, Seen() if trust_clock else known, now)
    return Maintained(
        dry_run,
        {one.name: len(one.each) for one in planned},
        tuple(one.line(dry_run) for one in planned),
        tuple(doing for one in planned for doing in one.each),
        tuple(trouble),
    )


def _sudden(known: Seen, now: datetime) -> str:
    return (
        f"the clock says {now:%Y-%m-%d}, and this memory was last cared for or written to on {known.last:%Y-%m-%d}. "
        f"Nothing goes for its age until the clock has said so for {ENOUGH.days} day, or somebody says that it is "
        "right: engrain maintain --trust-clock."
    )


def _carried_out(one: Pass, watch: Watch, trouble: list[str]) -> Pass:
    """One that fails keeps no other from being done."""
    try:
        if one.each or one.always:
            watch.still()
            done = one.act(watch.tell)
            trouble += [f"{one.name}: {done.trouble}"] if done and done.trouble else []
            return replace(one, each=done.each) if done else one
    except StoreClosed:
        raise
    except EngrainError as exc:
        trouble.append(f"{one.name}: {exc}")
        return replace(one, each=())
    return one


def _sweep(kit: Kit, trouble: list[str]) -> None:
    """Once more for what was forgotten while a reader held it, and was left pending."""
    try:
        kit.items.purge()
    except StoreClosed:
        raise
    except EngrainError as exc:
        trouble.append(f"bytes of what was forgotten: {exc}")


def passes(care: Round) -> list[Pass]:
    """In order: each is planned as if those before it were done."""
    episodes = lapsing.passes(care)
    faint = consolidate.planned(care)
    going = {doing.id for doing in faint.each}
    return [
        *episodes,
        faint,
        *vectors.passes(care, going, len(episodes[0].each)),
        _prune(care),
        *_beside(care, bool(episodes[0].each or going)),
    ]


def _prune(care: Round) -> Pass:
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


def _beside(care: Round, changes: bool) -> list[Pass]:
    """What is not in the store: the folder of files and the folder of backups, if there are such."""
    files = [_mirror(care, Mirror(care.kit, care.scope, care.kit.folder), changes)] if care.kit.folder else []
    policies = care.policies
    if not policies.backup_folder:
        return files
    folder, every = Path(policies.backup_folder).expanduser(), timedelta(hours=policies.backup_hours)
    return [*files, *_backups(care, Rotation(folder, every, policies.backup_keep))]


def _mirror(care: Round, mirror: Mirror, changes: bool) -> Pass:
    found = mirror.sync(dry_run=True)
    # What the round itself takes from the memory is still to come to the files.
    due = changes or bool(found.written or found.taken)

    def act(tell: Tell) -> None:
        mirror.sync()
        tell(1)

    each = (Doing("sync", mirror.path, "the files and the memory were not in step"),) if due else ()
    which = "whose MEMORY.md is kept within its budget"
    return Pass("mirrored", each, ("synced", "sync"), "folder", which, act)


def _backups(care: Round, rotation: Rotation) -> list[Pass]:
    new, old = backups.planned(care.kit, rotation, care.now)

    def take(tell: Tell) -> None:
        if new:
            rotation.folder.mkdir(parents=True, exist_ok=True)
            backups.clear(care.kit, rotation, care.now)
            backups.back_up(care.kit, rotation.folder / new)
        tell(1)

    def drop(tell: Tell) -> None:
        for name in old:
            backups.drop(rotation, name)
            tell(1)

    hours = f"{rotation.every / timedelta(hours=1):g}"
    due = (Doing("write", new, f"the last one is more than {hours} hours old, or there is none"),) if new else ()
    gone = tuple(Doing("remove", name, f"beyond the newest {rotation.keep}") for name in old)
    in_folder = f"in {rotation.folder}"
    return [
        Pass("backed_up", due, ("wrote", "write"), "backup", in_folder, take),
        Pass("backups_dropped", gone, REMOVED, "backup", f"beyond the newest {rotation.keep} {in_folder}", drop),
    ]
