"""Filters on items: their fields and operators, and the meaning of a missing value, for all stores."""

from __future__ import annotations

import math
import operator as compare
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from engrain.core.clock import check_time
from engrain.core.errors import InvalidInput, TooLarge, UnknownKey
from engrain.core.model.items import Item
from engrain.core.validation import check_name

TEXT, NUMBER, TIME, FLAG = "text", "number", "time", "flag"
FIELDS: Mapping[str, str] = {
    "id": TEXT, "kind": TEXT, "text": TEXT, "slot": TEXT, "session": TEXT, "speaker": TEXT, "role": TEXT,
    "source": TEXT, "importance": NUMBER, "trust": NUMBER, "place": NUMBER, "pinned": FLAG,
    "occurred_at": TIME, "recorded_at": TIME, "valid_from": TIME, "valid_to": TIME,
}  # fmt: skip
_WANTED = {TEXT: "a text", NUMBER: "a number", FLAG: "true or false", None: "a text, a number, true or false"}
OPERATORS = ("=", "!=", "<", "<=", ">", ">=", "in", "not in", "exists", "contains", "starts with")
MAX_CONDITIONS = 32
MAX_CHOICES = 1_000


@dataclass(frozen=True, slots=True)
class Condition:
    """`field operator value`. A field is one of FIELDS, or "metadata.NAME" for a top-level metadata key.

    - A missing value matches only `= None`, `exists False`, `!= x` and `not in`.
    - Values of two types are never equal and never ordered. True is not 1. A list or a dict only exists.
    - Text is compared by code point, with its case.
    - `contains` and `starts with` search text. In a list in metadata, `contains` finds an equal element.
    - `source` matches if any of the item's sources has that name.
    """

    field: str
    operator: str
    value: Any


@dataclass(frozen=True, slots=True)
class Filter:
    """All conditions must hold."""

    conditions: tuple[Condition, ...] = ()


def parse_filter(where: Mapping[str, Any] | Filter | None) -> Filter | None:
    """Parse a dict such as {"kind": "fact", "importance": {">=": 0.5}, "metadata.project": {"in": ["a", "b"]}}."""
    if where is None:
        return None
    if isinstance(where, Filter):
        return Filter(tuple(_check_condition(test.field, test.operator, test.value) for test in where.conditions))
    if not isinstance(where, Mapping):
        raise InvalidInput(f'a filter must be a dict such as {{"kind": "fact"}}, not {type(where).__name__}.')
    if any(test == {} for test in where.values()):
        raise InvalidInput('an empty test: write {"importance": {">=": 0.5}}.')
    tests = ((key, test if isinstance(test, Mapping) else {"=": test}) for key, test in where.items())
    conditions = [_check_condition(key, op, value) for key, test in tests for op, value in test.items()]
    if len(conditions) > MAX_CONDITIONS:
        raise TooLarge(f"a filter may have {MAX_CONDITIONS} conditions, not {len(conditions)}.")
    return Filter(tuple(conditions)) if conditions else None


def matches_filter(where: Filter | None, item: Item) -> bool:
    return where is None or all(_holds(condition, item) for condition in where.conditions)


def _check_condition(key: object, operator: object, value: object) -> Condition:
    if not isinstance(key, str) or (key not in FIELDS and not key.startswith("metadata.")) or key == "metadata.":
        raise UnknownKey(f'unknown filter key {key!r}. Known: {", ".join(FIELDS)}, and "metadata.NAME".')
    if operator not in OPERATORS:
        raise UnknownKey(f"unknown operator {operator!r} for {key!r}. Known: {', '.join(OPERATORS)}.")
    check_name(key, "filter key")
    return Condition(key, str(operator), _check_value(key, str(operator), value))


def _check_value(key: str, operator: str, value: object) -> object:
    if operator == "exists":
        if not isinstance(value, bool):
            raise InvalidInput(f'{key}: "exists" takes True or False, not {value!r}.')
        return value
    if operator in ("in", "not in"):
        if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
            raise InvalidInput(f'{key}: "{operator}" takes a list, not {value!r}.')
        if len(value) > MAX_CHOICES:
            raise TooLarge(f'{key}: "{operator}" takes at most {MAX_CHOICES:,} values, not {len(value):,}.')
        return tuple(_check_scalar(key, choice) for choice in value)
    if operator == "contains" and key.startswith("metadata.") and value is not None:
        return _check_scalar(key, value)
    if operator in ("contains", "starts with") and not isinstance(value, str):
        raise InvalidInput(f'{key}: "{operator}" takes text, not {value!r}.')
    if operator in ("<", "<=", ">", ">=") and (value is None or isinstance(value, bool)):
        raise InvalidInput(f'{key}: "{operator}" takes a number, a text or a time, not {value!r}.')
    return None if value is None else _check_scalar(key, value)


def _check_scalar(key: str, value: object) -> object:
    kind = FIELDS.get(key)
    if kind == TIME:
        return check_time(value, key)
    if isinstance(value, str):
        check_name(value, key)
    fits = {
        TEXT: isinstance(value, str),
        NUMBER: isinstance(value, (int, float)) and not isinstance(value, bool),
        FLAG: isinstance(value, bool),
        None: isinstance(value, (str, int, float, bool)),
    }[kind]
    if not fits or (isinstance(value, float) and not math.isfinite(value)):
        raise InvalidInput(f"{key} takes {_WANTED[kind]}, not {value!r}.")
    if isinstance(value, int) and not isinstance(value, bool) and not -(2**63) <= value < 2**63:
        raise InvalidInput(f"{key}: {value} does not fit into 64 bits.")
    return value


def _holds(condition: Condition, item: Item) -> bool:
    field, operator = condition.field, condition.operator
    if field == "source":
        names: Sequence[str | None] = [source.name for source in item.sources if source.name] or (None,)
        # A negation must hold for all sources, any other condition for one.
        combine = all if operator in ("!=", "not in") else any
        return combine(_compare(name, operator, condition.value) for name in names)
    key = field.removeprefix("metadata.")
    value = getattr(item, field) if key == field else item.metadata.get(key)
    return _compare(value, operator, condition.value)


def _is_same(left: object, right: object) -> bool:
    return find_type(left) == find_type(right) and find_type(left) != "other" and left == right


def find_type(value: object) -> str:
    """TEXT, NUMBER, TIME or FLAG; "missing" for None, "other" for a list or a dict."""
    if isinstance(value, bool):
        return FLAG
    for name, kinds in ((NUMBER, (int, float)), (TEXT, str), (TIME, datetime)):
        if isinstance(value, kinds):
            return name
    return "missing" if value is None else "other"


def _compare(left: object, operator: str, right: Any) -> bool:
    if operator == "exists":
        return (left is not None) is right
    if operator == "=":
        return _is_same(left, right)
    if operator == "!=":
        return not _is_same(left, right)
    if operator in ("in", "not in"):
        return any(_is_same(left, choice) for choice in right) is (operator == "in")
    if operator == "contains" and isinstance(left, list):
        return any(_is_same(element, right) for element in left)
    if find_type(left) != find_type(right) or find_type(left) in ("missing", "other", FLAG):
        return False
    if operator == "contains":
        return isinstance(right, str) and right in left  # type: ignore[operator]
    if operator == "starts with":
        return left.startswith(right)  # type: ignore[attr-defined, no-any-return]
    order: Any = {"<": compare.lt, "<=": compare.le, ">": compare.gt, ">=": compare.ge}[operator]
    return bool(order(left, right))
