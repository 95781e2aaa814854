"""A vector index over an item store and a vector server that is fed from the store's outbox."""

from __future__ import annotations

import logging
import threading
import time
import warnings
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
import numpy.typing as npt

from engrain.core.clock import Clock, system_clock
from engrain.core.errors import (
    BackendUnavailableWarning,
    ConfigError,
    EngrainError,
    InvalidInput,
    NotFound,
    StoreClosed,
    StoreError,
    StoreUnavailable,
)
from engrain.core.identity import Scope
from engrain.core.model.erasure import Subject
from engrain.core.model.items import Vectors
from engrain.core.model.queries import PointQuery, VectorPoint, item_to_points, to_seconds
from engrain.ports import (
    Embedder,
    Finding,
    ItemStore,
    ListQuery,
    Nearest,
    OutboxEntry,
    SketchQuery,
    VectorQuery,
    VectorServer,
)

Row = npt.NDArray[np.float64]

FIRST = 256  # points that the server is asked for at least
WIDER = 4
FEW = 500  # items that a filter leaves: so many are compared one by one
NEWEST = 2_000  # items that are compared one by one while the server is away
CHUNK = 1_000
ALL = 10_000_000
COUNTED = 100_000  # changes to come are counted up to here
REST = 5.0  # seconds for which a server that did not answer is left alone
CLOSE = 1e-5
REREAD = 5

_log = logging.getLogger("engrain")
# One feeder at a time for a server, in this process.
_turns: WeakKeyDictionary[VectorServer, threading.Lock] = WeakKeyDictionary()


class Scored(NamedTuple):
    cosine: float
    id: str
    every: Row  # the cosine of each window


class FedIndex:
    """The item store is the truth: it says what is visible, what matches, and what the cosines are. The server names
    candidates. What it has not taken yet is compared here, one by one, so that every acknowledged write is found."""

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
        self._others: list[str] | None = None  # models that have a collection too
        self._error: str | None = None
        self._again = 0.0
        self._most = ALL  # changes at a time, fewer for a server that is slow
        self._closed = False

    # Search

    def nearest(self, query: VectorQuery) -> Nearest:
        if query.limit <= 0:
            return Nearest([], [])
        asked = _unit(query)
        few = self._few(query)
        if few is not None:
            return _answer(self._scored(query, asked, few), query.limit, exact=True, whole=True)
        try:
            return self._searched(query, asked)
        except NotFound:
            # Its collection was dropped, by a rebuild perhaps: a new one begins with everything in the outbox.
            return self._searched(query, asked)

    def cosines(self, query: VectorQuery, ids: Sequence[str]) -> list[float]:
        anything = replace(query, where=None)
        found = {one.id: one.cosine for one in self._scored(anything, _unit(query), list(dict.fromkeys(ids)))}
        return [found.get(id, np.nan) for id in ids]

    def _few(self, query: VectorQuery) -> list[str] | None:
        """The items that a filter leaves, if it leaves few: the server could not find them among the many."""
        if query.where is None or not query.where.conditions:
            return None
        found = self._items.page(ListQuery(query.scope, query.where, query.at, limit=FEW + 1))
        return [item.id for item in found] if len(found) <= FEW else None

    def _searched(self, query: VectorQuery, asked: Row) -> Nearest:
        if time.monotonic() < self._again:
            return self._without_server(query, asked, [])
        waiting: list[OutboxEntry] = []
        try:
            target = self._server.target(query.model, asked.size)
            # Before the server is asked: what leaves the outbox after this is on the server already.
            waiting = self._items.outbox(target, ALL, query.scope)
            answer = self._both(query, asked, waiting)
            self._error, self._again = None, 0.0
            return answer
        except StoreClosed:
            raise
        except (StoreError, ConfigError) as exc:
            # Also when it refuses: a copy that cannot be read is no reason to answer nothing.
            self._note(exc)
            warnings.warn(f"engrain: {exc} Words find everything meanwhile.", BackendUnavailableWarning, stacklevel=2)
            return self._without_server(query, asked, [one.item for one in waiting if not one.gone])

    def _both(self, query: VectorQuery, asked: Row, waiting: Sequence[OutboxEntry]) -> Nearest:
        known = {one.item for one in waiting}
        scored = self._scored(query, asked, [one.item for one in waiting if not one.gone])
        # Now, the store's time is the clock's or later. So what is over by the clock is over.
        points = PointQuery(
            asked.astype(np.float32),
            query.model,
            query.scope.id,
            to_seconds(query.at or self._clock()),
            max(FIRST, WIDER * query.limit),
            at_least=query.at is None,
        )
        while True:
            found = self._server.nearest(points)
            fresh = [id for id in dict.fromkeys(found.items) if id not in known]
            known.update(fresh)
            scored += self._scored(query, asked, fresh)
            scored.sort(reverse=True, key=_rank)
            whole = len(found.items) < points.limit
            # Enough only if no point that was not named can be among the best, not even as an equal.
            if whole or (len(scored) >= query.limit and scored[query.limit - 1].cosine > found.cosines[-1] + CLOSE):
                return _answer(scored, query.limit, found.exact, whole)
            points = replace(points, limit=WIDER * points.limit)

    def _without_server(self, query: VectorQuery, asked: Row, waiting: Sequence[str]) -> Nearest:
        newest = self._items.page(ListQuery(query.scope, query.where, query.at, limit=NEWEST + 1))
        whole = len(newest) <= NEWEST
        ids = dict.fromkeys([*waiting, *(item.id for item in newest[:NEWEST])])
        return _answer(self._scored(query, asked, list(ids)), query.limit, exact=whole, whole=whole)

    def _scored(self, query: VectorQuery, asked: Row, ids: Sequence[str]) -> list[Scored]:
        """Those that are visible, match and have a vector."""
        scored: list[Scored] = []
        for start in range(0, len(ids), CHUNK):
            some = ids[start : start + CHUNK]
            shown = self._items.sketches(SketchQuery(query.scope, some, 0, query.where, query.at))
            wanted = {one.id for one in shown}.intersection(some)
            scored += _compared(asked, self._items.vectors(query.scope, sorted(wanted), query.model))
        return scored

    # Feeding

    def feed(self, limit: int) -> int:
        """Every collection that there is: one of an older model must lose what is forgotten too."""
        if time.monotonic() < self._again:
            raise StoreUnavailable(self._error or self._server.where)
        limit = min(limit, self._most)
        try:
            with _turns.setdefault(self._server, threading.Lock()):
                fed = self._fed(limit)
        except NotFound:
            # Dropped by somebody else: the next call makes it anew.
            self._others = None
            return 1
        except StoreClosed:
            raise
        except (StoreError, ConfigError) as exc:
            # What it could not take within the time-out, it may take in smaller parts.
            self._most = max(1, limit // 2)
            self._note(exc)
            raise
        self._error, self._again, self._most = None, 0.0, min(ALL, 2 * self._most)
        return fed

    def lacks(self, scope: Scope, items: Collection[str]) -> bool:
        try:
            targets = self._targets().values()
        except NotFound:
            self._others = None
            return True
        return any(one.item in items for target in targets for one in self._items.outbox(target, ALL, scope))

    # Erasing

    def known(self) -> list[Scope]:
        """None of its own: every point is of an item."""
        return []

    def scopes(self, user: Subject) -> list[Scope]:
        return []

    def hold(self, user: Subject) -> None:
        """No point ends by itself."""

    def erase(self, scope: Scope) -> int:
        """What went from any scope and at any time: the server may have been set back. Not by feeding, since others may
        write as fast, and a transaction of theirs that is open holds back what is later. A feeder that brings some of
        it at this very moment looks once more, and takes it back. Another store may have points in the same collection:
        those stay."""
        gone, there = self._items.removed(), 0
        for model, _ in self._collections() if gone else ():
            if found := self._server.count(model, gone):
                self._server.drop(model, gone)
                there += found
        return there

    def left(self, scope: Scope) -> int:
        gone = self._items.removed()
        return sum(self._server.count(model, gone) for model, _ in self._collections()) if gone else 0

    def remains(self, scope: Scope, before: datetime, back: bool) -> int:
        """Of any scope and time. What a feeder has still to take off is taken off first: it was forgotten just now."""
        gone, there = self._items.removed(), 0
        for model, target in self._collections():
            if due := [one.item for one in self._items.outbox(target, ALL) if one.gone]:
                self._server.drop(model, due)
            there += sum(self._server.count(model, gone[at : at + CHUNK]) for at in range(0, len(gone), CHUNK))
        return there

    def drop(self, items: Collection[str]) -> None:
        for model, _ in self._collections() if items else ():
            self._server.drop(model, list(items))

    def _collections(self) -> Iterator[tuple[str, str]]:
        """Every model that has one, with its target."""
        for model in self._server.models():
            with suppress(NotFound):  # dropped meanwhile, with all that was in it
                yield model, self._server.target(model, 0)

    def _fed(self, limit: int) -> int:
        return sum(self._brought(model, target, limit) for model, target in self._targets().items())

    def _targets(self) -> dict[str, str]:
        own = self._embedder.model.key
        target = self._own_target()
        if self._others is None:
            self._others = [model for model in self._server.models() if model != own]
        return {own: target, **{model: self._server.target(model, 0) for model in self._others}}

    def _brought(self, model: str, target: str, limit: int) -> int:
        entries = self._items.outbox(target, limit)
        if not entries:
            return 0
        before = None
        for _ in range(REREAD):
            points = self._points(entries, model)
            if points == before:
                break
            if points:
                self._server.put(model, points)
            there = {one.item for one in points}
            if gone := [one.item for one in entries if one.item not in there]:
                self._server.drop(model, gone)
            # Once more, since another process may have brought and settled something newer in between.
            before = points
        self._items.settle(target, entries[-1].seq)
        if gone and model != self._embedder.model.key and not self._server.count(model):
            # Nothing is left of an older model. A program that still has it finds no collection, and makes it anew.
            self._server.remove(model)
            self._others = None
        return len(entries)

    def _points(self, entries: Sequence[OutboxEntry], model: str) -> list[VectorPoint]:
        """As they stand now. What is gone, was corrected or has no vector of the model has none."""
        by_scope: dict[Scope, list[str]] = {}
        for one in entries:
            by_scope.setdefault(one.scope, []).append(one.item)
        points: list[VectorPoint] = []
        for scope, ids in by_scope.items():
            vectors = self._items.vectors(scope, ids, model)
            for item in self._items.get_many(scope, ids):
                if item.id in vectors:
                    points += item_to_points(item, scope.id, vectors[item.id].rows)
        return points

    # Care

    def refeed(self) -> None:
        with _turns.setdefault(self._server, threading.Lock()):
            self._server.clear()
            self._others = None

    @property
    def where(self) -> str:
        return self._server.where

    @property
    def trouble(self) -> str | None:
        return self._error

    def state(self) -> dict[str, Any]:
        behind: int | None = None
        try:
            if time.monotonic() >= self._again:
                behind = len(self._items.outbox(self._own_target(), COUNTED))
        except (StoreError, ConfigError, NotFound) as exc:
            self._note(exc)
        return {"server": self._server.where, "behind": behind, "error": self._error}

    def check(self) -> list[Finding]:
        where = self._server.where
        try:
            target = self._own_target()
            points = self._server.count(self._embedder.model.key)
        except (StoreError, ConfigError, NotFound) as exc:
            return [Finding("vectors", "fail", str(exc), "Words find everything meanwhile; nothing is lost.")]
        behind = len(self._items.outbox(target, COUNTED))
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

    def _note(self, exc: EngrainError) -> None:
        if self._error is None:
            _log.warning("vectors are searched without their server: %s", exc)
        self._error, self._again = str(exc), time.monotonic() + REST


def _compared(asked: Row, found: Mapping[str, Vectors]) -> list[Scored]:
    windows = [row for vectors in found.values() for row in vectors.rows]
    if not windows:
        return []
    if any(len(row) != 4 * asked.size for row in windows):
        raise InvalidInput(f"the vector has {asked.size} dimensions; those of its model have others.")
    rows = np.frombuffer(b"".join(windows), dtype="<f4").reshape(len(windows), asked.size)
    # Row by row in the same steps, so that equal vectors tie.
    every = (rows.astype(np.float64) * asked).sum(axis=1).clip(-1.0, 1.0)
    ends = np.cumsum([len(vectors.rows) for vectors in found.values()]).tolist()
    starts = [0, *ends[:-1]]
    best = np.maximum.reduceat(every, starts).tolist()
    parts = (every[start:end] for start, end in zip(starts, ends, strict=True))
    return list(map(Scored, best, found, parts))


def _rank(one: Scored) -> tuple[float, str]:
    return one.cosine, one.id


def _answer(scored: Sequence[Scored], limit: int, exact: bool, whole: bool) -> Nearest:
    """`whole`: all that could be compared was, so that the mean is known."""
    best = sorted(scored, reverse=True, key=_rank)[:limit]
    # Rounded, so that it does not show in which order they came.
    background = round(float(np.concatenate([one.every for one in scored]).mean()), 4) if whole and scored else None
    return Nearest([one.id for one in best], [one.cosine for one in best], exact, background)


def _unit(query: VectorQuery) -> Row:
    asked = np.asarray(query.vector, dtype=np.float64).ravel()
    length = float(np.sqrt(np.square(asked).sum()))
    if not np.isfinite(length):
        raise InvalidInput("the vector holds a value that is not a finite number.")
    return asked / length if length else asked
