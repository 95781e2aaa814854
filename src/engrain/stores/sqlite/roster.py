"""Know which items a scope holds and which of them are visible at a moment."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import gt
from typing import Any, Protocol

import numpy as np

from engrain.stores.sqlite.columns import Column, Flags, Ints, integers
from engrain.stores.sqlite.sql import load

_SQL = load("index.sql")
_NEVER, _ALWAYS = np.iinfo(np.int64).min, np.iinfo(np.int64).max
# Below this many a scope is read anew so quickly that keeping count of the gone is not worth it.
_FEW = 256
# Measured: half the time of reading 100,000 rows at once, and the collector of garbage has nothing to walk through.
_PAGE = 512


class Reader(Protocol):
    """A connection that sees one moment of the store."""

    def rows(self, sql: str, args: Any = ()) -> Any: ...


def pages(db: Reader, statement: str, values: Mapping[str, Any]) -> Iterator[list[tuple[Any, ...]]]:
    """The columns of a statement's rows, page after page; the first column is what the pages are ordered by."""
    after = values["first"] - 1
    while True:
        rows = db.rows(statement, {**values, "after": after, "page": _PAGE})
        if rows:
            columns = list(zip(*rows, strict=True))
            after = columns[0][-1]
            yield columns
        if len(rows) < _PAGE:
            return


@dataclass(frozen=True, slots=True, eq=False)
class Mask:
    """Which rows count. Parts keep what they derive from one and know it again by identity."""

    rows: Flags
    everything: bool


class Roster:
    """The items of one scope in the order of n, each with a row number that stays."""

    def __init__(self, scope: int) -> None:
        self.scope = scope
        self.seen = 0
        self.ns = Column(np.int64)
        self.begins = Column(np.int64)
        self.ends = Column(np.int64)
        self.passages = Column(np.int64)
        self.here = Column(np.bool_)
        self.ids: list[str] = []
        self.row_of: dict[str, int] = {}
        self.gone = 0
        self._mask: Mask | None = None
        self._from = self._until = 0
        self._newness: Ints | None = None
        self._in_order = True
        self._touched: list[int] = []

    def __len__(self) -> int:
        return len(self.ids)

    @property
    def nbytes(self) -> int:
        # An id is a str of some 80 bytes, with a place in a list and one in a dictionary.
        return 4 * self.ns.nbytes + 200 * len(self.ids) + len(self.ids)

    @property
    def worn(self) -> bool:
        """So much is gone that reading the scope anew is cheaper than stepping over it."""
        return self.gone > _FEW and 4 * self.gone > len(self.ids)

    def catch_up(self, db: Reader, newest: int) -> None:
        if newest <= self.seen:
            return
        values = {"scope": self.scope, "seen": self.seen, "first": 0}
        if self.seen:
            # First what came: an item may have come and gone since.
            self._take(db.rows(_SQL["roster_changed"], values))
            self._remove(np.array([n for (n,) in db.rows(_SQL["gone"], values)], dtype=np.int64))
        else:
            for columns in pages(db, _SQL["roster"], values):
                self._append(columns)
        self.seen = newest

    def _take(self, rows: list[tuple[Any, ...]]) -> None:
        # n rises with every insert, so whatever is new stands behind all that is known.
        last = int(self.ns.now[-1]) if len(self.ns) else -1
        new = [row for row in rows if row[0] > last]
        if new:
            self._append(list(zip(*new, strict=True)))
        for n, _, begins, ends, passages in rows[: len(rows) - len(new)]:
            row = int(np.searchsorted(self.ns.now, n))
            self.begins.now[row] = begins
            self.ends.now[row] = _ALWAYS if ends is None else ends
            self.passages.now[row] = passages
            self._touched.append(row)

    def _append(self, columns: list[tuple[Any, ...]]) -> None:
        ns, ids, begins, ends, passages = columns
        first = len(self.ids)
        self.ns.extend(ns)
        self.begins.extend(begins)
        self.ends.extend(integers(ends, _ALWAYS))
        self.passages.extend(passages)
        self.here.extend(np.ones(len(ids), dtype=np.bool_))
        if self._in_order:
            self._in_order = self.ids[-1:] < [ids[0]] and not any(map(gt, ids, islice(ids, 1, None)))
        self.ids.extend(ids)
        self.row_of.update(zip(ids, range(first, first + len(ids)), strict=True))

    def _remove(self, ns: Ints) -> None:
        for row in self.places(ns).tolist():
            if row < 0:
                continue
            # The id may be in use again, by a later row.
            if self.row_of.get(self.ids[row]) == row:
                del self.row_of[self.ids[row]]
            self.gone += 1
            self.here.now[row] = False
            self._touched.append(row)
            self.ends.now[row] = _NEVER

    @property
    def span(self) -> dict[str, int]:
        """Values for a statement that reads all of the scope."""
        first, last = (int(self.ns.now[0]), int(self.ns.now[-1])) if len(self.ns) else (0, -1)
        return {"scope": self.scope, "first": first, "last": last}

    @property
    def dense(self) -> bool:
        """Most numbers between the first and the last are of this scope: to read the range is cheaper than to join."""
        return bool(len(self.ns)) and int(self.ns.now[-1] - self.ns.now[0]) < 3 * len(self.ns)

    def places(self, ns: Ints) -> Ints:
        """One row for each n, -1 for an unknown one."""
        if not len(self.ns):
            return np.full(len(ns), -1, dtype=np.int64)
        rows = np.minimum(np.searchsorted(self.ns.now, ns), len(self.ns) - 1)
        return np.where(self.ns.now[rows] == ns, rows, -1)

    def places_of_ids(self, ids: Sequence[str]) -> Ints:
        """One row for each id, -1 for an unknown one."""
        get = self.row_of.get
        return np.array([get(one, -1) for one in ids], dtype=np.int64)

    def visible_places(self, ids: Sequence[str], at: int) -> Ints:
        """One row for each id, -1 for one that is unknown or not visible then."""
        places = self.places_of_ids(ids)
        visible = self.visible(at)
        if not visible.everything:
            places[~np.append(visible.rows, False)[places]] = -1
        return places

    def newness(self) -> Ints | None:
        """A number per row that is higher for a newer id; None if the rows are in that order themselves."""
        if self._in_order:
            return None
        if self._newness is None or len(self._newness) != len(self.ids):
            order = sorted(range(len(self.ids)), key=self.ids.__getitem__)
            self._newness = np.empty(len(order), dtype=np.int64)
            self._newness[order] = np.arange(len(order))
        return self._newness

    def visible(self, at: int) -> Mask:
        """The same mask object for every moment between two boundaries, as long as nothing changes."""
        mask = self._mask
        if mask is None or not self._from <= at < self._until:
            self._from, self._until = _NEVER, _ALWAYS
            mask = self._mask = self._judged(np.empty(0, dtype=np.bool_), np.arange(len(self.ids)), at)
        elif len(mask.rows) < len(self.ids) or self._touched:
            new = np.arange(len(mask.rows), len(self.ids))
            mask = self._mask = self._judged(mask.rows, np.append(self._touched, new).astype(np.int64), at)
        self._touched.clear()
        return mask

    def _judged(self, known: Flags, rows: Ints, at: int) -> Mask:
        """A mask in which these rows are judged anew. Boundaries that are gone by now only make it last less long."""
        begins, ends = self.begins.now[rows], self.ends.now[rows]
        begun, open_ = begins <= at, ends > at
        flags = np.append(known, np.zeros(len(self.ids) - len(known), dtype=np.bool_))
        flags[rows] = begun & open_
        past = max(
            np.where(begun, begins, _NEVER).max(initial=_NEVER), np.where(open_, _NEVER, ends).max(initial=_NEVER)
        )
        next_ = min(
            np.where(begun, _ALWAYS, begins).min(initial=_ALWAYS), np.where(open_, ends, _ALWAYS).min(initial=_ALWAYS)
        )
        self._from, self._until = max(self._from, int(past)), min(self._until, int(next_))
        return Mask(flags, bool(flags.all()))
