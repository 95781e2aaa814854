"""Arrays of numbers as values of a statement, in the server's own format."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import psycopg
from psycopg.adapt import AdaptersMap, Dumper
from psycopg.pq import Format


@dataclass(frozen=True, slots=True, eq=False)
class Integers:
    """integer[]; uint32 numbers keep their bits."""

    values: npt.NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class Longs:
    """bigint[]"""

    values: npt.NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class Reals:
    """real[], which can be cast to vector and halfvec."""

    values: npt.NDArray[Any]


class _Dumper(Dumper):
    format = Format.BINARY
    element: ClassVar[int]
    kind: ClassVar[str]

    def dump(self, obj: Any) -> bytes:
        # Dimensions, nulls, type, length, first index; then each element behind its size.
        values = np.ascontiguousarray(obj.values).ravel()
        head = np.array([1, 0, self.element, len(values), 1], dtype=">i4").tobytes()
        body = np.empty(len(values), dtype=[("size", ">i4"), ("value", self.kind)])
        body["size"] = body.dtype["value"].itemsize
        body["value"] = values.view(np.int32) if values.dtype == np.uint32 else values
        return head + body.tobytes() if len(values) else np.array([0, 0, self.element], dtype=">i4").tobytes()


class _IntegersDumper(_Dumper):
    oid, element, kind = 1007, 23, ">i4"


class _LongsDumper(_Dumper):
    oid, element, kind = 1016, 20, ">i8"


class _RealsDumper(_Dumper):
    oid, element, kind = 1021, 700, ">f4"


def _adapters() -> AdaptersMap:
    known = AdaptersMap(psycopg.adapters)
    known.register_dumper(Integers, _IntegersDumper)
    known.register_dumper(Longs, _LongsDumper)
    known.register_dumper(Reals, _RealsDumper)
    return known


class Context:
    """What a connection knows of types, besides the driver's own."""

    adapters = _adapters()
    connection = None


def sent_vector(raw: bytes) -> npt.NDArray[np.float32]:
    """What vector_send gives: two numbers of two bytes, then the values."""
    return np.frombuffer(raw, dtype=">f4", offset=4).astype(np.float32)
