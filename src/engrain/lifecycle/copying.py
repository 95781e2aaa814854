"""Copy a whole memory from one store to another, and prove that both are the same."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from engrain.core.errors import Conflict
from engrain.core.moving import ROW_KINDS, Key, Row, RowKind, digest
from engrain.ports import Movable

PAGE = 500
NAMES: Mapping[RowKind, str] = {
    "item": "items",
    "cites": "items that cite others",
    "tombstone": "tombstones",
    "request": "answered requests",
    "session": "sessions",
    "summary": "summaries",
    "progress": "marks of progress",
    "episode": "episodes",
    "trial": "trials of procedures",
    "task": "tasks",
    "step": "steps",
    "event": "events",
}


@dataclass(frozen=True, slots=True)
class Copied:
    """How many rows of each kind are in both stores now, how many of them were written by this run, and the hash that
    both have."""

    rows: Mapping[str, int] = field(default_factory=dict)
    written: int = 0
    hash: str = ""

    def __str__(self) -> str:
        counted = ", ".join(f"{self.rows[kind]:,} {name}" for kind, name in NAMES.items() if self.rows.get(kind))
        return f"{counted or 'an empty memory'}; {self.written:,} rows written by this run; hash {self.hash}"


def copy(source: Movable, target: Movable, done: Callable[[int], None]) -> Copied:
    """What the target has already is left as it is, so that a copy that was interrupted goes on where it stopped.

    Conflict if the target holds something that the source does not, or the two differ in the end, because the source
    was written to meanwhile."""
    written = sum(_copied(kind, source, target, done) for kind in ROW_KINDS)
    counts, wanted = _proof(source)
    there, found = _proof(target)
    if (counts, wanted) != (there, found):
        differing = [kind for kind in ROW_KINDS if counts.get(kind) != there.get(kind)]
        what = ", ".join(NAMES.get(kind, kind) for kind in differing) or "contents, not in counts"
        raise Conflict(f"source and copy differ in {what}: the source was written to meanwhile. Copy once more.")
    return Copied(counts, written, wanted)


def _copied(kind: RowKind, source: Movable, target: Movable, done: Callable[[int], None]) -> int:
    written = 0
    after: Key | None = None
    while rows := source.dump(kind, after, PAGE):
        there = {row.key: row for row in target.dump(kind, after, PAGE)}
        missing = [row for row in rows if there.pop(row.key, None) != row]
        _no_more(kind, [key for key in there if key <= rows[-1].key])
        if missing:
            target.restore(missing)
        written += len(missing)
        after = rows[-1].key
        done(len(rows))
    _no_more(kind, [row.key for row in target.dump(kind, after, 1)])
    return written


def _no_more(kind: RowKind, keys: list[Key]) -> None:
    if keys:
        raise Conflict(
            f"the target holds {NAMES.get(kind, kind)} that the source does not, such as {keys[0][-1]!r}: "
            "they were forgotten there, or are of another memory. Copy into a new store."
        )


def _proof(store: Movable) -> tuple[dict[str, int], str]:
    counts: dict[str, int] = {}
    known = None
    for row in _rows(store):
        counts[row.kind] = counts.get(row.kind, 0) + 1
        known = digest([row], known)
    return counts, digest([], known).hexdigest()


def _rows(store: Movable) -> Iterator[Row]:
    for kind in ROW_KINDS:
        after: Key | None = None
        while rows := store.dump(kind, after, PAGE):
            yield from rows
            after = rows[-1].key
