"""Filters of LangGraph's stores: fields of a value, and namespaces."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from langgraph.store.base import MatchCondition

from engrain.core.errors import InvalidInput

_OPERATORS: Mapping[str, Callable[[Any, Any], Any]] = {
    "$eq": lambda value, wanted: value == wanted,
    "$ne": lambda value, wanted: value != wanted,
    "$gt": lambda value, wanted: float(value) > float(wanted),
    "$gte": lambda value, wanted: float(value) >= float(wanted),
    "$lt": lambda value, wanted: float(value) < float(wanted),
    "$lte": lambda value, wanted: float(value) <= float(wanted),
}


def fits_namespace(condition: MatchCondition, namespace: tuple[str, ...]) -> bool:
    path = tuple(condition.path)
    part = namespace[: len(path)] if condition.match_type == "prefix" else namespace[-len(path) :]
    return len(namespace) >= len(path) and all(want in ("*", label) for want, label in zip(path, part, strict=True))


def matches_filter(value: Any, wanted: Any) -> bool:
    """Compare a value with a filter: operators, objects by their named fields, lists element by element."""
    if wanted is None:
        return True
    if not isinstance(value, dict):
        return False
    return all(_equals(value.get(name), one) for name, one in wanted.items())


def _equals(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, dict):
        if any(name.startswith("$") for name in wanted):
            return all(_apply(name, value, one) for name, one in wanted.items())
        return matches_filter(value, wanted)
    if isinstance(wanted, (list, tuple)):
        same = isinstance(value, list) and len(value) == len(wanted)
        return same and all(map(_equals, value, wanted))
    return bool(value == wanted)


def _apply(name: str, value: Any, wanted: Any) -> bool:
    """A value that is no number is neither more nor less than one."""
    if name not in _OPERATORS:
        raise InvalidInput(f"unknown operator {name!r}. Known: {', '.join(_OPERATORS)}.")
    try:
        return bool(_OPERATORS[name](value, wanted))
    except (TypeError, ValueError):
        return False
