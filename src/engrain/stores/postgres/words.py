"""Find items by their words, ranked by the scope's own statistics."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engrain.core.bm25 import Floats, bm25, rarity
from engrain.core.scope import Scope
from engrain.ports import Matches, WordHit, WordQuery
from engrain.stores.postgres.arrays import Integers
from engrain.stores.postgres.census import Census, Counted, Ints, fitting, ids_of, numbers_of
from engrain.stores.postgres.link import Db
from engrain.stores.postgres.sql import load

_SQL = load("words.sql")


class WordSearch(Counted):
    def best(self, query: WordQuery) -> Matches:
        def do(db: Db) -> Matches:
            found = self._found(db, query)
            rows = np.flatnonzero(fitting(db, query.scope, found.items, query.where))
            # Of equals the newer comes first, which has the higher number.
            order = np.lexsort((-found.items[rows], -found.scores[rows]))
            return found.matches(db, query.scope, rows[order][: max(query.limit, 0)])

        return self._reading(query.scope, do)

    def counts(self, query: WordQuery, ids: Sequence[str]) -> Matches:
        def do(db: Db) -> Matches:
            found = self._found(db, query)
            rows = {n: row for row, n in enumerate(found.items.tolist())}
            numbers = numbers_of(db, query.scope, ids)
            asked = [rows.get(numbers.get(id_, 0), -1) for id_ in ids]
            return found.matches(db, query.scope, np.array([row for row in asked if row >= 0], dtype=np.int64))

        return self._reading(query.scope, do)

    def _found(self, db: Db, query: WordQuery) -> Found:
        census = self._census(db, query.scope, query.at)
        terms = np.array(query.terms, dtype=np.uint32).view(np.int32)
        if not len(terms):
            return _nothing(census, terms)
        ((items, found, packed),) = db.rows(_SQL["hits"], {"scope": query.scope.id, "terms": Integers(terms)})
        if items is None:
            return _nothing(census, terms)
        shown = census.visible(items)
        return _ranked(census, terms, items[shown], found[shown], packed[shown])


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """The visible items with a term, each with its best passage."""

    census: Census
    frequency: tuple[int, ...]
    items: Ints
    scores: Floats
    passages: Ints
    lengths: Ints
    counts: Ints

    def matches(self, db: Db, scope: Scope, rows: Ints) -> Matches:
        ids = ids_of(db, scope, self.items[rows])
        columns = (self.items, self.passages, self.lengths, self.counts)
        hits = [
            WordHit(ids[n], passage, length, tuple(counts))
            for n, passage, length, counts in zip(*(column[rows].tolist() for column in columns), strict=True)
        ]
        return Matches(hits, self.census.passages, self.census.average, self.frequency)


def _nothing(census: Census, terms: npt.NDArray[np.int32]) -> Found:
    none = np.empty(0, dtype=np.int64)
    return Found(census, (0,) * len(terms), none, np.empty(0), none, none, none.reshape(0, len(terms)))


def _ranked(census: Census, terms: npt.NDArray[np.int32], items: Ints, found: Ints, packed: Ints) -> Found:
    if not len(items):
        return _nothing(census, terms)
    passages, lengths, count = packed >> 40, (packed >> 16) & 0xFFFFFF, packed & 0xFFFF
    order = np.lexsort((passages, items))
    first = np.append(True, (np.diff(items[order]) != 0) | (np.diff(passages[order]) != 0))
    row = np.cumsum(first) - 1
    counts = np.zeros((int(row[-1]) + 1, len(terms)), dtype=np.int64)
    sorter = np.argsort(terms)
    counts[row, sorter[np.searchsorted(terms, found[order], sorter=sorter)]] = count[order]
    heads = order[first]
    frequency = (counts > 0).sum(axis=0)
    # Rounded: the last digits of equals depend on which rows are worked out together.
    scores = bm25(counts, lengths[heads], rarity(frequency, census.passages), census.average).round(9)
    # Of each item the best passage, of equals the first.
    ranked = np.lexsort((passages[heads], -scores, items[heads]))
    best = ranked[np.append(True, np.diff(items[heads][ranked]) != 0)]
    chosen = heads[best]
    return Found(
        census,
        tuple(frequency.tolist()),
        items[chosen],
        scores[best],
        passages[chosen],
        lengths[chosen],
        counts[best],
    )
