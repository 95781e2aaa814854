"""Turn a filter into SQL whose values are bound, with the meaning of filters.matches_filter."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

from engrain.core.clock import to_micros
from engrain.core.errors import UnknownKey
from engrain.core.model.filters import FIELDS, FLAG, NUMBER, OPERATORS, TEXT, TIME, Condition, Filter

_COLUMNS = {name: f"item.{name}" for name in FIELDS if name != "source"}
_JSON_TYPES = {TEXT: "j.type = 'text'", NUMBER: "j.type in ('integer', 'real')", FLAG: "j.type in ('true', 'false')"}
_ORDERS = ("<", "<=", ">", ">=")


class Bound:
    """Values on their way into a statement, under names that cannot meet those of the statement itself."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {}

    def __call__(self, value: Any) -> str:
        name = f"filter{len(self.values)}"
        self.values[name] = to_micros(value) if isinstance(value, datetime) else value
        return f":{name}"


def where_sql(where: Filter | None) -> tuple[str, dict[str, Any]]:
    """An expression over table `item` that is never null, and the values of its named parameters."""
    bind = Bound()
    tests = [_test(condition, bind) for condition in where.conditions] if where else []
    return " and ".join(f"({test})" for test in tests) or "1", bind.values


def _test(condition: Condition, bind: Bound) -> str:
    if condition.operator not in OPERATORS:
        raise UnknownKey(f"unknown operator {condition.operator!r}.")
    if condition.field.startswith("metadata."):
        key = bind(condition.field.removeprefix("metadata."))
        # json_each compares the key as a value: a path would have to quote what the caller chose.
        found = f"exists (select 1 from json_each(item.metadata) as j where j.key = {key} and "
        plain = _in_rows(condition, found, bind, ("j.type <> 'null'", "j.value", _JSON_TYPES))
        return f"{plain} or {_in_list(condition.value, key, bind)}" if condition.operator == "contains" else plain
    if condition.field == "source":
        found = "exists (select 1 from source as j where j.item = item.n and j.name <> '' and "
        return _in_rows(condition, found, bind, ("1", "j.name", {TEXT: "1"}))
    if condition.field not in _COLUMNS:
        raise UnknownKey(f"unknown filter key {condition.field!r}.")
    return _compare_column(_COLUMNS[condition.field], condition, bind)


def _in_list(value: Any, key: str, bind: Bound) -> str:
    """An equal element of a list."""
    typed = _JSON_TYPES[_kind(value)].replace("j.type", "e.type")
    return (
        "exists (select 1 from json_each(item.metadata) as j, json_each(item.metadata, j.fullkey) as e "
        f"where j.key = {key} and j.type = 'array' and {typed} and e.value = {bind(value)})"
    )


def _in_rows(condition: Condition, found: str, bind: Bound, rows: tuple[str, str, Mapping[str, str]]) -> str:
    """A value that stands in rows of its own: `found` opens the search for a row; `rows` says when there is a value,
    where it is, and how its types are told apart."""
    present, column, types = rows
    operator, value = condition.operator, condition.value
    if operator == "exists":
        return f"{found}{present})" if value else f"not ({found}{present}))"
    if operator in ("=", "!=", "in", "not in"):
        wanted = [value] if operator in ("=", "!=") else list(value)
        tests = []
        for kind, typed in types.items():
            same = [bind(one) for one in wanted if _kind(one) == kind]
            if same:
                tests.append(f"{found}{typed} and {column} in ({', '.join(same)}))")
        if None in wanted:
            tests.append(f"not ({found}{present}))")
        equal = " or ".join(f"({test})" for test in tests) or "0"
        return equal if operator in ("=", "in") else f"not ({equal})"
    if _kind(value) not in types:
        return "0"
    return f"{found}{types[_kind(value)]} and {_compare(column, operator, value, bind)})"


def _compare_column(column: str, condition: Condition, bind: Bound) -> str:
    operator, value, kind = condition.operator, condition.value, FIELDS[condition.field]
    if operator == "exists":
        return f"{column} is not null" if value else f"{column} is null"
    if operator in ("=", "!=", "in", "not in"):
        wanted = [value] if operator in ("=", "!=") else list(value)
        same = [bind(one) for one in wanted if one is not None and _kind(one) == kind]
        tests = [f"coalesce({column} in ({', '.join(same)}), 0)"] if same else []
        if None in wanted:
            tests.append(f"{column} is null")
        equal = " or ".join(tests) or "0"
        return equal if operator in ("=", "in") else f"not ({equal})"
    if _kind(value) != kind or kind == FLAG:
        return "0"
    return f"coalesce({_compare(column, operator, value, bind)}, 0)"


def _compare(left: str, operator: str, value: Any, bind: Bound) -> str:
    if operator in ("contains", "starts with"):
        if not isinstance(value, str):
            return "0"
        name = bind(value)
        return f"instr({left}, {name}) > 0" if operator == "contains" else f"substr({left}, 1, length({name})) = {name}"
    if isinstance(value, bool) and operator in _ORDERS:
        return "0"
    return f"{left} {operator} {bind(value)}"


def _kind(value: object) -> str:
    if isinstance(value, bool):
        return FLAG
    if isinstance(value, (int, float)):
        return NUMBER
    if isinstance(value, str):
        return TEXT
    return TIME if isinstance(value, datetime) else ""
