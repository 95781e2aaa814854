"""Hold which passages have a term, as sorted runs of 64-bit numbers that merge as they grow."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engrain.stores.sqlite.columns import Column, Flags, Ints

Keys = npt.NDArray[np.uint64]

# term, passage, count: one number sorts without a permutation, four times as fast.
_TERM_SHIFT, _COUNT_BITS = np.uint64(32), np.uint64(5)
_COUNT_MASK, _PASSAGE_MASK = np.uint64(31), np.uint64((1 << 27) - 1)
_LOW = np.uint64((1 << 32) - 1)
_LARGE = 31  # this count or a higher one: the true one stands aside
# So many unsorted ones cost a few microseconds per term to look through, less than sorting them for each search.
_TAIL = 4096


@dataclass(frozen=True, slots=True, eq=False)
class Pairs:
    """The stored words of several items in one. `passage` counts from 0 over all of them, `passages` is per item."""

    terms: npt.NDArray[np.uint32]
    passage: Ints
    counts: npt.NDArray[np.uint32]
    passages: Ints


def parsed(blobs: Sequence[bytes], passages: Ints) -> Pairs:
    pairs = np.frombuffer(b"".join(blobs), dtype="<u4").reshape(-1, 2)
    sizes = np.fromiter(map(len, blobs), np.int64, len(blobs)) // 8
    numbers = (pairs[:, 1] >> 16).astype(np.int64)
    if numbers.any():
        # A passage beyond what the item admits to would fall to the next item.
        filled = np.flatnonzero(sizes)
        highest = np.maximum.reduceat(numbers, (np.cumsum(sizes) - sizes)[filled])
        passages = passages.copy()
        passages[filled] = np.maximum(passages[filled], highest + 1)
    numbers += np.repeat(np.cumsum(passages) - passages, sizes)
    return Pairs(pairs[:, 0], numbers, pairs[:, 1] & np.uint32(0xFFFF), passages)


class Postings:
    """Passages are numbered as they come, so that every run holds higher ones than the run before it."""

    def __init__(self) -> None:
        self._runs: list[Keys] = []
        self._tail = Column(np.uint64)
        self._large: dict[int, int] = {}

    def __len__(self) -> int:
        return sum(map(len, self._runs)) + len(self._tail)

    @property
    def nbytes(self) -> int:
        return 8 * len(self) + 200 * len(self._large)

    def add(self, terms: npt.NDArray[np.uint32], passages: Ints, counts: npt.NDArray[np.uint32]) -> None:
        """New passages, in order. Call settle() when all are in."""
        keys = _keys(terms, passages)
        keys |= np.minimum(counts, _LARGE).astype(np.uint64)
        for place in np.flatnonzero(counts >= _LARGE).tolist():
            self._large[int(keys[place])] = int(counts[place])
        self._tail.extend(keys)

    def reserve(self, length: int) -> None:
        self._tail.reserve(length)

    def settle(self) -> None:
        if len(self._tail) <= _TAIL:
            return
        self._tail.now.sort()
        self._runs.append(self._tail.now)
        self._tail = Column(np.uint64)
        while len(self._runs) > 1 and 2 * len(self._runs[-1]) > len(self._runs[-2]):
            last = self._runs.pop()
            # The stable sort finds the two sorted halves and merges them.
            self._runs[-1] = np.sort(np.concatenate((self._runs[-1], last)), kind="stable")

    def find(self, terms: tuple[int, ...]) -> list[tuple[Ints, Ints]]:
        """For each term its passages, rising, and how often each has it."""
        lows = np.array(terms, dtype=np.uint64) << _TERM_SHIFT
        pieces: list[list[Keys]] = [[] for _ in terms]
        for run in self._runs:
            begins = np.searchsorted(run, lows).tolist()
            ends = np.searchsorted(run, lows | _LOW, side="right").tolist()
            for piece, begin, end in zip(pieces, begins, ends, strict=True):
                if begin < end:
                    piece.append(run[begin:end])
        if len(self._tail):
            tail = self._tail.now >> _TERM_SHIFT
            for piece, term in zip(pieces, terms, strict=True):
                piece.append(self._tail.now[tail == np.uint64(term)])
        return [self._decoded(piece) for piece in pieces]

    def _decoded(self, pieces: list[Keys]) -> tuple[Ints, Ints]:
        if not pieces:
            return np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64)
        keys = pieces[0] if len(pieces) == 1 else np.concatenate(pieces)
        counts = (keys & _COUNT_MASK).view(np.int64)
        passages = ((keys & _LOW) >> _COUNT_BITS).view(np.int64)
        if self._large:
            for place in np.flatnonzero(counts == _LARGE).tolist():
                counts[place] = self._large[int(keys[place])]
        return passages, counts

    def holds(self, terms: npt.NDArray[np.uint32], passages: Ints, counts: npt.NDArray[np.uint32]) -> Flags:
        """Whether the passage is there with exactly that count of the term."""
        keys = _keys(terms, passages) | np.minimum(counts, _LARGE).astype(np.uint64)
        there = np.isin(keys, self._tail.now)
        for run in self._runs:
            places = np.minimum(np.searchsorted(run, keys), len(run) - 1)
            there |= run[places] == keys
        for place in np.flatnonzero(there & (counts >= _LARGE)).tolist():
            there[place] = self._large[int(keys[place])] == counts[place]
        return there


def _keys(terms: npt.NDArray[np.uint32], passages: Ints) -> Keys:
    keys = terms.astype(np.uint64) << _TERM_SHIFT
    keys |= passages.astype(np.uint64) << _COUNT_BITS
    return keys
