"""Find items by meaning: compare all vectors of a scope, or in a large scope those that an index names."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import dataclass
from math import nan
from typing import Any

import numpy as np
import numpy.typing as npt
import psycopg
from psycopg import sql

from engrain.core.clock import to_micros
from engrain.core.errors import EngrainError
from engrain.core.identity import Scope
from engrain.core.model.queries import Nearest, VectorQuery
from engrain.stores.postgres.connection import Database, TimedConnection
from engrain.stores.postgres.dialect import PostgresDialect
from engrain.stores.postgres.migrate import vector_home
from engrain.stores.postgres.syntax import BigintArray, RealArray, build_where, read_vector
from engrain.stores.postgres.visibility import Ints, VisibilityCache, match_filter
from engrain.stores.relational.dialect import Pending, Transaction
from engrain.stores.vector_math import Floats, normalize_query

Vector = npt.NDArray[np.float32]
# How many candidates the index follows at a time; pgvector allows no more than 1,000.
_MIN_WIDTH, _MAX_WIDTH = 200, 1_000
# So many times as many are asked for where a filter will drop some.
_FILTER_FACTOR = 8
_MAX_MEANS = 100
# A mean needs to be right to .02: it is computed again when so much of the scope has changed.
_GROWTH = 1.05
# From so many vectors on an index is faster than comparing all: measured, decision 10.
LARGE = 10_000
# So many items that pass a filter are compared one by one.
FEW = 5_000
# The most dimensions of a halfvec that pgvector indexes.
MAX_DIMENSION = 4_000
_MEMORY = "256MB"
# Seconds after which a missing index is tried again: another process may have died while it built it.
_RETRY = 600.0
_IS_VALID = b"""select indisvalid and indisready from pg_index
  where indexrelid = to_regclass(format('%%I.%%I', %s::text, %s::text))"""
_log = logging.getLogger("engrain")


@dataclass(frozen=True, slots=True)
class PreparedQuery:
    """A query with what the store knows of its model and scope."""

    query: VectorQuery
    model: int
    dimension: int
    count: int
    indexed: bool
    vector: Vector
    at: int
    clock: Pending  # the answer to find_scope_moment

    @property
    def values(self) -> dict[str, Any]:
        return {"model": self.model, "vector": RealArray(self.vector)}


class VectorSearch:
    dialect: PostgresDialect
    visibility: VisibilityCache
    vector_indexes: HnswIndexes
    means: MeanVectors
    large = LARGE
    few = FEW

    def nearest(self, query: VectorQuery) -> Nearest:
        def do(tx: Transaction) -> Nearest:
            prepared = _prepare(tx, query)
            if prepared is None or not prepared.count:
                return Nearest([], [])
            found = None
            if prepared.count >= self.large:
                if prepared.indexed:
                    found = self._search_index(tx, prepared) or self._compare_passing(tx, prepared)
                elif not self.dialect.read_only:
                    self.vector_indexes.request(query.scope.id, prepared.model, prepared.dimension)
            return found or self._compare_all(tx, prepared)

        return self.dialect.read(query.scope, do)

    def cosines(self, query: VectorQuery, ids: Sequence[str]) -> list[float]:
        def do(tx: Transaction) -> dict[str, float]:
            prepared = _prepare(tx, query)
            if prepared is None or not ids:
                return {}
            items, distances = _read_columns(tx.ask("compare_vectors_by_id", ids=ids, **prepared.values))
            shown = self.visibility.load(tx, query.at, prepared.clock).is_visible(items)
            items, distances = _keep_best(items[shown], distances[shown])
            names = self.visibility.load_ids(tx, items)
            return {
                names[n]: _clip_cosine(-distance)
                for n, distance in zip(items.tolist(), distances.tolist(), strict=True)
            }

        found = self.dialect.read(query.scope, do)
        return [found.get(id_, nan) for id_ in ids]

    def _compare_all(self, tx: Transaction, prepared: PreparedQuery) -> Nearest:
        items, distances = _read_columns(tx.ask("compare_vectors", **prepared.values))
        visibility = self.visibility.load(tx, prepared.query.at, prepared.clock)
        shown = visibility.is_visible(items)
        shown[shown] = match_filter(tx, self.dialect, items[shown], prepared.query.where)
        return self._rank(tx, prepared, items[shown], distances[shown])

    def _compare_passing(self, tx: Transaction, prepared: PreparedQuery) -> Nearest | None:
        """Compare all items that pass the filter, if they are few. None without a filter, or if they are many."""
        query = prepared.query
        if query.where is None or not query.where.conditions:
            return None
        where, values = build_where(query.where)
        statement = self.dialect.statements["list_passing_items"].fill(where=where)
        ((passing,),) = tx.rows(statement, at=prepared.at, limit=self.few + 1, **values)
        if passing is not None and len(passing) > self.few:
            return None
        items = np.empty(0, dtype=np.int64) if passing is None else passing
        asked = tx.ask("compare_item_vectors", items=BigintArray(items), **prepared.values)
        return self._rank(tx, prepared, *_read_columns(asked))

    def _rank(self, tx: Transaction, prepared: PreparedQuery, items: Ints, distances: Floats) -> Nearest:
        if not len(items):
            return Nearest([], [])
        background = _clip_cosine(-float(distances.mean()))
        items, distances = _keep_best(items, distances)
        # Newer items have higher numbers, and come first among equal ones.
        order = np.lexsort((-items, distances))[: max(prepared.query.limit, 0)]
        ids = self.visibility.load_ids(tx, items[order])
        named = zip(distances[order].tolist(), items[order].tolist(), strict=True)
        found = sorted(((_clip_cosine(-distance), ids[n]) for distance, n in named), reverse=True)
        return Nearest([id_ for _, id_ in found], [cosine for cosine, _ in found], background=background)

    def _search_index(self, tx: Transaction, prepared: PreparedQuery) -> Nearest | None:
        """None if too few of the items that the index names pass the filter."""
        query = prepared.query
        where, values = build_where(query.where)
        template = self.dialect.statements["search_vector_index"]
        statement = template.fill(where=where, dimension=str(prepared.dimension))
        # An item with several vectors may come up more than once.
        windows = 2 * max(query.limit, 1) + 16
        if query.where is not None and query.where.conditions:
            windows *= _FILTER_FACTOR
        while windows <= prepared.count:
            tx.run("widen_index_search", width=str(min(max(2 * windows, _MIN_WIDTH), _MAX_WIDTH)))
            rows = tx.rows(statement, at=prepared.at, limit=windows, **prepared.values, **values)
            best: dict[str, float] = {}
            for id_, cosine, passes in rows:
                if passes:
                    best[id_] = max(_clip_cosine(cosine), best.get(id_, -1.0))
            if len(best) >= query.limit:
                ranked = sorted(best.items(), key=lambda pair: (pair[1], pair[0]), reverse=True)[: query.limit]
                background = self._find_background(tx, prepared)
                return Nearest([id_ for id_, _ in ranked], [similarity for _, similarity in ranked], False, background)
            # The index follows no more candidates at a time. Beyond that it passes nearer vectors by.
            if len(rows) < windows or windows >= _MAX_WIDTH:
                return None
            windows = min(4 * windows, max(_MAX_WIDTH, windows + 1))
        return None

    def _find_background(self, tx: Transaction, prepared: PreparedQuery) -> float | None:
        """The query's cosine with the scope's mean vector. None for a part of the scope or another moment."""
        if prepared.query.where is not None or prepared.query.at is not None:
            return None
        mean = self.means.load(tx, prepared)
        return None if mean is None else _clip_cosine(float(np.dot(mean, prepared.vector)))

    # Models

    def models(self) -> dict[str, int]:
        return dict(self.dialect.ask(None, "count_vectors_by_model"))

    def drop_model(self, model: str, limit: int) -> int:
        dropped = 0
        for names in self.dialect.ask(None, "list_scopes_of_model", model=model):
            if dropped < limit:
                left = limit - dropped
                dropped += self.dialect.write(Scope(*names), lambda tx: _drop_vectors(tx, model, left))  # noqa: B023
        return dropped


class MeanVectors:
    """The mean vectors of scopes, kept while a scope has about the same number of vectors."""

    def __init__(self) -> None:
        self._means: dict[tuple[str, int], tuple[int, Vector]] = {}

    def load(self, tx: Transaction, prepared: PreparedQuery) -> Vector | None:
        key = (prepared.query.scope.id, prepared.model)
        counted, mean = self._means.get(key, (0, None))
        if mean is not None and counted / _GROWTH <= prepared.count <= counted * _GROWTH:
            return mean
        ((sent,),) = tx.rows("find_mean_vector", model=prepared.model)
        if sent is None:
            return None
        if len(self._means) >= _MAX_MEANS:
            self._means.clear()
        mean = read_vector(sent)
        self._means[key] = prepared.count, mean
        return mean


def _prepare(tx: Transaction, query: VectorQuery) -> PreparedQuery | None:
    """None if the store has no vectors of the model at all."""
    clock = tx.ask("find_scope_moment")
    rows = tx.rows("find_vector_model", name=query.scope.id, model=query.model)
    if not rows:
        return None
    model, dimension, count, indexed, now = rows[0]
    vector = normalize_query(query.vector, dimension).astype(np.float32)
    at = now if query.at is None else to_micros(query.at)
    return PreparedQuery(query, model, dimension, count, indexed, vector, at, clock)


def _drop_vectors(tx: Transaction, model: str, limit: int) -> int:
    tx.begin_write()
    items = [n for (n,) in tx.rows("list_items_of_model", model=model, limit=limit)]
    if items:
        tx.run("delete_model_vectors", items=items, model=model)
        tx.run("mark_changed_items", items=items)
        tx.end_write()
    return len(items)


def _read_columns(asked: Pending) -> tuple[Ints, Floats]:
    ((items, distances),) = asked.fetchall()
    return (np.empty(0, dtype=np.int64), np.empty(0)) if items is None else (items, distances)


def _keep_best(items: Ints, distances: Floats) -> tuple[Ints, Floats]:
    """Each item once, with the best of its vectors."""
    order = np.lexsort((distances, items))
    first = order[np.append(True, np.diff(items[order]) != 0)] if len(items) else order
    return items[first], distances[first]


def _clip_cosine(found: float) -> float:
    return max(-1.0, min(1.0, float(found)))


def make_index_name(model: int, scope: str) -> str:
    return f"near_{model}_{scope}"


class HnswIndexes:
    """A process builds one index at a time, and no two processes build the same one."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._retry_at: dict[str, float] = {}
        self._thread: threading.Thread | None = None

    def request(self, scope: str, model: int, dimension: int) -> None:
        """Begin to build an index, unless that was tried a short while ago."""
        name = make_index_name(model, scope)
        with self._lock:
            if dimension > MAX_DIMENSION or time.monotonic() < self._retry_at.get(name, 0.0):
                return
            if self._start(lambda: self._build(name, scope, model, dimension)):
                self._retry_at[name] = time.monotonic() + _RETRY

    def drop(self, names: Sequence[str]) -> None:
        """Drop indexes in the background: that waits for readers of the table. Left ones are found the next time."""
        with self._lock:
            if names:
                self._start(lambda: self._drop(names))

    def wait(self) -> None:
        thread = self._thread
        if thread:
            thread.join()

    def forget_attempts(self) -> None:
        """Let the next request try at once."""
        self._retry_at.clear()

    def _start(self, work: Callable[[], None]) -> bool:
        """False if another work is running."""
        if self._thread and self._thread.is_alive():
            return False
        self._thread = threading.Thread(target=work, name="engrain-vector-index", daemon=True)
        self._thread.start()
        return True

    def _drop(self, names: Sequence[str]) -> None:
        try:
            with closing(self._database.connect()) as connection:
                connection.patience = float("inf")
                for name in names:
                    whole = sql.Identifier(self._database.address.schema, name)
                    connection.execute(sql.SQL("drop index concurrently if exists {}").format(whole))
                    self._retry_at.pop(name, None)
        except (EngrainError, psycopg.Error):
            _log.exception("an index of vectors that nobody needs any more could not be dropped")

    def _build(self, name: str, scope: str, model: int, dimension: int) -> None:
        try:
            with closing(self._database.connect()) as keeper, closing(self._database.connect()) as builder:
                # A build takes as long as it takes.
                keeper.patience = builder.patience = float("inf")
                with keeper.transaction():
                    if self._lock_build(keeper, name):
                        self._create(builder, name, sql.Literal(scope), (model, dimension))
        except (EngrainError, psycopg.Error):
            _log.exception("the index %s could not be built; every vector is compared meanwhile", name)

    def _lock_build(self, keeper: TimedConnection, name: str) -> bool:
        """Lock in a transaction, which a pooler leaves to us; it may give a session to others."""
        keeper.execute(b"select set_config('idle_in_transaction_session_timeout', '0', true)")
        lock = sql.SQL("select pg_try_advisory_xact_lock(hashtext({}), hashtext({}))")
        # Without parameters: otherwise the session keeps its snapshot, and the build waits for that.
        ((free,),) = keeper.execute(lock.format(self._database.address.schema, name)).fetchall()
        return bool(free)

    def _create(self, builder: TimedConnection, name: str, scope: sql.Literal, size: tuple[int, int]) -> None:
        """Every name is qualified: a session's settings may be lost behind a pooler."""
        model, dimension = size
        schema = self._database.address.schema
        found = builder.execute(_IS_VALID, (schema, name)).fetchall()
        if found == [(True,)]:
            return  # another process was faster
        if found:  # left by a build that was cut short
            builder.execute(sql.SQL("drop index concurrently {}").format(sql.Identifier(schema, name)))
        if self._database.address.prepare:
            builder.execute(b"select set_config('maintenance_work_mem', %s, false)", (_MEMORY,))
        ((_, home),) = vector_home(builder)
        statement = sql.SQL(
            "create index concurrently {} on {} using hnsw ((vector::{}.halfvec({})) {}.halfvec_ip_ops) "
            "where scope = {} and model = {}"
        )
        table, space = sql.Identifier(schema, "embedding"), sql.SQL(home)
        size_, model_ = sql.Literal(dimension), sql.Literal(model)
        builder.execute(statement.format(sql.Identifier(name), table, space, size_, space, scope, model_))
