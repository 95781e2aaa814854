"""Find the nearest vectors exactly: scan int8 codes, bound the error, score the candidates by the full vectors."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache
from importlib import import_module
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt

from engrain.core.errors import StoreCorrupt
from engrain.core.model.items import Vectors
from engrain.stores.sqlite.connection import Reader, check_row, read_pages
from engrain.stores.sqlite.index.columns import Allocate, Array, Column, Flags, Ints, allocate_in_memory
from engrain.stores.sqlite.index.items import (
    SQL,
    EntryTable,
    ItemTable,
    Mask,
    count_entries,
    expand_ranges,
    find_first_of_each,
)
from engrain.stores.sqlite.syntax import vector_key
from engrain.stores.vector_math import Floats, multiply_rows, normalize_query, stack_windows


def _import_numkong() -> Any:
    try:
        return import_module("numkong")
    except ImportError:
        return None


numkong = _import_numkong()

Singles = npt.NDArray[np.float32]

_BLOCK_ROWS = 8192
_LEVELS = 127  # of an int8 code
# So few windows are compared by their vectors at once: ruling some out takes longer.
_FEW_WINDOWS = 128
# A scope keeps so many of the vectors that it compared last: at most 14 MB with 384 dimensions.
_MAX_CACHED_WINDOWS = 8192
_ENTRY_BYTES = 150  # of a cached vector besides its values: a key, a place in a dict and the head of the bytes


class VectorIndex(EntryTable):
    """The windows of a scope's items by one model."""

    def __init__(self, model: int, dimension: int, allocate: Allocate = allocate_in_memory) -> None:
        super().__init__(allocate)
        self._base = vector_key(model, 0)
        self.dimension = dimension
        self._type = code_type(dimension)
        self._allocate = allocate
        self._scales = Column(np.float32, allocate=allocate)
        self._errors = Column(np.float32, allocate=allocate)
        self._codes = Column(np.int8, dimension, allocate=allocate)
        # Without numkong: the codes times their scale, made block by block when first scanned.
        self._scaled: Column | None = None
        self.drop_cached()

    @property
    def nbytes(self) -> int:
        scaled = 4 * self.dimension * len(self._scaled) if self._scaled else 0
        return (self.dimension + 16) * len(self._owners) + 16 * len(self._counts) + scaled

    @property
    def cached_bytes(self) -> int:
        """The bytes that are in memory even if the index is mapped."""
        return (4 * self.dimension + _ENTRY_BYTES) * len(self._vectors)

    def move(self, allocate: Allocate) -> None:
        super().move(allocate)
        for column in (self._scales, self._errors, self._codes):
            column.move(allocate)
        self._allocate, self._scaled = allocate, None

    def drop_cached(self) -> None:
        self._vectors: dict[int, bytes] = {}  # of the windows that were compared last, the latest at the end

    # Reading changes

    def load(self, db: Reader, items: ItemTable) -> None:
        # Spare room, so that the first write afterwards does not copy the matrix.
        self._codes.reserve(len(items) + len(items) // 8)
        for numbers, blobs in read_pages(db, SQL["load_codes"], {"scope": items.scope, "base": self._base}):
            self._append(items.find_rows(np.array(numbers, dtype=np.int64)), blobs)

    def _append(self, rows: Ints, blobs: Sequence[bytes]) -> None:
        if not blobs:
            return
        counts = count_entries(blobs, self._type.itemsize, "code")
        windows = np.frombuffer(b"".join(blobs), dtype=self._type)
        self._append_owners(rows, counts)
        self._scales.extend(windows["scale"])
        self._errors.extend(windows["error"])
        self._codes.extend(windows["codes"])

    def update(self, db: Reader, items: ItemTable) -> None:
        values = {"base": self._base, "scope": items.scope, "since": self.last_change}
        changed = db.rows(SQL["load_changed_codes"], values)
        rows = items.find_rows(np.array([number for number, _ in changed], dtype=np.int64))
        added: list[tuple[int, bytes]] = []
        counts = count_entries([windows or b"" for _, windows in changed], self._type.itemsize, "code")
        for row, count, (_, windows) in zip(rows.tolist(), counts.tolist(), changed, strict=True):
            if count != self._counts.values[row]:
                self._remove_entries(row)
                if count:
                    added.append((row, windows))
            elif count:
                self._overwrite(int(self._firsts.values[row]), np.frombuffer(windows, dtype=self._type))
        self._append(np.array([row for row, _ in added], dtype=np.int64), [blob for _, blob in added])

    def _overwrite(self, first: int, windows: npt.NDArray[np.void]) -> None:
        last = first + len(windows)
        self._scales.values[first:last] = windows["scale"]
        self._errors.values[first:last] = windows["error"]
        self._codes.values[first:last] = windows["codes"]
        for window in range(first, last):
            self._vectors.pop(window, None)
        if self._scaled is not None and first < len(self._scaled):
            some = windows[: len(self._scaled) - first]
            self._scaled.values[first:last] = some["codes"] * some["scale"][:, None]

    # Answers

    def find_nearest(
        self, db: Reader, items: ItemTable, query: Floats, mask: Mask, limit: int
    ) -> tuple[Ints, Floats, float | None]:
        """Item rows with their cosines, the best first, and the mean of all cosines. Ties go to the newer item.

        The query has been normalized."""
        windows, background = self._find_candidates(query, self._mask_entries(mask), limit)
        owners, cosines = self._owners.values[windows], self._score(db, items, query, windows)
        if self._several:
            best = find_first_of_each(owners, -cosines)
            owners, cosines = owners[best], cosines[best]
        newness = items.ids.order_by_newness()
        newest = owners if newness is None else newness[owners]
        order = np.lexsort((-newest, -cosines))[: max(limit, 0)]
        return owners[order], cosines[order], background

    def score_rows(self, db: Reader, items: ItemTable, query: Floats, rows: Ints) -> Floats:
        """The cosine of each item row, nan where there is no vector."""
        answer = np.full(len(rows), np.nan)
        known = (rows >= 0).nonzero()[0]
        known = known[self._counts.values[rows[known]] > 0]
        if not len(known):
            return answer
        firsts, counts = self._firsts.values[rows[known]], self._counts.values[rows[known]]
        if not self._several:
            answer[known] = self._score(db, items, query, firsts)
            return answer
        cosines = self._score(db, items, query, expand_ranges(firsts, counts))
        answer[known] = np.maximum.reduceat(cosines, np.cumsum(counts) - counts)
        return answer

    def normalize(self, vector: Any) -> Floats:
        return normalize_query(vector, self.dimension)

    def _find_candidates(self, query: Floats, allowed: Flags | None, limit: int) -> tuple[Ints, float | None]:
        """The windows that may be among the best, and the mean of all cosines."""
        if limit <= 0 or not len(self._owners):
            return np.empty(0, dtype=np.int64), None
        among = None
        if allowed is not None:
            among = np.flatnonzero(allowed)
            # Scanning a copy of a few windows is cheaper than scanning all; of many it is not.
            if len(among) * 8 > len(allowed):
                among = None
        cosines, errors = self._approximate(query, among)
        background = _mean(cosines, allowed if among is None else None)
        if allowed is not None and among is None:
            cosines[~allowed] = -np.inf
        windows = self._keep_possible(cosines, errors, limit, among)
        if len(windows) <= _FEW_WINDOWS:
            return windows, background
        # The second pass takes the query unrounded, so that the bound holds only the rounding of the windows.
        errors = self._errors.values[windows] + self._slack
        return self._keep_possible(self._multiply(query, windows), errors, limit, windows), background

    @property
    def _slack(self) -> np.float32:
        """More than the error of float32 arithmetic."""
        return np.float32((self.dimension + 32) * 1.2e-7)

    def _approximate(self, query: Floats, among: Ints | None) -> tuple[Singles, Singles]:
        """The cosine of each window (or of those given), and the most that it may be off."""
        errors = self._errors.values if among is None else self._errors.values[among]
        if numkong is None:
            return self._multiply(query, among), errors + self._slack
        codes_of_query, scale, error = quantise_query(query.astype(np.float32))
        codes = self._codes.values if among is None else self._codes.values[among]
        scales = self._scales.values if among is None else self._scales.values[among]
        cosines = np.empty(len(codes), dtype=np.float32)
        if len(codes):
            numkong.dot(codes_of_query, codes, out=cosines)
        cosines *= scales * scale
        # |q·v − q'·v'| ≤ |q||v − v'| + |q − q'||v'|, where |q| = 1 and |v'| ≤ |v| + |v − v'|, at most 1 and a little.
        rest = np.float32(error * 1.002)
        return cosines, errors * (1 + rest) + (rest + self._slack)

    def _multiply(self, query: Floats, among: Ints | None) -> Singles:
        """The unrounded query by the rounded windows."""
        single = query.astype(np.float32)
        if among is not None:
            rounded = self._codes.values[among].astype(np.float32)
            return (rounded @ single) * self._scales.values[among]
        if self._scaled is None:
            self._scaled = Column(np.float32, self.dimension, allocate=self._allocate)
            self._scaled.reserve(len(self._owners))
        while len(self._scaled) < len(self._owners):
            block = slice(len(self._scaled), len(self._scaled) + _BLOCK_ROWS)
            self._scaled.extend(self._codes.values[block] * self._scales.values[block, None])
        return np.asarray(self._scaled.values @ single)

    def _keep_possible(self, cosines: Singles, errors: Singles, limit: int, among: Ints | None) -> Ints:
        """The windows whose highest possible cosine reaches the lowest possible one of the limit-th item."""
        floor = self._find_floor(cosines - errors, limit, among)
        highest = cosines + errors
        found: Ints = ((highest >= floor) & (highest > -np.inf)).nonzero()[0]
        return found if among is None else among[found]

    def _score(self, db: Reader, items: ItemTable, query: Floats, windows: Ints) -> Floats:
        """The true cosines of these windows."""
        if len(windows) > _MAX_CACHED_WINDOWS:
            return multiply_rows(self._read_vectors(db, items, windows), query)
        if not len(windows):
            return np.empty(0)
        wanted = windows.tolist()
        if missing := sorted({window for window in wanted if window not in self._vectors}):
            vectors = self._read_vectors(db, items, np.array(missing, dtype=np.int64))
            self._vectors.update(zip(missing, (vector.tobytes() for vector in vectors), strict=True))
        found = np.frombuffer(b"".join(map(self._vectors.__getitem__, wanted)), dtype="<f4")
        while len(self._vectors) > _MAX_CACHED_WINDOWS:
            del self._vectors[next(iter(self._vectors))]
        return multiply_rows(found.reshape(len(wanted), -1), query)

    def _read_vectors(self, db: Reader, items: ItemTable, windows: Ints) -> Array:
        owners = self._owners.values[windows]
        rows = np.unique(owners)
        counts = self._counts.values[rows]
        keys = str((items.numbers.values[rows] + self._base).tolist())  # a list of integers as JSON
        found = db.rows(SQL["load_index_vectors"], {"keys": keys})
        blobs = [check_row(windows, "vector", checksum, key, windows) for windows, key, checksum in found]
        count_entries(blobs, 4 * self.dimension, "vector")
        vectors = np.frombuffer(b"".join(blobs), dtype="<f4").reshape(-1, self.dimension)
        if len(found) != len(rows) or len(vectors) != counts.sum():
            raise StoreCorrupt("vectors and their codes differ. Run: engrain doctor --rebuild.")
        if len(vectors) == len(windows) and np.array_equal(rows, owners):
            return vectors
        starts = np.cumsum(counts) - counts
        within = windows - self._firsts.values[owners]
        chosen: Array = vectors[starts[np.searchsorted(rows, owners)] + within]
        return chosen


def _mean(cosines: Singles, allowed: Flags | None) -> float | None:
    """Rounded, so that the order of the windows does not show in it."""
    count = len(cosines) if allowed is None else int(np.count_nonzero(allowed))
    total = cosines.sum(dtype=np.float64, where=True if allowed is None else allowed)
    return round(float(total) / count, 4) if count else None


@cache
def code_type(dimension: int) -> np.dtype[np.void]:
    """One window as table `code` stores it."""
    return np.dtype([("scale", "<f4"), ("error", "<f4"), ("codes", "i1", (dimension,))])


def encode_items(items: Sequence[Vectors]) -> list[bytes]:
    """The codes of each item's windows, all of one model, after a check of the vectors."""
    coded = quantise(stack_windows(items, len(items[0].rows[0]) // 4))
    ends = list(accumulate(len(vectors.rows) for vectors in items))
    return [coded[start:end].tobytes() for start, end in zip([0, *ends], ends, strict=False)]


def encode_stored(windows: bytes, dimension: int) -> bytes | None:
    """The codes of stored windows; None if their size is wrong."""
    if not windows or len(windows) % (4 * dimension):
        return None
    return quantise(np.frombuffer(windows, dtype="<f4").reshape(-1, dimension)).tobytes()


def quantise(rows: npt.NDArray[np.float32]) -> npt.NDArray[np.void]:
    """int8 codes, a scale per row, and an upper bound on the length of the difference."""
    coded = np.empty(len(rows), dtype=code_type(rows.shape[1]))
    top = np.maximum(rows.max(axis=1), -rows.min(axis=1))
    scale = np.where(top > 0, top / np.float32(_LEVELS), np.float32(1))
    # In place: a new array for each step takes four times as long for many rows.
    codes = rows / scale[:, None]
    np.rint(codes, out=codes)
    np.minimum(codes, _LEVELS, out=codes)  # for one row faster than clip
    np.maximum(codes, -_LEVELS, out=codes)
    rest = codes * scale[:, None].astype(np.float64)
    np.subtract(rows, rest, out=rest)
    length = np.sqrt(np.einsum("ij,ij->i", rest, rest))
    coded["scale"] = scale
    coded["codes"] = codes
    # One step up: rounding to float32 must not make the bound too small.
    coded["error"] = np.nextafter(length.astype(np.float32), np.float32(np.inf))
    return coded


def quantise_query(row: npt.NDArray[np.float32]) -> tuple[npt.NDArray[np.int8], np.float32, np.float32]:
    """The codes, the scale and the bound of one vector, as `quantise` has them."""
    top = np.abs(row).max()
    scale = top / np.float32(_LEVELS) if top > 0 else np.float32(1)
    codes = np.rint(row / scale)  # within the levels: the scale is that of the largest value
    rest = row.astype(np.float64) - codes * np.float64(scale)
    length = np.float32(math.sqrt(float(np.square(rest).sum())))
    return codes.astype(np.int8)[None, :], scale, np.nextafter(length, np.float32(np.inf))
