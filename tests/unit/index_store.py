"""A small store of rows for the tests of the index, with an oracle that looks at every item."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

import apsw
import numpy as np

from engrain.core.clock import from_micros
from engrain.core.identity import Scope
from engrain.core.model.items import Vectors, Words
from engrain.core.model.queries import SketchQuery, VectorQuery, WordQuery
from engrain.core.text.bm25 import compute_idf, score_bm25
from engrain.stores.relational.reads import ItemReads
from engrain.stores.sqlite import schema
from engrain.stores.sqlite.checksums import list_insert_triggers, list_triggers, seal_rows
from engrain.stores.sqlite.connection import Connection
from engrain.stores.sqlite.dialect import IndexRows, SqliteDialect
from engrain.stores.sqlite.index.view import IndexCache

SCHEMA = Path(schema.__file__).parent / "migrations" / "0001_schema.sql"
ANA, BEN = Scope(user="ana"), Scope(user="ben")
MODEL = "small/8"
Answer = TypeVar("Answer")
DIMENSION = 8


@dataclass
class Row:
    n: int
    id: str
    scope: Scope
    passages: list[dict[int, int]]
    vectors: dict[str, list[np.ndarray]]
    valid_from: int
    valid_to: int | None = None
    retracted_at: int | None = None
    expires_at: int | None = None
    kind: str = "fact"
    session: str | None = None
    place: int | None = None
    speaker: str | None = None
    importance: float = 0.5
    pinned: bool = False
    traits: int = 0
    sources: list[str | None] = field(default_factory=list)

    def visible(self, at: int) -> bool:
        ends = [end for end in (self.valid_to, self.expires_at) if end is not None]
        return self.retracted_at is None and self.valid_from <= at and all(at < end for end in ends)


def words_of(passages: Sequence[dict[int, int]]) -> Words:
    numbers: list[int] = []
    for number, counts in enumerate(passages):
        for term in sorted(counts):
            numbers += (term, number << 16 | counts[term])
    return Words(struct.pack(f"<{len(numbers)}I", *numbers), len(passages))


def vectors_of(model: str, vectors: Sequence[np.ndarray]) -> Vectors:
    return Vectors(model, tuple(np.asarray(one, dtype="<f4").tobytes() for one in vectors))


def unit(values: Sequence[float]) -> np.ndarray:
    vector = np.asarray(values, dtype=np.float64)
    return (vector / np.linalg.norm(vector)).astype(np.float32)


class Reading:
    """A connection of its own, as a store lends to each reader."""

    def __init__(self, connection: apsw.Connection) -> None:
        self.connection = connection

    def rows(self, sql: str, args: Any = ()) -> list[tuple[Any, ...]]:
        return self.connection.execute(sql, args).fetchall()


class IndexStore:
    """`rows` is what the oracle knows; every change goes to it and to SQLite alike."""

    def __init__(self, cap: int = 1 << 30, path: str = ":memory:") -> None:
        self.path = path
        self.connection = apsw.Connection(path)
        self.connection.pragma("journal_mode", "wal")
        for statement in SCHEMA.read_text().split(";\n"):
            self.connection.execute(statement)
        guarded = Connection(self.connection)
        seal_rows(guarded)
        guarded.add_triggers(list_triggers())
        guarded.add_insert_triggers(list_insert_triggers())
        self.insert, self.differences, self.models = guarded.insert, guarded.differences, guarded.models
        self.run_count = 0
        self.items: dict[int, Row] = {}
        self.seq = 0
        self.clock = 1_000_000
        self.scopes: dict[Scope, int] = {}
        self.index = self.new_index(cap)
        self.reads = ItemReads()
        self.reads.dialect = SqliteDialect(None, None, None, None, lambda: from_micros(self.clock))  # type: ignore[arg-type]
        self.reads.dialect.snapshot = self.read  # type: ignore[attr-defined]

    def new_index(self, cap: int = 1 << 30) -> IndexCache:
        return IndexCache(self.read, lambda _: self.clock, cap)

    def run(self, sql: str, args: Any = ()) -> None:
        self.connection.execute(sql, args)

    def rows(self, sql: str, args: Any = ()) -> list[tuple[Any, ...]]:
        self.run_count += 1
        return self.connection.execute(sql, args).fetchall()

    def read(self, fn: Callable[[Any], Answer]) -> Answer:
        if self.path == ":memory:":
            return fn(self)
        other = apsw.Connection(self.path)
        Connection(other)  # with the functions that check rows
        other.execute("begin")
        try:
            return fn(Reading(other))
        finally:
            other.close()

    # Changes

    def add(
        self, scope: Scope = ANA, *, id: str | None = None, passages: Any = (), vectors: Any = None, **more: Any
    ) -> Row:
        with self.connection:
            name = id or f"{self.seq:08d}"
            more.setdefault("valid_from", self.clock)
            added = Row(self._added(scope, name), name, scope, list(passages), dict(vectors or {}), **more)
            self.write(added)
        self.items[added.n] = added
        return added

    def _added(self, scope: Scope, id: str) -> int:
        if scope not in self.scopes:
            self.scopes[scope] = len(self.scopes) + 1
            self.run("insert into scope (scope, id) values (?, ?)", (self.scopes[scope], scope.id))
        self.run(
            "insert into item (id, scope, changed, kind, importance, trust, recorded_at, valid_from, hash, text)"
            " values (?, ?, 0, 'fact', 0.5, 1, ?, ?, randomblob(16), '')",
            (id, self.scopes[scope], self.clock, self.clock),
        )
        return self.connection.last_insert_rowid()

    def write(self, row: Row, index: bool = True) -> None:
        """Put the row as it stands now into the store."""
        self.seq += 1
        self.run(
            "update item set changed = ?, kind = ?, importance = ?, pinned = ?, traits = ?, passages = ?,"
            " valid_from = ?, valid_to = ?, retracted_at = ?, expires_at = ?, place = ?, session = ?, speaker = ?"
            " where n = ?",
            (
                self.seq, row.kind, row.importance, row.pinned, row.traits, len(row.passages), row.valid_from,
                row.valid_to, row.retracted_at, row.expires_at, row.place, row.session, row.speaker, row.n,
            ),
        )  # fmt: skip
        scope = self.scopes[row.scope]
        self.run("delete from source where scope = ? and item = ?", (scope, row.n))
        for number, name in enumerate(row.sources):
            source = "insert into source (scope, item, number, kind, name) values (?, ?, ?, 'user', ?)"
            self.run(source, (scope, row.n, number, name))
        if index:
            IndexRows(self).delete(row.n)
            IndexRows(self).add([(row.n, words_of(row.passages), None)])
            for model, vectors in row.vectors.items():
                IndexRows(self).replace_vectors(row.n, vectors_of(model, vectors))

    def forget(self, row: Row) -> None:
        self.seq += 1
        IndexRows(self).delete(row.n)
        self.run("delete from item where n = ?", (row.n,))
        deleted = "insert into deleted_item (change, scope, n, id) values (?, ?, ?, ?)"
        self.run(deleted, (self.seq, self.scopes[row.scope], row.n, row.id))
        del self.items[row.n]

    # The oracle

    def visible(self, scope: Scope, at: int | None) -> list[Row]:
        moment = self.clock if at is None else at
        return [row for row in self.items.values() if row.scope == scope and row.visible(moment)]

    def cosine(self, row: Row, query: np.ndarray, model: str) -> float:
        asked = query.astype(np.float64)
        asked /= np.sqrt((asked**2).sum())
        return max(
            (float((one.astype(np.float64) * asked).sum()) for one in row.vectors.get(model, ())), default=math.nan
        )

    def true_nearest(self, query: np.ndarray, model: str, limit: int, at: int | None = None) -> list[tuple[float, str]]:
        scored = [
            (min(1.0, self.cosine(row, query, model)), row.id)
            for row in self.visible(ANA, at)
            if row.vectors.get(model)
        ]
        return sorted(scored, reverse=True)[:limit]

    def true_words(self, terms: tuple[int, ...], at: int | None = None) -> dict[str, Any]:
        """Statistics, and the best passage of each visible item that has one of the terms, best first."""
        rows = self.visible(ANA, at)
        every = [passage for row in rows for passage in row.passages]
        average = sum(sum(passage.values()) for passage in every) / len(every) if every else 0.0
        frequency = tuple(sum(term in passage for passage in every) for term in terms)
        weights = compute_idf(frequency, len(every))
        hits = []
        for row in rows:
            for number, passage in enumerate(row.passages):
                counts = tuple(passage.get(term, 0) for term in terms)
                if any(counts):
                    length = sum(passage.values())
                    score = float(score_bm25([counts], [length], weights, average)[0])
                    hits.append((round(score, 9), row.id, -number, length, counts))
        best: dict[str, Any] = {}
        for hit in sorted(hits, reverse=True):
            best.setdefault(hit[1], (hit[1], -hit[2], hit[3], hit[4]))
        return {"hits": list(best.values()), "passages": len(every), "average": average, "frequency": frequency}

    # Searches

    def nearest(
        self, query: np.ndarray, limit: int = 10, *, model: str = MODEL, at: int | None = None, **more: Any
    ) -> Any:
        moment = None if at is None else from_micros(at)
        return self.index.nearest(VectorQuery(query, model, more.pop("scope", ANA), at=moment, limit=limit, **more))

    def best(self, terms: tuple[int, ...], limit: int = 10, *, at: int | None = None, **more: Any) -> Any:
        moment = None if at is None else from_micros(at)
        return self.index.best(WordQuery(terms, more.pop("scope", ANA), at=moment, limit=limit, **more))

    def sketches(self, ids: Sequence[str], reach: int = 2, **more: Any) -> Any:
        return self.reads.sketches(SketchQuery(ANA, ids, reach, **more))
