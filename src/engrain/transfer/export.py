"""Export a memory as JSON Lines under a manifest: the same memory gives the same bytes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, BinaryIO

import orjson

from engrain import __version__
from engrain.core.errors import ConfigError, Conflict
from engrain.core.formats.export_rows import EXPORTED_KINDS, Line, row_to_line
from engrain.core.formats.manifests import LineSums, Manifest
from engrain.core.identity import Scope
from engrain.core.model.results import describe_counts
from engrain.core.model.rows import Row, RowKind
from engrain.ports import Services
from engrain.ports.storage import Movable, iterate_pages, iterate_rows

FOLDER_PROGRESS = "files"  # name of the progress mark that counts the rounds of a synced folder
USE_FIELDS = ("access_count", "last_accessed")
Uses = dict[str, dict[str, Any]]
MAX_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class ExportResult:
    rows: Mapping[str, int] = field(default_factory=dict)  # lines by kind
    hash: str = ""  # of all lines

    def __str__(self) -> str:
        return describe_counts(self.rows) or "an empty memory"


def export(
    services: Services, scope: Scope, out: BinaryIO, *, vectors: bool, done: Callable[[int], None]
) -> ExportResult:
    """Export a snapshot. Conflict if forgetting, erasing, or writing to a separate store keeps changing it."""
    store = require_movable(services)
    for _ in range(MAX_ATTEMPTS):
        since = store.change_token((scope,))
        exported = store.on_snapshot(lambda: _write_export(services, scope, out, vectors, done))
        if exported is not None and store.change_token((scope,)) == since:
            return exported
    raise Conflict("the memory changed while it was read, three times. Export it when nothing is forgotten or erased.")


def _write_export(
    services: Services, scope: Scope, out: BinaryIO, vectors: bool, done: Callable[[int], None]
) -> ExportResult | None:
    """Read twice: once to count and hash, once to write. None if both differ."""
    uses: Uses = {}
    counted = LineSums()
    for kind, raw in _iterate_lines(services, scope, vectors, uses):
        counted.add(kind, raw)
    manifest = Manifest(__version__, scope, counted.rows, counted.hashes, counted.hash)
    out.seek(0)
    out.truncate()
    out.write(_encode_line(manifest.line))
    written = LineSums()
    for kind, raw in _iterate_lines(services, scope, vectors, uses):
        out.write(raw)
        written.add(kind, raw)
        if written.rows[kind] > counted.rows.get(kind, 0):
            return None  # at once: if `done` itself writes to the memory, the end would never come
        done(1)
    return ExportResult(written.rows, written.hash) if written.hash == counted.hash else None


def iterate_exported(services: Services, scope: Scope) -> Iterator[Row]:
    """Yield every row that an export contains, kind by kind, each in the order of its key."""
    store = require_movable(services)
    for kind in EXPORTED_KINDS:
        if kind in ("session", "record"):
            yield from _iterate_ranked(store, kind, scope)
        elif kind == "episode" and not services.same_store:
            yield from _iterate_episodes(services, store, scope)
        elif kind == "progress":
            # The state of a synced folder is of no use in another store.
            yield from (row for row in iterate_rows(store, kind, scope) if row.key[2] != FOLDER_PROGRESS)
        else:
            yield from iterate_rows(store, kind, scope)


def require_movable(services: Services) -> Movable:
    """Return the store that reads and restores all rows; ConfigError if there is none."""
    store = services.rows or services.items
    if not isinstance(store, Movable):
        raise ConfigError("this store can neither export nor load. Use a SQLite file or Postgres.")
    return store


def _iterate_lines(services: Services, scope: Scope, vectors: bool, uses: Uses) -> Iterator[tuple[str, bytes]]:
    """Yield the lines. An item keeps the use counts of the first read: a recall does not change the memory."""
    for row in iterate_exported(services, scope):
        if row.kind == "item":
            used = uses.setdefault(row.key[0], {name: row.values[name] for name in USE_FIELDS})
            row = replace(row, values={**row.values, **used, **({} if vectors else {"vectors": {}})})
        yield row.kind, _encode_line(row_to_line(row))


def _encode_line(line: Line) -> bytes:
    return orjson.dumps(line, option=orjson.OPT_SORT_KEYS | orjson.OPT_APPEND_NEWLINE)


def _iterate_ranked(store: Movable, kind: RowKind, scope: Scope) -> Iterator[Row]:
    """Rank the rows within this memory, oldest first: the store's own rank counts the changes of all memories.

    They are read twice, because bodies of records may not fit into memory together.
    """
    order = sorted((row.values["rank"], row.key) for row in iterate_rows(store, kind, scope))
    ranks = {key: rank for rank, (_, key) in enumerate(order, 1)}
    for row in iterate_rows(store, kind, scope):
        # A row that was written since the first reading makes the export differ from its count, and so be repeated.
        yield replace(row, values={**row.values, "rank": ranks.get(row.key, len(ranks) + 1)})


def _iterate_episodes(services: Services, store: Movable, scope: Scope) -> Iterator[Row]:
    """Yield the entries of a separate store, without those whose item is gone: it does not see items go."""
    for rows in iterate_pages(store, "episode", scope):
        named = [row.values["item"] for row in rows if row.values["item"] is not None]
        known = {item.id for item in services.items.get_many(scope, named)} if named else set()
        yield from (row for row in rows if row.values["item"] is None or row.values["item"] in known)
