"""Compare the files of a folder with the memory, group by group: MEMORY.md and its rest, each day's log, SOUL.md."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from engrain.core.markdown.layout import find_untrusted_blocks
from engrain.core.markdown.merge import (
    DamageSigns,
    FileEntry,
    MemorySide,
    MergeDecision,
    hold_back_deletions,
    merge_lines,
)
from engrain.core.markdown.page import Entry, hash_entry
from engrain.core.markdown.sync_state import MEMORY, OVERFLOW, SOUL, SOUL_SLOT, SyncedLine, parse_log_day
from engrain.core.model.items import FORGOTTEN, Item
from engrain.core.rules.message_filters import find_unrecalled_spans
from engrain.mirror.render import LineMap, Page
from engrain.mirror.selection import (
    MIN_TRUST,
    Selection,
    build_entry,
    build_log_entry,
    build_soul_entry,
    normalize_soul,
)

MEMORY_FILES = (MEMORY, OVERFLOW)


@dataclass(frozen=True, slots=True)
class Comparison:
    """Both sides at one moment, and the base's lines by file. `before` are the items of these lines as they were,
    `stands` those that stand for them now."""

    pages: Mapping[str, Page]
    lines: Mapping[str, Sequence[SyncedLine]]
    shelf: Selection
    before: Mapping[str, Item]
    stands: Mapping[str, Item | None]

    @property
    def items(self) -> list[Item]:
        """Those that stand in a file, or in place of one that stood there."""
        logged = (item for day in self.shelf.days.values() for item in day.values())
        found = (*self.shelf.facts.values(), *logged, self.shelf.soul, *self.stands.values())
        return [item for item in found if item]

    @property
    def days(self) -> list[Page]:
        return [page for name, page in self.pages.items() if parse_log_day(name)]

    @property
    def soul(self) -> str | None:
        """What SOUL.md says; None if it is not there or empty."""
        text = normalize_soul(self.pages[SOUL].text)
        return text if text.strip() else None


def compare_files(desk: Comparison) -> list[MergeDecision]:
    return [
        *_compare_memory(desk),
        *(one for page in desk.days for one in _compare_day(desk, page)),
        *_compare_soul(desk),
    ]


def settle_deletions(found: Sequence[MergeDecision], *, accept: bool, restore: bool) -> list[MergeDecision]:
    """The same with what was held back let through or taken back; never in a log, where a line may just be left out."""
    if not (accept or restore):
        return list(found)
    waiting = [one for one in found if one.do == "hold" and one.line and not parse_log_day(one.line.file)]
    others = [one for one in found if one not in waiting]
    return [*others, *(replace(one, do="forget") for one in waiting)] if accept else others


def confirm_moved(found: Sequence[MergeDecision], desk: Comparison) -> list[MergeDecision]:
    """The same, where a line that a person moved out of what is unsure is an edit: it has the person's trust. If the
    heading itself is gone, nobody has moved anything."""
    below = find_untrusted_blocks(desk.pages[MEMORY].blocks)
    return [replace(one, do="edit") if below is not None and _was_moved(one, desk) else one for one in found]


def _was_moved(one: MergeDecision, desk: Comparison) -> bool:
    if one.do != "keep" or one.line is None or one.seen is None or one.seen.unsure or one.seen.file != MEMORY:
        return False
    item = desk.shelf.facts.get(one.line.id)
    return item is not None and item.trust < MIN_TRUST and one.id == item.id


def map_lines(found: Sequence[MergeDecision], ids: Mapping[FileEntry, str | None]) -> LineMap:
    """Where everything stands after `ids` were taken in."""
    spots: dict[tuple[str, int], str | None] = {}
    fresh = set()
    for one in found:
        if one.seen is None or (one.do in ("add", "edit") and one.seen not in ids):
            continue
        spot = (one.seen.file, one.seen.block)
        spots[spot] = ids[one.seen] if one.do in ("add", "edit") else None if one.do == "drop" else one.id
        if one.do == "renew":
            fresh.add(spot)
    away = {one.id for one in found if one.do == "hold" and one.id}
    return LineMap(spots, frozenset(fresh), frozenset(away))


def list_hidden_lines(found: Sequence[MergeDecision]) -> list[SyncedLine]:
    return [replace(one.line, state="away") for one in found if one.do == "hold" and one.line]


def _compare_memory(desk: Comparison) -> list[MergeDecision]:
    pages = [desk.pages[name] for name in MEMORY_FILES]
    seen = [one for page in pages for one in _list_entries(page)]
    base = [line for name in MEMORY_FILES for line in desk.lines.get(name, ())]
    side = _build_side(desk, base, desk.shelf.facts, build_entry)
    found = [one for one in merge_lines(base, seen, side) if not (one.do == "add" and _came_from_recall(desk, one))]
    files = {line.file for line in base}
    gone = {page.name for page in pages if page.name in files and not page.text.strip()}
    unended = {
        page.name: _list_entries(page)[-1] for page in pages if page.text[-1:] not in ("", "\n") and _list_entries(page)
    }
    return hold_back_deletions(found, base, side, DamageSigns(frozenset(gone), unended))


def _compare_day(desk: Comparison, page: Page) -> list[MergeDecision]:
    """A log is added to, and edits by hand are kept: a line that is missing was left out, and nothing is forgotten."""
    base = desk.lines.get(page.name, ())
    side = _build_side(desk, base, desk.shelf.day(page.name), build_log_entry)
    found: list[MergeDecision] = []
    added: set[str] = set()
    for one in merge_lines(base, _list_entries(page), side):
        if one.seen is None:
            found.append(MergeDecision("hold", one.line, id=one.line.id if one.line else None))
        elif one.do == "add" and (_came_from_recall(desk, one) or one.seen.key in added):
            continue
        elif one.do == "drop" and one.id is not None:
            continue  # the same words twice, which a log may have
        else:
            found.append(_judge_log_line(one, desk))
            added.add(one.seen.key)
    return found


def _judge_log_line(one: MergeDecision, desk: Comparison) -> MergeDecision:
    line, seen = one.line, one.seen
    if line is None or seen is None or one.do == "drop":
        return one
    was, now = desk.before.get(line.id), desk.stands.get(line.id)
    if one.do == "edit" and was is not None and was.kind != "summary":
        return one
    if now is None or now.id not in desk.shelf.day(seen.file):
        return MergeDecision("keep", line, seen, line.id)
    # A summary that was made anew on the same day; and words that were cut out of an item go from its line as well.
    ours = was is not None and seen.key == line.key == hash_entry(build_log_entry(was))
    cut = FORGOTTEN in now.text and hash_entry(build_log_entry(now)) != seen.key
    if cut or (ours and now.id != line.id):
        return MergeDecision("renew", line, seen, now.id)
    return MergeDecision("keep", line, seen, line.id)


def _compare_soul(desk: Comparison) -> list[MergeDecision]:
    """One text in one slot: the whole of the file is its only line."""
    base, item = desk.lines.get(SOUL, ()), desk.shelf.soul
    if item is not None and item.trust < MIN_TRUST:
        return []
    text = desk.soul
    entry = Entry(text, SOUL_SLOT) if text is not None else None
    seen = [FileEntry(SOUL, 0, entry, hash_entry(entry), 1)] if entry else []
    side = _build_side(desk, base, {item.id: item} if item else {}, build_soul_entry)
    return hold_back_deletions(
        merge_lines(base, seen, side), base, side, DamageSigns(frozenset() if seen else frozenset((SOUL,)))
    )


def _build_side(
    desk: Comparison, base: Sequence[SyncedLine], items: Mapping[str, Item], entry: Callable[[Item], Entry]
) -> MemorySide:
    ids = [line.id for line in base]
    stands = {id: desk.stands.get(id) for id in ids}
    shown = {**items, **{item.id: item for item in stands.values() if item}}
    return MemorySide(
        {id: entry(desk.before[id]) for id in ids if id in desk.before},
        {id: item.id if item else None for id, item in stands.items()},
        {id: entry(item) for id, item in shown.items()},
    )


def _list_entries(page: Page) -> list[FileEntry]:
    unsure = find_untrusted_blocks(page.blocks) or frozenset()
    return [
        FileEntry(page.name, n, block.entry, hash_entry(block.entry), block.line, n in unsure)
        for n, block in enumerate(page.blocks)
        if block.entry is not None
    ]


def _came_from_recall(desk: Comparison, one: MergeDecision) -> bool:
    """A line that recall made is in the memory already: it is left where it stands."""
    return one.seen is not None and not find_unrecalled_spans(desk.pages[one.seen.file].blocks[one.seen.block].raw)
