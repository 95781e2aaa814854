"""Rank the passages of a scope by the words of a question, with the scope's own statistics."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import compress
from typing import Any

import numpy as np
import numpy.typing as npt

from engrain.core.text.bm25 import BM25_B, BM25_K1, compute_idf
from engrain.stores.sqlite.columns import Column, Flags, Ints, ranges
from engrain.stores.sqlite.postings import Pairs, Postings, parsed
from engrain.stores.sqlite.roster import Mask, Reader, Roster, pages
from engrain.stores.sqlite.sql import load

Floats = npt.NDArray[np.float64]

_SQL = load("index.sql")
_FEW = 256
# Two sums of the same numbers in another order differ in the last places; scores that agree this far are the same.
_DECIMALS = 9


@dataclass(frozen=True, slots=True, eq=False)
class Statistics:
    """What BM25 needs to know of the passages that count."""

    mask: Mask
    counting: Flags | None  # None: every passage counts
    passages: int
    average: float
    damping: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Tally:
    """The passages that have the terms, and the score of every passage."""

    terms: tuple[int, ...]
    statistics: Statistics
    found: list[tuple[Ints, Ints]]
    frequency: tuple[int, ...]
    scores: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Best:
    """Items with their best passage: rows of the roster, number and length of the passage, counts per term."""

    rows: Ints
    numbers: Ints
    lengths: Ints
    counts: Ints


class Wordbook:
    """The passages of a scope. A passage whose item has other words by now has no owner (-1)."""

    def __init__(self) -> None:
        self.seen = 0
        self._loaded = False
        self._postings = Postings()
        self._owners = Column(np.int64)
        self._lengths = Column(np.float64)
        self._firsts = Column(np.int64)
        self._counts = Column(np.int64)
        self._dropped = 0
        self._several = False
        self._statistics: Statistics | None = None
        self._tally: Tally | None = None

    @property
    def nbytes(self) -> int:
        columns = self._owners.nbytes + self._lengths.nbytes + self._firsts.nbytes + self._counts.nbytes
        # Statistics and the last tally hold a number per passage each.
        return self._postings.nbytes + columns + 16 * len(self._owners)

    @property
    def worn(self) -> bool:
        return self._dropped > _FEW and 4 * self._dropped > len(self._owners)

    # Freshness

    def catch_up(self, db: Reader, roster: Roster) -> None:
        self._firsts.reach(len(roster), 0)
        self._counts.reach(len(roster), 0)
        if not self._loaded:
            self._load(db, roster)
        elif roster.seen > self.seen:
            self._update(db, roster)
        self.seen = roster.seen

    def _load(self, db: Reader, roster: Roster) -> None:
        self._loaded = True
        statement = _SQL["words_range" if roster.dense else "words_scope"]
        for ns, blobs in pages(db, statement, roster.span):
            places = roster.places(np.array(ns, dtype=np.int64))
            ours = places >= 0
            mine = blobs if ours.all() else list(compress(blobs, ours.tolist()))
            pairs = parsed(mine, roster.passages.now[places[ours]])
            if mine and not len(self._postings):
                # What comes is likely to be as long as what came first.
                self._postings.reserve(len(pairs.terms) * len(roster) // len(mine) * 9 // 8)
            self._append(places[ours], pairs)
        self._postings.settle()

    def _append(self, places: Ints, pairs: Pairs) -> None:
        """These items, which have no passages yet, get theirs."""
        first = len(self._owners)
        self._firsts.now[places] = first + np.cumsum(pairs.passages) - pairs.passages
        self._counts.now[places] = pairs.passages
        self._several = self._several or bool(pairs.passages.max(initial=0) > 1)
        self._owners.extend(np.repeat(places, pairs.passages))
        lengths = np.bincount(pairs.passage, weights=pairs.counts, minlength=int(pairs.passages.sum()))
        self._lengths.extend(lengths)
        self._postings.add(pairs.terms, pairs.passage + first, pairs.counts)
        self._statistics = self._tally = None

    def _update(self, db: Reader, roster: Roster) -> None:
        rows = db.rows(_SQL["words_changed"], {"scope": roster.scope, "seen": self.seen})
        places = roster.places(np.array([n for n, _ in rows], dtype=np.int64))
        fresh: list[tuple[int, bytes]] = []
        for place, (_, blob) in zip(places.tolist(), rows, strict=True):
            if self._counts.now[place] and blob is not None and self._unchanged(place, blob, roster):
                continue
            self._drop(place)
            if blob is not None:
                fresh.append((place, blob))
        added = np.array([place for place, _ in fresh], dtype=np.int64)
        if fresh:
            self._append(added, parsed([blob for _, blob in fresh], roster.passages.now[added]))
            self._postings.settle()

    def _unchanged(self, place: int, blob: bytes, roster: Roster) -> bool:
        """Every pair is there, and they are as many words as before: then there is nothing else."""
        pairs = parsed([blob], roster.passages.now[place : place + 1])
        first, count = int(self._firsts.now[place]), int(self._counts.now[place])
        if pairs.passages[0] != count or pairs.counts.sum() != self._lengths.now[first : first + count].sum():
            return False
        return bool(self._postings.holds(pairs.terms, pairs.passage + first, pairs.counts).all())

    def _drop(self, place: int) -> None:
        first, count = int(self._firsts.now[place]), int(self._counts.now[place])
        self._owners.now[first : first + count] = -1
        self._counts.now[place] = 0
        self._dropped += count
        self._statistics = self._tally = None

    # Answers

    def tally(self, terms: tuple[int, ...], visible: Mask) -> Tally:
        """Kept for the next call, because recall asks for the best and then for the counts of others."""
        last = self._tally
        if last is None or last.terms != terms or last.statistics.mask is not visible:
            self._tally = last = self._tallied(terms, self._statistics_of(visible))
        return last

    def _tallied(self, terms: tuple[int, ...], statistics: Statistics) -> Tally:
        found = self._postings.find(terms)
        counting = statistics.counting
        frequency = tuple(
            len(passages) if counting is None else int(np.count_nonzero(counting[passages])) for passages, _ in found
        )
        weights = compute_idf(frequency, statistics.passages) * (BM25_K1 + 1)
        shares = [
            counts * weight / (counts + statistics.damping[passages])
            for (passages, counts), weight in zip(found, weights.tolist(), strict=True)
        ]
        passages = np.concatenate([passages for passages, _ in found]) if found else np.empty(0, dtype=np.int64)
        every = np.concatenate(shares) if shares else np.empty(0)
        scores: Any = np.bincount(passages, weights=every, minlength=len(self._owners))
        return Tally(terms, statistics, found, frequency, scores)

    def _statistics_of(self, visible: Mask) -> Statistics:
        if self._statistics is None or self._statistics.mask is not visible:
            counting = self._counting(visible)
            lengths = self._lengths.now if counting is None else self._lengths.now[counting]
            average = float(lengths.sum()) / len(lengths) if len(lengths) else 0.0
            damping = self._lengths.now * (BM25_K1 * BM25_B / max(average, 1.0))
            damping += BM25_K1 * (1 - BM25_B)
            self._statistics = Statistics(visible, counting, len(lengths), average, damping)
        return self._statistics

    def _counting(self, mask: Mask) -> Flags | None:
        if mask.everything and not self._dropped:
            return None
        # The extra place at the end is where owner -1 looks.
        return np.append(mask.rows, False)[self._owners.now]

    def best(self, tally: Tally, chosen: Mask, newness: Ints | None, limit: int) -> Best:
        """The best of the chosen items, ties by newness."""
        same = chosen is tally.statistics.mask
        allowed = tally.statistics.counting if same else self._counting(chosen)
        scores = tally.scores if allowed is None else np.where(allowed, tally.scores, 0.0)
        floor = self._floor(scores, limit)
        passages = np.flatnonzero((scores >= floor - 10.0**-_DECIMALS) & (scores > 0))
        owners = self._owners.now[passages]
        passages, owners = self._best_of_each(passages, owners, tally.scores)
        newest = owners if newness is None else newness[owners]
        order = np.lexsort((-newest, -tally.scores[passages].round(_DECIMALS)))[: max(limit, 0)]
        return self._described(passages[order], owners[order], tally)

    def counts(self, tally: Tally, places: Ints) -> Best:
        """The best passages of the items in these rows (-1 is none), in their order; none if it has no term."""
        asked = np.flatnonzero(places >= 0)
        asked = asked[self._counts.now[places[asked]] > 0]
        rows = places[asked]
        counts = self._counts.now[rows]
        passages = ranges(self._firsts.now[rows], counts)
        passages, slots = self._best_of_each(passages, np.repeat(asked, counts), tally.scores)
        there = tally.scores[passages] > 0
        passages, slots = passages[there], slots[there]
        return self._described(passages, places[slots], tally)

    def _floor(self, scores: Floats, limit: int) -> float:
        """What at least `limit` different items reach, or 0."""
        wanted = max(limit, 1)
        while wanted < len(scores):
            floor = float(np.partition(scores, len(scores) - wanted)[len(scores) - wanted])
            if not self._several or floor <= 0:
                return floor
            if len(np.unique(self._owners.now[scores >= floor])) >= limit:
                return floor
            wanted *= 2
        return 0.0

    def _best_of_each(self, passages: Ints, groups: Ints, scores: Floats) -> tuple[Ints, Ints]:
        """One passage for each group: the best, of equal ones the first. The groups rise."""
        if not self._several:
            return passages, groups
        order = np.lexsort((passages, -scores[passages].round(_DECIMALS), groups))
        passages, groups = passages[order], groups[order]
        first = np.append(True, groups[1:] != groups[:-1]) if len(groups) else np.empty(0, dtype=np.bool_)
        return passages[first], groups[first]

    def _described(self, passages: Ints, rows: Ints, tally: Tally) -> Best:
        counts = np.zeros((len(passages), len(tally.terms)), dtype=np.int64)
        for column, (having, times) in enumerate(tally.found):
            if len(having):
                places = np.minimum(np.searchsorted(having, passages), len(having) - 1)
                counts[:, column] = np.where(having[places] == passages, times[places], 0)
        return Best(rows, passages - self._firsts.now[rows], self._lengths.now[passages].astype(np.int64), counts)
