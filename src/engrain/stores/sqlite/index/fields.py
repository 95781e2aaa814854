"""Hold the fields of items that ranking needs, so that it reads no rows again."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from engrain.core.model.queries import Sketch
from engrain.stores.sqlite.connection import Reader, read_pages
from engrain.stores.sqlite.index.items import (
    SQL,
    Column,
    Flags,
    Ints,
    ItemTable,
    Mask,
    NameCodes,
    expand_ranges,
    replace_nulls,
)

_NAMES = ("kind", "session", "speaker", "role", "source")
_NUMBERS = ("place", "happened", "traits", "importance", "pinned", "trust")
_TYPES = {"importance": np.float64, "trust": np.float64, "happened": np.float64, "pinned": np.bool_}
_NO_PLACE = np.iinfo(np.int64).min
_PLACE_BITS = 40
_MAX_PLACE = 1 << _PLACE_BITS
# A quarter of the time of Sketch(…), which is a call into Python for each.
_sketch: Callable[[tuple[Any, ...]], Sketch] = partial(tuple.__new__, Sketch)


class FieldTable:
    """A column for each field of a Sketch; names are stored as numbers."""

    def __init__(self) -> None:
        self._last_change = 0
        self._codes = {name: NameCodes() for name in _NAMES}
        self._columns = {name: Column(np.int32) for name in _NAMES}
        for name in _NUMBERS:
            self._columns[name] = Column(_TYPES.get(name, np.int64))
        self._row_bytes = sum(column.values.itemsize for column in self._columns.values())
        # Session and place in one number, sorted, and the rows that have them.
        self._positions: Ints = np.empty(0, dtype=np.int64)
        self._position_rows: Ints = np.empty(0, dtype=np.int64)
        # The number of removed items and of rows when the speakers were last collected.
        self._speakers: tuple[int, int, frozenset[str]] = (0, 0, frozenset())

    @property
    def nbytes(self) -> int:
        names = 100 * sum(map(len, self._codes.values()))
        return self._row_bytes * len(self._columns["kind"]) + 2 * self._positions.nbytes + names

    # Reading changes

    def refresh(self, db: Reader, items: ItemTable) -> None:
        """Read the changes up to the last one that the items have."""
        if items.last_change <= self._last_change:
            return
        known = len(self._columns["kind"])
        for column in self._columns.values():
            column.grow(len(items), 0)
        values = {**items.bounds, "since": self._last_change}
        if self._last_change:
            rows = db.rows(SQL["load_changed_index_fields"], values)
            if rows:
                self._store_fields(items, list(zip(*rows, strict=True)))
        else:
            for columns in read_pages(db, SQL["load_index_fields"], values):
                self._store_fields(items, columns)
        self._store_sources(db, items)
        self._store_positions(known)
        self._last_change = items.last_change

    def _store_fields(self, items: ItemTable, loaded: list[tuple[Any, ...]]) -> None:
        number, kind, session, speaker, role, place, happened, *numbers = loaded
        rows = items.find_rows(np.array(number, dtype=np.int64))
        columns = self._columns
        for name, names in zip(_NAMES[:4], (kind, session, speaker, role), strict=True):
            columns[name].values[rows] = self._codes[name].encode(names)
        columns["place"].values[rows] = replace_nulls(place, _NO_PLACE)
        columns["happened"].values[rows] = np.array(happened, dtype=np.int64) / 1e6
        for name, values in zip(_NUMBERS[2:], numbers, strict=True):
            columns[name].values[rows] = values
        # A changed item may have lost its sources; _store_sources writes those that it has.
        columns["source"].values[rows] = 0

    def _store_sources(self, db: Reader, items: ItemTable) -> None:
        values = {**items.bounds, "since": self._last_change}
        in_range = items.is_dense and not self._last_change
        found = db.rows(SQL["load_source_names_in_range" if in_range else "load_source_names"], values)
        if found:
            owners = items.find_rows(np.array([number for number, _ in found], dtype=np.int64))
            codes, sources = self._codes["source"], self._columns["source"].values
            for owner, (_, name) in zip(owners.tolist(), found, strict=True):
                if owner >= 0:
                    sources[owner] = codes[name]

    def _store_positions(self, known: int) -> None:
        """An item never changes its session and place, so only new rows are added."""
        place, session = self._columns["place"].values[known:], self._columns["session"].values[known:]
        seated = _has_position(session, place)
        positions = session[seated].astype(np.int64) << _PLACE_BITS | place[seated]
        order = np.argsort(positions, kind="stable")
        at = np.searchsorted(self._positions, positions[order], side="right")
        self._positions = np.insert(self._positions, at, positions[order])
        self._position_rows = np.insert(self._position_rows, at, (np.flatnonzero(seated) + known)[order])

    # Answers

    def make_sketches(self, items: ItemTable, rows: Ints) -> list[Sketch]:
        columns = self._columns
        ids = list(map(items.ids.__getitem__, rows.tolist()))
        numbers = {name: columns[name].values[rows] for name in columns}
        names = {name: self._codes[name].decode(numbers[name]) for name in _NAMES}
        places = [None if place == _NO_PLACE else place for place in numbers["place"].tolist()]
        fields = (
            ids, names["kind"], names["session"], places, names["speaker"], names["role"],
            numbers["happened"].tolist(), numbers["traits"].tolist(), items.passages.values[rows].tolist(),
            numbers["importance"].tolist(), numbers["pinned"].tolist(), numbers["trust"].tolist(), names["source"],
        )  # fmt: skip
        return list(map(_sketch, zip(*fields, strict=True)))

    def add_neighbours(self, rows: Ints, reach: int) -> Ints:
        """These rows, then those up to `reach` places away in the same session, each once."""
        place, session = self._columns["place"].values[rows], self._columns["session"].values[rows]
        seated = _has_position(session, place)
        if reach <= 0 or not seated.any():
            return _drop_repeats(rows)
        centre = place[seated]
        base = session[seated].astype(np.int64) << _PLACE_BITS
        start = np.searchsorted(self._positions, base | np.maximum(centre - reach, 0))
        end = np.searchsorted(self._positions, base | np.minimum(centre + reach, _MAX_PLACE - 1), side="right")
        near = self._position_rows[expand_ranges(start.astype(np.int64), (end - start).astype(np.int64))]
        return _drop_repeats(np.concatenate((rows, near)))

    def find_rows_with_traits(self, traits: int, mask: Mask, limit: int) -> Ints:
        """Newest first: rows have the order in which items were recorded."""
        rows = np.flatnonzero((self._columns["traits"].values & traits != 0) & mask.rows)
        return rows[::-1][: max(limit, 0)]

    def collect_speakers(self, items: ItemTable) -> frozenset[str]:
        """An item never changes its speaker: only new rows are read, unless an item was removed."""
        removed, length, known = self._speakers
        if removed != items.removed:
            length, known = 0, frozenset()
        if length < len(items):
            numbers = np.unique(self._columns["speaker"].values[length:][items.present.values[length:]])
            known |= {name for name in self._codes["speaker"].decode(numbers) if name is not None}
        self._speakers = items.removed, len(items), known
        return known


def _has_position(session: Ints, place: Ints) -> Flags:
    return (session > 0) & (place >= 0) & (place < _MAX_PLACE)


def _drop_repeats(rows: Ints) -> Ints:
    _, first = np.unique(rows, return_index=True)
    return rows[np.sort(first)]
