"""One round of care over a memory: what is over goes, and every pass says what it did or would do."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta

from engrain.core.episodes import Episode
from engrain.core.journal import ENDED, TaskQuery
from engrain.core.scope import Scope
from engrain.core.tiers import TIERS
from engrain.ports import Kit

TASKS_KEPT = timedelta(days=7)
_ALL = 1_000_000
_EVER = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Maintained:
    """What a round did, or with a dry run would do: how many of what, by the name of the pass, and a line of each."""

    dry_run: bool
    counts: Mapping[str, int] = field(default_factory=dict)
    lines: tuple[str, ...] = ()

    @property
    def expired(self) -> int:
        return self.counts["expired"]

    @property
    def trimmed(self) -> int:
        return self.counts["trimmed"]

    @property
    def pruned(self) -> int:
        return self.counts["pruned"]

    def __str__(self) -> str:
        return "\n".join(self.lines)


@dataclass(frozen=True, slots=True)
class Round:
    """What every pass is given. All go by the same moment, whenever they run."""

    kit: Kit
    scope: Scope
    now: datetime
    dry_run: bool


@dataclass(frozen=True, slots=True)
class Passed:
    """How many of what, and which ones: 3, "episode", "whose time is over"."""

    count: int
    what: str
    which: str

    def __str__(self) -> str:
        return f"{self.count:,} {self.what}{'s' * (self.count != 1)} {self.which}"


Pass = Callable[[Round], Passed]


def maintain(kit: Kit, scope: Scope, *, dry_run: bool = False) -> Maintained:
    """Every pass, in order. A dry run changes nothing, and counts what a real one would do at that moment."""
    care = Round(kit, scope, kit.clock(), dry_run)
    done = {name: one(care) for name, one in PASSES.items()}
    verb = "would remove" if dry_run else "removed"
    lines = tuple(f"{verb} {passed}" for passed in done.values())
    return Maintained(dry_run, {name: passed.count for name, passed in done.items()}, lines)


def expire(care: Round) -> Passed:
    """In all memories of the store, of which this one's are counted; raw outputs past their own day go as well."""
    over = [one for one in _entries(care) if not one.alive(care.now)]
    if care.kit.episodes is not None and not care.dry_run:
        care.kit.episodes.expire(care.now)
    return Passed(len(over), "episode", "whose time is over, and raw outputs past theirs")


def trim(care: Round) -> Passed:
    """A store keeps to the limit with each write; this is for entries of an earlier, higher one."""
    most = TIERS["episodic"].max_items or _ALL
    sizes = Counter(one.session for one in _entries(care) if one.alive(care.now))
    over = {session: size - most for session, size in sizes.items() if size > most}
    if care.kit.episodes is not None and not care.dry_run:
        for session in over:
            care.kit.episodes.trim(care.scope, session, most)
    return Passed(sum(over.values()), "episode", f"beyond the newest {most:,} of a session")


def tidy(care: Round) -> Passed:
    """Entries whose log row was forgotten, where episodes are in a store that does not see it."""
    entries = [] if care.kit.together else [one for one in _entries(care) if one.alive(care.now)]
    rows = {one.item: one.id for one in entries if one.item}
    there = {item.id for item in care.kit.items.get_many(care.scope, list(rows))} if rows else set()
    gone = [id for item, id in rows.items() if item not in there]
    if care.kit.episodes is not None and gone and not care.dry_run:
        care.kit.episodes.remove(care.scope, gone)
    return Passed(len(gone), "episode", "whose words were forgotten")


def prune(care: Round) -> Passed:
    """In all memories of the store, of which this one's are counted."""
    journal, before = care.kit.journal, care.now - TASKS_KEPT
    if journal is None:
        return Passed(0, "task", "of which there is no journal")
    ended = journal.tasks(TaskQuery(care.scope, ENDED, limit=_ALL))
    old = [one for one in ended if one.ended_at is not None and one.ended_at < before]
    if not care.dry_run:
        journal.prune(before)
    return Passed(len(old), "task", f"that ended more than {TASKS_KEPT.days} days ago")


PASSES: Mapping[str, Pass] = {"expired": expire, "trimmed": trim, "tidied": tidy, "pruned": prune}


def _entries(care: Round) -> list[Episode]:
    """Every entry of the scope that is still in the store, expired or not."""
    return [] if care.kit.episodes is None else care.kit.episodes.recent(care.scope, None, _ALL, _EVER)
