"""Hold the passages of each term, as sorted 64-bit numbers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engrain.stores.sqlite.index.items import Column, Ints

Keys = npt.NDArray[np.uint64]
Terms = npt.NDArray[np.uint32]
Counts = npt.NDArray[np.uint32]

# Term, passage and count in one number: it sorts without a permutation, four times as fast.
_TERM_SHIFT, _COUNT_BITS = np.uint64(32), np.uint64(5)
_COUNT_MASK = np.uint64(31)
_LOW_HALF = np.uint64((1 << 32) - 1)
_LARGE_COUNT = 31  # this count or a higher one is kept in a dictionary
# So many unsorted keys take 8 µs per term to look through. Merging them into 2.5 million others takes 17 ms, in one
# search out of those after some 700 new items.
MAX_TAIL = 16_384


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """The stored words of several items. `passage` counts from 0 over all of them; `passages` is per item."""

    terms: Terms
    passage: Ints
    counts: Counts
    passages: Ints


def parse_pairs(blobs: Sequence[bytes], passages: Ints) -> Pairs:
    pairs = np.frombuffer(b"".join(blobs), dtype="<u4").reshape(-1, 2)
    sizes = np.fromiter(map(len, blobs), np.int64, len(blobs)) // 8
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

    def __init__(self) -> None:
        self._sorted: Keys = np.empty(0, dtype=np.uint64)
        self._tail = Column(np.uint64)
        self._large_counts: dict[int, int] = {}

    def __len__(self) -> int:
        return len(self._sorted) + len(self._tail)

    @property
    def nbytes(self) -> int:
        return 8 * len(self) + 200 * len(self._large_counts)

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
        # The stable sort finds the two sorted parts and merges them.
        self._sorted = np.sort(np.concatenate((self._sorted, self._tail.values)), kind="stable")
        self._tail = Column(np.uint64)

    def find(self, terms: tuple[int, ...]) -> list[tuple[Ints, Ints]]:
        """For each term its passages, rising, and the term's count in each."""
        lows = np.array(terms, dtype=np.uint64) << _TERM_SHIFT
        starts = np.searchsorted(self._sorted, lows).tolist()
        ends = np.searchsorted(self._sorted, lows | _LOW_HALF, side="right").tolist()
        tail, tail_terms = self._tail.values, self._tail.values >> _TERM_SHIFT
        found = []
        for term, start, end in zip(terms, starts, ends, strict=True):
            newest = tail[tail_terms == np.uint64(term)]
            found.append(self._decode(np.append(self._sorted[start:end], newest)))
        return found

    def _decode(self, keys: Keys) -> tuple[Ints, Ints]:
        counts = (keys & _COUNT_MASK).view(np.int64)
        passages = ((keys & _LOW_HALF) >> _COUNT_BITS).view(np.int64)
        if self._large_counts:
            for place in np.flatnonzero(counts == _LARGE_COUNT).tolist():
                counts[place] = self._large_counts[int(keys[place])]
        return passages, counts


def _make_keys(terms: Terms, passages: Ints, counts: Counts) -> Keys:
    keys = terms.astype(np.uint64) << _TERM_SHIFT
    keys |= passages.astype(np.uint64) << _COUNT_BITS
    keys |= np.minimum(counts, _LARGE_COUNT).astype(np.uint64)
    return keys
