"""Let go of knowledge that matters little and that nobody uses, by rules alone."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from engrain.core.errors import StoreError
from engrain.core.filters import parse_filter
from engrain.core.items import Item
from engrain.core.plans import Forget, Plan
from engrain.core.scope import Scope
from engrain.ports import Kit, ListQuery

LOW = 0.3  # importance below which an item may go
RARELY = 2  # uses below which it may
MIN_AGE = timedelta(days=7)
BATCH = 500

_log = logging.getLogger("engrain")


@dataclass(frozen=True, slots=True)
class Fading:
    """An item that goes, and why."""

    item: Item
    reason: str

    def __str__(self) -> str:
        text = " ".join(self.item.text.split())
        return f'{self.item.id}  "{text if len(text) <= 80 else text[:79] + "…"}": {self.reason}'


@dataclass(frozen=True, slots=True)
class Consolidated:
    """What went, or with a dry run would go."""

    dry_run: bool
    items: tuple[Fading, ...]

    def __bool__(self) -> bool:
        return bool(self.items)

    def __str__(self) -> str:
        return "\n".join(map(str, self.items))


def consolidate(kit: Kit, scope: Scope, *, dry_run: bool = True) -> Consolidated:
    """Facts and relations of low importance that are rarely used and older than a week go.

    Never one that is pinned, that another item cites, or that holds a slot: a slot is looked up by its name, which
    counts as no use. The log that a fact was taken from stays as it is; only telling it anew brings the fact back.
    """
    now = kit.clock()
    gone: list[Fading] = []
    for page in _pages(kit, scope, now):
        going = _fading(page, kit, scope, now)
        if going and not dry_run:
            # Looked at and removed page by page, so that little can change in between.
            kit.items.apply(Plan(scope, tuple(Forget(one.item.id, keep_source=True) for one in going)))
        gone += going
    if gone and not dry_run:
        _purge(kit)
    return Consolidated(dry_run, tuple(gone))


def _pages(kit: Kit, scope: Scope, now: datetime) -> Iterator[list[Item]]:
    where = parse_filter(
        {"kind": {"in": ["fact", "relation"]}, "importance": {"<": LOW}, "pinned": False, "slot": None,
         "recorded_at": {"<=": now - MIN_AGE}}
    )  # fmt: skip
    after = None
    while page := kit.items.page(ListQuery(scope, where, limit=BATCH, after=after)):
        yield page
        after = page[-1].id


def _fading(page: Sequence[Item], kit: Kit, scope: Scope, now: datetime) -> list[Fading]:
    rare = [item for item in page if item.access_count < RARELY]
    cited = {link.cite.item for link in kit.items.lineage(scope, [item.id for item in rare])} if rare else set()
    return [Fading(item, _reason(item, now)) for item in rare if item.id not in cited]


def _reason(item: Item, now: datetime) -> str:
    used = f"used {item.access_count} time{'s' * (item.access_count != 1)}"
    return f"importance {item.importance:g}, {used}, {(now - item.recorded_at).days} days old"


def _purge(kit: Kit) -> None:
    try:
        kit.items.purge()
    except StoreError as exc:
        # What was asked for is done: the bytes are tried again by themselves.
        _log.warning("the bytes of what was consolidated away are still to be removed: %s", exc)
