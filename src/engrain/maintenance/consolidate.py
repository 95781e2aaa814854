"""Let go of knowledge that matters little and that nobody uses, by rules alone."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

from engrain.core.clock import clock_jumped
from engrain.core.errors import StoreError
from engrain.core.identity import Scope
from engrain.core.model.filters import parse_filter
from engrain.core.model.items import Item
from engrain.core.model.plans import Forget, Plan
from engrain.core.model.results import MaintenanceAction
from engrain.core.model.retention import remaining_importance
from engrain.maintenance.clock_guard import seen
from engrain.maintenance.passes import REMOVED, Done, MaintenanceContext, MaintenancePass, Tell
from engrain.ports import ListQuery, Services

BATCH = 500
AT_ONCE = 100  # in one transaction, for which other writers wait

_log = logging.getLogger("engrain")


@dataclass(frozen=True, slots=True)
class ConsolidatedItem:
    """An item that goes, and why."""

    item: Item
    reason: str

    def __str__(self) -> str:
        text = " ".join(self.item.text.split())
        return f'{self.item.id}  "{text if len(text) <= 80 else text[:79] + "…"}": {self.reason}'


@dataclass(frozen=True, slots=True)
class ConsolidationResult:
    """What went, or with a dry run would go."""

    dry_run: bool
    items: tuple[ConsolidatedItem, ...]

    def __bool__(self) -> bool:
        return bool(self.items)

    def __str__(self) -> str:
        return "\n".join(map(str, self.items))


def consolidate(services: Services, scope: Scope, *, dry_run: bool = True) -> ConsolidationResult:
    """Facts and relations of low importance that are rarely used and older than a week go; the numbers are settings.

    Never one that is pinned, that another item cites, or that holds a slot: a slot is looked up by its name, which
    counts as no use. The log that a fact was taken from stays as it is; only telling it anew brings the fact back.
    """
    now = services.clock()
    care = MaintenanceContext(services, scope, now, leapt=clock_jumped(seen(services, now, scope), now))
    going = _fading(care)
    if not dry_run:
        gone = _let_go(care, [one.item.id for one in going], lambda _: None)
        _purge(services)
        going = [one for one in going if one.item.id in gone]
    return ConsolidationResult(dry_run, tuple(going))


def planned(care: MaintenanceContext) -> MaintenancePass:
    going = _fading(care)
    each = tuple(MaintenanceAction("remove", one.item.id, one.reason, one.item.text) for one in going)

    def act(tell: Tell) -> Done:
        gone = _let_go(care, [one.id for one in each], tell)
        return Done(tuple(one for one in each if one.id in gone))

    return MaintenancePass("consolidated", each, REMOVED, "item", "of little importance and rarely used", act)


def _fading(care: MaintenanceContext) -> list[ConsolidatedItem]:
    if not care.policies.consolidate_below or care.held or care.leapt:
        return []
    rare = [item for page in _pages(care) for item in page if _may_go(item, care)]
    going = _uncited(care, [item.id for item in rare])
    return [ConsolidatedItem(item, _reason(item, care)) for item in rare if item.id in going]


def _let_go(care: MaintenanceContext, ids: Sequence[str], tell: Tell) -> set[str]:
    """Which of them went."""
    if not ids:
        return set()
    # Looked at once more, since somebody may have used, pinned or cited one since: then what it rests on stays as well.
    # So does one that somebody changes or cites after this number, while it is looked at.
    newest = care.services.items.newest(care.scope)
    rare = [item.id for item in _still(care, ids) if _may_go(item, care)]
    uncited = _uncited(care, rare)
    going = [id for id in rare if id in uncited]
    gone: set[str] = set()
    for start in range(0, len(going), AT_ONCE):
        page = going[start : start + AT_ONCE]
        steps = tuple(Forget(id, keep_source=True, unchanged_since=newest) for id in page)
        done = care.services.items.apply(Plan(care.scope, steps))
        # One that is missing went with another, or by somebody else's hand.
        for id, one in zip(page, done.outcomes, strict=True):
            gone |= {id, *one.others} if one.status == "forgotten" else set()
        tell(len(page))
    return gone.intersection(going)


def _still(care: MaintenanceContext, ids: Sequence[str]) -> Iterator[Item]:
    for start in range(0, len(ids), BATCH):
        yield from care.services.items.get_many(care.scope, ids[start : start + BATCH])


def _may_go(item: Item, care: MaintenanceContext) -> bool:
    rules = care.policies
    rare = item.access_count < rules.consolidate_used and _left(item, care) < rules.consolidate_below
    return rare and item.open and not item.pinned and item.slot is None


def _uncited(care: MaintenanceContext, ids: Sequence[str]) -> set[str]:
    """Those that nothing cites but others of them that go, so that a second run finds nothing more."""
    citing = _citing(care, ids)
    going: set[str] = set()
    while more := {id for id in ids if id not in going and citing.get(id, set()) <= going}:
        going |= more
    return going


def _citing(care: MaintenanceContext, ids: Sequence[str]) -> dict[str, set[str]]:
    """What cites each of these, or a version that it corrected: that would go along, with all that rests on it."""
    found: dict[str, set[str]] = {}
    newest = {old.id: id for id in ids for old in care.services.items.corrected(care.scope, id)} | {
        id: id for id in ids
    }
    versions = list(newest)
    for start in range(0, len(versions), BATCH):
        for link in care.services.items.lineage(care.scope, versions[start : start + BATCH]):
            cited = newest.get(link.cite.item)  # None of what one of these cites
            if cited is not None and newest.get(link.item) != cited:
                found.setdefault(cited, set()).add(link.item)
    return found


def _pages(care: MaintenanceContext) -> Iterator[list[Item]]:
    policies = care.policies
    conditions: dict[str, object] = {
        "kind": {"in": ["fact", "relation"]}, "pinned": False, "slot": None,
        "recorded_at": {"<=": care.now - timedelta(days=policies.consolidate_days)},
    }  # fmt: skip
    if not policies.half_life_days:
        conditions["importance"] = {"<": policies.consolidate_below}
    after = None
    while page := care.services.items.page(ListQuery(care.scope, parse_filter(conditions), limit=BATCH, after=after)):
        yield page
        after = page[-1].id


def _left(item: Item, care: MaintenanceContext) -> float:
    return remaining_importance(item, care.now, care.policies.half_life_days)


def _reason(item: Item, care: MaintenanceContext) -> str:
    used = f"used {item.access_count} time{'s' * (item.access_count != 1)}"
    now = f" ({_left(item, care):.2f} left)" if care.policies.half_life_days else ""
    return f"importance {item.importance:g}{now}, {used}, {(care.now - item.recorded_at).days} days old"


def _purge(services: Services) -> None:
    try:
        services.items.purge()
    except StoreError as exc:
        # What was asked for is done: the bytes are tried again by themselves.
        _log.warning("the bytes of what was consolidated away are still to be removed: %s", exc)
