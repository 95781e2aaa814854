"""Convert the arguments of a verb to JSON, and the JSON of an answer to the values that the verb returns."""

from __future__ import annotations

import json
import math
import types
from collections.abc import Iterator, Mapping, Set
from dataclasses import fields, is_dataclass
from datetime import date, datetime, timedelta
from functools import cache
from itertools import islice
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import orjson

from engrain.core.chat.parse import dump_model
from engrain.core.errors import BadText, InvalidInput, TooLarge
from engrain.core.model.filters import Filter
from engrain.core.model.messages import Message
from engrain.core.validation import MAX_BATCH, MAX_TEXT

MAX_DEPTH = 64
# A stored message has these; the server gives them to a new one.
_SET_BY_SERVER = ("id", "number")


def encode_json(values: Mapping[str, Any]) -> bytes:
    """Return the arguments as a JSON object; an InvalidInput for a value that JSON does not have."""
    plain = {name: to_wire(value) for name, value in values.items()}
    try:
        return orjson.dumps(plain)
    except TypeError:
        try:
            return json.dumps(plain, ensure_ascii=False, allow_nan=False).encode()
        except UnicodeEncodeError as exc:
            raise BadText("a text holds a lone surrogate, which is not valid Unicode.") from exc


def to_wire(value: Any, depth: int = 0) -> Any:
    """Convert a value to plain JSON."""
    if depth > MAX_DEPTH:
        raise TooLarge(f"a value is nested more than {MAX_DEPTH} deep.")
    if value is None or isinstance(value, (bool, int)):
        return value
    if isinstance(value, str):
        if len(value) > MAX_TEXT:
            raise TooLarge(f"a text has {len(value):,} characters; {MAX_TEXT:,} bytes are the most.")
        return value
    if isinstance(value, float):
        if not math.isfinite(value):
            raise InvalidInput(f"{value} is not a number that JSON has.")
        return value
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, timedelta):
        return value.total_seconds()
    return _container_to_wire(value, depth + 1)


def _container_to_wire(value: Any, depth: int) -> Any:
    if isinstance(value, Filter):
        return _filter_to_wire(value)
    if isinstance(value, Mapping):
        if not all(isinstance(key, str) for key in value):
            raise InvalidInput("the keys of a JSON object are texts.")
        return {key: to_wire(one, depth) for key, one in value.items()}
    if is_dataclass(value) and not isinstance(value, type):
        left_out = _SET_BY_SERVER if isinstance(value, Message) else ()
        named = {one.name: getattr(value, one.name) for one in fields(value) if one.name not in left_out}
        return {name: to_wire(one, depth) for name, one in named.items() if one is not None}
    if isinstance(value, (list, tuple, Set, Iterator)):
        return [to_wire(one, depth) for one in islice(value, MAX_BATCH + 1)]
    if (dumped := dump_model(value)) is not value:
        return to_wire(dumped, depth)
    raise InvalidInput(f"{type(value).__name__} is not a value that JSON has.")


def _filter_to_wire(value: Filter) -> dict[str, Any]:
    found: dict[str, dict[str, Any]] = {}
    for one in value.conditions:
        found.setdefault(one.field, {})[one.operator] = to_wire(one.value)
    return found


def to_query(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return arguments as the parameters of a query. None is left out."""
    found = []
    for name, value in values.items():
        many = value if isinstance(value, (list, tuple, Set)) else (value,)
        found += [(name, _to_text(to_wire(one))) for one in many if one is not None]
    return found


def _to_text(plain: Any) -> str:
    if isinstance(plain, str):
        check_unicode(plain)
        return plain
    return json.dumps(plain)


def check_unicode(text: str) -> None:
    try:
        text.encode()
    except UnicodeEncodeError as exc:
        raise BadText("a text holds a lone surrogate, which is not valid Unicode.") from exc


def from_wire(kind: Any, plain: Any) -> Any:
    """Convert plain JSON to a value of the type that the verb's annotation names."""
    origin, inside = get_origin(kind), get_args(kind)
    if plain is None or kind in (Any, object) or origin is Literal:
        return plain
    if origin in (Union, types.UnionType):
        return _choose_member(inside, plain)
    if origin is tuple:
        if len(inside) == 2 and inside[1] is Ellipsis:
            return tuple(from_wire(inside[0], one) for one in plain)
        return tuple(from_wire(one, value) for one, value in zip(inside, plain, strict=True))
    if origin in (list, set, frozenset):
        return origin(from_wire(inside[0], one) for one in plain)
    if isinstance(origin, type) and issubclass(origin, Mapping):
        return {key: from_wire(inside[1], one) for key, one in plain.items()}
    return _make_value(kind, plain)


def _choose_member(members: tuple[Any, ...], plain: Any) -> Any:
    left = [one for one in members if one is not type(None)]
    if any(isinstance(one, type) and issubclass(one, date) for one in left):
        return datetime.fromisoformat(plain)
    return from_wire(left[0], plain) if len(left) == 1 else plain


def _make_value(kind: Any, plain: Any) -> Any:
    if isinstance(kind, type) and issubclass(kind, datetime):
        return datetime.fromisoformat(plain)
    if kind is float:
        return float(plain)
    if isinstance(plain, dict) and isinstance(kind, type) and (is_dataclass(kind) or hasattr(kind, "_fields")):
        return kind(**{name: from_wire(hint, plain[name]) for name, hint in _load_hints(kind) if name in plain})
    return plain


@cache
def load_public_names() -> dict[str, Any]:
    """Return every public name, by which annotations name a type that their module imports for checking only."""
    import engrain

    return {name: getattr(engrain, name) for name in dir(engrain)}


@cache
def _load_hints(kind: type) -> tuple[tuple[str, Any], ...]:
    """Return the type of each field."""
    hints = get_type_hints(kind, localns=load_public_names())
    names = [one.name for one in fields(kind)] if is_dataclass(kind) else list(kind._fields)  # type: ignore[attr-defined]
    return tuple((name, hints[name]) for name in names)
