"""Copy a whole store to another, and prove by a hash that both hold the same rows."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import chain
from typing import Any

from engrain.core.clock import system_clock, to_micros
from engrain.core.errors import Conflict, EngrainError, OnHold, raise_interrupt, tolerate
from engrain.core.model.audit import AuditEntry
from engrain.core.model.results import Progress, count_progress, describe_counts, name_rows
from engrain.core.model.rows import ROW_KINDS, Key, Row, RowKind, hash_rows
from engrain.core.validation import count_noun
from engrain.ports.erasure import Erasing
from engrain.ports.storage import PAGE_SIZE, Movable, iterate_pages

Done = Callable[[int], None]  # called with the number of rows just read


@dataclass(frozen=True, slots=True)
class CopyResult:
    rows: Mapping[str, int] = field(default_factory=dict)  # in both stores, by kind
    written: int = 0  # by this run
    hash: str = ""  # the same for both stores
    unrecorded: str = ""  # why the audit log of the source has no entry

    def __str__(self) -> str:
        listed = describe_counts({kind: count for kind, count in self.rows.items() if kind != "store"})
        written = f"{count_noun(self.written, 'row')} written by this run"
        return f"{listed or 'an empty memory'}; {written}; hash {self.hash}"


Record = Callable[[str, Mapping[str, Any]], AuditEntry | None]


def copy_recorded(source: Movable, target: Movable, to: str, record: Record, progress: Progress | None) -> CopyResult:
    """Copy and compare two stores, and record it in the audit log of the source, which is copied too.

    The beginning is recorded first: a copy that is cut off leaves a part, and a receipt must list it.
    """
    now, read = system_clock(), 0
    scheme, named, _ = to.partition("://")
    details: dict[str, Any] = {"to": scheme if named else "file"}
    copying = count_progress(progress, "copy")

    def count(rows: int) -> None:
        nonlocal read
        read += rows
        copying(rows)

    def begin() -> None:
        with tolerate(EngrainError):  # the end is recorded too, and reports the error
            if entry := record("copy_begun", details):
                details["begun"] = entry.n

    unrecorded = ""
    written = copy_rows(source, target, count, now, begin=begin)
    if written:
        try:
            record("copy", details)
        except EngrainError as exc:
            raise_interrupt(exc)
            unrecorded = str(exc)
        copy_rows(source, target, copying, now, ("audit",))
    copied = compare_stores(source, target, count_progress(progress, "compare", 2 * read), now, written)
    return replace(copied, unrecorded=unrecorded)


def copy(source: Movable, target: Movable, done: Done, now: datetime | None = None) -> CopyResult:
    """Copy all rows, then compare the stores."""
    written = copy_rows(source, target, done, now)
    return compare_stores(source, target, done, now, written)


def copy_rows(
    source: Movable,
    target: Movable,
    done: Done,
    now: datetime | None = None,
    kinds: Sequence[RowKind] = ROW_KINDS,
    begin: Callable[[], object] | None = None,
) -> int:
    """Copy the rows that the target lacks. Return how many were written.

    An interrupted copy continues where it stopped. Episodes that expire by `now` are not copied: some stores have
    deleted them already. `begin` is called before the first row with content is written.

    Conflict if the target holds a row that the source does not, or while an erasure is running. OnHold if a hold
    hides data, which nobody may read.
    """
    _check_copyable(source)
    written = 0
    for kind in kinds:
        for missing in _iterate_missing(kind, source, target, done, now):
            if begin is not None and kind != "store":
                begin()
                begin = None
            target.restore(missing)
            written += len(missing)
    return written


def _check_copyable(source: Movable) -> None:
    erasing: Erasing | None = getattr(source, "erasing", None)
    if erasing is None:
        return
    if erasing.running():
        raise Conflict("an erasure is running in the source. Complete it first: engrain erase --resume")
    if any(hold.hidden for hold in erasing.holds()):
        raise OnHold(
            "a legal hold hides a user's data, so it cannot be copied. Take a backup, which includes it: "
            "engrain backup TO. Or end the hold: engrain hold --user … --release"
        )


def compare_stores(
    source: Movable, target: Movable, done: Done, now: datetime | None = None, written: int = 0
) -> CopyResult:
    """Read every row of both stores. Conflict if they differ because the source was written to meanwhile."""
    counts, wanted = _hash_rows(source, done, now)
    there, found = _hash_rows(target, done, now)
    if (counts, wanted) != (there, found):
        differing = [kind for kind in ROW_KINDS if counts.get(kind) != there.get(kind)]
        what = ", ".join(map(name_rows, differing)) or "contents, not in counts"
        raise Conflict(f"source and copy differ in {what}: the source was written to meanwhile. Copy again.")
    return CopyResult(counts, written, wanted)


def _iterate_missing(
    kind: RowKind, source: Movable, target: Movable, done: Done, now: datetime | None
) -> Iterator[list[Row]]:
    """Yield the rows that the target lacks, by pages. The caller writes each page before it asks for the next."""
    after: Key | None = None
    while page := source.dump(kind, after, PAGE_SIZE):
        there = {row.key: row for row in _drop_expired(target.dump(kind, after, PAGE_SIZE), now)}
        missing = [row for row in _drop_expired(page, now) if there.pop(row.key, None) != row]
        _check_no_extra(kind, [key for key in there if key <= page[-1].key])
        if missing:
            yield missing
        after = page[-1].key
        done(len(page))
    while left := target.dump(kind, after, PAGE_SIZE):
        _check_no_extra(kind, [row.key for row in _drop_expired(left, now)])
        after = left[-1].key


def _drop_expired(rows: Iterable[Row], now: datetime | None) -> Iterator[Row]:
    """Drop expired episodes, raw texts and records."""
    limit = None if now is None else to_micros(now)
    for row in rows:
        if row.kind not in ("episode", "record") or limit is None:
            yield row
        elif row.values["expires_at"] is None or row.values["expires_at"] > limit:
            if row.kind == "record":
                yield row
                continue
            raw = row.values["raw"]
            yield replace(row, values={**row.values, "raw": raw if raw and raw["expires_at"] > limit else None})


def _check_no_extra(kind: RowKind, keys: list[Key]) -> None:
    if keys:
        raise Conflict(
            f"the target holds {name_rows(kind)} that the source does not, such as {keys[0][-1]!r}: "
            "they were forgotten in the source, or belong to another memory. Copy into a new store."
        )


def _hash_rows(store: Movable, done: Done, now: datetime | None) -> tuple[dict[str, int], str]:
    counts: dict[str, int] = {}
    known = None
    for page in chain.from_iterable(iterate_pages(store, kind) for kind in ROW_KINDS):
        rows = list(_drop_expired(page, now))
        for row in rows:
            counts[row.kind] = counts.get(row.kind, 0) + 1
        known = hash_rows(rows, known)
        done(len(page))
    return counts, hash_rows([], known).hexdigest()
