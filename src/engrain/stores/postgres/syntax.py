"""Postgres' SQL: the fragments of shared statements, and tests of items by a filter."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from engrain.core.model.filters import FLAG, NUMBER, TEXT, TIME, Filter, find_type
from engrain.stores.relational.filters import FilterBuilder
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
