"""Postgres's SQL and wire formats: fragments of shared statements, filters, arrays of numbers, errors."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
import psycopg
from psycopg.adapt import AdaptersMap, Dumper, Loader
from psycopg.pq import Format

from engrain.core import errors
from engrain.core.model.erasure import make_blocked_error
from engrain.core.model.filters import FLAG, NUMBER, TEXT, TIME, Filter, find_type
from engrain.stores.relational.reads import FilterBuilder
from engrain.stores.relational.rows import EPISODE_COLUMNS, ITEM_COLUMNS, RECORD_COLUMNS, STEP_COLUMNS, TASK_COLUMNS
from engrain.stores.relational.statements import Syntax

_JSON_TYPES = {TEXT: "string", NUMBER: "number"}
_CASTS = {TEXT: "text", NUMBER: "numeric", FLAG: "boolean", TIME: "bigint"}
# As rows.read_sources reads them.
SOURCES = """(select json_agg(json_build_array(source.kind, source.name,
      (select json_agg(json_build_array(cited.id, citation.span_start, citation.span_end) order by citation.n)
        from citation join item as cited on cited.scope = citation.scope and cited.n = citation.cited
        where citation.scope = source.scope and citation.item = source.item and citation.number = source.number))
    order by source.number) from source where source.scope = item.scope and source.item = item.n)"""
ITEM = f"{ITEM_COLUMNS},\n  {SOURCES}"
_NOW = """greatest(coalesce(cast(:clock as bigint),
  (extract(epoch from statement_timestamp()) * 1000000)::bigint), last_value)"""
_SERVER_CLOCK = "(extract(epoch from clock_timestamp()) * 1000000)::bigint"
_VISIBLE = """item.retracted_at is null and item.valid_from <= {at} and (item.valid_to is null or {at} < item.valid_to)
  and (item.expires_at is null or {at} < item.expires_at)"""
SYNTAX = Syntax(
    "engrain.stores.postgres",
    {
        "item": ITEM,
        "sources": SOURCES,
        "episode": EPISODE_COLUMNS,
        "task": TASK_COLUMNS,
        "step": STEP_COLUMNS,
        "record": RECORD_COLUMNS,
        "unexpired": "(record.expires_at is null or {at} < record.expires_at)",
        "visible": _VISIBLE,
        # At a moment that is known already.
        "visible_at": _VISIBLE.replace("{at}", "cast(:at as bigint)"),
        # One moment for all of the statement.
        "at": f"(select coalesce(cast(:at as bigint), {_NOW}) from clock)",
        "now": f"(select {_NOW} from clock)",
        # The time to record.
        "tick": "tick(cast(:clock as bigint))",
        "wall_clock": f"coalesce(cast(:clock as bigint), {_SERVER_CLOCK})",
        "lease_clock": f"case when cast(:clock as bigint) is null then {_SERVER_CLOCK} end",
        "may_be_stale": "coalesce(lease_clock <= {lease_clock}, lease_until <= {now}, false)",
        "change": "nextval('change')",
        "in": "= any(:$)",
        "not_in": "<> all(:$)",
        "scope_in": "= any(cast(:$ as uuid[]))",
        "not_scope_in": "<> all(cast(:$ as uuid[]))",
        "scope_ids": "= any(cast(:$ as uuid[]))",
        # The scope's column of the table itself, so that its own index gives the order.
        "scope_order": "$.scope",
        "scope_value": "cast(:$ as uuid)",
        "scope_key": "replace(cast($.scope as text), '-', '')",
        "within": "scope.state = 0 and (cast(:within as uuid) is null or $.scope = cast(:within as uuid))",
        "index_columns": ", words, filters",
        "index_values": ", :words, cast(:filters as jsonb)",
        "index_update": ", words = excluded.words, filters = excluded.filters",
        "item_id": "(scope, id)",
        "find_text": "strpos",
        "ordered_join": "join",
        "same": "is not distinct from",
        "greatest": "greatest",
        "least": "least",
        "for_update": "for update",
        "skip_locked": "for update skip locked",
        "+": "",
        "intact": "true",  # a server has checksums of its pages
        "indexed_by": "",
    },
    pyformat=True,
)


def build_where(where: Filter | None) -> tuple[str, dict[str, Any]]:
    return _PostgresFilter().build(where)


def encode_filters(metadata: Mapping[str, Any]) -> str | None:
    """The JSON that filters look at: plain values and lists of them.

    A float is written out in full: it is then compared with a whole number as Python does. jsonb keeps every digit."""
    if not metadata:
        return None
    return "{" + ",".join(f"{json.dumps(key)}:{_encode_exactly(value)}" for key, value in metadata.items()) + "}"


class _PostgresFilter(FilterBuilder):
    contains = "strpos({}, {}) > 0"
    starts_with = "starts_with({}, {})"

    def bind(self, value: Any, field: str = "") -> str:
        cast = _CASTS[find_type(value)]
        if field in ("importance", "trust"):
            # These columns hold doubles from 0 to 1, which no rounding of the other side can pass.
            cast, value = "double precision", float(value)
        elif cast == "numeric":
            # With every digit: a whole number and a float are compared as Python compares them.
            value = Decimal(value)
        return f"%({self.name_value(value)})s::{cast}"

    def metadata(self, key: str) -> _Metadata:
        return _Metadata(self, f"(item.filters -> {self.bind(key)})")


@dataclass(frozen=True, slots=True)
class _Metadata:
    """A key of the metadata, looked up in the jsonb column `filters`."""

    builder: FilterBuilder
    found: str

    @property
    def present(self) -> str:
        return f"coalesce(jsonb_typeof({self.found}), 'null') <> 'null'"

    def equal(self, values: Sequence[Any]) -> list[str]:
        return [self._equal(self.found, value) for value in values]

    def compare(self, operator: str, value: Any) -> str:
        kind, found, tests = find_type(value), self.found, []
        if kind in _JSON_TYPES:
            typed = f"({found} #>> '{{}}')" + (' collate "C"' if kind == TEXT else "::numeric")
            # A case, because the server may try the cast before the test of the type.
            test = self.builder.compare(typed, operator, value)
            tests.append(f"case jsonb_typeof({found}) when '{_JSON_TYPES[kind]}' then {test} else false end")
        if operator == "contains":
            inside = f"jsonb_array_elements(case jsonb_typeof({found}) when 'array' then {found} else '[]' end)"
            tests.append(f"exists (select 1 from {inside} as one where {self._equal('one', value)})")
        return " or ".join(tests) or "false"

    def _equal(self, found: str, value: Any) -> str:
        return f"coalesce({found} = to_jsonb({self.builder.bind(value)}), false)"


def _encode_exactly(value: object) -> str:
    if isinstance(value, float):
        return format(Decimal(value), "f")
    if isinstance(value, (list, tuple)):
        return "[" + ",".join(map(_encode_exactly, value)) + "]"
    return "{}" if isinstance(value, Mapping) else json.dumps(value)


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
    state, message = exc.sqlstate or "", _said(exc)
    if is_lost(exc) or state in ("57014", "53300", "53200"):
        return errors.StoreUnavailable(f"{where} did not answer: {message}")
    if is_retryable(exc) or state == "55P03":
        return errors.StoreBusy(f"{where}: other writers held the same rows for too long: {message}")
    if state in ("53100", "58030"):
        return errors.DiskFull(f"{where}: {message} Nothing of this write was kept; free some space and repeat it.")
    if state in ("ENG02", "ENG03"):
        return make_blocked_error(hidden=state == "ENG03")
    if state == "25006":
        return errors.ReadOnlyStore(f"{where} takes no writes (a standby?): {message}")
    if state == "42501":
        return errors.ReadOnlyStore(f"{where}: this role may not do that: {message}")
    if state.startswith("28") or state in ("3D000", "42704"):
        return errors.ConfigError(f"{where}: {message}")
    if state.startswith("XX"):
        return errors.StoreCorrupt(f"{where}: {message}")
    if isinstance(exc, psycopg.DataError) or state.startswith("22"):
        return errors.InvalidInput(f"Postgres cannot take this value: {message}")
    return errors.StoreError(f"{where}: {message}")


def _said(exc: psycopg.Error) -> str:
    first = (exc.diag.message_primary or str(exc)).strip().splitlines()
    return f"{first[0].rstrip('.')}." if first else f"{type(exc).__name__}."
