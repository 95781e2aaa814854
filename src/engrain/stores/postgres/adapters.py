"""Translate between psycopg and engrain: arrays of numbers in the server's own format, and errors."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import psycopg
from psycopg.adapt import AdaptersMap, Dumper, Loader
from psycopg.pq import Format

from engrain.core import errors
from engrain.core.model.erasure import make_blocked_error


@dataclass(frozen=True, slots=True, eq=False)
class _NumberArray:
    values: npt.NDArray[Any]


class IntegerArray(_NumberArray):
    """integer[]; uint32 numbers keep their bits."""


class BigintArray(_NumberArray):
    """bigint[]"""


class RealArray(_NumberArray):
    """real[], which can be cast to vector and halfvec."""


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


# The oid of an array type, the oid of its elements, and their bytes.
_DUMPED = {IntegerArray: (1007, 23, ">i4"), BigintArray: (1016, 20, ">i8"), RealArray: (1021, 700, ">f4")}
_LOADED = {1007: ">i4", 1016: ">i8", 1022: ">f8", 1000: "?"}


def _make_adapters() -> AdaptersMap:
    known = AdaptersMap(psycopg.adapters)
    for oid, kind in _LOADED.items():
        known.register_loader(oid, type("_Loader", (_Loader,), {"kind": kind}))
    for array, (oid, element, kind) in _DUMPED.items():
        known.register_dumper(array, type("_Dumper", (_Dumper,), {"oid": oid, "element": element, "kind": kind}))
    return known


class AdapterContext:
    """The types that a connection knows besides the driver's own."""

    adapters = _make_adapters()
    connection = None


def read_vector(raw: bytes) -> npt.NDArray[np.float32]:
    """Read the bytes of vector_send: two numbers of two bytes, then the values."""
    return np.frombuffer(raw, dtype=">f4", offset=4).astype(np.float32)


# Errors

# The server rolled the transaction back because of others: repeating it is right.
_RETRYABLE = ("40001", "40P01")
# It has stopped, is stopping or has not started yet.
_GONE = ("57P01", "57P02", "57P03", "57P05", "25P03", "25P04")


def is_lost(exc: psycopg.Error) -> bool:
    """The connection is gone; whether the last statement was carried out is not known."""
    state = exc.sqlstate
    if state is None:
        return isinstance(exc, psycopg.OperationalError)
    return state in _GONE or state.startswith("08") or state == "40003"


def is_retryable(exc: psycopg.Error) -> bool:
    return exc.sqlstate in _RETRYABLE


def translate_error(exc: psycopg.Error, where: str) -> errors.EngrainError:
    state, said = exc.sqlstate or "", _said(exc)
    if is_lost(exc) or state in ("57014", "53300", "53200"):
        return errors.StoreUnavailable(f"{where} did not answer: {said}")
    if is_retryable(exc) or state == "55P03":
        return errors.StoreBusy(f"{where}: other writers held the same rows for too long: {said}")
    if state in ("53100", "58030"):
        return errors.DiskFull(f"{where}: {said} Nothing of this write was kept; free some space and repeat it.")
    if state in ("ENG02", "ENG03"):
        return make_blocked_error(hidden=state == "ENG03")
    if state == "25006":
        return errors.ReadOnlyStore(f"{where} takes no writes (a standby?): {said}")
    if state == "42501":
        return errors.ReadOnlyStore(f"{where}: this role may not do that: {said}")
    if state.startswith("28") or state in ("3D000", "42704"):
        return errors.ConfigError(f"{where}: {said}")
    if state.startswith("XX"):
        return errors.StoreCorrupt(f"{where}: {said}")
    if isinstance(exc, psycopg.DataError) or state.startswith("22"):
        return errors.InvalidInput(f"Postgres cannot take this value: {said}")
    return errors.StoreError(f"{where}: {said}")


def _said(exc: psycopg.Error) -> str:
    first = (exc.diag.message_primary or str(exc)).strip().splitlines()
    return f"{first[0].rstrip('.')}." if first else f"{type(exc).__name__}."
