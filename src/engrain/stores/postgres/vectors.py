"""Find items by meaning: all of a scope's vectors compared, or, in a large one, those that an index names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import nan
from typing import Any

import numpy as np
import numpy.typing as npt

from engrain.core.clock import to_micros
from engrain.core.errors import InvalidInput
from engrain.ports import Nearest, VectorQuery
from engrain.stores.postgres.arrays import Reals
from engrain.stores.postgres.filters import where_sql
from engrain.stores.postgres.handle import Handle
from engrain.stores.postgres.link import Db
from engrain.stores.postgres.sql import load

_SQL = load("vectors.sql")


@dataclass(frozen=True, slots=True)
class Looking:
    """What a search needs to know before it begins."""

    model: int
    dimension: int
    count: int
    values: dict[str, Any]


class VectorSearch(Handle):
    def nearest(self, query: VectorQuery) -> Nearest:
        def do(db: Db) -> Nearest:
            looking = self._looking(db, query)
            return _exact(db, query, looking) if looking and looking.count else Nearest([], [])

        return self._reading(query.scope, do)

    def cosines(self, query: VectorQuery, ids: Sequence[str]) -> list[float]:
        def do(db: Db) -> dict[str, float]:
            looking = self._looking(db, query)
            if looking is None or not ids:
                return {}
            return {id_: _cosine(one) for id_, one in db.rows(_SQL["cosines"], {**looking.values, "ids": list(ids)})}

        found = self._reading(query.scope, do)
        return [found.get(one, nan) for one in ids]

    def _looking(self, db: Db, query: VectorQuery) -> Looking | None:
        """None if the store has no vectors of the model at all."""
        asked = {"clock": self._clock_micros(), "scope": query.scope.id, "model": query.model}
        rows = db.rows(_SQL["looking"], asked)
        if not rows:
            return None
        model, dimension, count, now = rows[0]
        at = now if query.at is None else to_micros(query.at)
        values = {"scope": query.scope.id, "model": model, "at": at, "vector": Reals(_unit(query.vector, dimension))}
        return Looking(model, dimension, count, values)


def _exact(db: Db, query: VectorQuery, looking: Looking) -> Nearest:
    where, values = where_sql(query.where)
    asked = {**looking.values, **values, "limit": max(query.limit, 0)}
    rows = db.rows(_SQL["exact"].replace("{where}", where), asked)
    background = _cosine(rows[0][2]) if rows else None
    return Nearest([row[0] for row in rows], [_cosine(row[1]) for row in rows], background=background)


def _cosine(found: float) -> float:
    return max(-1.0, min(1.0, found))


def _unit(vector: Any, dimension: int) -> npt.NDArray[np.float32]:
    query = np.asarray(vector, dtype=np.float64).ravel()
    if len(query) != dimension:
        raise InvalidInput(f"the vector has {len(query)} dimensions; those of its model have {dimension} here.")
    length = float(np.sqrt(np.square(query).sum()))
    if not np.isfinite(length):
        raise InvalidInput("the vector holds a value that is not a finite number.")
    return (query / length if length else query).astype(np.float32)
