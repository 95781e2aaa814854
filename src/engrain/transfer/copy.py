"""Copy a whole memory from one store to another, and prove that both are the same."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from engrain.core.clock import system_clock, to_micros
from engrain.core.errors import Conflict, EngrainError, OnHold
from engrain.core.model.audit import Entry
from engrain.core.model.rows import ROW_KINDS, Key, Row, RowKind, digest
from engrain.core.progress import Progress, count_progress
from engrain.ports import Erasing, Movable

PAGE = 500
Done = Callable[[int], None]  # told how many rows more were read
NAMES: Mapping[RowKind, tuple[str, str]] = {
    "item": ("item", "items"),
    "cites": ("item that cites others", "items that cite others"),
    "tombstone": ("tombstone", "tombstones"),
    "request": ("answered request", "answered requests"),
    "session": ("session", "sessions"),
    "summary": ("summary", "summaries"),
    "progress": ("mark of progress", "marks of progress"),
    "episode": ("episode", "episodes"),
    "trial": ("trial of a procedure", "trials of procedures"),
    "task": ("task", "tasks"),
    "step": ("step", "steps"),
    "event": ("event", "events"),
    "grave": ("tombstone of the erased", "tombstones of the erased"),
    "erased": ("mark of an erasure", "marks of erasures"),
    "hold": ("legal hold", "legal holds"),
    "audit": ("row of the audit log", "rows of the audit log"),
}


@dataclass(frozen=True, slots=True)
class CopyResult:
    """How many rows of each kind are in both stores now, how many of them were written by this run, and the hash that
    both have."""

    rows: Mapping[str, int] = field(default_factory=dict)
    written: int = 0
    hash: str = ""
    unrecorded: str = ""  # why it is not in the audit log of the source

    def __str__(self) -> str:
        counted = [(self.rows.get(kind, 0), names) for kind, names in NAMES.items()]
        told = ", ".join(f"{count:,} {names[count != 1]}" for count, names in counted if count)
        written = f"{self.written:,} {'row' if self.written == 1 else 'rows'} written by this run"
        return f"{told or 'an empty memory'}; {written}; hash {self.hash}"


Record = Callable[[str, Mapping[str, Any]], Entry | None]


def copy_recorded(source: Movable, target: Movable, to: str, record: Record, progress: Progress | None) -> CopyResult:
    """Copy, compare, and say so in the audit log of the source, whence it comes to the copy as well.

    Begun first: a copy that is cut off leaves a part of it, and a receipt must know."""
    now, read = system_clock(), 0
    scheme, named, _ = to.partition("://")
    told: dict[str, Any] = {"to": scheme if named else "file"}
    copying = count_progress(progress, "copy")

    def count(rows: int) -> None:
        nonlocal read
        read += rows
        copying(rows)

    def begin() -> None:
        # Where it cannot be written now, the end says so.
        with suppress(EngrainError):
            if entry := record("copy_begun", told):
                told["begun"] = entry.n

    unrecorded = ""
    written = transfer(source, target, count, now, begin=begin)
    if written:
        try:
            record("copy", told)
        except EngrainError as exc:
            unrecorded = str(exc)
        transfer(source, target, copying, now, ("audit",))
    copied = compare(source, target, count_progress(progress, "compare", 2 * read), now, written)
    return replace(copied, unrecorded=unrecorded)


def copy(source: Movable, target: Movable, done: Done, now: datetime | None = None) -> CopyResult:
    """`transfer`, then `compare`."""
    written = transfer(source, target, done, now)
    return compare(source, target, done, now, written)


def transfer(
    source: Movable,
    target: Movable,
    done: Done,
    now: datetime | None = None,
    kinds: Sequence[RowKind] = ROW_KINDS,
    begin: Callable[[], object] | None = None,
) -> int:
    """How many rows were written. What the target has already is left as it is, so that a copy that was interrupted
    goes on where it stopped. Episodes that are over by `now` are not copied: some stores have let go of them already.

    `begin` is called before the first row that tells anything is written, if any is.

    Conflict if the target holds something that the source does not, or while an erasure is under way; OnHold if a hold
    hides something, which nobody may read."""
    _check_whole(source)
    written = 0
    for kind in kinds:
        for missing in _missing(kind, source, target, done, now):
            if begin is not None and kind != "store":
                begin()
                begin = None
            target.restore(missing)
            written += len(missing)
    return written


def _check_whole(source: Movable) -> None:
    erasing: Erasing | None = getattr(source, "erasing", None)
    if erasing is None:
        return
    if erasing.running():
        raise Conflict("an erasure is under way in the source. Complete it first: engrain erase --resume.")
    if any(hold.hidden for hold in erasing.holds()):
        raise OnHold(
            "a user's data is held and shown to nobody, and so it cannot be copied. Take a backup, which has it: "
            "engrain backup TO. Or end the hold: engrain hold --user … --release."
        )


def compare(source: Movable, target: Movable, done: Done, now: datetime | None = None, written: int = 0) -> CopyResult:
    """Reads both stores, every row. Conflict if they differ, because the source was written to meanwhile."""
    counts, wanted = _proof(source, done, now)
    there, found = _proof(target, done, now)
    if (counts, wanted) != (there, found):
        differing = [kind for kind in ROW_KINDS if counts.get(kind) != there.get(kind)]
        what = ", ".join(map(_several, differing)) or "contents, not in counts"
        raise Conflict(f"source and copy differ in {what}: the source was written to meanwhile. Copy once more.")
    return CopyResult(counts, written, wanted)


def _missing(kind: RowKind, source: Movable, target: Movable, done: Done, now: datetime | None) -> Iterator[list[Row]]:
    """What the target has not, page by page: each is to be written before the next is asked for."""
    after: Key | None = None
    while page := source.dump(kind, after, PAGE):
        there = {row.key: row for row in _standing(target.dump(kind, after, PAGE), now)}
        missing = [row for row in _standing(page, now) if there.pop(row.key, None) != row]
        _no_more(kind, [key for key in there if key <= page[-1].key])
        if missing:
            yield missing
        after = page[-1].key
        done(len(page))
    while left := target.dump(kind, after, PAGE):
        _no_more(kind, [row.key for row in _standing(left, now)])
        after = left[-1].key


def _standing(rows: Iterable[Row], now: datetime | None) -> Iterator[Row]:
    """Without the episodes that are over, and without raw texts that are."""
    over = None if now is None else to_micros(now)
    for row in rows:
        if row.kind != "episode" or over is None:
            yield row
        elif row.values["expires_at"] is None or row.values["expires_at"] > over:
            raw = row.values["raw"]
            yield replace(row, values={**row.values, "raw": raw if raw and raw["expires_at"] > over else None})


def _no_more(kind: RowKind, keys: list[Key]) -> None:
    if keys:
        raise Conflict(
            f"the target holds {_several(kind)} that the source does not, such as {keys[0][-1]!r}: "
            "they were forgotten there, or are of another memory. Copy into a new store."
        )


def _proof(store: Movable, done: Done, now: datetime | None) -> tuple[dict[str, int], str]:
    counts: dict[str, int] = {}
    known = None
    for page in _pages(store):
        rows = list(_standing(page, now))
        for row in rows:
            counts[row.kind] = counts.get(row.kind, 0) + 1
        known = digest(rows, known)
        done(len(page))
    return counts, digest([], known).hexdigest()


def _pages(store: Movable) -> Iterator[list[Row]]:
    for kind in ROW_KINDS:
        after: Key | None = None
        while rows := store.dump(kind, after, PAGE):
            yield rows
            after = rows[-1].key


def _several(kind: RowKind) -> str:
    return NAMES[kind][1] if kind in NAMES else kind
