"""Write a memory's items into the pages of its folder, each page as little changed as can be."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass, field

from engrain.core.errors import TooLarge
from engrain.core.markdown.layout import (
    FACTS,
    HEADER,
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
from engrain.core.markdown.sync_state import MEMORY, OVERFLOW, SyncedLine, parse_log_day
from engrain.mirror.selection import Selection, build_entry, build_log_entry, choose_heading, event_time

MAX_OVERFLOW_ITEMS = 2_000
OVERFLOW_HEADER = "# Memory, the rest\n\n<!-- What MEMORY.md has no room for; kept in step in the same way. -->\n"
MEMORY_ONLY_NOTE = "the memory alone: `engrain list` shows them."
MAX_PAGE_BYTES = 1_000_000  # bytes that we let a page of ours grow to

BlockPosition = tuple[str, int]


@dataclass(frozen=True, slots=True)
class Page:
    """A file as it was read."""

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
    """Where the items stand in the files: by block, the item that the block is about, or None if it is to go. In a log
    only the blocks in `fresh` are written anew. Items that are `away` are not shown."""

    ids: Mapping[BlockPosition, str | None]
    fresh: frozenset[BlockPosition] = frozenset()
    away: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class RenderedPages:
    """Pages as they are to be, by name, and the lines that stand in them."""

    texts: Mapping[str, str] = field(default_factory=dict)
    lines: tuple[SyncedLine, ...] = ()


def render_memory(pages: Mapping[str, Page], shelf: Selection, placed: LineMap, budget: PageBudget) -> RenderedPages:
    """MEMORY.md within its budget, and the rest of it in the other file."""
    entries = _list_entries(shelf, placed)
    memory, overflow = pages[MEMORY], pages[OVERFLOW]
    raws = _render_entries((memory, overflow), placed, entries)
    pieces = [RenderedEntry(id, raws[id], choose_heading(shelf.facts[id]), shelf.facts[id].pinned) for id in entries]
    if not memory.text.strip():
        memory = Page.of(MEMORY, HEADER)
    fitting = choose_entries(pieces, _strip_items(memory, placed), budget)
    rest = [one for one in pieces if one.id not in fitting]
    # Under headings in the other file too: what is unsure must be told from the rest wherever it is read.
    listed = _limit_pieces(rest, MAX_PAGE_BYTES)
    first = _render_page(memory, _sort_pieces([one for one in pieces if one.id in fitting], shelf), placed)
    first = add_overflow_note(first, len(listed), describe_overflow(budget), memory.end) if first.strip() else HEADER
    if rest and not fits_budget(first, budget):
        raise TooLarge(f"MEMORY.md cannot be kept to {budget.lines:,} lines and {budget.bytes:,} bytes. Shorten it.")
    if rest and not overflow.text.strip():
        overflow = Page.of(OVERFLOW, OVERFLOW_HEADER)
    second = add_overflow_note(
        _render_page(overflow, listed, placed), len(rest) - len(listed), MEMORY_ONLY_NOTE, overflow.end
    )
    texts = {MEMORY: first, OVERFLOW: "" if second.rstrip() == OVERFLOW_HEADER.rstrip() else second}
    keys = {hash_entry(entry): id for id, entry in entries.items()}
    return RenderedPages(texts, tuple(line for name, text in texts.items() for line in _list_lines(name, text, keys)))


def render_day(page: Page, shelf: Selection, placed: LineMap, known: Container[str]) -> RenderedPages:
    """The log of a day: what is not in it yet is added at its end, what is gone goes, all else stays as it is."""
    put: dict[int, str | None] = {}
    keys: dict[str, str] = {}
    for n, block in enumerate(page.blocks):
        if block.entry is None or (page.name, n) not in placed.ids:
            continue
        id, entry = placed.ids[page.name, n], block.entry
        if id is None:
            put[n] = None
            continue
        if (page.name, n) in placed.fresh:
            entry = build_log_entry(shelf.day(page.name)[id])
            put[n] = write_entry(entry, log=True, mark=block.mark, end=page.end)
        keys[hash_entry(entry)] = id
    new = _list_new_entries(page.name, shelf, known, keys)
    start = page if page.text.strip() or not new else Page.of(page.name, f"# {page.name[7:17]}\n\n")
    pieces = [RenderedEntry(id, write_entry(entry, log=True, end=page.end)) for id, entry in new.items()]
    pieces = _limit_pieces(pieces, MAX_PAGE_BYTES - len(page.text.encode()))
    text = compose_page(start.blocks, put, pieces, page.end)
    keys |= {hash_entry(new[one.id]): one.id for one in pieces}
    return RenderedPages({page.name: text}, tuple(_list_lines(page.name, text, keys)))


def _list_entries(shelf: Selection, placed: LineMap) -> dict[str, Entry]:
    """What is to be shown; of two items that say the same, as a relation and a fact may, the better one."""
    found: dict[Entry, str] = {}
    for id, item in shelf.facts.items():
        if id not in placed.away:
            found.setdefault(build_entry(item), id)
    return {id: entry for entry, id in found.items()}


def _list_new_entries(name: str, shelf: Selection, known: Container[str], keys: Container[str]) -> dict[str, Entry]:
    items = sorted(shelf.day(name).values(), key=lambda one: (event_time(one), one.id))
    new = {one.id: build_log_entry(one) for one in items if one.id not in known}
    return {id: entry for id, entry in new.items() if hash_entry(entry) not in keys}


def _render_page(page: Page, pieces: Sequence[RenderedEntry], placed: LineMap) -> str:
    """Each piece where its item stands already, or else added; what is unsure nowhere but under its heading."""
    raws = {one.id: one.raw for one in pieces}
    unsure = {one.id for one in pieces if one.heading == UNTRUSTED}
    below = find_untrusted_blocks(page.blocks) or frozenset()
    put: dict[int, str | None] = {}
    for n, block in enumerate(page.blocks):
        if block.entry is not None and (page.name, n) in placed.ids:
            id = placed.ids[page.name, n] or ""
            put[n] = None if id in unsure and n not in below else raws.pop(id, None)
    return compose_page(page.blocks, put, [one for one in pieces if one.id in raws], page.end)


def _strip_items(page: Page, placed: LineMap) -> str:
    """The page without any item's line and without the note of ours."""
    spots = [n for n, block in enumerate(page.blocks) if block.entry and (page.name, n) in placed.ids]
    return compose_page(page.blocks, dict.fromkeys(spots), [], page.end)


def _render_entries(pages: Sequence[Page], placed: LineMap, entries: Mapping[str, Entry]) -> dict[str, str]:
    """How each item is written: as it stands in a page, if it says the same there."""
    found: dict[str, str] = {}
    for page in pages:
        for n, block in enumerate(page.blocks):
            id = placed.ids.get((page.name, n))
            if id is None or id not in entries or id in found or block.entry is None:
                continue
            same = block.entry == entries[id]
            ended = block.raw if block.raw.endswith("\n") else block.raw + page.end
            found[id] = ended if same else write_entry(entries[id], mark=block.mark, end=page.end)
    end = pages[0].end
    return {id: found.get(id) or write_entry(entry, end=end) for id, entry in entries.items()}


def _sort_pieces(pieces: Sequence[RenderedEntry], shelf: Selection) -> list[RenderedEntry]:
    """Named values by name, the rest best first, as they come."""
    return sorted(pieces, key=lambda one: (shelf.facts[one.id].slot or "") if one.heading == FACTS else "")


def _limit_pieces(pieces: Sequence[RenderedEntry], room: int) -> list[RenderedEntry]:
    found = []
    for one in pieces[:MAX_OVERFLOW_ITEMS]:
        room -= len(one.raw.encode())
        if room < 0:
            break
        found.append(one)
    return found


def _list_lines(name: str, text: str, keys: Mapping[str, str]) -> list[SyncedLine]:
    entries = [block.entry for block in read_page(text, log=parse_log_day(name) is not None) if block.entry]
    found = [hash_entry(entry) for entry in entries]
    return [SyncedLine(keys[key], key, name) for key in dict.fromkeys(found) if key in keys]
