"""Rank the passages of a scope by the words of a question, with the scope's own statistics."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from engrain.core.text.bm25 import BM25_B, BM25_K1, compute_idf
from engrain.stores.sqlite.connection import Reader, read_pages
from engrain.stores.sqlite.index.columns import Allocate, Column, Flags, Ints, allocate_in_memory, copy_array
from engrain.stores.sqlite.index.items import (
    SQL,
    EntryTable,
    ItemTable,
    Mask,
    count_entries,
    expand_ranges,
    find_first_of_each,
    make_damage_error,
)

Floats = npt.NDArray[np.float64]
Keys = npt.NDArray[np.uint64]
Terms = npt.NDArray[np.uint32]
Counts = npt.NDArray[np.uint32]

# Term, passage and count in one number: it sorts without a permutation, four times as fast.
_TERM_SHIFT, _COUNT_BITS = np.uint64(32), np.uint64(5)
_COUNT_MASK = np.uint64(31)
_LOW_HALF = np.uint64((1 << 32) - 1)
_MAX_PASSAGES = 1 << 16  # of an item: a stored passage number has 16 bits
_LARGE_COUNT = 31  # this count or a higher one is kept in a dictionary
# So many unsorted keys take 8 µs per term to look through. Merging them into 2.5 million others takes 17 ms, in one
# search out of those after some 700 new items.
MAX_TAIL = 16_384

# Two sums of the same numbers in another order differ in the last places; scores that agree this far are equal.
_DECIMALS = 9


@dataclass(frozen=True, slots=True, eq=False)
class Statistics:
    """The numbers that BM25 needs of the visible passages."""

    mask: Mask
    counting: Flags | None  # None: every passage counts
    passages: int
    average: float
    damping: Floats


@dataclass(frozen=True, slots=True, eq=False)
class Found:
    """The passages that have each term, rising, and its count in each: those of one term behind the other's."""

    passages: Ints
    counts: Ints
    lengths: Ints  # how many passages each term has

    def split(self) -> Iterator[tuple[Ints, Ints]]:
        """Yield the passages and the counts of each term."""
        end = 0
        for length in self.lengths.tolist():
            start, end = end, end + length
            yield self.passages[start:end], self.counts[start:end]


@dataclass(frozen=True, slots=True, eq=False)
class Scores:
    """The score of every passage, and the passages that have each term."""

    terms: tuple[int, ...]
    statistics: Statistics
    found: Found
    frequency: tuple[int, ...]
    scores: Floats


@dataclass(frozen=True, slots=True, eq=False)
class BestPassages:
    """Items with their best passage: item rows, number and length of the passage, its counts per term."""

    rows: Ints
    numbers: Ints
    lengths: Ints
    counts: Ints


class WordIndex(EntryTable):
    """The passages of a scope."""

    def __init__(self, allocate: Allocate = allocate_in_memory) -> None:
        super().__init__(allocate)
        self._postings = Postings(allocate)
        self._lengths = Column(np.float64, allocate=allocate)
        self._hashes = Column(np.int64, allocate=allocate)  # of each item's words as they are stored
        self._statistics: Statistics | None = None
        self._scores: Scores | None = None

    @property
    def nbytes(self) -> int:
        return self._postings.nbytes + 16 * len(self._owners) + 24 * len(self._counts)

    @property
    def cached_bytes(self) -> int:
        """The bytes that are in memory even if the index is mapped: two numbers per passage, statistics and scores."""
        return 16 * len(self._owners) if self._statistics else 0

    def move(self, allocate: Allocate) -> None:
        super().move(allocate)
        self._postings.move(allocate)
        self._lengths.move(allocate)
        self._hashes.move(allocate)

    # Reading changes

    def grow(self, items: int) -> None:
        super().grow(items)
        self._hashes.grow(items, 0)

    def load(self, db: Reader, items: ItemTable) -> None:
        for numbers, blobs in read_pages(db, SQL["load_index_words"], {"scope": items.scope}):
            rows = items.find_rows(np.array(numbers, dtype=np.int64))
            if not len(self._postings):
                # Later items are likely to be as long as the first ones.
                self._postings.reserve(sum(map(len, blobs)) // 8 * len(items) // len(blobs) * 9 // 8)
            self._append(items, rows, blobs)
        self._postings.sort_tail()

    def _append(self, items: ItemTable, rows: Ints, blobs: Sequence[bytes]) -> None:
        pairs = parse_pairs(blobs, items.passages.values[rows])
        self._hashes.values[rows] = list(map(hash, blobs))
        first = len(self._owners)
        self._append_owners(rows, pairs.passages)
        lengths = np.bincount(pairs.passage, weights=pairs.counts, minlength=int(pairs.passages.sum()))
        self._lengths.extend(lengths)
        self._postings.add(pairs.terms, pairs.passage + first, pairs.counts)

    def update(self, db: Reader, items: ItemTable) -> None:
        changed = db.rows(SQL["load_changed_index_words"], {"scope": items.scope, "since": self.last_change})
        rows = items.find_rows(np.array([number for number, _ in changed], dtype=np.int64))
        added: list[tuple[int, bytes]] = []
        for row, (_, blob) in zip(rows.tolist(), changed, strict=True):
            if self._counts.values[row] and blob is not None and self._hashes.values[row] == hash(blob):
                continue
            self._remove_entries(row)
            if blob is not None:
                added.append((row, blob))
        if added:
            new_rows = np.array([row for row, _ in added], dtype=np.int64)
            self._append(items, new_rows, [blob for _, blob in added])
            self._postings.sort_tail()

    def _clear_cache(self) -> None:
        self._statistics = self._scores = None

    # Answers

    def score(self, terms: tuple[int, ...], visible: Mask) -> Scores:
        """Cached for the next call: recall asks for the best passages and then for the counts of others."""
        last = self._scores
        if last is None or last.terms != terms or last.statistics.mask is not visible:
            self._scores = last = self._compute_scores(terms, self._compute_statistics(visible))
        return last

    def _compute_scores(self, terms: tuple[int, ...], statistics: Statistics) -> Scores:
        found = self._postings.find(terms)
        passages, counts, counting = found.passages, found.counts, statistics.counting
        frequency = found.lengths
        if counting is not None:
            terms_of = np.arange(len(terms)).repeat(found.lengths)
            frequency = np.bincount(terms_of[counting[passages]], minlength=len(terms))
        weights = compute_idf(frequency, statistics.passages) * (BM25_K1 + 1)
        shares = counts * weights.repeat(found.lengths) / (counts + statistics.damping[passages])
        scores: Any = np.bincount(passages, weights=shares, minlength=len(self._owners))
        return Scores(terms, statistics, found, tuple(frequency.tolist()), scores)

    def _compute_statistics(self, visible: Mask) -> Statistics:
        if self._statistics is None or self._statistics.mask is not visible:
            counting = self._mask_entries(visible)
            lengths = self._lengths.values if counting is None else self._lengths.values[counting]
            average = float(lengths.sum()) / len(lengths) if len(lengths) else 0.0
            damping = self._lengths.values * (BM25_K1 * BM25_B / max(average, 1.0))
            damping += BM25_K1 * (1 - BM25_B)
            self._statistics = Statistics(visible, counting, len(lengths), average, damping)
        return self._statistics

    def find_best(self, scored: Scores, chosen: Mask, newness: Ints | None, limit: int) -> BestPassages:
        """The best of the chosen items; ties go to the newer one."""
        return self._describe(*self._find_best_passages(scored, chosen, newness, limit), scored)

    def find_best_rows(self, scored: Scores, chosen: Mask, newness: Ints | None, limit: int) -> Ints:
        """The same without their passages."""
        return self._find_best_passages(scored, chosen, newness, limit)[1]

    def _find_best_passages(self, scored: Scores, chosen: Mask, newness: Ints | None, limit: int) -> tuple[Ints, Ints]:
        same = chosen is scored.statistics.mask
        allowed = scored.statistics.counting if same else self._mask_entries(chosen)
        passages = (scored.scores > 0).nonzero()[0]
        if allowed is not None:
            passages = passages[allowed[passages]]
        scores = scored.scores[passages]
        passages = passages[scores >= self._find_floor(scores, limit, passages, lowest=0.0) - 10.0**-_DECIMALS]
        owners = self._owners.values[passages]
        passages, owners = self._keep_best_of_each(passages, owners, scored.scores)
        newest = owners if newness is None else newness[owners]
        order = np.lexsort((-newest, -scored.scores[passages].round(_DECIMALS)))[: max(limit, 0)]
        return passages[order], owners[order]

    def describe_rows(self, scored: Scores, rows: Ints) -> BestPassages:
        """The best passages of these item rows (-1 is none), in their order, without items that have no term."""
        asked = (rows >= 0).nonzero()[0]
        asked = asked[self._counts.values[rows[asked]] > 0]
        counts = self._counts.values[rows[asked]]
        passages = expand_ranges(self._firsts.values[rows[asked]], counts)
        passages, slots = self._keep_best_of_each(passages, asked.repeat(counts), scored.scores)
        matching = scored.scores[passages] > 0
        return self._describe(passages[matching], rows[slots[matching]], scored)

    def _keep_best_of_each(self, passages: Ints, groups: Ints, scores: Floats) -> tuple[Ints, Ints]:
        """One passage for each group, in the order of the groups: the best one, and the first of equal ones."""
        if not self._several:
            return passages, groups
        best = find_first_of_each(groups, passages, -scores[passages].round(_DECIMALS))
        return passages[best], groups[best]

    def _describe(self, passages: Ints, rows: Ints, scored: Scores) -> BestPassages:
        counts = np.zeros((len(passages), len(scored.terms)), dtype=np.int64)
        for column, (having, times) in enumerate(scored.found.split()):
            if len(having):
                places = having.searchsorted(passages)
                counts[:, column] = times.take(places, mode="clip") * (having.take(places, mode="clip") == passages)
        lengths = self._lengths.values[passages].astype(np.int64)
        return BestPassages(rows, passages - self._firsts.values[rows], lengths, counts)


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """The stored words of several items. `passage` counts from 0 over all of them; `passages` is per item."""

    terms: Terms
    passage: Ints
    counts: Counts
    passages: Ints


def parse_pairs(blobs: Sequence[bytes], passages: Ints) -> Pairs:
    sizes = count_entries(blobs, 8, "words")
    if passages.size and not 0 <= passages.min() <= passages.max() <= _MAX_PASSAGES:
        raise make_damage_error("item")
    pairs = np.frombuffer(b"".join(blobs), dtype="<u4").reshape(-1, 2)
    numbers = (pairs[:, 1] >> 16).astype(np.int64)
    if numbers.any():
        # A passage number beyond the item's count would otherwise fall to the next item.
        filled = np.flatnonzero(sizes)
        highest = np.maximum.reduceat(numbers, (np.cumsum(sizes) - sizes)[filled])
        passages = passages.copy()
        passages[filled] = np.maximum(passages[filled], highest + 1)
    numbers += np.repeat(np.cumsum(passages) - passages, sizes)
    return Pairs(pairs[:, 0], numbers, pairs[:, 1] & np.uint32(0xFFFF), passages)


class Postings:
    """The keys of all passages in order, and behind them a tail of the newest."""

    def __init__(self, allocate: Allocate = allocate_in_memory) -> None:
        self._allocate = allocate
        self._sorted: Keys = np.empty(0, dtype=np.uint64)
        self._tail = Column(np.uint64, allocate=allocate)
        self._large_counts: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._sorted) + len(self._tail)

    @property
    def nbytes(self) -> int:
        return 8 * len(self) + 200 * len(self._large_counts)

    def move(self, allocate: Allocate) -> None:
        self._allocate = allocate
        self._sorted = copy_array(self._sorted, allocate) if len(self._sorted) else self._sorted
        self._tail.move(allocate)

    def reserve(self, length: int) -> None:
        self._tail.reserve(length)

    def add(self, terms: Terms, passages: Ints, counts: Counts) -> None:
        """Add new passages, in order. Call sort_tail() after the last one."""
        keys = _make_keys(terms, passages, counts)
        for place in np.flatnonzero(counts >= _LARGE_COUNT).tolist():
            self._large_counts[int(keys[place])] = int(counts[place])
        self._tail.extend(keys)

    def sort_tail(self) -> None:
        if len(self._tail) <= MAX_TAIL:
            return
        self._tail.values.sort()
        merged = self._tail.values
        if len(self._sorted):
            merged = self._allocate((len(self),), np.uint64)
            np.concatenate((self._sorted, self._tail.values), out=merged)
            merged.sort(kind="stable")  # finds the two sorted parts and merges them
        self._sorted, self._tail = merged, Column(np.uint64, allocate=self._allocate)

    def find(self, terms: tuple[int, ...]) -> Found:
        lows = np.array(terms, dtype=np.uint64) << _TERM_SHIFT
        starts = self._sorted.searchsorted(lows).tolist()
        ends = self._sorted.searchsorted(lows | _LOW_HALF, side="right").tolist()
        parts = [self._sorted[start:end] for start, end in zip(starts, ends, strict=True)]
        if len(self._tail):
            tail, tail_terms = self._tail.values, self._tail.values >> _TERM_SHIFT
            newest = (tail[tail_terms == np.uint64(term)] for term in terms)
            parts = [np.append(part, more) for part, more in zip(parts, newest, strict=True)]
        passages, counts = self._decode(np.concatenate([self._sorted[:0], *parts]))
        return Found(passages, counts, np.array(list(map(len, parts)), dtype=np.int64))

    def _decode(self, keys: Keys) -> tuple[Ints, Ints]:
        counts = (keys & _COUNT_MASK).view(np.int64)
        passages = keys & _LOW_HALF
        passages >>= _COUNT_BITS
        if self._large_counts:
            for place in np.flatnonzero(counts == _LARGE_COUNT).tolist():
                counts[place] = self._large_counts[int(keys[place])]
        return passages.view(np.int64), counts


def _make_keys(terms: Terms, passages: Ints, counts: Counts) -> Keys:
    keys = terms.astype(np.uint64) << _TERM_SHIFT
    keys |= passages.astype(np.uint64) << _COUNT_BITS
    keys |= np.minimum(counts, _LARGE_COUNT).astype(np.uint64)
    return keys
