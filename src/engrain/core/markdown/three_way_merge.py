"""Merge files edited by hand with a changed memory, by a three-way merge against the last sync."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from functools import partial
from typing import Any, Literal, get_args

from engrain.core.markdown.page import Entry, hash_entry
from engrain.core.tokens import shorten_line

SOUL, MEMORY, OVERFLOW, CONFLICTS = "SOUL.md", "MEMORY.md", "memory/overflow.md", "memory/conflicts.md"
SYNC_BASE = ".engrain/mirror.json"
SOUL_SLOT = "agent.soul"
VERSION = 1
MAX_REMEMBERED_LINES = 5_000  # removed by the memory

_shorten_text = partial(shorten_line, limit=80)
_LOG_NAME = re.compile(r"memory/(\d{4}-\d\d-\d\d)\.md")

LineState = Literal["written", "removing", "writing", "deleted"]
Action = Literal["added", "corrected", "changed", "forgotten", "kept out", "confirmed"]


def parse_log_day(name: str) -> date | None:
    """Return the day of a daily log from its file name; None for any other name."""
    match = _LOG_NAME.fullmatch(name)
    try:
        return date.fromisoformat(match[1]) if match else None
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class SyncedLine:
    """An item's line in a file after the last sync. `key` is the `hash_entry` of its entry.

    "removing" and "writing": the line was about to be removed or written when a sync was interrupted.
    "deleted": a person removed the line from the file, while its item stays.
    """

    id: str
    key: str
    file: str
    state: LineState = "written"


@dataclass(frozen=True, slots=True)
class SyncBase:
    """The lines after the last sync: the common ancestor of the next merge. It holds no text.

    `ours` are keys of lines that the memory removed from the files: a line that comes back was not newly typed.
    """

    folder: str
    scope: str
    round: int = 0
    lines: tuple[SyncedLine, ...] = ()
    ours: tuple[str, ...] = ()

    def by_file(self) -> dict[str, list[SyncedLine]]:
        found: dict[str, list[SyncedLine]] = {}
        for line in self.lines:
            found.setdefault(line.file, []).append(line)
        return found

    def while_writing(self, after: SyncBase) -> SyncBase:
        """Return the base to save while files are written: no line in removal may look deleted by hand."""
        stays = {*self.lines} & {*after.lines} | {line for line in after.lines if line.state == "deleted"}
        writing = [line if line in stays else replace(line, state="writing") for line in after.lines]
        there = {(line.id, line.key, line.file) for line in writing}
        removing = [
            replace(line, state="removing") for line in self.lines if (line.id, line.key, line.file) not in there
        ]
        return replace(after, lines=(*removing, *writing))

    def advance(self, lines: Iterable[SyncedLine], by_hand: Iterable[SyncedLine] = ()) -> SyncBase:
        """Return the base after a sync that left these lines. Lines in `by_hand` were removed by people."""
        now = tuple(dict.fromkeys(lines))
        changed = {line.key for line in (*now, *by_hand)}
        past = dict.fromkeys((*self.ours, *(line.key for line in self.lines)))
        ours = [key for key in past if key not in changed]
        return replace(self, round=self.round + 1, lines=now, ours=tuple(ours[-MAX_REMEMBERED_LINES:]))


def write_base(base: SyncBase) -> str:
    lines = [[line.id, line.key, line.file, line.state] for line in base.lines]
    data = {"version": VERSION, "folder": base.folder, "scope": base.scope, "round": base.round, "ours": base.ours}
    return json.dumps({**data, "lines": lines}, separators=(",", ":"), ensure_ascii=False) + "\n"


def read_base(text: str) -> SyncBase | None:
    """Read what `write_base` wrote; None for any other text: then nothing is known of earlier syncs."""
    try:
        data: Any = json.loads(text)
        if data["version"] != VERSION:
            return None
        lines = tuple(SyncedLine(str(id), str(key), str(file), state) for id, key, file, state in data["lines"])
        if any(line.state not in get_args(LineState) for line in lines):
            return None
        ours = tuple(map(str, data["ours"]))
        return SyncBase(str(data["folder"]), str(data["scope"]), int(data["round"]), lines, ours)
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


@dataclass(frozen=True, slots=True)
class AppliedLine:
    """The change that a line of a file made to the memory. A line that is "kept out" repeats a forgotten text."""

    action: Action
    file: str
    text: str
    id: str | None = None
    slot: str | None = None

    def __str__(self) -> str:
        name = f"{_shorten_text(self.slot)} = " if self.slot and self.file != SOUL else ""
        return f'{self.action}: {name}"{_shorten_text(self.text)}" ({self.file})'


@dataclass(frozen=True, slots=True)
class SyncConflict:
    """A line that was changed by hand, or deleted if `text` is None, while the memory changed it too.

    The memory keeps its version, the text `kept` of item `id`. The other version is in memory/conflicts.md.
    """

    file: str
    id: str
    text: str | None
    kept: str

    def __str__(self) -> str:
        yours = "deleted" if self.text is None else f'"{_shorten_text(self.text)}"'
        ours = _shorten_text(self.kept)
        return f'conflict in {self.file}: yours is {yours}, the memory keeps "{ours}" (see {CONFLICTS})'


@dataclass(frozen=True, slots=True)
class PendingDeletion:
    """A line deleted from a file together with too many others. Its item stays until the deletion is accepted."""

    file: str
    id: str
    text: str

    def __str__(self) -> str:
        return f'deletion held back: "{_shorten_text(self.text)}" ({self.file})'


@dataclass(frozen=True, slots=True)
class SyncResult:
    """The result of a sync, or of its dry run: files written, lines applied, and lines that need a decision."""

    written: tuple[str, ...] = ()
    taken: tuple[AppliedLine, ...] = ()
    conflicts: tuple[SyncConflict, ...] = ()
    pending_deletions: tuple[PendingDeletion, ...] = ()
    notes: tuple[str, ...] = ()
    dry_run: bool = False

    @property
    def lines(self) -> tuple[str, ...]:
        """The result for people, line by line."""
        verb = "would write" if self.dry_run else "wrote"
        files = (f"{verb} {name}" for name in self.written)
        return (*files, *map(str, (*self.taken, *self.conflicts, *self.pending_deletions)), *self.notes)

    def __bool__(self) -> bool:
        return bool(self.written or self.taken or self.conflicts or self.pending_deletions)

    def __str__(self) -> str:
        return "\n".join(self.lines)


@dataclass(frozen=True, slots=True)
class MirrorStatus:
    """The state of a folder: the budget that MEMORY.md uses, and what waits for a decision or a sync."""

    folder: str
    lines: int
    max_lines: int
    bytes: int
    max_bytes: int
    entries: int
    overflow: int
    days: int
    conflicts: int
    pending: SyncResult


# A line is an edit of another if they are this similar. In the same place, less is enough.
MIN_SIMILARITY, MIN_SIMILARITY_IN_PLACE = 0.6, 0.25
MAX_COMPARED_CHARACTERS = 400
MAX_COMPARED_PAIRS = 100_000  # beyond, only lines in the same place are compared
# More deletions than this, and than a third of all lines, are more likely a broken file than intended.
MAX_FEW_DELETIONS, MAX_DELETED_DIVISOR = 3, 3

# By file and key: the keys of the lines before and after.
_Neighbours = dict[tuple[str, str], tuple[str | None, str | None]]
MergeAction = Literal["keep", "renew", "drop", "add", "edit", "forget", "hold", "clash"]


@dataclass(frozen=True, slots=True)
class FileEntry:
    """An entry of a file with its block and line number. `unsure`: it stands under the UNTRUSTED heading."""

    file: str
    block: int
    entry: Entry
    key: str
    number: int = 0
    unsure: bool = False


@dataclass(frozen=True, slots=True)
class LineMatch:
    """A line of the last sync and the entry that the file has for it.

    `id` is the item if the entry has the item's exact text. `again`: an earlier entry has it too.
    """

    line: SyncedLine | None = None
    seen: FileEntry | None = None
    id: str | None = None
    again: bool = False


@dataclass(frozen=True, slots=True)
class MergeDecision:
    """The action for one line. `id` is the item that stays.

    For "keep" it is the item of the line, for "clash" the item whose text wins.
    For "renew", in a log, its text replaces the text that is there.
    """

    do: MergeAction
    line: SyncedLine | None = None
    seen: FileEntry | None = None
    id: str | None = None

    @property
    def is_pending_deletion(self) -> bool:
        """Tell a deletion that waits for a decision. A line of a log may just be left out."""
        return self.do == "hold" and self.line is not None and not parse_log_day(self.line.file)


@dataclass(frozen=True, slots=True)
class DamageSigns:
    """Signs of broken files: `missing` or empty ones, and the last entry of `unended` files, without a line end."""

    missing: frozenset[str] = frozenset()
    unended: Mapping[str, FileEntry] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MemorySide:
    """The memory's side of the merge.

    `before` has the entry of each line at the last sync. `current` has the item that is current for it now.
    `shown` has the entry of every item on the pages.
    """

    before: Mapping[str, Entry]
    current: Mapping[str, str | None]
    shown: Mapping[str, Entry]


def merge_lines(base: Sequence[SyncedLine], seen: Sequence[FileEntry], side: MemorySide) -> list[MergeDecision]:
    """Decide for each line and each entry. No text of either side is lost: it is kept, applied or a clash.

    A dropped entry was the memory's own, and is removed there or shown elsewhere.
    """
    matches = match_lines(base, seen, side)
    settled = {match.id or side.current.get(match.line.id if match.line else "") for match in matches if match.seen}
    slots = {entry.slot: id for id, entry in side.shown.items() if entry.slot is not None}
    known = {line.id for line in base}
    found = [verdict for match in matches if (verdict := _decide(match, side, settled, slots, known)) is not None]
    # Two deleted lines that are one item by now: the item goes, without a conflict.
    removed = {verdict.id for verdict in found if verdict.do == "forget"}
    return [verdict for verdict in found if verdict.do != "clash" or verdict.id not in removed]


def match_lines(base: Sequence[SyncedLine], seen: Sequence[FileEntry], side: MemorySide) -> list[LineMatch]:
    found = _match_by_key(base, seen)
    taken = {match.line.id for match in found if match.line}
    found += _match_by_item(_unmatched_entries(found, seen), side.shown, taken)
    around = _find_neighbours(base), _find_neighbours(seen)
    # A line that an interrupted sync was about to write may be missing: lines that stood there before match first.
    for states in (("written", "removing"), ("writing",)):
        taken = {match.line.id for match in found if match.line}
        lines = [line for line in _unmatched_lines(found, base) if line.state in states and line.id not in taken]
        found += _match_edits(lines, _unmatched_entries(found, seen), around, side)
    found += [LineMatch(line) for line in _unmatched_lines(found, base)]
    return found + [LineMatch(seen=entry) for entry in _unmatched_entries(found, seen)]


def hold_back_deletions(
    verdicts: Sequence[MergeDecision], base: Sequence[SyncedLine], side: MemorySide, torn: DamageSigns
) -> list[MergeDecision]:
    """Hold back deletions if there are too many of them, or if a file is empty or truncated."""
    deleted = [verdict.line for verdict in verdicts if verdict.do == "forget" and verdict.line]
    many = len(deleted) > MAX_FEW_DELETIONS and len(deleted) * MAX_DELETED_DIVISOR > sum(
        line.state == "written" for line in base
    )
    cut = [verdict for verdict in verdicts if _is_truncated(verdict, side, torn)]
    last = {line.file: line for line in base if line.state == "written"}
    lost = {line.file for line in deleted if line == last[line.file]} & set(torn.unended)
    doubtful = torn.missing | lost | {verdict.seen.file for verdict in cut if verdict.seen}
    found: list[MergeDecision] = []
    for verdict in verdicts:
        if verdict in cut:
            found += [MergeDecision("hold", verdict.line, id=verdict.id), MergeDecision("drop", seen=verdict.seen)]
        elif verdict.do == "forget" and verdict.line and (many or verdict.line.file in doubtful):
            found.append(replace(verdict, do="hold"))
        else:
            found.append(verdict)
    return found


def _is_truncated(verdict: MergeDecision, side: MemorySide, torn: DamageSigns) -> bool:
    """Tell the last line of a file that has no line end and only the beginning of its text."""
    line, seen = verdict.line, verdict.seen
    if verdict.do != "edit" or not line or not seen or torn.unended.get(seen.file) != seen:
        return False
    return side.before[line.id].text.startswith(seen.entry.text)


def measure_similarity(first: str, other: str) -> float:
    """Return the share of letter pairs that two texts have in common, from 0 to 1, in any language."""
    left, right = _letter_pairs(first), _letter_pairs(other)
    return 2 * len(left & right) / (len(left) + len(right)) if left and right else float(first == other)


def _decide(
    match: LineMatch, side: MemorySide, settled: set[str | None], slots: Mapping[str, str], known: set[str]
) -> MergeDecision | None:
    line, seen = match.line, match.seen
    if seen is None:
        return _decide_missing(line, side, settled) if line else None
    if line is None:
        if match.id is not None:
            return MergeDecision("drop" if match.again else "keep", seen=seen, id=match.id)
        holder = slots.get(seen.entry.slot) if seen.entry.slot is not None else None
        # The memory has filled this slot since the last sync: both sides are new.
        return MergeDecision("clash" if holder and holder not in known else "add", seen=seen, id=holder)
    now = side.current.get(line.id)
    if seen.key == line.key:
        return MergeDecision("drop" if now is None else "keep", line, seen, now)
    if now is None:
        return MergeDecision("add", seen=seen)
    if now == line.id:
        return MergeDecision("edit", line, seen, now)
    agree = now in side.shown and hash_entry(side.shown[now]) == seen.key
    return MergeDecision("keep" if agree else "clash", line, seen, now)


def _decide_missing(line: SyncedLine, side: MemorySide, settled: set[str | None]) -> MergeDecision | None:
    now = side.current.get(line.id)
    if now is None or now in settled or line.state in ("removing", "writing"):
        return None
    if now == line.id:
        return MergeDecision("hold" if line.state == "deleted" else "forget", line, id=now)
    return None if line.state == "deleted" else MergeDecision("clash", line, id=now)


def _match_by_key(base: Sequence[SyncedLine], seen: Sequence[FileEntry]) -> list[LineMatch]:
    waiting: dict[str, list[SyncedLine]] = {}
    for line in base:
        waiting.setdefault(line.key, []).append(line)
    first: dict[str, str] = {}
    found = []
    for entry in seen:
        lines = waiting.get(entry.key, [])
        if lines:
            line = next((each for each in lines if each.file == entry.file), lines[0])
            lines.remove(line)
            first.setdefault(entry.key, line.id)
            found.append(LineMatch(line, entry))
        elif entry.key in first:
            found.append(LineMatch(seen=entry, id=first[entry.key], again=True))
    return found


def _match_by_item(seen: Sequence[FileEntry], shown: Mapping[str, Entry], taken: set[str]) -> list[LineMatch]:
    keys = {hash_entry(entry): id for id, entry in shown.items()}
    found = []
    for new in seen:
        id = keys.get(new.key)
        if id is not None:
            found.append(LineMatch(seen=new, id=id, again=id in taken))
            taken.add(id)
    return found


def _match_edits(
    lines: Sequence[SyncedLine], seen: Sequence[FileEntry], around: tuple[_Neighbours, _Neighbours], side: MemorySide
) -> list[LineMatch]:
    """Pair missing lines with new entries: of the same slot, or else the most similar first."""
    known = [(line, side.before[line.id]) for line in lines if line.id in side.before]
    nearby = len(known) * len(seen) > MAX_COMPARED_PAIRS
    close: list[tuple[float, SyncedLine, FileEntry]] = []
    for line, entry in known:
        for new in (new for new in seen if new.entry.slot == entry.slot):
            mine, its = around[0][line.file, line.key], around[1][new.file, new.key]
            in_place = line.file == new.file and (mine[0] == its[0] or mine[1] == its[1])
            if nearby and not in_place and entry.slot is None:
                continue
            score = 2.0 if entry.slot else measure_similarity(entry.text, new.entry.text)
            if score >= (MIN_SIMILARITY_IN_PLACE if in_place else MIN_SIMILARITY):
                close.append((score, line, new))
    found: list[LineMatch] = []
    paired: set[SyncedLine | FileEntry] = set()
    for _, line, new in sorted(close, key=lambda pair: -pair[0]):
        if not {line, new} & paired:
            paired |= {line, new}
            found.append(LineMatch(line, new))
    return found


def _find_neighbours(lines: Sequence[SyncedLine | FileEntry]) -> _Neighbours:
    """Return the keys of the lines before and after each line of a file."""
    files: dict[str, list[str]] = {}
    for line in lines:
        files.setdefault(line.file, []).append(line.key)
    return {
        (file, key): (keys[n - 1] if n else None, keys[n + 1] if n + 1 < len(keys) else None)
        for file, keys in files.items()
        for n, key in enumerate(keys)
    }


def _unmatched_entries(found: Sequence[LineMatch], seen: Sequence[FileEntry]) -> list[FileEntry]:
    done = {match.seen for match in found}
    return [entry for entry in seen if entry not in done]


def _unmatched_lines(found: Sequence[LineMatch], base: Sequence[SyncedLine]) -> list[SyncedLine]:
    done = {match.line for match in found}
    return [line for line in base if line not in done]


def _letter_pairs(text: str) -> set[str]:
    head = " ".join(text[:MAX_COMPARED_CHARACTERS].casefold().split())
    return {head[at : at + 2] for at in range(len(head) - 1)} or ({head} if head else set())
