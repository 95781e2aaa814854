"""Compare the files with the memory: MEMORY.md and its overflow, each day's log, SOUL.md."""

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
from engrain.mirror.render import (
    MIN_SOUL_TRUST,
    MIN_TRUST,
    LineMap,
    Page,
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

    `before` are the items of these lines; `current` are the items that replace them now.
    """

    pages: Mapping[str, Page]
    lines: Mapping[str, Sequence[SyncedLine]]
    selection: Selection
    before: Mapping[str, Item]
    current: Mapping[str, Item | None]

    @property
    def items(self) -> list[Item]:
        """Return the items that a file shows or should show."""
        logged = (item for day in self.selection.days.values() for item in day.values())
        found = (*self.selection.facts.values(), *logged, self.selection.soul, *self.current.values())
        return [item for item in found if item]

    @property
    def days(self) -> list[Page]:
        return [page for name, page in self.pages.items() if parse_log_day(name)]

    @property
    def soul(self) -> str | None:
        """Return the text of SOUL.md, None if the file is missing or empty."""
        text = normalize_soul(self.pages[SOUL].text)
        return text if text.strip() else None


def compare_files(comparison: Comparison) -> list[MergeDecision]:
    return [
        *_compare_memory(comparison),
        *(verdict for page in comparison.days for verdict in _compare_day(comparison, page)),
        *_compare_soul(comparison),
    ]


def settle_deletions(found: Sequence[MergeDecision], *, accept: bool, restore: bool) -> list[MergeDecision]:
    """Accept or restore the deletions that are held back. Missing lines of a log stay: they may just be left out."""
    if not (accept or restore):
        return list(found)
    others = [verdict for verdict in found if not verdict.is_held_deletion]
    accepted = (replace(verdict, do="forget") for verdict in found if verdict.is_held_deletion)
    return [*others, *accepted] if accept else others


def confirm_moved(found: Sequence[MergeDecision], comparison: Comparison) -> list[MergeDecision]:
    """Turn lines that a person moved away from the unsure heading into edits: they get the person's trust.

    If the heading itself is gone, nobody has moved anything.
    """
    below = find_untrusted_blocks(comparison.pages[MEMORY].blocks)
    return [
        replace(verdict, do="edit") if below is not None and _was_moved(verdict, comparison) else verdict
        for verdict in found
    ]


def _was_moved(verdict: MergeDecision, comparison: Comparison) -> bool:
    line, seen = verdict.line, verdict.seen
    if verdict.do != "keep" or line is None or seen is None or seen.unsure or seen.file != MEMORY:
        return False
    item = comparison.selection.facts.get(line.id)
    return item is not None and item.trust < MIN_TRUST and verdict.id == item.id


def map_lines(found: Sequence[MergeDecision], ids: Mapping[FileEntry, str | None]) -> LineMap:
    """Map each block to its item after the changes with `ids` were applied."""
    positions: dict[tuple[str, int], str | None] = {}
    fresh = set()
    for verdict in found:
        seen, applied = verdict.seen, verdict.do in ("add", "edit")
        if seen is None or (applied and seen not in ids):
            continue
        position = (seen.file, seen.block)
        positions[position] = ids[seen] if applied else None if verdict.do == "drop" else verdict.id
        if verdict.do == "renew":
            fresh.add(position)
    deleted = {verdict.id for verdict in found if verdict.do == "hold" and verdict.id}
    return LineMap(positions, frozenset(fresh), frozenset(deleted))


def list_hidden_lines(found: Sequence[MergeDecision]) -> list[SyncedLine]:
    return [replace(verdict.line, state="deleted") for verdict in found if verdict.do == "hold" and verdict.line]


def _compare_memory(comparison: Comparison) -> list[MergeDecision]:
    pages = [comparison.pages[name] for name in MEMORY_FILES]
    seen = [entry for page in pages for entry in _list_entries(page)]
    base = [line for name in MEMORY_FILES for line in comparison.lines.get(name, ())]
    side = _build_side(comparison, base, comparison.selection.facts, build_entry)
    found = [
        verdict
        for verdict in merge_lines(base, seen, side)
        if not (verdict.do == "add" and _came_from_recall(comparison, verdict))
    ]
    files = {line.file for line in base}
    gone = {page.name for page in pages if page.name in files and not page.text.strip()}
    unended = {
        page.name: _list_entries(page)[-1] for page in pages if page.text[-1:] not in ("", "\n") and _list_entries(page)
    }
    return hold_back_deletions(found, base, side, DamageSigns(frozenset(gone), unended))


def _compare_day(comparison: Comparison, page: Page) -> list[MergeDecision]:
    """Compare a day's log. Lines are added and edits kept; a missing line forgets nothing."""
    base = comparison.lines.get(page.name, ())
    side = _build_side(comparison, base, comparison.selection.day(page.name), build_log_entry)
    found: list[MergeDecision] = []
    added: set[str] = set()
    for verdict in merge_lines(base, _list_entries(page), side):
        if verdict.seen is None:
            found.append(MergeDecision("hold", verdict.line, id=verdict.line.id if verdict.line else None))
        elif verdict.do == "add" and (_came_from_recall(comparison, verdict) or verdict.seen.key in added):
            continue
        elif verdict.do == "drop" and verdict.id is not None:
            continue  # the same words twice, which a log may have
        else:
            found.append(_judge_log_line(verdict, comparison))
            added.add(verdict.seen.key)
    return found


def _judge_log_line(verdict: MergeDecision, comparison: Comparison) -> MergeDecision:
    line, seen = verdict.line, verdict.seen
    if line is None or seen is None or verdict.do == "drop":
        return verdict
    was, now = comparison.before.get(line.id), comparison.current.get(line.id)
    if verdict.do == "edit" and was is not None and was.kind != "summary":
        return verdict
    if now is None or now.id not in comparison.selection.day(seen.file):
        return MergeDecision("keep", line, seen, line.id)
    # Renew the line of a summary that was replaced on the same day, and of an item that had words cut out.
    ours = was is not None and seen.key == line.key == hash_entry(build_log_entry(was))
    cut = FORGOTTEN in now.text and hash_entry(build_log_entry(now)) != seen.key
    if cut or (ours and now.id != line.id):
        return MergeDecision("renew", line, seen, now.id)
    return MergeDecision("keep", line, seen, line.id)


def _compare_soul(comparison: Comparison) -> list[MergeDecision]:
    """Compare SOUL.md: the whole file is one entry, the value of one slot."""
    base, item = comparison.lines.get(SOUL, ()), comparison.selection.soul
    if item is not None and item.trust < MIN_SOUL_TRUST:
        return []
    text = comparison.soul
    entry = Entry(text, SOUL_SLOT) if text is not None else None
    seen = [FileEntry(SOUL, 0, entry, hash_entry(entry), 1)] if entry else []
    side = _build_side(comparison, base, {item.id: item} if item else {}, build_soul_entry)
    return hold_back_deletions(
        merge_lines(base, seen, side), base, side, DamageSigns(frozenset() if seen else frozenset((SOUL,)))
    )


def _build_side(
    comparison: Comparison, base: Sequence[SyncedLine], items: Mapping[str, Item], entry: Callable[[Item], Entry]
) -> MemorySide:
    ids = [line.id for line in base]
    current = {id: comparison.current.get(id) for id in ids}
    shown = {**items, **{item.id: item for item in current.values() if item}}
    return MemorySide(
        {id: entry(comparison.before[id]) for id in ids if id in comparison.before},
        {id: item.id if item else None for id, item in current.items()},
        {id: entry(item) for id, item in shown.items()},
    )


def _list_entries(page: Page) -> list[FileEntry]:
    unsure = find_untrusted_blocks(page.blocks) or frozenset()
    return [
        FileEntry(page.name, n, block.entry, hash_entry(block.entry), block.line, n in unsure)
        for n, block in enumerate(page.blocks)
        if block.entry is not None
    ]


def _came_from_recall(comparison: Comparison, verdict: MergeDecision) -> bool:
    """Check for a line that recall printed: it is in the memory already, and stays in the file."""
    return verdict.seen is not None and not find_unrecalled_spans(
        comparison.pages[verdict.seen.file].blocks[verdict.seen.block].raw
    )
