"""Compare the files with the memory: MEMORY.md and its overflow, each day's log, SOUL.md."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from engrain.core.markdown.layout import unsure_blocks
from engrain.core.markdown.merge import Seen, Side, Torn, Verdict, held, merged
from engrain.core.markdown.page import Entry, key_of
from engrain.core.markdown.sync_state import MEMORY, OVERFLOW, SOUL, SOUL_SLOT, Line, day_of
from engrain.core.model.items import FORGOTTEN, Item
from engrain.core.rules.message_filters import unrecalled
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
    """Files and memory at one moment. `lines` are those of the last sync, by file.

    `before` are the items of these lines; `stands` are the items that replace them now.
    """

    pages: Mapping[str, Page]
    lines: Mapping[str, Sequence[Line]]
    selection: Selection
    before: Mapping[str, Item]
    stands: Mapping[str, Item | None]

    @property
    def items(self) -> list[Item]:
        """Return the items that a file shows or should show."""
        logged = (item for day in self.selection.days.values() for item in day.values())
        found = (*self.selection.facts.values(), *logged, self.selection.soul, *self.stands.values())
        return [item for item in found if item]

    @property
    def days(self) -> list[Page]:
        return [page for name, page in self.pages.items() if day_of(name)]

    @property
    def soul(self) -> str | None:
        """Return the text of SOUL.md, None if the file is missing or empty."""
        text = normalize_soul(self.pages[SOUL].text)
        return text if text.strip() else None


def compare_files(comparison: Comparison) -> list[Verdict]:
    return [
        *_compare_memory(comparison),
        *(one for page in comparison.days for one in _compare_day(comparison, page)),
        *_compare_soul(comparison),
    ]


def settle_deletions(found: Sequence[Verdict], *, accept: bool, restore: bool) -> list[Verdict]:
    """Accept or restore the deletions that are held back. Missing lines of a log stay: they may just be left out."""
    if not (accept or restore):
        return list(found)
    waiting = [one for one in found if one.do == "hold" and one.line and not day_of(one.line.file)]
    others = [one for one in found if one not in waiting]
    return [*others, *(replace(one, do="forget") for one in waiting)] if accept else others


def confirm_moved(found: Sequence[Verdict], comparison: Comparison) -> list[Verdict]:
    """Turn lines that a person moved away from the unsure heading into edits: they get the person's trust.

    If the heading itself is gone, nobody has moved anything.
    """
    below = unsure_blocks(comparison.pages[MEMORY].blocks)
    return [replace(one, do="edit") if below is not None and _was_moved(one, comparison) else one for one in found]


def _was_moved(one: Verdict, comparison: Comparison) -> bool:
    if one.do != "keep" or one.line is None or one.seen is None or one.seen.unsure or one.seen.file != MEMORY:
        return False
    item = comparison.selection.facts.get(one.line.id)
    return item is not None and item.trust < MIN_TRUST and one.id == item.id


def map_lines(found: Sequence[Verdict], ids: Mapping[Seen, str | None]) -> LineMap:
    """Map each block to its item after the changes with `ids` were applied."""
    positions: dict[tuple[str, int], str | None] = {}
    fresh = set()
    for one in found:
        if one.seen is None or (one.do in ("add", "edit") and one.seen not in ids):
            continue
        position = (one.seen.file, one.seen.block)
        positions[position] = ids[one.seen] if one.do in ("add", "edit") else None if one.do == "drop" else one.id
        if one.do == "renew":
            fresh.add(position)
    away = {one.id for one in found if one.do == "hold" and one.id}
    return LineMap(positions, frozenset(fresh), frozenset(away))


def list_hidden_lines(found: Sequence[Verdict]) -> list[Line]:
    return [replace(one.line, state="away") for one in found if one.do == "hold" and one.line]


def _compare_memory(comparison: Comparison) -> list[Verdict]:
    pages = [comparison.pages[name] for name in MEMORY_FILES]
    seen = [one for page in pages for one in _list_entries(page)]
    base = [line for name in MEMORY_FILES for line in comparison.lines.get(name, ())]
    side = _build_side(comparison, base, comparison.selection.facts, build_entry)
    found = [one for one in merged(base, seen, side) if not (one.do == "add" and _came_from_recall(comparison, one))]
    files = {line.file for line in base}
    gone = {page.name for page in pages if page.name in files and not page.text.strip()}
    unended = {
        page.name: _list_entries(page)[-1] for page in pages if page.text[-1:] not in ("", "\n") and _list_entries(page)
    }
    return held(found, base, side, Torn(frozenset(gone), unended))


def _compare_day(comparison: Comparison, page: Page) -> list[Verdict]:
    """Compare a day's log. Lines are added and edits kept; a missing line forgets nothing."""
    base = comparison.lines.get(page.name, ())
    side = _build_side(comparison, base, comparison.selection.day(page.name), build_log_entry)
    found: list[Verdict] = []
    added: set[str] = set()
    for one in merged(base, _list_entries(page), side):
        if one.seen is None:
            found.append(Verdict("hold", one.line, id=one.line.id if one.line else None))
        elif one.do == "add" and (_came_from_recall(comparison, one) or one.seen.key in added):
            continue
        elif one.do == "drop" and one.id is not None:
            continue  # the same words twice, which a log may have
        else:
            found.append(_judge_log_line(one, comparison))
            added.add(one.seen.key)
    return found


def _judge_log_line(one: Verdict, comparison: Comparison) -> Verdict:
    line, seen = one.line, one.seen
    if line is None or seen is None or one.do == "drop":
        return one
    was, now = comparison.before.get(line.id), comparison.stands.get(line.id)
    if one.do == "edit" and was is not None and was.kind != "summary":
        return one
    if now is None or now.id not in comparison.selection.day(seen.file):
        return Verdict("keep", line, seen, line.id)
    # Renew the line of a summary that was replaced on the same day, and of an item that had words cut out.
    ours = was is not None and seen.key == line.key == key_of(build_log_entry(was))
    cut = FORGOTTEN in now.text and key_of(build_log_entry(now)) != seen.key
    if cut or (ours and now.id != line.id):
        return Verdict("renew", line, seen, now.id)
    return Verdict("keep", line, seen, line.id)


def _compare_soul(comparison: Comparison) -> list[Verdict]:
    """Compare SOUL.md: the whole file is one entry, the value of one slot."""
    base, item = comparison.lines.get(SOUL, ()), comparison.selection.soul
    if item is not None and item.trust < MIN_TRUST:
        return []
    text = comparison.soul
    entry = Entry(text, SOUL_SLOT) if text is not None else None
    seen = [Seen(SOUL, 0, entry, key_of(entry), 1)] if entry else []
    side = _build_side(comparison, base, {item.id: item} if item else {}, build_soul_entry)
    return held(merged(base, seen, side), base, side, Torn(frozenset() if seen else frozenset((SOUL,))))


def _build_side(
    comparison: Comparison, base: Sequence[Line], items: Mapping[str, Item], entry: Callable[[Item], Entry]
) -> Side:
    ids = [line.id for line in base]
    stands = {id: comparison.stands.get(id) for id in ids}
    shown = {**items, **{item.id: item for item in stands.values() if item}}
    return Side(
        {id: entry(comparison.before[id]) for id in ids if id in comparison.before},
        {id: item.id if item else None for id, item in stands.items()},
        {id: entry(item) for id, item in shown.items()},
    )


def _list_entries(page: Page) -> list[Seen]:
    unsure = unsure_blocks(page.blocks) or frozenset()
    return [
        Seen(page.name, n, block.entry, key_of(block.entry), block.line, n in unsure)
        for n, block in enumerate(page.blocks)
        if block.entry is not None
    ]


def _came_from_recall(comparison: Comparison, one: Verdict) -> bool:
    """Check for a line that recall printed: it is in the memory already, and stays in the file."""
    return one.seen is not None and not unrecalled(comparison.pages[one.seen.file].blocks[one.seen.block].raw)
