"""Merge a file that was edited by hand with a memory that went on, against what both agreed on last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from engrain.core.markdown.page import Entry, hash_entry
from engrain.core.markdown.sync_state import SyncedLine

# A line is the edited form of another if it shares this much with it; if it stands in its place, this much is enough.
ALIKE, ALIKE_IN_PLACE = 0.6, 0.25
COMPARED = 400  # characters of a text
MOST_COMPARED = 100_000  # pairs of lines: beyond, only those that stand in each other's place
# More deletions than this, and than a third of all lines, are more likely a broken file than a wish.
FEW, SHARE = 3, 3

MergeAction = Literal["keep", "renew", "drop", "add", "edit", "forget", "hold", "clash"]


@dataclass(frozen=True, slots=True)
class FileEntry:
    """An entry of a file: in which block and at which line it stands. `unsure`: under the heading of what tools and the
    web said."""

    file: str
    block: int
    entry: Entry
    key: str
    number: int = 0
    unsure: bool = False


@dataclass(frozen=True, slots=True)
class Match:
    """A line of the base and what the file has in its place; `id` is the item if the file has the item's own words."""

    line: SyncedLine | None = None
    seen: FileEntry | None = None
    id: str | None = None
    again: bool = False


@dataclass(frozen=True, slots=True)
class MergeDecision:
    """What is to be done. `id` is the item that stands: for "keep" whose line it is, for "clash" whose words stay, and
    for "renew", in a log, whose words come in place of what is there."""

    do: MergeAction
    line: SyncedLine | None = None
    seen: FileEntry | None = None
    id: str | None = None


@dataclass(frozen=True, slots=True)
class DamageSigns:
    """Signs of a broken file: those that are empty or not there, and the last entry of those whose last line has no
    end."""

    gone: frozenset[str] = frozenset()
    unended: Mapping[str, FileEntry] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MemorySide:
    """The memory's side: what stood at each line's time, which item stands for it now, and every item that is shown."""

    before: Mapping[str, Entry]
    stands: Mapping[str, str | None]
    shown: Mapping[str, Entry]


def merge_lines(base: Sequence[SyncedLine], seen: Sequence[FileEntry], side: MemorySide) -> list[MergeDecision]:
    """One verdict for each line and each entry. No text of either side is lost: it is kept, taken, or a clash; what is
    dropped was the memory's own, and is gone there or stands elsewhere."""
    matches = match_lines(base, seen, side)
    settled = {match.id or side.stands.get(match.line.id if match.line else "") for match in matches if match.seen}
    slots = {entry.slot: id for id, entry in side.shown.items() if entry.slot is not None}
    known = {line.id for line in base}
    found = [one for match in matches if (one := _verdict(match, side, settled, slots, known)) is not None]
    # Two deleted lines of what is one item by now: it goes, and there is nothing to tell.
    going = {one.id for one in found if one.do == "forget"}
    return [one for one in found if one.do != "clash" or one.id not in going]


def match_lines(base: Sequence[SyncedLine], seen: Sequence[FileEntry], side: MemorySide) -> list[Match]:
    found: list[Match] = []
    found += _by_key([*base], seen)
    found += _by_item(_unseen(found, seen), side.shown, {match.line.id for match in found if match.line})
    # What was coming when a sync was cut off may not have come: what stood there before has the better claim.
    for states in (("stands", "going"), ("coming",)):
        taken = {match.line.id for match in found if match.line}
        lines = [one for one in _unmatched(found, base) if one.state in states and one.id not in taken]
        found += _edits(lines, _unseen(found, seen), _Around(base, seen), side)
    found += [Match(line) for line in _unmatched(found, base)]
    return found + [Match(seen=one) for one in _unseen(found, seen)]


def hold_back_deletions(
    verdicts: Sequence[MergeDecision], base: Sequence[SyncedLine], side: MemorySide, torn: DamageSigns
) -> list[MergeDecision]:
    """The same with deletions held back where there are too many of them, or where a file is empty or was cut off."""
    deleted = [one for one in verdicts if one.do == "forget" and one.line]
    many = len(deleted) > FEW and len(deleted) * SHARE > sum(line.state == "stands" for line in base)
    cut = [one for one in verdicts if _cut_off(one, side, torn)]
    last = {line.file: line for line in base if line.state == "stands"}
    lost = {one.line.file for one in deleted if one.line and one.line == last[one.line.file]} & set(torn.unended)
    doubtful = torn.gone | lost | {one.seen.file for one in cut if one.seen}
    found: list[MergeDecision] = []
    for one in verdicts:
        if one in cut:
            found += [MergeDecision("hold", one.line, id=one.id), MergeDecision("drop", seen=one.seen)]
        elif one.do == "forget" and one.line and (many or one.line.file in doubtful):
            found.append(replace(one, do="hold"))
        else:
            found.append(one)
    return found


def _cut_off(one: MergeDecision, side: MemorySide, torn: DamageSigns) -> bool:
    """The last line of a file that does not end, and that has only the beginning of its text."""
    if one.do != "edit" or not one.line or not one.seen or torn.unended.get(one.seen.file) != one.seen:
        return False
    return side.before[one.line.id].text.startswith(one.seen.entry.text)


def measure_similarity(one: str, other: str) -> float:
    """From 0 to 1: the share of letter pairs that two texts have in common. Words of any language have those."""
    left, right = _pairs(one), _pairs(other)
    return 2 * len(left & right) / (len(left) + len(right)) if left and right else float(one == other)


def _verdict(
    match: Match, side: MemorySide, settled: set[str | None], slots: Mapping[str, str], known: set[str]
) -> MergeDecision | None:
    line, seen = match.line, match.seen
    if seen is None:
        return _missing(line, side, settled) if line else None
    if line is None:
        if match.id is not None:
            return MergeDecision("drop" if match.again else "keep", seen=seen, id=match.id)
        holder = slots.get(seen.entry.slot) if seen.entry.slot is not None else None
        # The memory has filled this slot since: neither side knew of the other.
        return MergeDecision("clash" if holder and holder not in known else "add", seen=seen, id=holder)
    now = side.stands.get(line.id)
    if seen.key == line.key:
        return MergeDecision("drop" if now is None else "keep", line, seen, now)
    if now is None:
        return MergeDecision("add", seen=seen)
    if now == line.id:
        return MergeDecision("edit", line, seen, now)
    agree = now in side.shown and hash_entry(side.shown[now]) == seen.key
    return MergeDecision("keep" if agree else "clash", line, seen, now)


def _missing(line: SyncedLine, side: MemorySide, settled: set[str | None]) -> MergeDecision | None:
    now = side.stands.get(line.id)
    if now is None or now in settled or line.state in ("going", "coming"):
        return None
    if now == line.id:
        return MergeDecision("hold" if line.state == "away" else "forget", line, id=now)
    return None if line.state == "away" else MergeDecision("clash", line, id=now)


def _by_key(base: list[SyncedLine], seen: Sequence[FileEntry]) -> list[Match]:
    waiting: dict[str, list[SyncedLine]] = {}
    for line in base:
        waiting.setdefault(line.key, []).append(line)
    first: dict[str, str] = {}
    found = []
    for one in seen:
        lines = waiting.get(one.key, [])
        if lines:
            line = next((each for each in lines if each.file == one.file), lines[0])
            lines.remove(line)
            first.setdefault(one.key, line.id)
            found.append(Match(line, one))
        elif one.key in first:
            found.append(Match(seen=one, id=first[one.key], again=True))
    return found


def _by_item(seen: Sequence[FileEntry], shown: Mapping[str, Entry], taken: set[str]) -> list[Match]:
    keys = {hash_entry(entry): id for id, entry in shown.items()}
    found = []
    for one in seen:
        id = keys.get(one.key)
        if id is not None:
            found.append(Match(seen=one, id=id, again=id in taken))
            taken.add(id)
    return found


def _edits(lines: Sequence[SyncedLine], seen: Sequence[FileEntry], around: _Around, side: MemorySide) -> list[Match]:
    """Pairs of a line that is gone and one that is new: of one slot, or else the most alike first."""
    told = [(line, side.before[line.id]) for line in lines if line.id in side.before]
    nearby = len(told) * len(seen) > MOST_COMPARED
    close: list[tuple[float, SyncedLine, FileEntry]] = []
    for line, entry in told:
        for one in (one for one in seen if one.entry.slot == entry.slot):
            in_place = around.in_place(line, one)
            if nearby and not in_place and entry.slot is None:
                continue
            score = 2.0 if entry.slot else measure_similarity(entry.text, one.entry.text)
            if score >= (ALIKE_IN_PLACE if in_place else ALIKE):
                close.append((score, line, one))
    found: list[Match] = []
    paired: set[SyncedLine | FileEntry] = set()
    for _, line, one in sorted(close, key=lambda pair: -pair[0]):
        if not {line, one} & paired:
            paired |= {line, one}
            found.append(Match(line, one))
    return found


class _Around:
    """The neighbours of each line, on either side."""

    def __init__(self, base: Sequence[SyncedLine], seen: Sequence[FileEntry]) -> None:
        self._base, self._seen = _neighbours(base), _neighbours(seen)

    def in_place(self, line: SyncedLine, one: FileEntry) -> bool:
        mine, its = self._base[line.file, line.key], self._seen[one.file, one.key]
        return line.file == one.file and (mine[0] == its[0] or mine[1] == its[1])


def _neighbours(
    lines: Sequence[SyncedLine] | Sequence[FileEntry],
) -> dict[tuple[str, str], tuple[str | None, str | None]]:
    files: dict[str, list[str]] = {}
    for line in lines:
        files.setdefault(line.file, []).append(line.key)
    return {
        (file, key): (keys[n - 1] if n else None, keys[n + 1] if n + 1 < len(keys) else None)
        for file, keys in files.items()
        for n, key in enumerate(keys)
    }


def _unseen(found: Sequence[Match], seen: Sequence[FileEntry]) -> list[FileEntry]:
    done = {match.seen for match in found}
    return [one for one in seen if one not in done]


def _unmatched(found: Sequence[Match], base: Sequence[SyncedLine]) -> list[SyncedLine]:
    done = {match.line for match in found}
    return [line for line in base if line not in done]


def _pairs(text: str) -> set[str]:
    head = " ".join(text[:COMPARED].casefold().split())
    return {head[at : at + 2] for at in range(len(head) - 1)} or ({head} if head else set())
