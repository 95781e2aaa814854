"""Find items by their words, ranked by the scope's own statistics."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from engrain.core.model.queries import WordHit, WordMatches, WordQuery
from engrain.core.text.bm25 import FloatArray, compute_idf, score_bm25
from engrain.stores.postgres.dialect import PostgresDialect
from engrain.stores.postgres.syntax import BigintArray, IntegerArray
from engrain.stores.postgres.visibility import Ints, Visibility, VisibilityCache, match_filter
from engrain.stores.relational.dialect import Pending, Transaction

# A word with more postings than this is cached.
_COMMON = 2_000
_MAX_CHANGED = 5_000
_MAX_BYTES = 256 << 20
# The bits of a key that are the passage; the others are the item.
_PASSAGE_BITS = 16
# Two sums of the same numbers in another order differ in the last places. Scores that agree this far are equal.
_DECIMALS = 9
Singles = npt.NDArray[np.int32]


@dataclass(frozen=True, slots=True, eq=False)
class Postings:
    """The passages that contain one term, in the order of items and passages. A key is both."""

    keys: Ints
    lengths: Singles
    counts: Singles

    def __len__(self) -> int:
        return len(self.keys)

    @property
    def nbytes(self) -> int:
        return self.keys.nbytes + self.lengths.nbytes + self.counts.nbytes

    def select(self, rows: npt.NDArray[np.bool_] | Ints) -> Postings:
        return Postings(self.keys[rows], self.lengths[rows], self.counts[rows])

    def drop_items(self, items: Ints) -> Postings:
        """`items` in rising order."""
        if not len(items):
            return self
        others = np.ones(len(self.keys), dtype=np.bool_)
        others[self._find_items(items)] = False
        return self.select(others)

    def keep_items(self, items: Ints) -> Postings:
        """`items` in rising order."""
        return self.select(self._find_items(items))

    def merge(self, other: Postings) -> Postings:
        lengths, counts = np.append(self.lengths, other.lengths), np.append(self.counts, other.counts)
        return _sort_postings(np.append(self.keys, other.keys), lengths, counts)

    def _find_items(self, items: Ints) -> Ints:
        starts, ends = np.searchsorted(self.keys, [_make_keys(items), _make_keys(items + 1)])
        sizes = ends - starts
        firsts = np.repeat(starts - np.append(0, np.cumsum(sizes)[:-1]), sizes) if len(sizes) else starts
        return firsts + np.arange(len(firsts))


@dataclass(frozen=True, slots=True, eq=False)
class CachedPostings:
    """The postings of common terms, as of a change of the scope."""

    change: int
    terms: Mapping[int, Postings]

    @property
    def nbytes(self) -> int:
        return sum(found.nbytes for found in self.terms.values())


@dataclass(frozen=True, slots=True, eq=False)
class PendingPostings:
    """The terms of a query, and those that the server was asked for."""

    terms: Sequence[int]
    missing: Sequence[int]
    asked: Pending | None


class PostingsCache:
    """Reading the postings of a word that is in each of 100,000 items takes a quarter of a second, and most queries
    have such a word. Its postings stay here; after a change only those of the changed items are read."""

    def __init__(self, common: int = _COMMON) -> None:
        self.common = common
        self._lock = threading.Lock()
        self._scopes: OrderedDict[str, CachedPostings] = OrderedDict()

    def ask(self, tx: Transaction, scope: str, terms: Sequence[int]) -> PendingPostings:
        """Ask for what is missing before the scope's change is known, so that both questions cross together."""
        with self._lock:
            cached = self._scopes.get(scope)
        missing = [term for term in terms if cached is None or term not in cached.terms]
        return PendingPostings(terms, missing, _ask(tx, missing))

    def load(self, tx: Transaction, scope: str, change: int, pending: PendingPostings) -> list[Postings]:
        """The postings of each term, as of this change."""
        cached = self._update(tx, scope, change)
        read = _read(pending.missing, pending.asked)
        dropped = [term for term in pending.terms if term not in read and term not in cached.terms]
        read |= _read(dropped, _ask(tx, dropped))
        common = {term: found for term, found in read.items() if len(found) > self.common}
        if common or cached.terms:
            self._store(scope, CachedPostings(change, {**cached.terms, **common}))
        return [read[term] if term in read else cached.terms[term] for term in pending.terms]

    def _update(self, tx: Transaction, scope: str, change: int) -> CachedPostings:
        with self._lock:
            cached = self._scopes.get(scope)
        if cached is None or cached.change > change:
            return CachedPostings(change, {})
        if cached.change == change:
            return cached
        ((removed, changed),) = tx.rows("load_changed_items", since=cached.change)
        # Removed rows and a rebuilt index do not tell which postings to drop.
        if removed or changed is None or len(changed) > _MAX_CHANGED:
            return CachedPostings(change, {})
        changed.sort()
        terms = list(cached.terms)
        fresh = _read(terms, tx.ask("load_item_postings", items=BigintArray(changed), terms=_to_array(terms)))
        merged = {term: known.drop_items(changed).merge(fresh[term]) for term, known in cached.terms.items()}
        return CachedPostings(change, merged)

    def _store(self, scope: str, found: CachedPostings) -> None:
        with self._lock:
            cached = self._scopes.get(scope)
            if cached is not None and cached.change > found.change:
                return
            self._scopes[scope] = found
            self._scopes.move_to_end(scope)
            total = sum(cached.nbytes for cached in self._scopes.values())
            while total > _MAX_BYTES and self._scopes:
                total -= self._scopes.popitem(last=False)[1].nbytes


class WordSearch:
    dialect: PostgresDialect
    visibility: VisibilityCache
    postings: PostingsCache

    def best(self, query: WordQuery) -> WordMatches:
        def do(tx: Transaction) -> WordMatches:
            found, _ = self._score(tx, query)
            limit = max(query.limit, 0)
            wanted = limit
            while True:
                rows, complete = found.rank(wanted)
                passing = rows[match_filter(tx, self.dialect, found.find_items(rows), query.where)]
                if len(passing) >= limit or complete:
                    return self._make_matches(tx, found, passing[:limit])
                wanted *= 8

        return self.dialect.read(query.scope, do)

    def counts(self, query: WordQuery, ids: Sequence[str]) -> WordMatches:
        def do(tx: Transaction) -> WordMatches:
            found, numbers = self._score(tx, query, ids)
            rows, _ = found.rank(len(found.keys))
            best = dict(zip(found.find_items(rows).tolist(), rows.tolist(), strict=True))
            asked = [best[numbers[id_]] for id_ in ids if numbers.get(id_) in best]
            return self._make_matches(tx, found, np.array(asked, dtype=np.int64))

        return self.dialect.read(query.scope, do)

    def _score(
        self, tx: Transaction, query: WordQuery, ids: Sequence[str] | None = None
    ) -> tuple[ScoredPassages, Mapping[str, int]]:
        """Score the visible passages with a term, in these items or in all; and give the numbers of these items."""
        clock = tx.ask("find_scope_moment")
        terms = np.array(query.terms, dtype=np.uint32).view(np.int32).tolist()
        asked = None if ids is None else tx.ask("load_item_numbers", ids=ids)
        pending = self.postings.ask(tx, query.scope.id, terms)
        visibility = self.visibility.load(tx, query.at, clock)
        hidden = np.sort(visibility.hidden)
        loaded = self.postings.load(tx, query.scope.id, visibility.change, pending)
        postings = [found.drop_items(hidden) for found in loaded]
        frequencies = tuple(len(posting) for posting in postings)
        if asked is None:
            return _score_passages(visibility, frequencies, postings), {}
        numbers: dict[str, int] = dict(asked.fetchall())
        items = np.unique(np.array(list(numbers.values()), dtype=np.int64))
        return _score_passages(visibility, frequencies, [posting.keep_items(items) for posting in postings]), numbers

    def _make_matches(self, tx: Transaction, found: ScoredPassages, rows: Ints) -> WordMatches:
        ids = self.visibility.load_ids(tx, found.find_items(rows))
        return found.make_matches(rows, ids)


@dataclass(frozen=True, slots=True, eq=False)
class ScoredPassages:
    """Passages with a term and their scores, in the order of their keys."""

    visibility: Visibility
    frequencies: tuple[int, ...]
    postings: Sequence[Postings]
    keys: Ints
    lengths: Ints
    scores: FloatArray

    def rank(self, limit: int) -> tuple[Ints, bool]:
        """The best passage of each item, best first: at least `limit` items if there are. And whether these are all."""
        rows = np.arange(len(self.keys))
        wanted = max(2 * limit, 1)
        if wanted < len(rows):
            rows = np.flatnonzero(self.scores >= np.partition(self.scores, -wanted)[-wanted])
        # The best passage of each item; the first of equal ones.
        order = rows[np.lexsort((self.keys[rows], -self.scores[rows], _get_items(self.keys[rows])))]
        items = _get_items(self.keys[order])
        best = order[np.append(True, np.diff(items) != 0)] if len(order) else order
        if len(best) < limit and len(rows) < len(self.keys):
            return self.rank(4 * limit)
        # Newer items have higher numbers, and come first among equal ones.
        return best[np.lexsort((-_get_items(self.keys[best]), -self.scores[best]))], len(rows) == len(self.keys)

    def find_items(self, rows: Ints) -> Ints:
        return _get_items(self.keys[rows])

    def make_matches(self, rows: Ints, ids: Mapping[int, str]) -> WordMatches:
        """`ids` are those of the items in these rows."""
        keys = self.keys[rows]
        counts = np.zeros((len(keys), len(self.postings)), dtype=np.int64)
        for column, found in enumerate(self.postings):
            if len(found):
                at = np.minimum(np.searchsorted(found.keys, keys), len(found) - 1)
                counts[:, column] = np.where(found.keys[at] == keys, found.counts[at], 0)
        columns = (_get_items(keys), keys & ((1 << _PASSAGE_BITS) - 1), self.lengths[rows], counts)
        hits = [
            WordHit(ids[n], passage, length, tuple(each))
            for n, passage, length, each in zip(*(column.tolist() for column in columns), strict=True)
        ]
        return WordMatches(hits, self.visibility.passages, self.visibility.average_length, self.frequencies)


def _score_passages(
    visibility: Visibility, frequencies: tuple[int, ...], postings: Sequence[Postings]
) -> ScoredPassages:
    none = np.empty(0, dtype=np.int64)
    weights = compute_idf(frequencies, visibility.passages)
    # A passage's score is the sum over its terms.
    shares = [
        score_bm25(found.counts[:, None], found.lengths, [weight], visibility.average_length)
        for found, weight in zip(postings, weights.tolist(), strict=True)
    ]
    keys = np.concatenate([none, *(posting.keys for posting in postings)])
    order = np.argsort(keys, kind="stable")
    keys = keys[order]
    first = np.flatnonzero(np.append(True, np.diff(keys) != 0)) if len(keys) else none
    scores = np.add.reduceat(np.concatenate([np.empty(0), *shares])[order], first) if len(keys) else np.empty(0)
    lengths = np.concatenate([none, *(posting.lengths for posting in postings)])[order][first]
    return ScoredPassages(visibility, frequencies, postings, keys[first], lengths, scores.round(_DECIMALS))


def _ask(tx: Transaction, terms: Sequence[int]) -> Pending | None:
    return tx.ask("load_postings", terms=_to_array(terms)) if terms else None


def _read(terms: Sequence[int], asked: Pending | None) -> dict[int, Postings]:
    if asked is None:
        return {}
    ((items, found, packed),) = asked.fetchall()
    if items is None:
        items, found, packed = np.empty((3, 0), dtype=np.int64)
    keys, lengths, counts = _make_keys(items) | (packed >> 40), (packed >> 16) & 0xFFFFFF, packed & 0xFFFF
    rows = {term: found == term for term in terms}
    return {term: _sort_postings(keys[own], lengths[own], counts[own]) for term, own in rows.items()}


def _sort_postings(keys: Ints, lengths: npt.NDArray[Any], counts: npt.NDArray[Any]) -> Postings:
    # A stable sort is quick on keys that are in order already.
    order = np.argsort(keys, kind="stable")
    return Postings(keys[order], lengths[order].astype(np.int32), counts[order].astype(np.int32))


def _to_array(terms: Sequence[int]) -> IntegerArray:
    return IntegerArray(np.array(terms, dtype=np.int32))


def _make_keys(items: Ints) -> Ints:
    return items << _PASSAGE_BITS


def _get_items(keys: Ints) -> Ints:
    return keys >> _PASSAGE_BITS
