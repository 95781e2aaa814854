"""Select the items that the files show, and render them, changing each page as little as possible."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from engrain.core.errors import TooLarge
from engrain.core.identity import Scope
from engrain.core.markdown.layout import (
    FACTS,
    HEADER,
    KNOWLEDGE,
    PREFERENCES,
    UNTRUSTED,
    PageBudget,
    RenderedEntry,
    add_overflow_note,
    choose_entries,
    compose_page,
    describe_overflow,
    find_untrusted_blocks,
    fits_budget,
)
from engrain.core.markdown.page import Block, Entry, detect_line_end, hash_entry, read_page, write_entry
from engrain.core.markdown.three_way_merge import MEMORY, OVERFLOW, SOUL_SLOT, SyncedLine, parse_log_day
from engrain.core.model.filters import parse_filter
from engrain.core.model.items import SESSION_SLOT_PREFIX, TRUST, Item
from engrain.core.model.queries import ListQuery
from engrain.core.rules.statements import INSTRUCTION_OR_PREFERENCE, detect_traits
from engrain.ports import Services

MAX_FACTS_PER_QUERY = 5_000  # each for pinned, important and newest ones
MAX_LOGGED_ITEMS = 2_000  # the newest events
MIN_IMPORTANCE = 0.6
# A text below this trust, such as a tool's or a web page's, has a heading of its own.
MIN_TRUST = 0.6
MIN_SOUL_TRUST = TRUST["agent"]  # an imported file never becomes the agent's identity
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
    facts = sorted((item for item in found.values() if item.slot != SOUL_SLOT), key=_sort_key)
    days: dict[str, dict[str, Item]] = {}
    for item in _list_newest(services, scope, _EVENTS, MAX_LOGGED_ITEMS):
        days.setdefault(log_file_name(item), {})[item.id] = item
    return Selection({item.id: item for item in facts}, days, services.items.slot(scope, SOUL_SLOT, None))


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


MAX_OVERFLOW_ITEMS = 2_000
OVERFLOW_HEADER = "# Memory, the rest\n\n<!-- What MEMORY.md has no room for; kept in step in the same way. -->\n"
MEMORY_ONLY_NOTE = "the memory alone: `engrain list` shows them."
MAX_PAGE_BYTES = 1_000_000

BlockPosition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Page:
    """A file that was read."""

    name: str
    text: str = ""
    blocks: tuple[Block, ...] = ()

    @property
    def end(self) -> str:
        return detect_line_end(self.text)

    @classmethod
    def of(cls, name: str, text: str) -> Page:
        return cls(name, text, tuple(read_page(text, log=parse_log_day(name) is not None)))


@dataclass(frozen=True, slots=True)
class LineMap:
    """The positions of items in the files."""

    ids: Mapping[BlockPosition, str | None]  # None: the block is to be removed
    fresh: frozenset[BlockPosition] = frozenset()  # in a log, only these blocks are written again
    deleted: frozenset[str] = frozenset()  # ids of items whose line a person deleted


@dataclass(frozen=True, slots=True)
class RenderedPages:
    texts: Mapping[str, str] = field(default_factory=dict)  # by file name
    lines: tuple[SyncedLine, ...] = ()


def render_memory(
    pages: Mapping[str, Page], selection: Selection, line_map: LineMap, budget: PageBudget
) -> RenderedPages:
    """Render MEMORY.md within its budget, and what does not fit into the overflow file."""
    entries = _list_entries(selection, line_map)
    memory, overflow = pages[MEMORY], pages[OVERFLOW]
    raws = _render_entries((memory, overflow), line_map, entries)
    pieces = [
        RenderedEntry(id, raws[id], choose_heading(selection.facts[id]), selection.facts[id].pinned) for id in entries
    ]
    if not memory.text.strip():
        memory = Page.of(MEMORY, HEADER)
    fitting = choose_entries(pieces, _strip_items(memory, line_map), budget)
    rest = [piece for piece in pieces if piece.id not in fitting]
    # The overflow file has headings too: a reader must see everywhere what is unsure.
    listed = _limit_pieces(rest, MAX_PAGE_BYTES)
    first = _render_page(memory, _sort_by_slot([piece for piece in pieces if piece.id in fitting], selection), line_map)
    first = add_overflow_note(first, len(listed), describe_overflow(budget), memory.end) if first.strip() else HEADER
    if rest and not fits_budget(first, budget):
        raise TooLarge(f"MEMORY.md has more than {budget.lines:,} lines or {budget.bytes:,} bytes. Shorten it.")
    if rest and not overflow.text.strip():
        overflow = Page.of(OVERFLOW, OVERFLOW_HEADER)
    second = add_overflow_note(
        _render_page(overflow, listed, line_map), len(rest) - len(listed), MEMORY_ONLY_NOTE, overflow.end
    )
    texts = {MEMORY: first, OVERFLOW: "" if second.rstrip() == OVERFLOW_HEADER.rstrip() else second}
    keys = {hash_entry(entry): id for id, entry in entries.items()}
    return RenderedPages(texts, tuple(line for name, text in texts.items() for line in _list_lines(name, text, keys)))


def render_day(page: Page, selection: Selection, line_map: LineMap, known: Container[str]) -> RenderedPages:
    """Render the log of a day: append new items, remove dropped ones, leave everything else unchanged."""
    put: dict[int, str | None] = {}
    keys: dict[str, str] = {}
    for n, block in enumerate(page.blocks):
        if block.entry is None or (page.name, n) not in line_map.ids:
            continue
        id, entry = line_map.ids[page.name, n], block.entry
        if id is None:
            put[n] = None
            continue
        if (page.name, n) in line_map.fresh:
            entry = build_log_entry(selection.day(page.name)[id])
            put[n] = write_entry(entry, log=True, mark=block.mark, end=page.end)
        keys[hash_entry(entry)] = id
    new = _list_new_entries(page.name, selection, known, keys)
    start = page if page.text.strip() or not new else Page.of(page.name, f"# {page.name[7:17]}\n\n")
    pieces = [RenderedEntry(id, write_entry(entry, log=True, end=page.end)) for id, entry in new.items()]
    pieces = _limit_pieces(pieces, MAX_PAGE_BYTES - len(page.text.encode()))
    text = compose_page(start.blocks, put, pieces, page.end)
    keys |= {hash_entry(new[piece.id]): piece.id for piece in pieces}
    return RenderedPages({page.name: text}, tuple(_list_lines(page.name, text, keys)))


def _list_entries(selection: Selection, line_map: LineMap) -> dict[str, Entry]:
    """List the entries to show. Of two items with the same words, such as a relation and a fact, the better one."""
    found: dict[Entry, str] = {}
    for id, item in selection.facts.items():
        if id not in line_map.deleted:
            found.setdefault(build_entry(item), id)
    return {id: entry for entry, id in found.items()}


def _list_new_entries(name: str, selection: Selection, known: Container[str], keys: Container[str]) -> dict[str, Entry]:
    items = sorted(selection.day(name).values(), key=lambda item: (event_time(item), item.id))
    new = {item.id: build_log_entry(item) for item in items if item.id not in known}
    return {id: entry for id, entry in new.items() if hash_entry(entry) not in keys}


def _render_page(page: Page, pieces: Sequence[RenderedEntry], line_map: LineMap) -> str:
    """Put each piece where its item stands already, or add it. Unsure ones stand only under their heading."""
    raws = {piece.id: piece.raw for piece in pieces}
    unsure = {piece.id for piece in pieces if piece.heading == UNTRUSTED}
    below = find_untrusted_blocks(page.blocks) or frozenset()
    put: dict[int, str | None] = {}
    for n, block in enumerate(page.blocks):
        if block.entry is not None and (page.name, n) in line_map.ids:
            id = line_map.ids[page.name, n] or ""
            put[n] = None if id in unsure and n not in below else raws.pop(id, None)
    return compose_page(page.blocks, put, [piece for piece in pieces if piece.id in raws], page.end)


def _strip_items(page: Page, line_map: LineMap) -> str:
    """Return the page without any item's line and without our note."""
    positions = [n for n, block in enumerate(page.blocks) if block.entry and (page.name, n) in line_map.ids]
    return compose_page(page.blocks, dict.fromkeys(positions), [], page.end)


def _render_entries(pages: Sequence[Page], line_map: LineMap, entries: Mapping[str, Entry]) -> dict[str, str]:
    """Return each item's raw text: unchanged from a page that has the same entry, or newly written."""
    found: dict[str, str] = {}
    for page in pages:
        for n, block in enumerate(page.blocks):
            id = line_map.ids.get((page.name, n))
            if id is None or id not in entries or id in found or block.entry is None:
                continue
            same = block.entry == entries[id]
            ended = block.raw if block.raw.endswith("\n") else block.raw + page.end
            found[id] = ended if same else write_entry(entries[id], mark=block.mark, end=page.end)
    end = pages[0].end
    return {id: found.get(id) or write_entry(entry, end=end) for id, entry in entries.items()}


def _sort_by_slot(pieces: Sequence[RenderedEntry], selection: Selection) -> list[RenderedEntry]:
    """Sort named values by name. The rest keeps its order, best first."""
    return sorted(pieces, key=lambda piece: (selection.facts[piece.id].slot or "") if piece.heading == FACTS else "")


def _limit_pieces(pieces: Sequence[RenderedEntry], room: int) -> list[RenderedEntry]:
    found = []
    for piece in pieces[:MAX_OVERFLOW_ITEMS]:
        room -= len(piece.raw.encode())
        if room < 0:
            break
        found.append(piece)
    return found


def _list_lines(name: str, text: str, keys: Mapping[str, str]) -> list[SyncedLine]:
    entries = [block.entry for block in read_page(text, log=parse_log_day(name) is not None) if block.entry]
    found = [hash_entry(entry) for entry in entries]
    return [SyncedLine(keys[key], key, name) for key in dict.fromkeys(found) if key in keys]
