"""Translate between psycopg and engrain: arrays of numbers in the server's own format, and errors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import psycopg
from psycopg.adapt import AdaptersMap, Dumper, Loader
from psycopg.pq import Format

from engrain.core.errors import (
    BeingErased,
    ConfigError,
    DiskFull,
    EngrainError,
    InvalidInput,
    OnHold,
    ReadOnlyStore,
    StoreBusy,
    StoreCorrupt,
    StoreError,
    StoreUnavailable,
)


@dataclass(frozen=True, slots=True, eq=False)
class IntegerArray:
    """integer[]; uint32 numbers keep their bits."""

    values: npt.NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class BigintArray:
    """bigint[]"""

    values: npt.NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class RealArray:
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
    """Load a numpy array in one go. The caller ensures that it has no null."""

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
    known.register_dumper(IntegerArray, _IntegersDumper)
    known.register_dumper(BigintArray, _LongsDumper)
    known.register_dumper(RealArray, _RealsDumper)
    return known


class AdapterContext:
    """The types that a connection knows besides the driver's own."""

    adapters = _adapters()
    connection = None


def read_vector(raw: bytes) -> npt.NDArray[np.float32]:
    """Read the bytes of vector_send: two numbers of two bytes, then the values."""
    return np.frombuffer(raw, dtype=">f4", offset=4).astype(np.float32)


# Errors

# The server rolled the transaction back because of others: doing it is_retryable is right.
_AGAIN = ("40001", "40P01")
# It went away, is going away or is not up yet.
_GONE = ("57P01", "57P02", "57P03", "57P05", "25P03", "25P04")


def is_lost(exc: psycopg.Error) -> bool:
    """The connection is gone; whether the last statement was carried out is not known."""
    state = exc.sqlstate
    if state is None:
        return isinstance(exc, psycopg.OperationalError)
    return state in _GONE or state.startswith("08") or state == "40003"


def is_retryable(exc: psycopg.Error) -> bool:
    return exc.sqlstate in _AGAIN


def translate_error(exc: psycopg.Error, where: str) -> EngrainError:
    state, said = exc.sqlstate or "", _said(exc)
    if is_lost(exc) or state in ("57014", "53300", "53200"):
        return StoreUnavailable(f"{where} did not answer: {said}")
    if is_retryable(exc) or state == "55P03":
        return StoreBusy(f"{where}: other writers held the same rows for too long: {said}")
    if state in ("53100", "58030"):
        return DiskFull(f"{where}: {said} Nothing of this write was kept; free some space and repeat it.")
    if state == "ENG02":
        return BeingErased("this user's memory is being erased. Write again when that is done: engrain erase --resume.")
    if state == "ENG03":
        return OnHold("this user's memory is under a legal hold and is to be erased: nothing is shown or written.")
    if state == "25006":
        return ReadOnlyStore(f"{where} takes no writes (a standby?): {said}")
    if state == "42501":
        return ReadOnlyStore(f"{where}: this role may not do that: {said}")
    if state.startswith("28") or state in ("3D000", "42704"):
        return ConfigError(f"{where}: {said}")
    if state.startswith("XX"):
        return StoreCorrupt(f"{where}: {said}")
    if isinstance(exc, psycopg.DataError) or state.startswith("22"):
        return InvalidInput(f"Postgres cannot take this value: {said}")
    return StoreError(f"{where}: {said}")


def _said(exc: psycopg.Error) -> str:
    first = (exc.diag.message_primary or str(exc)).strip().splitlines()
    return f"{first[0].rstrip('.')}." if first else f"{type(exc).__name__}."
