"""Search vectors on a server that is synchronized from the item store's outbox."""

from __future__ import annotations

import logging
import threading
import time
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from operator import attrgetter
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np

from engrain.core import errors
from engrain.core.clock import Clock, system_clock
from engrain.core.identity import Scope
from engrain.core.model.erasure import Subject
from engrain.core.model.items import Vectors
from engrain.core.model.queries import (
    Finding,
    ListQuery,
    Nearest,
    OutboxEntry,
    PointQuery,
    SketchQuery,
    VectorPoint,
    VectorQuery,
    item_to_points,
    to_seconds,
)
from engrain.ports.items import ItemStore
from engrain.ports.search import Embedder, VectorServer
from engrain.stores.vector_math import Floats, multiply_rows, normalize_query

MIN_POINTS = 256  # requested from the server
WIDENING_FACTOR = 4
MAX_DIRECT_ITEMS = 500  # matching a filter: up to this many are compared without the server
MAX_ITEMS_WITHOUT_SERVER = 2_000  # the newest ones, compared while the server does not answer
CHUNK_SIZE = 1_000
MAX_ENTRIES = 10_000_000
MAX_COUNTED_CHANGES = 100_000  # pending ones
RETRY_PAUSE_SECONDS = 5.0  # after a call that the server did not answer
COSINE_TOLERANCE = 1e-5
MAX_REREADS = 5

_log = logging.getLogger("engrain")
# One synchronization at a time per server, in this process.
_feed_locks: WeakKeyDictionary[VectorServer, threading.Lock] = WeakKeyDictionary()


class ScoredItem(NamedTuple):
    cosine: float
    id: str
    every: Floats  # the cosine of each window


_SORT_KEY = attrgetter("cosine", "id")


class OutboxVectorIndex:
    """A VectorIndex over an item store and a vector server.

    The item store decides what is visible, what matches, and what the cosines are. The server only names candidates.
    Changes that have not reached it yet are compared here, so that every acknowledged write is found.
    """

    def __init__(
        self,
        items: ItemStore,
        server: VectorServer,
        embedder: Embedder,
        clock: Clock = system_clock,
        leave: Callable[[], None] | None = None,
    ) -> None:
        self._items = items
        self._server = server
        self._embedder = embedder
        self._clock = clock
        self._leave = leave or server.close
        self._other_models: list[str] | None = None  # that have a collection too
        self.last_error: str | None = None  # why the server did not answer the last call
        self._again = 0.0
        self._batch_limit = MAX_ENTRIES  # changes at a time, fewer for a slow server
        self._closed = False

    # Search

    def nearest(self, query: VectorQuery) -> Nearest:
        if query.limit <= 0:
            return Nearest([], [])
        unit = normalize_query(query.vector)
        filtered = self._list_filtered(query)
        if filtered is not None:
            return _build_answer(self._score_items(query, unit, filtered), query.limit, exact=True, whole=True)
        try:
            return self._search(query, unit)
        except errors.NotFound:
            # The collection was dropped, perhaps by a rebuild: a new one starts with everything in the outbox.
            return self._search(query, unit)

    def cosines(self, query: VectorQuery, ids: Sequence[str]) -> list[float]:
        unit, asked = normalize_query(query.vector), list(dict.fromkeys(ids))
        found = {scored.id: scored.cosine for scored in self._score_items(replace(query, where=None), unit, asked)}
        return [found.get(id, np.nan) for id in ids]

    def _list_filtered(self, query: VectorQuery) -> list[str] | None:
        """Return the items that match the filter if they are few: the server could not find them among the many."""
        if query.where is None or not query.where.conditions:
            return None
        found = self._items.page(ListQuery(query.scope, query.where, query.at, limit=MAX_DIRECT_ITEMS + 1))
        return [item.id for item in found] if len(found) <= MAX_DIRECT_ITEMS else None

    def _search(self, query: VectorQuery, unit: Floats) -> Nearest:
        if time.monotonic() < self._again:
            return self._search_without_server(query, unit, [])
        waiting: list[OutboxEntry] = []
        try:
            target = self._server.target(query.model, unit.size)
            # Read before the server answers: a change that leaves the outbox later is on the server already.
            waiting = self._items.outbox(target, MAX_ENTRIES, query.scope)
            answer = self._search_both(query, unit, waiting)
            self.last_error, self._again = None, 0.0
            return answer
        except errors.StoreClosed:
            raise
        except (errors.StoreError, errors.ConfigError) as exc:
            errors.raise_interrupt(exc)
            # A refusal counts too: an unreadable copy is no reason to return nothing.
            self._record_error(exc)
            warnings.warn(
                f"engrain: {exc} Words find everything meanwhile.", errors.BackendUnavailableWarning, stacklevel=2
            )
            return self._search_without_server(query, unit, [entry.item for entry in waiting if not entry.deleted])

    def _search_both(self, query: VectorQuery, unit: Floats, waiting: Sequence[OutboxEntry]) -> Nearest:
        known = {entry.item for entry in waiting}
        scored = self._score_items(query, unit, [entry.item for entry in waiting if not entry.deleted])
        # The store's time is never before the clock's, so data that is over by the clock is over.
        points = PointQuery(
            unit.astype(np.float32),
            query.model,
            query.scope.id,
            to_seconds(query.at or self._clock()),
            max(MIN_POINTS, WIDENING_FACTOR * query.limit),
            at_least=query.at is None,
        )
        while True:
            found = self._server.nearest(points)
            fresh = [id for id in dict.fromkeys(found.items) if id not in known]
            known.update(fresh)
            scored += self._score_items(query, unit, fresh)
            scored.sort(reverse=True, key=_SORT_KEY)
            whole = len(found.items) < points.limit
            # Enough only if no further point can be among the best, not even as an equal.
            if whole or (
                len(scored) >= query.limit and scored[query.limit - 1].cosine > found.cosines[-1] + COSINE_TOLERANCE
            ):
                return _build_answer(scored, query.limit, found.exact, whole)
            points = replace(points, limit=WIDENING_FACTOR * points.limit)

    def _search_without_server(self, query: VectorQuery, unit: Floats, waiting: Sequence[str]) -> Nearest:
        newest = self._items.page(ListQuery(query.scope, query.where, query.at, limit=MAX_ITEMS_WITHOUT_SERVER + 1))
        whole = len(newest) <= MAX_ITEMS_WITHOUT_SERVER
        ids = dict.fromkeys([*waiting, *(item.id for item in newest[:MAX_ITEMS_WITHOUT_SERVER])])
        return _build_answer(self._score_items(query, unit, list(ids)), query.limit, exact=whole, whole=whole)

    def _score_items(self, query: VectorQuery, unit: Floats, ids: Sequence[str]) -> list[ScoredItem]:
        """Score the items that are visible, match the filter and have a vector."""
        scored: list[ScoredItem] = []
        for start in range(0, len(ids), CHUNK_SIZE):
            some = ids[start : start + CHUNK_SIZE]
            shown = self._items.sketches(SketchQuery(query.scope, some, 0, query.where, query.at))
            wanted = {item.id for item in shown}.intersection(some)
            scored += _score_vectors(unit, self._items.vectors(query.scope, sorted(wanted), query.model))
        return scored

    # Feeding

    def feed(self, limit: int) -> int:
        """Synchronize every collection: one of an older model must lose forgotten items too."""
        if time.monotonic() < self._again:
            raise errors.StoreUnavailable(self.last_error or self._server.where)
        limit = min(limit, self._batch_limit)
        try:
            with _feed_locks.setdefault(self._server, threading.Lock()):
                fed = sum(self._feed_model(model, target, limit) for model, target in self._targets().items())
        except errors.NotFound:
            # Dropped by another process: the next call creates it again.
            self._other_models = None
            return 1
        except errors.StoreClosed:
            raise
        except (errors.StoreError, errors.ConfigError) as exc:
            # A smaller batch may fit into the timeout.
            self._batch_limit = max(1, limit // 2)
            self._record_error(exc)
            raise
        self.last_error, self._again, self._batch_limit = None, 0.0, min(MAX_ENTRIES, 2 * self._batch_limit)
        return fed

    def lacks(self, scope: Scope, items: Collection[str]) -> bool:
        try:
            targets = self._targets().values()
        except errors.NotFound:
            self._other_models = None
            return True
        return any(
            entry.item in items for target in targets for entry in self._items.outbox(target, MAX_ENTRIES, scope)
        )

    # Erasing

    def known(self) -> list[Scope]:
        """Return no scope: every point belongs to an item."""
        return []

    def scopes(self, user: Subject) -> list[Scope]:
        return []

    def hold(self, user: Subject) -> None:
        """Do nothing: points do not expire."""

    def erase(self, scope: Scope) -> int:
        """Remove the points of all items removed in any scope at any time: the server may have been set back.

        Synchronizing would not do: others may write as fast, and their open transactions hold back later changes. A
        synchronization that runs right now reads again and removes what it just added. Points of another store in the
        same collection stay.
        """
        removed, found = self._items.removed(), self.count_remaining(scope)
        if found:
            self.drop(removed)
        return found

    def count_remaining(self, scope: Scope) -> int:
        removed = self._items.removed()
        return sum(self._server.count(model, removed) for model, _ in self._collections()) if removed else 0

    def count_older(self, scope: Scope, before: datetime, back: bool) -> int:
        """Count the points of items removed in any scope at any time. Pending removals are done first."""
        for model, target in self._collections():
            if due := [entry.item for entry in self._items.outbox(target, MAX_ENTRIES) if entry.deleted]:
                self._server.drop(model, due)
        return self.count_remaining(scope)

    def drop(self, items: Collection[str]) -> None:
        for model, _ in self._collections() if items else ():
            self._server.drop(model, list(items))

    def _collections(self) -> Iterator[tuple[str, str]]:
        """Yield every model that has a collection, with its target."""
        for model in self._server.models():
            with suppress(errors.NotFound):  # dropped meanwhile, with all its points
                yield model, self._server.target(model, 0)

    def _targets(self) -> dict[str, str]:
        own = self._embedder.model.key
        target = self._own_target()
        if self._other_models is None:
            self._other_models = [model for model in self._server.models() if model != own]
        return {own: target, **{model: self._server.target(model, 0) for model in self._other_models}}

    def _feed_model(self, model: str, target: str, limit: int) -> int:
        entries = self._items.outbox(target, limit)
        if not entries:
            return 0
        before = None
        for _ in range(MAX_REREADS):
            points = self._load_points(entries, model)
            if points == before:
                break
            if points:
                self._server.put(model, points)
            there = {point.item for point in points}
            if gone := [entry.item for entry in entries if entry.item not in there]:
                self._server.drop(model, gone)
            # Read again: another process may have written and settled something newer in between.
            before = points
        self._items.settle(target, entries[-1].seq)
        if gone and model != self._embedder.model.key and not self._server.count(model):
            # Nothing is left of an older model. A program that still uses it creates the collection again.
            self._server.remove(model)
            self._other_models = None
        return len(entries)

    def _load_points(self, entries: Sequence[OutboxEntry], model: str) -> list[VectorPoint]:
        """Load the current points. Removed or corrected items, and those without a vector of the model, have none."""
        by_scope: dict[Scope, list[str]] = {}
        for entry in entries:
            by_scope.setdefault(entry.scope, []).append(entry.item)
        points: list[VectorPoint] = []
        for scope, ids in by_scope.items():
            vectors = self._items.vectors(scope, ids, model)
            for item in self._items.get_many(scope, ids):
                if item.id in vectors:
                    points += item_to_points(item, scope.id, vectors[item.id].rows)
        return points

    # Maintenance

    def refeed(self) -> None:
        with _feed_locks.setdefault(self._server, threading.Lock()):
            self._server.clear()
            self._other_models = None

    @property
    def where(self) -> str:
        return self._server.where

    def state(self) -> dict[str, Any]:
        behind: int | None = None
        try:
            if time.monotonic() >= self._again:
                behind = len(self._items.outbox(self._own_target(), MAX_COUNTED_CHANGES))
        except (errors.StoreError, errors.ConfigError, errors.NotFound) as exc:
            errors.raise_interrupt(exc)
            self._record_error(exc)
        return {"server": self._server.where, "behind": behind, "error": self.last_error}

    def check(self) -> list[Finding]:
        where = self._server.where
        try:
            target = self._own_target()
            points = self._server.count(self._embedder.model.key)
        except (errors.StoreError, errors.ConfigError, errors.NotFound) as exc:
            errors.raise_interrupt(exc)
            return [Finding("vectors", "fail", str(exc), "Words find everything meanwhile; nothing is lost.")]
        behind = len(self._items.outbox(target, MAX_COUNTED_CHANGES))
        if behind:
            why = f"{where} holds {points:,} points and has {behind:,} changes to come"
            return [Finding("vectors", "warn", why, "they go there while a memory is open")]
        return [Finding("vectors", "pass", f"{where} holds {points:,} points and every change.")]

    def _own_target(self) -> str:
        model = self._embedder.model
        return self._server.target(model.key, model.dimension)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._leave()

    def _record_error(self, exc: errors.EngrainError) -> None:
        if self.last_error is None:
            _log.warning("the vector server does not answer, so vectors are searched without it: %s", exc)
        self.last_error, self._again = str(exc), time.monotonic() + RETRY_PAUSE_SECONDS


def _score_vectors(unit: Floats, found: Mapping[str, Vectors]) -> list[ScoredItem]:
    windows = [row for vectors in found.values() for row in vectors.rows]
    if not windows:
        return []
    if any(len(row) != 4 * unit.size for row in windows):
        raise errors.InvalidInput(f"the vector has {unit.size} dimensions, unlike the vectors of its model.")
    rows = np.frombuffer(b"".join(windows), dtype="<f4").reshape(len(windows), unit.size)
    every = multiply_rows(rows, unit)
    ends = np.cumsum([len(vectors.rows) for vectors in found.values()]).tolist()
    starts = [0, *ends[:-1]]
    best = np.maximum.reduceat(every, starts).tolist()
    parts = (every[start:end] for start, end in zip(starts, ends, strict=True))
    return list(map(ScoredItem, best, found, parts))


def _build_answer(scored: Sequence[ScoredItem], limit: int, exact: bool, whole: bool) -> Nearest:
    """Build the answer. The background is known only if `whole`, when everything was compared."""
    best = sorted(scored, reverse=True, key=_SORT_KEY)[:limit]
    # Rounded, so that the order of the sum does not show.
    background = round(float(np.concatenate([part.every for part in scored]).mean()), 4) if whole and scored else None
    return Nearest([hit.id for hit in best], [hit.cosine for hit in best], exact, background)
