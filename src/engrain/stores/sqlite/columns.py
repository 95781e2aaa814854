"""Hold growing columns of numbers, and names as numbers, so that a lens costs bytes and not objects."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

# Room that is not yet touched costs address space, not memory.
_ROOM = 64
_MISSING = np.iinfo(np.int64).min


class Column:
    """An array that grows at its end at amortised cost; `now` is what is in use."""

    __slots__ = ("_room", "now")

    def __init__(self, dtype: npt.DTypeLike, *width: int) -> None:
        self._room = np.empty((_ROOM, *width), dtype=dtype)
        self.now: Array = self._room[:0]

    def __len__(self) -> int:
        return len(self.now)

    @property
    def nbytes(self) -> int:
        return int(self.now.nbytes)

    def extend(self, more: Array | Sequence[Any]) -> None:
        length = len(self.now)
        end = length + len(more)
        self.reserve(end)
        self._room[length:end] = more
        self.now = self._room[:end]

    def reserve(self, length: int) -> None:
        """Make room, so that growing to this length copies nothing."""
        if length > len(self._room):
            used = len(self.now)
            wider = np.empty((max(length, 2 * len(self._room)), *self._room.shape[1:]), dtype=self._room.dtype)
            wider[:used] = self.now
            self._room, self.now = wider, wider[:used]

    def reach(self, length: int, fill: Any) -> None:
        """Grow to this length; the new places hold `fill`."""
        if length > len(self.now):
            self.extend(np.full((length - len(self.now), *self._room.shape[1:]), fill, dtype=self._room.dtype))


class Names(dict[str | None, int]):
    """Numbers for names, given out as they come; no name is 0."""

    def __init__(self) -> None:
        super().__init__({None: 0})
        self.known: list[str | None] = [None]

    def __missing__(self, name: str) -> int:
        self[name] = number = len(self.known)
        self.known.append(name)
        return number

    def numbers(self, names: Iterable[str | None]) -> list[int]:
        return list(map(self.__getitem__, names))

    def names(self, numbers: Array) -> list[str | None]:
        return list(map(self.known.__getitem__, numbers.tolist()))


def integers(values: Sequence[int | None], missing: int = _MISSING) -> Ints:
    """A column of SQL integers, with a number in the place of null."""
    nulls = values.count(None)
    if nulls == len(values):
        return np.full(len(values), missing, dtype=np.int64)
    if nulls:
        values = [missing if value is None else value for value in values]
    return np.array(values, dtype=np.int64)


def as_json(numbers: Ints) -> str:
    """A list that is bound as one value, for `in (select value from json_each(?))`."""
    return str(numbers.tolist())


def ranges(starts: Ints, counts: Ints) -> Ints:
    """start, start + 1, … for each start, as many as its count says, one after the other."""
    total = int(counts.sum())
    if total == len(starts) and (counts == 1).all():
        return starts
    offsets = np.repeat(starts - np.concatenate(([0], np.cumsum(counts)[:-1])), counts)
    return offsets + np.arange(total)
