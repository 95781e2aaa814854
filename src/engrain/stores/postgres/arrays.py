"""Arrays of numbers on their way to the server and back, in its own format."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import psycopg
from psycopg.adapt import AdaptersMap, Dumper, Loader
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


class _Loader(Loader):
    """As an array of numpy, in one go. No null inside: who asks for it sees to that."""

    format = Format.BINARY
    kind: ClassVar[str]

    def load(self, data: Any) -> npt.NDArray[Any]:
        raw = bytes(data)
        if len(raw) <= 20:
            return np.empty(0, dtype=np.dtype(self.kind).newbyteorder("="))
        found = np.frombuffer(raw, dtype=[("size", ">i4"), ("value", self.kind)], offset=20)["value"]
        return found.astype(np.dtype(self.kind).newbyteorder("="))


class _IntegersLoader(_Loader):
    kind = ">i4"


class _LongsLoader(_Loader):
    kind = ">i8"


class _DoublesLoader(_Loader):
    kind = ">f8"


class _BooleansLoader(_Loader):
    kind = "?"


def _adapters() -> AdaptersMap:
    known = AdaptersMap(psycopg.adapters)
    for oid, loader in ((1007, _IntegersLoader), (1016, _LongsLoader), (1022, _DoublesLoader), (1000, _BooleansLoader)):
        known.register_loader(oid, loader)
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
