"""Find items by their words, ranked by the scope's own statistics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from engrain.core.text.bm25 import FloatArray, compute_idf, score_bm25
from engrain.ports import WordHit, WordMatches, WordQuery
from engrain.stores.postgres.census import Census, Counted, Ints, fitting
from engrain.stores.postgres.link import Db
from engrain.stores.postgres.places import Places, Shelf, item_of, passage_of

# A word with more places than this is kept in the process.
COMMON = 2_000
# Two sums of the same numbers in another order differ in the last places; scores that agree this far are the same.
_DECIMALS = 9


class WordSearch(Counted):
    def __init__(self, *args: Any, **values: Any) -> None:
        self._shelf = Shelf(COMMON)
        super().__init__(*args, **values)

    def best(self, query: WordQuery) -> WordMatches:
        def do(db: Db) -> WordMatches:
            found, _ = self._found(db, query)
            limit = max(query.limit, 0)
            wanted = limit
            while True:
                rows, all_of_them = found.ranked(wanted)
                fits = rows[fitting(db, query.scope, found.items(rows), query.where)]
                if len(fits) >= limit or all_of_them:
                    return self._matches(db, query, found, fits[:limit])
                wanted *= 8

        return self._reading(query.scope, do)

    def counts(self, query: WordQuery, ids: Sequence[str]) -> WordMatches:
        def do(db: Db) -> WordMatches:
            found, numbers = self._found(db, query, ids)
            rows, _ = found.ranked(len(found.keys))
            best = dict(zip(found.items(rows).tolist(), rows.tolist(), strict=True))
            asked = [best[numbers[id_]] for id_ in ids if numbers.get(id_) in best]
            return self._matches(db, query, found, np.array(asked, dtype=np.int64))

        return self._reading(query.scope, do)

    def _found(self, db: Db, query: WordQuery, ids: Sequence[str] | None = None) -> tuple[Found, Mapping[str, int]]:
        """The visible places with a term, in these items or in all; and the numbers of these items."""
        newest = self._ask_newest(db, query.scope)
        search = self._shelf.ask(db, query.scope, np.array(query.terms, dtype=np.uint32).view(np.int32))
        census = self._census(db, query.scope, query.at, newest)
        hidden = np.sort(census.hidden)
        places = [one.without(hidden) for one in self._shelf.find(db, query.scope, census.seq, search)]
        frequency = tuple(len(one) for one in places)
        if ids is None:
            return _scored(census, frequency, places), {}
        numbers = self._numbers_of(db, query.scope, ids, census.seq)
        only = np.unique(np.array(list(numbers.values()), dtype=np.int64))
        return _scored(census, frequency, [one.only(only) for one in places]), numbers

    def _matches(self, db: Db, query: WordQuery, found: Found, rows: Ints) -> WordMatches:
        return found.matches(rows, self._ids_of(db, query.scope, found.items(rows), found.census.seq))


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """Passages with a term, each with its score, in the order of their keys."""

    census: Census
    frequency: tuple[int, ...]
    places: Sequence[Places]
    keys: Ints
    lengths: Ints
    scores: FloatArray

    def ranked(self, limit: int) -> tuple[Ints, bool]:
        """At least so many items if there are, each by its best passage, the best first; and whether these are all."""
        rows = np.arange(len(self.keys))
        wanted = max(2 * limit, 1)
        if wanted < len(rows):
            rows = np.flatnonzero(self.scores >= np.partition(self.scores, -wanted)[-wanted])
        # Of each item the best passage, of equals the first.
        order = rows[np.lexsort((self.keys[rows], -self.scores[rows], item_of(self.keys[rows])))]
        items = item_of(self.keys[order])
        best = order[np.append(True, np.diff(items) != 0)] if len(order) else order
        if len(best) < limit and len(rows) < len(self.keys):
            return self.ranked(4 * limit)
        # Of equals the newer comes first, which has the higher number.
        return best[np.lexsort((-item_of(self.keys[best]), -self.scores[best]))], len(rows) == len(self.keys)

    def items(self, rows: Ints) -> Ints:
        return item_of(self.keys[rows])

    def matches(self, rows: Ints, ids: Mapping[int, str]) -> WordMatches:
        """`ids` are those of the items in these rows."""
        keys = self.keys[rows]
        counts = np.zeros((len(keys), len(self.places)), dtype=np.int64)
        for column, one in enumerate(self.places):
            if len(one):
                at = np.minimum(np.searchsorted(one.keys, keys), len(one) - 1)
                counts[:, column] = np.where(one.keys[at] == keys, one.counts[at], 0)
        columns = (item_of(keys), passage_of(keys), self.lengths[rows], counts)
        hits = [
            WordHit(ids[n], passage, length, tuple(each))
            for n, passage, length, each in zip(*(column.tolist() for column in columns), strict=True)
        ]
        return WordMatches(hits, self.census.passages, self.census.average, self.frequency)


def _scored(census: Census, frequency: tuple[int, ...], places: Sequence[Places]) -> Found:
    none = np.empty(0, dtype=np.int64)
    weights = compute_idf(frequency, census.passages)
    # A passage's score is the sum over its terms: so each is worked out where it stands.
    shares = [
        score_bm25(one.counts[:, None], one.lengths, [weight], census.average)
        for one, weight in zip(places, weights.tolist(), strict=True)
    ]
    keys = np.concatenate([none, *(one.keys for one in places)])
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    first = np.flatnonzero(np.append(True, np.diff(keys) != 0)) if len(keys) else none
    scores = np.add.reduceat(np.concatenate([np.empty(0), *shares])[order], first) if len(keys) else np.empty(0)
    lengths = np.concatenate([none, *(one.lengths for one in places)])[order][first]
    return Found(census, frequency, places, keys[first], lengths, scores.round(_DECIMALS))
