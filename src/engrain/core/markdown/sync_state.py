"""The state of a mirror folder: the lines of the last sync, and the result of a sync."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import date, datetime
from functools import partial
from typing import Any, Literal, get_args

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
class IdleState:
    """A check of both sides that found nothing to do.

    `files` is the stamp of the files, `since` its monotonic time, `seq` the number of the memory's last change.
    It expires at `until`, when something in the memory begins or ends by itself.
    """

    files: bytes
    since: float
    seq: int
    at: datetime
    until: datetime | None
    # Files that changed just before the check may change again without a new stamp: such a stamp is not settled.
    settled: bool = False

    def is_current(self, files: bytes, now: datetime) -> bool:
        return self.settled and self.files == files and self.at <= now and (self.until is None or now < self.until)


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
class HeldDeletion:
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
    held_back: tuple[HeldDeletion, ...] = ()
    notes: tuple[str, ...] = ()
    dry_run: bool = False

    @property
    def lines(self) -> tuple[str, ...]:
        """The result for people, line by line."""
        verb = "would write" if self.dry_run else "wrote"
        files = (f"{verb} {name}" for name in self.written)
        return (*files, *map(str, (*self.taken, *self.conflicts, *self.held_back)), *self.notes)

    def __bool__(self) -> bool:
        return bool(self.written or self.taken or self.conflicts or self.held_back)

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
