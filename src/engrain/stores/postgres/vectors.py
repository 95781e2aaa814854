"""Find items by meaning: all of a scope's vectors compared, or, in a large one, those that an index names."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from math import nan
from typing import Any

import numpy as np
import numpy.typing as npt

from engrain.core.clock import to_micros
from engrain.core.errors import InvalidInput
from engrain.ports import Nearest, VectorQuery
from engrain.stores.postgres.arrays import Longs, Reals, sent_vector
from engrain.stores.postgres.census import Asked, Counted, Ints, fitting
from engrain.stores.postgres.filters import build_where
from engrain.stores.postgres.link import Db
from engrain.stores.postgres.near import FEW, LARGE, NearIndexes
from engrain.stores.postgres.sql import load

_SQL = load("vectors.sql")
Vector = npt.NDArray[np.float32]
Floats = npt.NDArray[np.float64]
# How many candidates the index follows at a time; pgvector allows no more than 1,000.
_LEAST_WIDTH, _MOST_WIDTH = 200, 1_000
# So many times as many are named where a filter will take some away.
_FOR_A_FILTER = 8
_MEANS = 100
# A mean is taken anew when so much of the scope has changed: it needs to be right to .02.
_GROWN = 1.05


@dataclass(frozen=True, slots=True)
class Looking:
    """What a search needs to know before it begins."""

    model: int
    dimension: int
    count: int
    indexed: bool
    vector: Vector
    values: dict[str, Any]


class VectorSearch(Counted):
    large = LARGE
    few = FEW

    def __init__(self, *args: Any, **values: Any) -> None:
        self._guard = threading.Lock()
        self._means: OrderedDict[tuple[str, int], tuple[int, Vector]] = OrderedDict()
        super().__init__(*args, **values)
        self._near = NearIndexes(self._link)

    def nearest(self, query: VectorQuery) -> Nearest:
        def do(db: Db) -> Nearest:
            newest = self._ask_newest(db, query.scope)
            looking = self._looking(db, query)
            if looking is None or not looking.count:
                return Nearest([], [])
            found = None
            if looking.count >= self.large:
                if looking.indexed:
                    found = self._named(db, query, looking) or self._few(db, query, looking, newest)
                elif not self._read_only:
                    self._near.ask(query.scope.id, looking.model, looking.dimension)
            return found or self._exact(db, query, looking, newest)

        return self._reading(query.scope, do)

    def cosines(self, query: VectorQuery, ids: Sequence[str]) -> list[float]:
        def do(db: Db) -> dict[str, float]:
            newest = self._ask_newest(db, query.scope)
            looking = self._looking(db, query)
            if looking is None or not ids:
                return {}
            census = self._census(db, query.scope, query.at, newest)
            numbers = self._numbers_of(db, query.scope, ids, census.seq)
            asked = np.array(list(numbers.values()), dtype=np.int64)
            items, distances = _columns(db, "cosines", {**looking.values, "items": Longs(asked)})
            shown = census.visible(items)
            best = dict(zip(*(column.tolist() for column in _best(items[shown], distances[shown])), strict=True))
            return {id_: _cosine(-best[n]) for id_, n in numbers.items() if n in best}

        found = self._reading(query.scope, do)
        return [found.get(one, nan) for one in ids]

    def _exact(self, db: Db, query: VectorQuery, looking: Looking, newest: Asked) -> Nearest:
        items, distances = _columns(db, "exact", looking.values)
        census = self._census(db, query.scope, query.at, newest)
        shown = census.visible(items)
        shown[shown] = fitting(db, query.scope, items[shown], query.where)
        return self._ranked(db, query, census.seq, items[shown], distances[shown])

    def _few(self, db: Db, query: VectorQuery, looking: Looking, newest: Asked) -> Nearest | None:
        """All that pass a filter compared, if they are few. None if there is no filter or they are many."""
        if query.where is None or not query.where.conditions:
            return None
        where, values = build_where(query.where)
        asked = {**looking.values, **values, "most": self.few + 1}
        ((passing,),) = db.rows(_SQL["passing"].replace("{where}", where), asked)
        if passing is not None and len(passing) > self.few:
            return None
        items = np.empty(0, dtype=np.int64) if passing is None else passing
        ((_, seq),) = newest.fetchall()
        return self._ranked(db, query, seq or 0, *_columns(db, "cosines", {**looking.values, "items": Longs(items)}))

    def _ranked(self, db: Db, query: VectorQuery, seq: int, items: Ints, distances: Floats) -> Nearest:
        if not len(items):
            return Nearest([], [])
        background = _cosine(-float(distances.mean()))
        items, distances = _best(items, distances)
        # Of equals the newer comes first, which has the higher number.
        order = np.lexsort((-items, distances))[: max(query.limit, 0)]
        ids = self._ids_of(db, query.scope, items[order], seq)
        named = zip(distances[order].tolist(), items[order].tolist(), strict=True)
        found = sorted(((_cosine(-distance), ids[n]) for distance, n in named), reverse=True)
        return Nearest([id_ for _, id_ in found], [cosine for cosine, _ in found], background=background)

    def _looking(self, db: Db, query: VectorQuery) -> Looking | None:
        """None if the store has no vectors of the model at all."""
        scope = query.scope.id
        asked = {"clock": self._clock_micros(), "scope": scope, "name": scope, "model": query.model}
        rows = db.rows(_SQL["looking"], asked)
        if not rows:
            return None
        model, dimension, count, indexed, now = rows[0]
        vector = _unit(query.vector, dimension)
        at = now if query.at is None else to_micros(query.at)
        values = {"scope": scope, "model": model, "at": at, "vector": Reals(vector)}
        return Looking(model, dimension, count, indexed, vector, values)

    def _named(self, db: Db, query: VectorQuery, looking: Looking) -> Nearest | None:
        """None if too few of those that the index names pass the filter."""
        where, values = build_where(query.where)
        statement = _SQL["near"].replace("{where}", where).replace("{dimension}", str(looking.dimension))
        # Of an item with several vectors more than one may come up.
        windows = 2 * max(query.limit, 1) + 16
        if query.where is not None and query.where.conditions:
            windows *= _FOR_A_FILTER
        while windows <= looking.count:
            db.run(_SQL["widen"], (str(min(max(2 * windows, _LEAST_WIDTH), _MOST_WIDTH)),))
            rows = db.rows(statement, {**looking.values, **values, "limit": windows})
            best: dict[str, float] = {}
            for id_, cosine, passes in rows:
                if passes:
                    best[id_] = max(_cosine(cosine), best.get(id_, -1.0))
            if len(best) >= query.limit:
                ranked = sorted(best.items(), key=lambda one: (one[1], one[0]), reverse=True)[: query.limit]
                background = self._background(db, query, looking)
                return Nearest([id_ for id_, _ in ranked], [one for _, one in ranked], False, background)
            # Farther than it can follow candidates at a time, the index leads to near ones and passes nearer by.
            if len(rows) < windows or windows >= _MOST_WIDTH:
                return None
            windows = min(4 * windows, max(_MOST_WIDTH, windows + 1))
        return None

    def _background(self, db: Db, query: VectorQuery, looking: Looking) -> float | None:
        """By the mean of the scope's vectors, which is kept; none for a part of them or for another moment."""
        if query.where is not None or query.at is not None:
            return None
        key = (query.scope.id, looking.model)
        with self._guard:
            counted, mean = self._means.get(key, (0, None))
        if mean is None or not counted / _GROWN <= looking.count <= counted * _GROWN:
            ((sent,),) = db.rows(_SQL["mean"], looking.values)
            if sent is None:
                return None
            mean = sent_vector(sent)
            with self._guard:
                self._means[key] = looking.count, mean
                self._means.move_to_end(key)
                while len(self._means) > _MEANS:
                    self._means.popitem(last=False)
        return _cosine(float(np.dot(mean, looking.vector)))


def _columns(db: Db, name: str, values: dict[str, Any]) -> tuple[Ints, Floats]:
    ((items, distances),) = db.rows(_SQL[name], values)
    return (np.empty(0, dtype=np.int64), np.empty(0)) if items is None else (items, distances)


def _best(items: Ints, distances: Floats) -> tuple[Ints, Floats]:
    """Each item once, with the best of its vectors."""
    order = np.lexsort((distances, items))
    first = order[np.append(True, np.diff(items[order]) != 0)] if len(items) else order
    return items[first], distances[first]


def _cosine(found: float) -> float:
    return max(-1.0, min(1.0, float(found)))


def _unit(vector: Any, dimension: int) -> Vector:
    query = np.asarray(vector, dtype=np.float64).ravel()
    if len(query) != dimension:
        raise InvalidInput(f"the vector has {len(query)} dimensions; those of its model have {dimension} here.")
    length = float(np.sqrt(np.square(query).sum()))
    if not np.isfinite(length):
        raise InvalidInput("the vector holds a value that is not a finite number.")
    return (query / length if length else query).astype(np.float32)
