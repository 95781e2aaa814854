"""Find the nearest vectors exactly: scan int8 codes, bound the error, re-score what may be among the best."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import import_module
from itertools import compress
from typing import Any

import numpy as np
import numpy.typing as npt

from engrain.core.errors import StoreCorrupt
from engrain.stores.sqlite.columns import Array, Column, Flags, Ints, as_json, ranges
from engrain.stores.sqlite.index_rows import code_type, key_of, quantise
from engrain.stores.sqlite.roster import Mask, Reader, Roster, pages
from engrain.stores.sqlite.sql import load


def _numkong() -> Any:
    try:
        return import_module("numkong")
    except ImportError:
        return None


numkong = _numkong()

Floats = npt.NDArray[np.float64]
Singles = npt.NDArray[np.float32]

_SQL = load("index.sql")
_BLOCK = 8192
_FEW = 256
# Windows of a scope up to which their vectors stay in memory, once read, as doubles: 6 MB with 384 dimensions.
_HELD = 2048


class Scan:
    """The windows of a scope by one model. A window that was replaced or dropped has no owner (-1)."""

    def __init__(self, model: int, dimension: int) -> None:
        self._base = key_of(model, 0)
        self.dimension = dimension
        self._type = code_type(dimension)
        self.seen = 0
        self._loaded = False
        self._scales = Column(np.float32)
        self._errors = Column(np.float32)
        self._codes = Column(np.int8, dimension)
        self._owners = Column(np.int64)
        self._firsts = Column(np.int64)
        self._counts = Column(np.int64)
        self._several = False
        self._dropped = 0
        # Where numkong is absent: the codes times their scale, made block by block when first scanned.
        self._dense: Column | None = None
        self._allowed_for: Mask | None = None
        self._allowed: Flags | None = None
        # In a small scope: the vectors that were read, and which of them were.
        self._vectors = Column(np.float64, dimension)
        self._read = Column(np.bool_)

    @property
    def nbytes(self) -> int:
        parts = (self._scales, self._errors, self._codes, self._owners, self._firsts, self._counts, self._vectors)
        return sum(part.nbytes for part in parts) + (self._dense.nbytes if self._dense else 0)

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
        # With room for what comes: the first remember after it must not copy the matrix.
        self._codes.reserve(len(roster) + len(roster) // 8)
        statement = _SQL["codes_range" if roster.dense else "codes_scope"]
        for ns, blobs in pages(db, statement, {**roster.span, "base": self._base}):
            places = roster.places(np.array(ns, dtype=np.int64))
            ours = places >= 0
            self._append(places[ours], blobs if ours.all() else list(compress(blobs, ours.tolist())))

    def _append(self, places: Ints, blobs: Sequence[bytes]) -> None:
        """These items, which have no windows yet, get theirs."""
        if not blobs:
            return
        windows = np.frombuffer(b"".join(blobs), dtype=self._type)
        counts = np.fromiter(map(len, blobs), np.int64, len(blobs)) // self._type.itemsize
        if counts.max() > 1:
            self._several = True
        self._firsts.now[places] = len(self._owners) + np.concatenate(([0], np.cumsum(counts)[:-1]))
        self._counts.now[places] = counts
        self._owners.extend(np.repeat(places, counts))
        self._scales.extend(windows["scale"])
        self._errors.extend(windows["error"])
        self._codes.extend(windows["codes"])
        self._allowed_for = None

    def _update(self, db: Reader, roster: Roster) -> None:
        rows = db.rows(_SQL["codes_changed"], {"base": self._base, "scope": roster.scope, "seen": self.seen})
        places = roster.places(np.array([n for n, _ in rows], dtype=np.int64))
        fresh: list[tuple[int, bytes]] = []
        for place, (_, windows) in zip(places.tolist(), rows, strict=True):
            count = len(windows or b"") // self._type.itemsize
            if count != self._counts.now[place]:
                self._drop(place)
                if count:
                    fresh.append((place, windows))
            elif count:
                self._overwrite(int(self._firsts.now[place]), np.frombuffer(windows, dtype=self._type))
        self._append(np.array([place for place, _ in fresh], dtype=np.int64), [blob for _, blob in fresh])

    def _drop(self, place: int) -> None:
        first, count = int(self._firsts.now[place]), int(self._counts.now[place])
        self._owners.now[first : first + count] = -1
        self._counts.now[place] = 0
        self._dropped += count
        self._allowed_for = None

    def _overwrite(self, first: int, windows: npt.NDArray[np.void]) -> None:
        last = first + len(windows)
        self._scales.now[first:last] = windows["scale"]
        self._errors.now[first:last] = windows["error"]
        self._codes.now[first:last] = windows["codes"]
        self._read.now[first:last] = False
        if self._dense is not None and first < len(self._dense):
            some = windows[: len(self._dense) - first]
            self._dense.now[first:last] = some["codes"] * some["scale"][:, None]

    # Answers

    def nearest(
        self, db: Reader, roster: Roster, query: Floats, mask: Mask, limit: int
    ) -> tuple[Ints, Floats, float | None]:
        """Rows of the roster that hold all of the best `limit` and those that tie with the last, in no order; and the
        mean of all cosines."""
        rows, background = self._may_be_best(query, self._counting(mask), limit)
        owners, cosines = self._owners.now[rows], self._exact(db, roster, query, rows)
        if self._several:
            owners, cosines = _best_by_owner(owners, cosines)
        return owners, cosines, background

    def cosines(self, db: Reader, roster: Roster, query: Floats, places: Ints) -> Floats:
        """One for each of these rows of the roster, nan where there is no vector."""
        answer = np.full(len(places), np.nan)
        known = np.flatnonzero(places >= 0)
        known = known[self._counts.now[places[known]] > 0]
        if not len(known):
            return answer
        firsts, counts = self._firsts.now[places[known]], self._counts.now[places[known]]
        cosines = self._exact(db, roster, query, ranges(firsts, counts))
        answer[known] = np.maximum.reduceat(cosines, np.cumsum(counts) - counts)
        return answer

    def _counting(self, mask: Mask) -> Flags | None:
        """Which windows count; None if all do."""
        if mask.everything and not self._dropped:
            return None
        if self._allowed_for is not mask or self._allowed is None:
            # The extra place at the end is where owner -1 looks.
            self._allowed = np.append(mask.rows, False)[self._owners.now]
            self._allowed_for = mask
        return self._allowed

    def _may_be_best(self, query: Floats, allowed: Flags | None, limit: int) -> tuple[Ints, float | None]:
        if limit <= 0 or not len(self._owners):
            return np.empty(0, dtype=np.int64), None
        among = None
        if allowed is not None:
            among = np.flatnonzero(allowed)
            # To scan a copy of a few rows is cheaper than to scan all; of many it is not.
            if len(among) * 8 > len(allowed):
                among = None
        cosines, missed = self._approximate(query, among)
        background = _mean(cosines, allowed if among is None else None)
        if allowed is not None and among is None:
            cosines[~allowed] = -np.inf
        rows = self._contenders(cosines, missed, limit, among)
        # The second pass takes the query as it is, so that only the rounding of the rows is left in the bound.
        errors = self._errors.now[rows] + self._slack
        return self._contenders(self._product(query, rows), errors, limit, rows), background

    @property
    def _slack(self) -> np.float32:
        """More than float32 arithmetic can be off by."""
        return np.float32((self.dimension + 32) * 1.2e-7)

    def _approximate(self, query: Floats, among: Ints | None) -> tuple[Singles, Singles]:
        """A cosine for each window (or those given), and how far it may be off."""
        errors = self._errors.now if among is None else self._errors.now[among]
        if numkong is None:
            return self._product(query, among), errors + self._slack
        coded = quantise(query.astype(np.float32)[None, :])
        codes = self._codes.now if among is None else self._codes.now[among]
        scales = self._scales.now if among is None else self._scales.now[among]
        cosines = np.empty(len(codes), dtype=np.float32)
        if len(codes):
            numkong.dot(coded["codes"], codes, out=cosines)
        cosines *= scales * coded["scale"]
        # |q·v − q'·v'| ≤ |q||v − v'| + |q − q'||v'|, where |q| = 1 and |v'| ≤ |v| + |v − v'|, at most 1 and a little.
        rest = np.float32(coded["error"][0] * 1.002)
        return cosines, errors * (1 + rest) + (rest + self._slack)

    def _product(self, query: Floats, among: Ints | None) -> Singles:
        """The query as it is with the rounded windows."""
        single = query.astype(np.float32)
        if among is not None:
            rounded = self._codes.now[among].astype(np.float32)
            return (rounded @ single) * self._scales.now[among]
        if self._dense is None:
            self._dense = Column(np.float32, self.dimension)
            self._dense.reserve(len(self._owners))
        while len(self._dense) < len(self._owners):
            block = slice(len(self._dense), len(self._dense) + _BLOCK)
            self._dense.extend(self._codes.now[block] * self._scales.now[block, None])
        return np.asarray(self._dense.now @ single)

    def _contenders(self, cosines: Singles, missed: Singles, limit: int, among: Ints | None) -> Ints:
        """The windows whose highest possible cosine reaches the limit-th item's lowest possible one."""
        floor = self._floor(cosines - missed, limit, among)
        highest = cosines + missed
        found = np.flatnonzero((highest >= floor) & (highest > -np.inf))
        return found if among is None else among[found]

    def _floor(self, lowest: Singles, limit: int, among: Ints | None) -> np.float32:
        """What at least `limit` different items reach for certain."""
        wanted = limit
        while wanted < len(lowest):
            floor = np.float32(np.partition(lowest, len(lowest) - wanted)[len(lowest) - wanted])
            if not self._several:
                return floor
            reached = np.flatnonzero(lowest >= floor)
            owners = self._owners.now[reached if among is None else among[reached]]
            if len(np.unique(owners)) >= limit:
                return floor
            wanted *= 2
        return np.float32(-np.inf)

    def _exact(self, db: Reader, roster: Roster, query: Floats, rows: Ints) -> Floats:
        """The true cosines of these windows."""
        if len(self._owners) > _HELD:
            self._vectors, self._read = Column(np.float64, self.dimension), Column(np.bool_)
            return dots(self._stored(db, roster, rows), query)
        self._vectors.reach(len(self._owners), 0)
        self._read.reach(len(self._owners), False)
        missing = rows[~self._read.now[rows]]
        if len(missing):
            self._vectors.now[missing] = self._stored(db, roster, missing)
            self._read.now[missing] = True
        return dots(self._vectors.now[rows], query)

    def _stored(self, db: Reader, roster: Roster, rows: Ints) -> Array:
        """These windows as they were given."""
        owners = self._owners.now[rows]
        items = np.unique(owners)
        counts = self._counts.now[items]
        found = db.rows(_SQL["vectors"], (as_json(roster.ns.now[items] + self._base),))
        vectors = np.frombuffer(b"".join([blob for (blob,) in found]), dtype="<f4").reshape(-1, self.dimension)
        if len(found) != len(items) or len(vectors) != counts.sum():
            raise StoreCorrupt("vectors and their codes differ. Run: engrain doctor --rebuild.")
        if len(vectors) == len(rows) and np.array_equal(items, owners):
            return vectors
        begins = np.cumsum(counts) - counts
        within = rows - self._firsts.now[owners]
        chosen: Array = vectors[begins[np.searchsorted(items, owners)] + within]
        return chosen


def dots(vectors: Array, query: Floats) -> Floats:
    """Each row by the same steps wherever it stands (BLAS does not promise that), so that equal vectors tie."""
    products: Floats = np.einsum("ij,j->i", np.asarray(vectors, dtype=np.float64), query)
    return products.clip(-1.0, 1.0)


def _mean(cosines: Singles, allowed: Flags | None) -> float | None:
    """Rounded, so that it does not show in which order the windows stand."""
    count = len(cosines) if allowed is None else int(np.count_nonzero(allowed))
    total = cosines.sum(dtype=np.float64, where=True if allowed is None else allowed)
    return round(float(total) / count, 4) if count else None


def _best_by_owner(owners: Ints, cosines: Floats) -> tuple[Ints, Floats]:
    """Each owner once, with its best."""
    order = np.lexsort((cosines, owners))
    owners, cosines = owners[order], cosines[order]
    last = np.append(owners[1:] != owners[:-1], True) if len(owners) else np.empty(0, dtype=np.bool_)
    return owners[last], cosines[last]
