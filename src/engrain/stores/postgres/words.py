"""Find items by their words, ranked by the scope's own statistics."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from engrain.core.bm25 import LENGTH_SHARE, SATURATION, bm25, rarity
from engrain.core.clock import to_micros
from engrain.ports import Matches, WordHit, WordQuery
from engrain.stores.postgres.arrays import Integers
from engrain.stores.postgres.filters import where_sql
from engrain.stores.postgres.handle import Handle
from engrain.stores.postgres.link import Db, Row
from engrain.stores.postgres.sql import load

_SQL = load("words.sql")
_KEPT = 1_000
# The server adds up in another order than we do: so many more are asked for than wanted.
_MORE = 16


@dataclass(frozen=True, slots=True)
class Statistics:
    """What holds of a scope from one moment to another, as long as nothing changes in it."""

    seq: int
    since: int
    until: int
    passages: int
    words: int

    @property
    def average(self) -> float:
        return self.words / self.passages if self.passages else 0.0


class Known:
    """The statistics of the scopes last asked for: they cost a look at every item of a scope."""

    def __init__(self) -> None:
        self._guard = threading.Lock()
        self._scopes: OrderedDict[str, Statistics] = OrderedDict()

    def get(self, scope: str, seq: int, at: int) -> Statistics | None:
        with self._guard:
            found = self._scopes.get(scope)
        return found if found and found.seq == seq and found.since <= at < found.until else None

    def put(self, scope: str, found: Statistics) -> None:
        with self._guard:
            self._scopes[scope] = found
            self._scopes.move_to_end(scope)
            if len(self._scopes) > _KEPT:
                self._scopes.popitem(last=False)


class WordSearch(Handle):
    def __init__(self, *args: Any, **values: Any) -> None:
        self._statistics = Known()
        super().__init__(*args, **values)

    def best(self, query: WordQuery) -> Matches:
        where, values = where_sql(query.where)
        statement = _SQL["best"].replace("{where}", where)
        found = self._matches(query, statement, {**values, "limit": max(query.limit, 0) + _MORE})
        ranked = sorted(found[1].items(), key=lambda one: (one[1][0], one[0]), reverse=True)[: query.limit]
        return Matches([hit for _, (_, hit) in ranked], *found[0])

    def counts(self, query: WordQuery, ids: Sequence[str]) -> Matches:
        found = self._matches(query, _SQL["counts"], {"ids": list(ids)})
        return Matches([found[1][id_][1] for id_ in ids if id_ in found[1]], *found[0])

    def _matches(
        self, query: WordQuery, statement: str, values: Mapping[str, Any]
    ) -> tuple[tuple[int, float, tuple[int, ...]], dict[str, tuple[float, WordHit]]]:
        """The statistics, and by item the score and place of its best passage."""
        signed = np.array(query.terms, dtype=np.uint32).view(np.int32)

        def do(db: Db) -> tuple[Statistics, list[Row]]:
            at, known = self._standing_statistics(db, query)
            if not len(signed) or not known.passages:
                return known, []
            asked = {
                "scope": query.scope.id, "at": at, "terms": Integers(signed), "passages": known.passages,
                "average": max(known.average, 1.0), "saturation": SATURATION, "share": LENGTH_SHARE,
            }  # fmt: skip
            return known, db.rows(statement, {**values, **asked})

        known, rows = self._reading(query.scope, do)
        places = {term: place for place, term in enumerate(signed.tolist())}
        frequency = _spread(rows[0], places) if rows else (0,) * len(places)
        statistics = (known.passages, known.average, frequency)
        return statistics, _scored(rows[1:], places, statistics)

    def _standing_statistics(self, db: Db, query: WordQuery) -> tuple[int, Statistics]:
        scope = query.scope.id
        ((now, seq),) = db.rows(_SQL["newest"], {"clock": self._clock_micros(), "scope": scope})
        at = now if query.at is None else to_micros(query.at)
        found = self._statistics.get(scope, seq or 0, at)
        if found is None:
            ((passages, words, since, until),) = db.rows(_SQL["statistics"], {"scope": scope, "at": at})
            since, until = -(2**63) if since is None else since, 2**63 if until is None else until
            found = Statistics(seq or 0, since, until, passages, words)
            self._statistics.put(scope, found)
        return at, found


def _spread(row: Row, places: Mapping[int, int]) -> tuple[int, ...]:
    """The counts of a row in the order of the question's terms."""
    counts = [0] * len(places)
    for term, count in zip(row[3] or (), row[4] or (), strict=True):
        counts[places[term]] = count
    return tuple(counts)


def _scored(
    rows: Sequence[Row], places: Mapping[int, int], statistics: tuple[int, float, tuple[int, ...]]
) -> dict[str, tuple[float, WordHit]]:
    if not rows:
        return {}
    passages, average, frequency = statistics
    hits = [WordHit(row[0], row[1], row[2], _spread(row, places)) for row in rows]
    scores = bm25([hit.counts for hit in hits], [hit.length for hit in hits], rarity(frequency, passages), average)
    found: dict[str, tuple[float, WordHit]] = {}
    for score, hit in zip(scores.tolist(), hits, strict=True):
        best = found.get(hit.id)
        if best is None or (score, -hit.passage) > (best[0], -best[1].passage):
            found[hit.id] = score, hit
    return found
