"""A folder of Markdown beside a memory: what both agreed on last, and what a sync did."""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import date, datetime
from typing import Any, Literal, cast, get_args

from engrain.core.errors import ConfigError
from engrain.core.identity import Scope

SOUL, MEMORY, OVERFLOW, CONFLICTS = "SOUL.md", "MEMORY.md", "memory/overflow.md", "memory/conflicts.md"
SYNC_BASE = ".engrain/mirror.json"
SOUL_SLOT = "agent.soul"
VERSION = 1
REMEMBERED = 5_000  # lines that once were ours

_DAY = re.compile(r"memory/(\d{4}-\d\d-\d\d)\.md")

LineState = Literal["stands", "going", "coming", "away"]
Action = Literal["added", "corrected", "changed", "forgotten", "kept out", "vouched for"]


def parse_log_day(name: str) -> date | None:
    """The day of a daily log, by the name of its file; None for any other name."""
    match = _DAY.fullmatch(name)
    try:
        return date.fromisoformat(match[1]) if match else None
    except ValueError:
        return None


@dataclass(frozen=True, slots=True)
class SyncedLine:
    """An item's line in a file, as it stood after the last sync; `key` is core.pages.key_of of it.

    One that is "going" or "coming" was about to be removed or written when the last sync was cut off. One that is
    "away" was taken out of the file by hand, and its item stays.
    """

    id: str
    key: str
    file: str
    state: LineState = "stands"


@dataclass(frozen=True, slots=True)
class SyncBase:
    """What both sides agreed on last: the common ancestor of the next merge. It holds no text.

    `ours` are keys of lines that the memory took out of the files: one that comes back was not newly typed.
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

    def unsure(self, after: SyncBase) -> SyncBase:
        """What to keep while the files are written, so that no line that is being removed looks deleted by hand."""
        stays = {*self.lines} & {*after.lines} | {one for one in after.lines if one.state == "away"}
        coming = [one if one in stays else replace(one, state="coming") for one in after.lines]
        there = {(one.id, one.key, one.file) for one in coming}
        going = [replace(one, state="going") for one in self.lines if (one.id, one.key, one.file) not in there]
        return replace(after, lines=(*going, *coming))

    def then(self, lines: Iterable[SyncedLine], by_hand: Iterable[SyncedLine] = ()) -> SyncBase:
        """After a sync that left these lines, where others were taken out by hand."""
        now = tuple(dict.fromkeys(lines))
        changed = {line.key for line in (*now, *by_hand)}
        past = dict.fromkeys((*self.ours, *(line.key for line in self.lines)))
        ours = [key for key in past if key not in changed]
        return replace(self, round=self.round + 1, lines=now, ours=tuple(ours[-REMEMBERED:]))


def write_base(base: SyncBase) -> str:
    lines = [[one.id, one.key, one.file, one.state] for one in base.lines]
    told = {"version": VERSION, "folder": base.folder, "scope": base.scope, "round": base.round, "ours": base.ours}
    return json.dumps({**told, "lines": lines}, separators=(",", ":"), ensure_ascii=False) + "\n"


def read_base(text: str) -> SyncBase | None:
    """None if this is not what base_text wrote: then nothing is known of earlier syncs."""
    try:
        told: Any = json.loads(text)
        if told["version"] != VERSION:
            return None
        lines = tuple(SyncedLine(str(id), str(key), str(file), _state(state)) for id, key, file, state in told["lines"])
        ours = tuple(map(str, told["ours"]))
        return SyncBase(str(told["folder"]), str(told["scope"]), int(told["round"]), lines, ours)
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _state(told: object) -> LineState:
    if told not in get_args(LineState):
        raise ValueError(told)
    return cast("LineState", told)


@dataclass(frozen=True, slots=True)
class IdleState:
    """A look at both sides that found nothing to do: the stamp of the files, since when it is known (in seconds that
    never run backwards), and the number of the memory's last change. It holds until something in the memory begins or
    ends by itself."""

    files: bytes
    since: float
    seq: int
    at: datetime
    until: datetime | None
    # Files that changed just before a look may change once more without a new stamp: that stamp says nothing yet.
    settled: bool = False

    def holds(self, files: bytes, now: datetime) -> bool:
        return self.settled and self.files == files and self.at <= now and (self.until is None or now < self.until)


@dataclass(frozen=True, slots=True)
class AppliedLine:
    """What a line of a file did to the memory. One that is "kept out" says what was forgotten here."""

    action: Action
    file: str
    text: str
    id: str | None = None
    slot: str | None = None

    def __str__(self) -> str:
        name = f"{_short(self.slot)} = " if self.slot and self.file != SOUL else ""
        return f'{self.action}: {name}"{_short(self.text)}" ({self.file})'


@dataclass(frozen=True, slots=True)
class SyncConflict:
    """A line that was changed by hand, or deleted if `text` is None, while the memory changed it too. The memory's
    version, of item `id`, stands; the other is in memory/conflicts.md."""

    file: str
    id: str
    text: str | None
    stands: str

    def __str__(self) -> str:
        yours = "deleted" if self.text is None else f'"{_short(self.text)}"'
        return f'conflict in {self.file}: yours is {yours}, "{_short(self.stands)}" stands (see {CONFLICTS})'


@dataclass(frozen=True, slots=True)
class HeldDeletion:
    """A line that is gone from a file together with too many others: its item stays until the deletion is accepted."""

    file: str
    id: str
    text: str

    def __str__(self) -> str:
        return f'deletion held back: "{_short(self.text)}" ({self.file})'


@dataclass(frozen=True, slots=True)
class SyncResult:
    """What a sync did, or with a dry run would do: files written, what was taken from them, what needs a look."""

    written: tuple[str, ...] = ()
    taken: tuple[AppliedLine, ...] = ()
    conflicts: tuple[SyncConflict, ...] = ()
    held_back: tuple[HeldDeletion, ...] = ()
    notes: tuple[str, ...] = ()
    dry_run: bool = False

    @property
    def lines(self) -> tuple[str, ...]:
        """For people, one a line."""
        verb = "would write" if self.dry_run else "wrote"
        files = (f"{verb} {name}" for name in self.written)
        return (*files, *map(str, (*self.taken, *self.conflicts, *self.held_back)), *self.notes)

    def __bool__(self) -> bool:
        return bool(self.written or self.taken or self.conflicts or self.held_back)

    def __str__(self) -> str:
        return "\n".join(self.lines)


@dataclass(frozen=True, slots=True)
class MirrorStatus:
    """How a folder stands: how much of its budget MEMORY.md uses, and what waits for a decision or for a sync."""

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


def _short(text: str, most: int = 80) -> str:
    line = " ".join(text.split())
    return line if len(line) <= most else line[: most - 1] + "…"


PARTS = ("user", "agent", "tenant")
NOBODY = "none="
LONGEST = 40

_PLACE = re.compile(r"\{(\w*)\}")
# As it stands, on every file system: no capitals, which some do not tell from small letters, and nothing that leads on.
_PLAIN = re.compile(rf"[a-z0-9_][a-z0-9_.@+-]{{0,{LONGEST - 1}}}")


def check_folder_pattern(pattern: str, where: str) -> None:
    known = ", ".join(f"{{{part}}}" for part in PARTS)
    for name in _PLACE.findall(pattern):
        if name not in PARTS:
            raise ConfigError(f"{where}: mirror may have {known} in it, not {{{name}}}.")
    if {*"{}"} & {*_PLACE.sub("", pattern)}:
        raise ConfigError(f"{where}: mirror may have {known} in it, and no other braces: {pattern!r}.")


def has_placeholder(pattern: str) -> bool:
    """Whether the folder is named after the memory; else there is one folder, of one memory."""
    return _PLACE.search(pattern) is not None


def widen_folder_pattern(pattern: str, *scopes: Scope) -> str:
    """A pattern by which these memories, that have one folder together, have one each."""
    named = {*_PLACE.findall(pattern)}
    wanted = named | {part for part in PARTS for one in scopes if getattr(one, part)}
    if wanted == named:
        wanted |= {part for part in PARTS if part not in named and part != "tenant"} or {*PARTS}
    return "/".join(["files", *(f"{{{part}}}" for part in PARTS if part in wanted)])


def fill_folder_pattern(pattern: str, scope: Scope) -> str:
    """Names that are not safe as the name of a folder are written in letters that are, with a hash that tells them from
    all others; one that is not given is a name of its own. None leads out of the folder, and no two are alike."""
    return _PLACE.sub(lambda found: _name(getattr(scope, found[1])), pattern)


def _name(given: str | None) -> str:
    if given is None:
        return NOBODY
    if _PLAIN.fullmatch(given) and not given.endswith("."):
        return given
    letters = unicodedata.normalize("NFC", given).lower()
    kept = re.sub(r"\W+", "-", letters).strip("-")[:LONGEST]
    # "=" stands in no plain name.
    return f"{kept}={hashlib.blake2b(given.encode(), digest_size=8).hexdigest()}"
