"""Write all that a memory holds as JSON Lines under a manifest, the same bytes for the same memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import BinaryIO

import orjson

from engrain.core import moving
from engrain.core.errors import ConfigError, Conflict
from engrain.core.exporting import EXPORTED, Line, line_of
from engrain.core.journal import TaskQuery
from engrain.core.manifests import Manifest, Sums
from engrain.core.moving import Key, Row, RowKind
from engrain.core.scope import Scope
from engrain.ports import Kit, Movable
from engrain.version import __version__

PAGE = 500
TRIES = 3
ALL = 1_000_000
TASKS: tuple[RowKind, ...] = ("task", "step", "event")
NAMES: Mapping[str, str] = {
    "item": "items",
    "cites": "items that cite others",
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
class Exported:
    """How many lines of each kind were written, and the hash of them all."""

    rows: Mapping[str, int] = field(default_factory=dict)
    hash: str = ""

    def __str__(self) -> str:
        counted = ", ".join(f"{self.rows[kind]:,} {name}" for kind, name in NAMES.items() if self.rows.get(kind))
        return counted or "an empty memory"


def export(kit: Kit, scope: Scope, out: BinaryIO, *, vectors: bool, done: Callable[[int], None]) -> Exported:
    """Read twice: once to count and hash, once to write. Conflict if the memory is written to all the while."""
    for _ in range(TRIES):
        counted = Sums()
        for kind, raw in _lines(kit, scope, vectors):
            counted.add(kind, raw)
        manifest = Manifest(__version__, scope, counted.rows, counted.hashes, counted.hash)
        out.seek(0)
        out.truncate()
        out.write(_raw(manifest.line))
        written = Sums()
        for kind, raw in _lines(kit, scope, vectors):
            out.write(raw)
            written.add(kind, raw)
            done(1)
        if written.hash == counted.hash:
            return Exported(written.rows, written.hash)
    raise Conflict("the memory was written to while it was read, three times. Export it when it rests.")


def rows_of(kit: Kit, scope: Scope) -> Iterator[Row]:
    """Every row that a person may take along, kind by kind, each in the order of its key."""
    store = kit.items
    if not isinstance(store, Movable):
        raise ConfigError("this version of engrain cannot export from this store. Use a SQLite file.")
    for kind in EXPORTED:
        if kind == "episode" and not kit.together:
            yield from _episodes(kit, scope)
        elif kind in TASKS and kit.journal is not getattr(store, "journal", None):
            yield from _tasks(kit, scope, kind)
        elif kind == "session":
            yield from _sessions(store, scope)
        else:
            yield from _pages(store, kind, scope)


def _lines(kit: Kit, scope: Scope, vectors: bool) -> Iterator[tuple[str, bytes]]:
    for row in rows_of(kit, scope):
        if row.kind == "item" and not vectors:
            row = replace(row, values={**row.values, "vectors": {}})
        yield row.kind, _raw(line_of(row))


def _raw(line: Line) -> bytes:
    return orjson.dumps(line, option=orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE)


def _pages(store: Movable, kind: RowKind, scope: Scope) -> Iterator[Row]:
    after: Key | None = None
    while rows := store.dump(kind, after, PAGE, scope):
        yield from rows
        after = rows[-1].key


def _sessions(store: Movable, scope: Scope) -> Iterator[Row]:
    """The rank of a session is its place among those of this memory, oldest first: what it is in the store counts the
    changes of all."""
    rows = list(_pages(store, "session", scope))
    order = sorted(rows, key=lambda row: (row.values["rank"], row.key))
    ranks = {row.key: rank for rank, row in enumerate(order, 1)}
    for row in rows:
        yield replace(row, values={**row.values, "rank": ranks[row.key]})


def _episodes(kit: Kit, scope: Scope) -> Iterator[Row]:
    """From a store of their own; what is kept raw there stays, since nobody says for how long."""
    found = kit.episodes.recent(scope, None, ALL, kit.clock()) if kit.episodes else []
    known = {one.id for one in kit.items.get_many(scope, [one.item for one in found if one.item])}
    for one in sorted(found, key=lambda one: one.id):
        if one.item is None or one.item in known:
            yield moving.episode_row(scope, one, None)


def _tasks(kit: Kit, scope: Scope, kind: RowKind) -> Iterator[Row]:
    """From a journal of their own, which does not list events."""
    if kit.journal is None or kind == "event":
        return
    for task in sorted(kit.journal.tasks(TaskQuery(scope, limit=ALL)), key=lambda one: one.task):
        if kind == "task":
            yield moving.task_row(task)
        else:
            for number, step in enumerate(kit.journal.steps(scope, task.task), 1):
                yield moving.step_row(scope, task.task, number, step)
