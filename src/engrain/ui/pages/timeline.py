"""The timeline: every item, newest first, with filters and the memory as it was at an earlier time."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from starlette.responses import JSONResponse, Response

from engrain import Item, Memory
from engrain.core.model.items import KINDS
from engrain.ui.page_request import Visit
from engrain.ui.rendering import to_local
from engrain.ui.text import find_words

PAGE_SIZE = 60
SCAN_SIZE = 500  # items read at once while a text is searched
MAX_SCANNED = 6_000  # in one answer; the next one continues
MAX_COUNTED = 50_000  # items that the overview reads
MAX_BARS = 140
MAX_NAMES = 300
_SECONDS, _HOURS = (1, 5, 15, 60, 300, 900), (3_600, 10_800, 21_600)
_STEPS = (*_SECONDS, *_HOURS, 86_400, 172_800, 604_800, 1_209_600, 2_592_000, 7_862_400, 31_536_000)


@dataclass(frozen=True)
class ItemPage:
    """Some items, and the id after which the next page begins; None at the end."""

    items: list[Item]
    after: str | None = None
    scanned_to: datetime | None = None  # the search of a text stopped here, and continues


@dataclass(frozen=True)
class Filters:
    """The filters of the form, as the address has them."""

    text: str
    kinds: tuple[str, ...]
    source: str
    session: str
    pinned: bool
    history: bool
    as_of: datetime | None

    @property
    def active(self) -> bool:
        return bool(self.text or self.kinds or self.source or self.session or self.pinned or self.as_of)

    @property
    def where(self) -> dict[str, Any] | None:
        made: dict[str, Any] = {}
        if self.kinds:
            made["kind"] = {"in": list(self.kinds)}
        made |= {name: value for name in ("source", "session") if (value := getattr(self, name))}
        return {**made, "pinned": True} if self.pinned else made or None

    def to_query(self) -> dict[str, Any]:
        return {
            "text": self.text, "kind": list(self.kinds), "source": self.source, "session": self.session,
            "pinned": "1" if self.pinned else "", "history": "1" if self.history else "",
            "as_of": self.as_of.isoformat(timespec="seconds") if self.as_of else "",
        }  # fmt: skip


def show_timeline(visit: Visit) -> Response:
    filters, memory = read_filters(visit), visit.memory
    newest = next(iter(memory.list(limit=1)), None)
    page = read_items(memory, filters, visit.query("after") or None)
    status = visit.store.status(visit.scope)
    return visit.page(
        "timeline.html", filters=filters, kinds=KINDS, status=status, newest=newest.id if newest else "", found=False,
        **_rows(visit, page),
    )  # fmt: skip


def show_items(visit: Visit) -> Response:
    """The next rows, or the first ones after a filter changed; the address follows the filters."""
    filters, after = read_filters(visit), visit.query("after") or None
    page = read_items(visit.memory, filters, after)
    answer = visit.fragment("_items.html", filters=filters, **_rows(visit, page))
    if after is None:
        answer.headers["hx-replace-url"] = visit.link("timeline", **filters.to_query())
    return answer


def show_new(visit: Visit) -> Response:
    """A button as soon as an agent has written something since the page was made."""
    newest = next(iter(visit.memory.list(limit=1)), None)
    seen = visit.query("newest")
    return visit.fragment("_new.html", newest=seen, found=newest is not None and newest.id > seen)


def send_overview(visit: Visit) -> Response:
    return JSONResponse(_load_overview(visit))


def read_filters(visit: Visit) -> Filters:
    return Filters(
        text=visit.query("text"),
        kinds=tuple(kind for kind in visit.query_list("kind") if kind in KINDS),
        source=visit.query("source"),
        session=visit.query("session"),
        pinned=bool(visit.query("pinned")),
        history=bool(visit.query("history")),
        as_of=visit.time("as_of"),
    )


def read_items(memory: Memory, filters: Filters, after: str | None) -> ItemPage:
    """Read one page. A text is compared here in any case: the filter of the store knows only exact ones."""
    wanted, found, scanned = filters.text.lower(), list[Item](), 0
    size = SCAN_SIZE if wanted else PAGE_SIZE
    while True:
        read = memory.list(filters.where, as_of=filters.as_of, history=filters.history, limit=size, after=after)
        found += [item for item in read if not wanted or wanted in item.text.lower()]
        scanned += len(read)
        if len(found) >= PAGE_SIZE and (len(read) == size or len(found) > PAGE_SIZE):
            return ItemPage(found[:PAGE_SIZE], found[PAGE_SIZE - 1].id)
        if len(read) < size:
            return ItemPage(found)
        after = read[-1].id
        if scanned >= MAX_SCANNED:
            return ItemPage(found, after, read[-1].recorded_at)


def _rows(visit: Visit, page: ItemPage) -> dict[str, Any]:
    previous = visit.query("day")
    rows = list(group_days(page.items, previous))
    last = next((day for day, _ in reversed(rows) if day), previous)
    found = {"rows": rows, "page": page, "day_before": previous, "last_day": last, "find_words": find_words}
    return {**found, "first": not visit.query("after")}


def group_days(items: Iterable[Item], previous: str = "") -> Iterator[tuple[str, Item]]:
    """Each item, with the day in front of the first item of that day."""
    for item in items:
        day = f"{to_local(item.recorded_at):%A, %-d %B %Y}"
        yield ("" if day == previous else day), item
        previous = day


def _load_overview(visit: Visit) -> dict[str, Any]:
    """Counts for the chart and the filters, kept until the store changes."""
    memory = visit.memory
    change = memory.semantic.change_number()
    known: tuple[int, dict[str, Any]] | None = visit.ui.cache.get(f"overview {visit.scope.id}")
    if known is None or known[0] != change:
        known = (change, _build_overview(memory))
        visit.ui.cache[f"overview {visit.scope.id}"] = known
    return {**known[1], "now": datetime.now(UTC).timestamp()}


def _build_overview(memory: Memory) -> dict[str, Any]:
    kinds: Counter[str] = Counter()
    sources: Counter[str] = Counter()
    sessions: Counter[str] = Counter()
    times: list[float] = []
    for item in _iterate(memory, MAX_COUNTED):
        if item.open:
            kinds[item.kind] += 1
        sources.update(source.name for source in item.sources if source.name)
        sessions.update([item.session] if item.session else [])
        if item.retracted_at is None:  # a corrected text was valid at no time
            times.append(item.valid_from.timestamp())
    return {
        "kinds": kinds,
        "sources": [name for name, _ in sources.most_common(MAX_NAMES)],
        "sessions": [name for name, _ in sessions.most_common(MAX_NAMES)],
        **_count_bars(times),
    }


def _iterate(memory: Memory, most: int) -> Iterator[Item]:
    """Items with their old versions: the slider must reach the times of these."""
    after = None
    for _ in range(0, most, 1_000):
        page = memory.list(history=True, limit=1_000, after=after)
        yield from page
        if len(page) < 1_000:
            return
        after = page[-1].id


def _count_bars(times: list[float]) -> dict[str, Any]:
    """Count the items by time, in bars of a width that people know: a minute, an hour, a day, a week."""
    if not times:
        return {"step": 0, "bars": [], "counts": []}
    last, first = max(*times, datetime.now(UTC).timestamp()), min(times)
    step = next((step for step in _STEPS if (last - first) / step <= MAX_BARS), _STEPS[-1])
    counts = Counter(int(time // step) for time in times)
    bars = range(int(first // step), int(last // step) + 1)
    return {"step": step, "bars": [bar * step for bar in bars], "counts": [counts.get(bar, 0) for bar in bars]}
