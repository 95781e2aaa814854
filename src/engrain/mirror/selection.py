"""Select the items that the files show, and choose each item's file, heading and words."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from engrain.core.identity import Scope
from engrain.core.markdown.layout import FACTS, KNOWLEDGE, PREFERENCES, UNTRUSTED
from engrain.core.markdown.page import Entry
from engrain.core.markdown.sync_state import SOUL_SLOT
from engrain.core.model.filters import parse_filter
from engrain.core.model.items import SESSION_SLOT_PREFIX, Item
from engrain.core.rules.traits import INSTRUCTION_OR_PREFERENCE, detect_traits
from engrain.ports import ListQuery, Services

MAX_FACTS_PER_QUERY = 5_000  # each for pinned, important and newest ones
MAX_LOGGED_ITEMS = 2_000  # the newest events
MIN_IMPORTANCE = 0.6
# A text below this trust, such as a tool's or a web page's, has a heading of its own and never becomes the soul.
MIN_TRUST = 0.6
MAX_REPLACEMENTS = 100

_FACTS = {"kind": {"in": ["fact", "relation"]}}
_EVENTS = {"kind": {"in": ["episode", "summary"]}}


@dataclass(frozen=True, slots=True)
class Selection:
    facts: Mapping[str, Item] = field(default_factory=dict)  # and relations, best first
    days: Mapping[str, Mapping[str, Item]] = field(default_factory=dict)  # file name of a day's log -> its events
    soul: Item | None = None  # the agent's identity

    def day(self, name: str) -> Mapping[str, Item]:
        return self.days.get(name, {})


def select_items(services: Services, scope: Scope) -> Selection:
    wheres = ({**_FACTS, "pinned": True}, {**_FACTS, "importance": {">=": MIN_IMPORTANCE}}, _FACTS)
    found = {item.id: item for where in wheres for item in _list_newest(services, scope, where, MAX_FACTS_PER_QUERY)}
    facts = sorted((one for one in found.values() if one.slot != SOUL_SLOT), key=_sort_key)
    days: dict[str, dict[str, Item]] = {}
    for one in _list_newest(services, scope, _EVENTS, MAX_LOGGED_ITEMS):
        days.setdefault(log_file_name(one), {})[one.id] = one
    return Selection({one.id: one for one in facts}, days, services.items.slot(scope, SOUL_SLOT, None))


def find_current(
    services: Services, scope: Scope, ids: Iterable[str]
) -> tuple[dict[str, Item], dict[str, Item | None]]:
    """Return the items with these ids that still exist, and for each id the visible item that replaces it now."""
    asked = list(dict.fromkeys(ids))
    known = {item.id: item for item in services.items.get_many(scope, asked)} if asked else {}
    now, waiting = services.clock(), {id: id for id in asked if id in known}
    found: dict[str, Item | None] = dict.fromkeys(asked)
    for _ in range(MAX_REPLACEMENTS):
        missing = [at for at in waiting.values() if at not in known]
        if missing:
            known |= {item.id: item for item in services.items.get_many(scope, missing)}
        found |= {id: known[at] for id, at in waiting.items() if at in known and known[at].visible(now)}
        waiting = {
            id: known[at].replaced_by or ""
            for id, at in waiting.items()
            if found[id] is None and at in known and known[at].replaced_by
        }
        if not waiting:
            break
    for id, item in ((id, known.get(id)) for id in asked if found[id] is None):
        if item is not None and item.slot is not None:
            # The slot's next version was forgotten: a later one may be visible.
            found[id] = services.items.slot(scope, item.slot, None)
    return {id: known[id] for id in asked if id in known}, found


def build_entry(item: Item) -> Entry:
    """Build an item's line in MEMORY.md."""
    return Entry(item.text, item.slot if item.kind == "fact" else None)


def build_soul_entry(item: Item) -> Entry:
    """Build the content of SOUL.md, normalized like a file that is read."""
    return Entry(normalize_soul(item.text), SOUL_SLOT)


def normalize_soul(text: str) -> str:
    """Ignore a byte order mark, the kind of line ends, and empty lines at the edges."""
    return text.removeprefix("\ufeff").replace("\r\n", "\n").strip("\n")


def build_log_entry(item: Item) -> Entry:
    """Build an item's line in the log of its day."""
    happened = event_time(item)
    at = f"{happened:%H:%M}" if happened.hour or happened.minute else None
    if item.kind == "summary" and item.slot:
        return Entry(f"Summary of session {item.slot.removeprefix(SESSION_SLOT_PREFIX)}: {item.text}", at=at)
    return Entry(item.text, at=at)


def event_time(item: Item) -> datetime:
    return (item.occurred_at or item.recorded_at).astimezone(UTC)


def log_file_name(item: Item) -> str:
    happened = event_time(item)
    return f"memory/{happened.year:04d}-{happened.month:02d}-{happened.day:02d}.md"


def choose_heading(item: Item) -> str:
    if item.trust < MIN_TRUST:
        return UNTRUSTED
    if item.slot is not None and item.kind == "fact":
        return FACTS
    return PREFERENCES if detect_traits(item.text) & INSTRUCTION_OR_PREFERENCE else KNOWLEDGE


def _list_newest(services: Services, scope: Scope, where: Mapping[str, Any], limit: int) -> list[Item]:
    return services.items.page(ListQuery(scope, parse_filter(where), limit=limit))


def _sort_key(item: Item) -> tuple[bool, float, bool, float]:
    """Sort pinned items first, then by importance, then named values, then the newest."""
    return (not item.pinned, -item.importance, item.slot is None, -item.recorded_at.timestamp())
