"""Hold the columns of an index, in memory or in files that are mapped."""

from __future__ import annotations

import math
import os
import threading
from collections.abc import Sequence
from mmap import mmap
from tempfile import TemporaryFile
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

Array = npt.NDArray[Any]
Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]

# Room that is not yet touched costs address space, not memory.
_FIRST_CAPACITY = 64
_SHARED_BYTES = 32 << 20  # of a file for several columns
_MAX_SHARED = 4 << 20  # of a column in such a file
_ALIGNMENT = 64


class Allocate(Protocol):
    """Makes room for a column."""

    def __call__(self, shape: tuple[int, ...], dtype: Any, /) -> Array: ...


def allocate_in_memory(shape: tuple[int, ...], dtype: Any, /) -> Array:
    return np.empty(shape, dtype=dtype)


class MappedFiles:
    """Allocates in files of a folder, which have no names: the system takes memory back from them when it has to.

    Small columns share a file, since each mapped file takes a descriptor. A file goes with the last of its columns."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._lock = threading.Lock()
        self._shared: mmap | None = None
        self._used = 0

    def __call__(self, shape: tuple[int, ...], dtype: Any, /) -> Array:
        count, size = math.prod(shape), math.prod(shape) * np.dtype(dtype).itemsize
        try:
            file, offset = (self._map(size), 0) if size > _MAX_SHARED else self._take(size)
        except OSError:
            return allocate_in_memory(shape, dtype)
        return np.frombuffer(file, dtype=dtype, count=count, offset=offset).reshape(shape)

    def _take(self, size: int) -> tuple[mmap, int]:
        with self._lock:
            if self._shared is None or self._used + size > len(self._shared):
                self._shared, self._used = self._map(_SHARED_BYTES), 0
            offset, self._used = self._used, self._used + -(-size // _ALIGNMENT) * _ALIGNMENT
            return self._shared, offset

    def _map(self, size: int) -> mmap:
        with TemporaryFile(dir=self._folder) as file:
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(file.fileno(), 0, size)  # a full disk shows here, and not when it is written
            else:
                file.truncate(size)
            return mmap(file.fileno(), size)


class Column:
    """An array that grows at its end at amortised cost; `values` is the part in use."""

    __slots__ = ("_allocate", "_buffer", "values")

    def __init__(self, dtype: npt.DTypeLike, *width: int, allocate: Allocate = allocate_in_memory) -> None:
        self._allocate = allocate
        self._buffer = np.empty((_FIRST_CAPACITY, *width), dtype=dtype)
        self.values: Array = self._buffer[:0]

    def __len__(self) -> int:
        return len(self.values)

    @property
    def nbytes(self) -> int:
        return int(self.values.nbytes)

    def extend(self, more: Array | Sequence[Any]) -> None:
        length = len(self.values)
        end = length + len(more)
        self.reserve(end)
        self._buffer[length:end] = more
        self.values = self._buffer[:end]

    def reserve(self, length: int) -> None:
        """Make room, so that growing to this length copies nothing."""
        if length > len(self._buffer):
            used = len(self.values)
            shape = (max(length, 2 * len(self._buffer)), *self._buffer.shape[1:])
            wider = self._allocate(shape, self._buffer.dtype)
            wider[:used] = self.values
            self._buffer, self.values = wider, wider[:used]

    def move(self, allocate: Allocate) -> None:
        """Keep the values elsewhere from now on."""
        self._allocate = allocate
        if len(self.values):
            self._buffer = self.values = copy_array(self.values, allocate)

    def grow(self, length: int, fill: Any) -> None:
        """Grow to this length; the new places hold `fill`."""
        if length > len(self.values):
            self.extend(np.full((length - len(self.values), *self._buffer.shape[1:]), fill, dtype=self._buffer.dtype))


def copy_array(values: Array, allocate: Allocate) -> Array:
    made = allocate(values.shape, values.dtype)
    made[:] = values
    return made


def mark_firsts(ordered: Array) -> Flags:
    """True for the first of equal values that stand together."""
    firsts = np.ones(len(ordered), dtype=np.bool_)
    np.not_equal(ordered[1:], ordered[:-1], out=firsts[1:])
    return firsts
