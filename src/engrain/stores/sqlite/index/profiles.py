"""Hold the ids of a scope's items, and the fields that many items share, in little memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from engrain.core.model.filters import Filter, matches_filter
from engrain.stores.sqlite.index.columns import Array, Column, Flags, Ints


class IdColumn:
    """The ids of all rows, and the rows of ids."""

    def __init__(self) -> None:
        self.width = 26
        self._ids = Column(f"S{self.width}")
        self._ascend = True
        self._order: Ints | None = None  # the rows in the order of their ids
        self._newness: Ints | None = None

    def __len__(self) -> int:
        return len(self._ids)

    def extend(self, ids: Sequence[str]) -> None:
        new = _encode_ids(ids)
        if new.dtype.itemsize > self.width:
            self.width, known = new.dtype.itemsize, self._ids.values
            self._ids = Column(f"S{self.width}")
            self._ids.extend(known)
        first = len(self._ids)
        self._ids.extend(new)
        added = self._ids.values[max(first - 1, 0) :]
        self._ascend = self._ascend and bool((added[:-1] < added[1:]).all())
        self._order = self._newness = None

    def read(self, rows: Ints) -> list[str]:
        found = self._ids.values[rows]
        return list(map(bytes.decode, found.tolist()))

    def find(self, ids: Sequence[str]) -> Ints:
        """The row of each id, -1 for an unknown one. Of several rows it is the last: the others were removed."""
        if not ids or not len(self._ids):
            return np.full(len(ids), -1, dtype=np.int64)
        if self._order is None and not self._ascend:
            self._order = np.argsort(self._ids.values, kind="stable")
        wanted = _encode_ids(ids)
        places = np.searchsorted(self._ids.values, wanted, side="right", sorter=self._order) - 1
        rows = places if self._order is None else self._order[places]
        return np.where((places >= 0) & (self._ids.values[rows] == wanted), rows, -1)

    def order_by_newness(self) -> Ints | None:
        """A number for each row, higher for a newer id. None if the rows have that order themselves."""
        if self._ascend:
            return None
        if self._newness is None:
            order = self._order = np.argsort(self._ids.values, kind="stable")
            self._newness = np.empty(len(order), dtype=np.int64)
            self._newness[order] = np.arange(len(order))
        return self._newness


def _encode_ids(ids: Sequence[str]) -> Array:
    try:
        return np.array(ids, dtype="S")
    except UnicodeEncodeError:
        return np.array([id_.encode() for id_ in ids], dtype="S")


class Profile(NamedTuple):
    """The fields that many items share. Those but for the traits can be filtered by."""

    kind: str
    role: str | None
    speaker: str | None
    traits: int
    importance: float
    pinned: bool
    trust: float


_FILTERED = frozenset(Profile._fields) - {"traits"}
_PLAIN_OPERATORS = frozenset(("=", "!=", "<", "<=", ">", ">=", "in", "not in"))
_MAX_MATCHED_PROFILES = 2_000  # more are faster in SQL


class ProfileTable:
    """Each combination of shared fields once, with the number of its items."""

    def __init__(self) -> None:
        self.kind, self.role, self.speaker = Column(object), Column(object), Column(object)
        self.traits, self.importance, self.trust = Column(np.int64), Column(np.float64), Column(np.float64)
        self.pinned = Column(np.float64)
        self._numbers: dict[Profile, int] = {}
        self._counts: list[int] = []
        self._speakers: frozenset[str] | None = frozenset()

    @property
    def nbytes(self) -> int:
        return 300 * len(self._counts)

    @property
    def speakers(self) -> frozenset[str]:
        if self._speakers is None:
            counted = zip(self.speaker.values, self._counts, strict=True)
            self._speakers = frozenset(name for name, count in counted if name and count)
        return self._speakers

    def match(self, where: Filter) -> Flags | None:
        """The profiles that match; None if the filter looks at other fields, or if they are too many."""
        plain = all(one.field in _FILTERED and one.operator in _PLAIN_OPERATORS for one in where.conditions)
        if not plain or len(self._counts) > _MAX_MATCHED_PROFILES:
            return None
        profiles: Iterable[Any] = self._numbers
        return np.array([matches_filter(where, profile) for profile in profiles], dtype=np.bool_)

    def add(self, values: tuple[Any, ...]) -> int:
        """Count one more item of a profile: its number."""
        number: int | None = self._numbers.get(values)  # type: ignore[call-overload]
        if number is None:
            kind, role, speaker, traits, importance, pinned, trust = values
            profile = Profile(kind, role, speaker, traits, importance, bool(pinned), trust)
            number = self._numbers[profile] = len(self._counts)
            columns = (self.kind, self.role, self.speaker, self.traits, self.importance, self.pinned, self.trust)
            for column, value in zip(columns, profile, strict=True):
                column.extend((value,))
            self._counts.append(0)
        if not self._counts[number]:
            self._speakers = None
        self._counts[number] += 1
        return number

    def drop(self, number: int) -> None:
        self._counts[number] -= 1
        if not self._counts[number]:
            self._speakers = None
