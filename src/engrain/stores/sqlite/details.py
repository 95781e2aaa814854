"""Answer what ranking needs to know of items without reading their rows again."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from engrain.ports import Sketch
from engrain.stores.sqlite.columns import Column, Ints, Names, integers, ranges
from engrain.stores.sqlite.roster import Mask, Reader, Roster, pages
from engrain.stores.sqlite.sql import load

_SQL = load("index.sql")
_NAMES = ("kind", "session", "speaker", "role", "source")
_NUMBERS = ("place", "happened", "traits", "importance", "pinned", "trust")
_TYPES = {"importance": np.float64, "trust": np.float64, "happened": np.float64, "pinned": np.bool_}
_NO_PLACE = np.iinfo(np.int64).min
_PLACE_BITS = 40
_PLACES = 1 << _PLACE_BITS
# A quarter of the time of Sketch(…), which is a call into Python for each.
_sketch: Callable[[tuple[Any, ...]], Sketch] = partial(tuple.__new__, Sketch)


class Details:
    """A column for each field of a Sketch; names are numbers into a list."""

    def __init__(self) -> None:
        self.seen = 0
        self._names = {name: Names() for name in _NAMES}
        self._columns = {name: Column(np.int32) for name in _NAMES}
        for name in _NUMBERS:
            self._columns[name] = Column(_TYPES.get(name, np.int64))
        self._row = sum(column.now.itemsize for column in self._columns.values())  # bytes of one item
        # Session and place in one number, sorted, and the rows they belong to.
        self._spots: Ints = np.empty(0, dtype=np.int64)
        self._spot_rows: Ints = np.empty(0, dtype=np.int64)
        # How many were gone, up to which row was looked, and who had spoken there.
        self._spoken: tuple[int, int, frozenset[str]] = (0, 0, frozenset())

    @property
    def nbytes(self) -> int:
        names = 100 * sum(map(len, self._names.values()))
        return self._row * len(self._columns["kind"]) + 2 * self._spots.nbytes + names

    # Freshness

    def catch_up(self, db: Reader, roster: Roster) -> None:
        if roster.seen <= self.seen:
            return
        known = len(self._columns["kind"])
        for column in self._columns.values():
            column.reach(len(roster), 0)
        values = {**roster.span, "seen": self.seen}
        if self.seen:
            rows = db.rows(_SQL["details_changed"], values)
            if rows:
                self._store(roster, list(zip(*rows, strict=True)))
        else:
            for columns in pages(db, _SQL["details"], values):
                self._store(roster, columns)
        self._store_sources(db, roster)
        self._put_spots(known)
        self.seen = roster.seen

    def _store(self, roster: Roster, given: list[tuple[Any, ...]]) -> None:
        n, kind, session, speaker, role, place, happened, *numbers = given
        rows = roster.places(np.array(n, dtype=np.int64))
        columns = self._columns
        for name, names in zip(_NAMES[:4], (kind, session, speaker, role), strict=True):
            columns[name].now[rows] = self._names[name].numbers(names)
        columns["place"].now[rows] = integers(place, _NO_PLACE)
        columns["happened"].now[rows] = np.array(happened, dtype=np.int64) / 1e6
        for name, values in zip(_NUMBERS[2:], numbers, strict=True):
            columns[name].now[rows] = values
        # An item that changed may have lost its sources; those it has are put in afterwards.
        columns["source"].now[rows] = 0

    def _store_sources(self, db: Reader, roster: Roster) -> None:
        values = {**roster.span, "seen": self.seen}
        found = db.rows(_SQL["sources_range" if roster.dense and not self.seen else "sources_scope"], values)
        if found:
            owners = roster.places(np.array([n for n, _ in found], dtype=np.int64))
            names = self._names["source"]
            sources = self._columns["source"].now
            for owner, (_, name) in zip(owners.tolist(), found, strict=True):
                if owner >= 0:
                    sources[owner] = names[name]

    def _put_spots(self, known: int) -> None:
        """A session and a place in it never change, so only new rows are put in."""
        place, session = self._columns["place"].now[known:], self._columns["session"].now[known:]
        seated = (session > 0) & (place >= 0) & (place < _PLACES)
        spots = session[seated].astype(np.int64) << _PLACE_BITS | place[seated]
        order = np.argsort(spots, kind="stable")
        at = np.searchsorted(self._spots, spots[order], side="right")
        self._spots = np.insert(self._spots, at, spots[order])
        self._spot_rows = np.insert(self._spot_rows, at, (np.flatnonzero(seated) + known)[order])

    # Answers

    def sketches(self, roster: Roster, rows: Ints) -> list[Sketch]:
        columns = self._columns
        ids = list(map(roster.ids.__getitem__, rows.tolist()))
        numbers = {name: columns[name].now[rows] for name in columns}
        names = {name: self._names[name].names(numbers[name]) for name in _NAMES}
        places = [None if place == _NO_PLACE else place for place in numbers["place"].tolist()]
        fields = (
            ids, names["kind"], names["session"], places, names["speaker"], names["role"],
            numbers["happened"].tolist(), numbers["traits"].tolist(), roster.passages.now[rows].tolist(),
            numbers["importance"].tolist(), numbers["pinned"].tolist(), numbers["trust"].tolist(), names["source"],
        )  # fmt: skip
        return list(map(_sketch, zip(*fields, strict=True)))

    def around(self, rows: Ints, reach: int) -> Ints:
        """These rows and those up to `reach` places away in the same session, each once; these first."""
        place, session = self._columns["place"].now[rows], self._columns["session"].now[rows]
        seated = (session > 0) & (place >= 0) & (place < _PLACES)
        if reach <= 0 or not seated.any():
            return _once(rows)
        centre = place[seated]
        base = session[seated].astype(np.int64) << _PLACE_BITS
        begin = np.searchsorted(self._spots, base | np.maximum(centre - reach, 0))
        end = np.searchsorted(self._spots, base | np.minimum(centre + reach, _PLACES - 1), side="right")
        near = self._spot_rows[ranges(begin.astype(np.int64), (end - begin).astype(np.int64))]
        return _once(np.concatenate((rows, near)))

    def having(self, traits: int, mask: Mask, limit: int) -> Ints:
        """The newest first: rows are in the order in which items were recorded."""
        rows = np.flatnonzero((self._columns["traits"].now & traits != 0) & mask.rows)
        return rows[::-1][: max(limit, 0)]

    def speakers(self, roster: Roster) -> frozenset[str]:
        """An item never changes its speaker: only new rows are looked at, unless some went."""
        gone, upto, known = self._spoken
        if gone != roster.gone:
            upto, known = 0, frozenset()
        if upto < len(roster):
            numbers = np.unique(self._columns["speaker"].now[upto:][roster.here.now[upto:]])
            known |= {name for name in self._names["speaker"].names(numbers) if name is not None}
        self._spoken = roster.gone, len(roster), known
        return known


def _once(rows: Ints) -> Ints:
    _, first = np.unique(rows, return_index=True)
    return rows[np.sort(first)]
