"""Remove knowledge of little importance that nobody uses, by rules alone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import timedelta

from engrain.core.clock import clock_jumped
from engrain.core.identity import Scope
from engrain.core.model.filters import parse_filter
from engrain.core.model.items import Item
from engrain.core.model.plans import Forget, Plan
from engrain.core.model.queries import ListQuery
from engrain.core.model.results import MaintenanceAction
from engrain.core.model.retention import remaining_importance
from engrain.core.tokens import shorten_line
from engrain.core.validation import count_noun
from engrain.ingest import write
from engrain.maintenance.passes import (
    REMOVED,
    MaintenanceContext,
    MaintenancePass,
    PassResult,
    ReportProgress,
    load_clock_state,
)
from engrain.ports import Services
from engrain.ports.items import iterate_items

PAGE_SIZE = 500
FORGET_BATCH = 100  # items of one transaction, for which other writers wait


@dataclass(frozen=True, slots=True)
class ConsolidatedItem:
    """An item to remove, and the reason."""

    item: Item
    reason: str

    def __str__(self) -> str:
        return f'{self.item.id}  "{shorten_line(self.item.text, 80)}": {self.reason}'


@dataclass(frozen=True, slots=True)
class ConsolidationResult:
    """The removed items; after a dry run those that would be removed."""

    dry_run: bool
    items: tuple[ConsolidatedItem, ...]

    def __bool__(self) -> bool:
        return bool(self.items)

    def __str__(self) -> str:
        return "\n".join(map(str, self.items))


def consolidate(services: Services, scope: Scope, *, dry_run: bool = False) -> ConsolidationResult:
    """Remove facts and relations of low importance that are rarely used and older than a week, as the settings say.

    Pinned items, cited items and slots stay: a slot is read by its name, which is not counted as a use. The log that a
    fact came from stays as it is. Only a new statement brings the fact back.
    """
    now = services.clock()
    jumped = clock_jumped(load_clock_state(services, now, scope), now)
    context = MaintenanceContext(services, scope, now, clock_jumped=jumped)
    found = _find_removable(context)
    if not dry_run:
        removed = _remove_items(context, [removal.item.id for removal in found], lambda _: None)
        write.purge_or_log(services)
        found = [removal for removal in found if removal.item.id in removed]
    return ConsolidationResult(dry_run, tuple(found))


def plan_consolidation(context: MaintenanceContext) -> MaintenancePass:
    found = _find_removable(context)
    actions = tuple(
        MaintenanceAction("remove", removal.item.id, removal.reason, removal.item.text) for removal in found
    )

    def act(report: ReportProgress) -> PassResult:
        removed = _remove_items(context, [action.id for action in actions], report)
        return PassResult(tuple(action for action in actions if action.id in removed))

    return MaintenancePass("consolidated", actions, REMOVED, "item", "of little importance and rarely used", act)


def _find_removable(context: MaintenanceContext) -> list[ConsolidatedItem]:
    if not context.policies.consolidate_below or context.is_on_hold or context.clock_jumped:
        return []
    rare = [item for item in _iterate_old_facts(context) if _is_removable(item, context)]
    uncited = _find_uncited(context, [item.id for item in rare])
    return [ConsolidatedItem(item, _explain_removal(item, context)) for item in rare if item.id in uncited]


def _explain_removal(item: Item, context: MaintenanceContext) -> str:
    half_life = context.policies.half_life_days
    left = f" ({remaining_importance(item, context.now, half_life):.2f} left)" if half_life else ""
    used, days = count_noun(item.access_count, "time"), (context.now - item.recorded_at).days
    return f"importance {item.importance:g}{left}, used {used}, {days} days old"


def _remove_items(context: MaintenanceContext, ids: Sequence[str], report: ReportProgress) -> set[str]:
    """Remove those that may still be removed, and return their ids."""
    if not ids:
        return set()
    # Check again: somebody may have used, pinned or cited one since, and then the items that it cites stay as well.
    # The store itself refuses those that somebody changes or cites after this number.
    items = context.services.items
    newest = items.newest(context.scope)
    rare = [item.id for item in _reload_items(context, ids) if _is_removable(item, context)]
    uncited = _find_uncited(context, rare)
    removable = [id for id in rare if id in uncited]
    removed: set[str] = set()
    for start in range(0, len(removable), FORGET_BATCH):
        page = removable[start : start + FORGET_BATCH]
        steps = tuple(Forget(id, keep_source=True, unchanged_since=newest) for id in page)
        done = items.apply(Plan(context.scope, steps))
        # A missing item went with another one, or somebody else removed it.
        for id, outcome in zip(page, done.outcomes, strict=True):
            removed |= {id, *outcome.others} if outcome.status == "forgotten" else set()
        report(len(page))
    return removed.intersection(removable)


def _reload_items(context: MaintenanceContext, ids: Sequence[str]) -> Iterator[Item]:
    for start in range(0, len(ids), PAGE_SIZE):
        yield from context.services.items.get_many(context.scope, ids[start : start + PAGE_SIZE])


def _is_removable(item: Item, context: MaintenanceContext) -> bool:
    rules = context.policies
    left = remaining_importance(item, context.now, rules.half_life_days)
    rare = item.access_count < rules.consolidate_used and left < rules.consolidate_below
    return rare and item.open and not item.pinned and item.slot is None


def _find_uncited(context: MaintenanceContext, ids: Sequence[str]) -> set[str]:
    """Find items that only other removable items cite, so that a second run finds nothing more."""
    citing = _find_citing(context, ids)
    found: set[str] = set()
    while more := {id for id in ids if id not in found and citing.get(id, set()) <= found}:
        found |= more
    return found


def _find_citing(context: MaintenanceContext, ids: Sequence[str]) -> dict[str, set[str]]:
    """Map each item to those that cite it or a version that it corrected. Removal would remove them, too."""
    found: dict[str, set[str]] = {}
    newest = {old.id: id for id in ids for old in context.services.items.corrected(context.scope, id)}
    newest |= {id: id for id in ids}
    versions = list(newest)
    for start in range(0, len(versions), PAGE_SIZE):
        for link in context.services.items.lineage(context.scope, versions[start : start + PAGE_SIZE]):
            cited = newest.get(link.cite.item)  # None if one of these items cites another item
            if cited is not None and newest.get(link.item) != cited:
                found.setdefault(cited, set()).add(link.item)
    return found


def _iterate_old_facts(context: MaintenanceContext) -> Iterator[Item]:
    policies = context.policies
    conditions: dict[str, object] = {
        "kind": {"in": ["fact", "relation"]}, "pinned": False, "slot": None,
        "recorded_at": {"<=": context.now - timedelta(days=policies.consolidate_days)},
    }  # fmt: skip
    if not policies.half_life_days:
        conditions["importance"] = {"<": policies.consolidate_below}
    return iterate_items(context.services.items, ListQuery(context.scope, parse_filter(conditions), limit=PAGE_SIZE))
