"""Test items by a filter in Postgres: metadata by the jsonb column `filters`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from engrain.core.model.filters import FLAG, NUMBER, TEXT, TIME, Filter, find_type
from engrain.stores.relational.filters import FilterBuilder

_JSON_TYPES = {TEXT: "string", NUMBER: "number"}
_CASTS = {TEXT: "text", NUMBER: "numeric", FLAG: "boolean", TIME: "bigint"}


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
    builder: FilterBuilder
    found: str

    @property
    def present(self) -> str:
        return f"coalesce(jsonb_typeof({self.found}), 'null') <> 'null'"

    def equal(self, values: Sequence[Any]) -> list[str]:
        return [self._equal(self.found, one) for one in values]

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
