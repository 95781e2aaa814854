"""Turn a filter into SQL whose values are bound, with the meaning of filters.matches_filter."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from decimal import Decimal
from typing import Any

from engrain.core.clock import to_micros
from engrain.core.errors import UnknownKey
from engrain.core.model.filters import FIELDS, FLAG, NUMBER, OPERATORS, TEXT, TIME, Condition, Filter

_COLUMNS = {name: f"item.{name}" for name in FIELDS if name != "source"}
_JSON_TYPES = {TEXT: "string", NUMBER: "number", FLAG: "boolean"}
_CASTS = {TEXT: "text", NUMBER: "numeric", FLAG: "boolean", TIME: "bigint"}
_ORDERS = ("<", "<=", ">", ">=")


class Bound:
    """Values on their way into a statement, under names that cannot meet those of the statement itself."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}

    def __call__(self, value: Any) -> str:
        name = f"filter{len(self.values)}"
        cast = _CASTS[_kind(value)]
        if isinstance(value, datetime):
            value = to_micros(value)
        elif cast == "numeric":
            # With every digit: a whole number and a float are compared as Python compares them.
            value = Decimal(value)
        self.values[name] = value
        return f"%({name})s::{cast}"

    def double(self, value: float) -> str:
        name = f"filter{len(self.values)}"
        self.values[name] = float(value)
        return f"%({name})s::double precision"


def where_sql(where: Filter | None) -> tuple[str, dict[str, Any]]:
    """An expression over table `item` that is never null, and the values of its named parameters."""
    bind = Bound()
    tests = [_test(condition, bind) for condition in where.conditions] if where else []
    return " and ".join(f"({test})" for test in tests) or "true", bind.values


def _test(condition: Condition, bind: Bound) -> str:
    if condition.operator not in OPERATORS:
        raise UnknownKey(f"unknown operator {condition.operator!r}.")
    if condition.field.startswith("metadata."):
        return _in_metadata(condition, bind)
    if condition.field == "source":
        return _in_sources(condition, bind)
    if condition.field not in _COLUMNS:
        raise UnknownKey(f"unknown filter key {condition.field!r}.")
    return _in_column(_COLUMNS[condition.field], condition, bind)


def _in_column(column: str, condition: Condition, bind: Bound) -> str:
    kind = FIELDS[condition.field]
    operator, value = condition.operator, condition.value
    # These columns hold doubles from 0 to 1, which no rounding of the other side can pass.
    bound = bind.double if condition.field in ("importance", "trust") else bind
    if operator in ("=", "!=", "in", "not in"):
        wanted = [value] if operator in ("=", "!=") else list(value)
        same = [bound(one) for one in wanted if one is not None and _kind(one) == kind]
        tests = [f"coalesce({column} in ({', '.join(same)}), false)"] if same else []
        tests += [f"{column} is null"] * (None in wanted)
        return _negated(operator, " or ".join(tests) or "false")
    if operator == "exists":
        return f"{column} is not null" if value else f"{column} is null"
    if _kind(value) != kind or kind == FLAG:
        return "false"
    return f"coalesce({_compared(column, operator, value, bound)}, false)"


def _in_metadata(condition: Condition, bind: Bound) -> str:
    found = f"(item.filters -> {bind(condition.field.removeprefix('metadata.'))})"
    operator, value = condition.operator, condition.value
    missing = f"coalesce(jsonb_typeof({found}), 'null') = 'null'"
    if operator == "exists":
        return f"not ({missing})" if value else missing
    if operator in ("=", "!=", "in", "not in"):
        wanted = [value] if operator in ("=", "!=") else list(value)
        tests = [_equal(found, one, bind) for one in wanted if one is not None]
        tests += [missing] * (None in wanted)
        return _negated(operator, " or ".join(tests) or "false")
    kind = _kind(value)
    tests = []
    if kind in (TEXT, NUMBER):
        typed = f"({found} #>> '{{}}')" + ("" if kind == TEXT else "::numeric")
        collated = f'{typed} collate "C"' if kind == TEXT else typed
        # A case, because the server may try the cast before the test of the type.
        test = _compared(collated, operator, value, bind)
        tests.append(f"case jsonb_typeof({found}) when '{_JSON_TYPES[kind]}' then {test} else false end")
    if operator == "contains":
        inside = f"jsonb_array_elements(case jsonb_typeof({found}) when 'array' then {found} else '[]' end)"
        tests.append(f"exists (select 1 from {inside} as one where {_equal('one', value, bind)})")
    return " or ".join(tests) or "false"


def _equal(found: str, value: Any, bind: Bound) -> str:
    """Values of two types are never equal: jsonb holds to that too."""
    return f"coalesce({found} = to_jsonb({bind(value)}), false)"


def _in_sources(condition: Condition, bind: Bound) -> str:
    operator, value = condition.operator, condition.value
    found = "exists (select 1 from source where source.item = item.n and source.name <> ''"
    if operator == "exists":
        return f"{found})" if value else f"not {found})"
    if operator in ("=", "!=", "in", "not in"):
        wanted = [value] if operator in ("=", "!=") else list(value)
        same = [bind(one) for one in wanted if isinstance(one, str)]
        tests = [f"{found} and source.name in ({', '.join(same)}))"] if same else []
        tests += [f"not {found})"] * (None in wanted)
        return _negated(operator, " or ".join(tests) or "false")
    return f"{found} and {_compared('source.name', operator, value, bind)})" if isinstance(value, str) else "false"


def _negated(operator: str, equal: str) -> str:
    return equal if operator in ("=", "in") else f"not ({equal})"


def _compared(left: str, operator: str, value: Any, bind: Callable[[Any], str]) -> str:
    if operator in ("contains", "starts with"):
        if not isinstance(value, str):
            return "false"
        return f"strpos({left}, {bind(value)}) > 0" if operator == "contains" else f"starts_with({left}, {bind(value)})"
    if isinstance(value, bool) and operator in _ORDERS:
        return "false"
    return f"{left} {operator} {bind(value)}"


def _kind(value: object) -> str:
    if isinstance(value, bool):
        return FLAG
    if isinstance(value, (int, float)):
        return NUMBER
    if isinstance(value, str):
        return TEXT
    return TIME if isinstance(value, datetime) else ""
