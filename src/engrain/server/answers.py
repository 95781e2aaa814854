"""Values of verbs as JSON answers, and the JSON schema of each answer."""

from __future__ import annotations

import json
import types
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from datetime import datetime
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import orjson

from engrain.client.values import load_public_names
from engrain.core.errors import NotFound
from engrain.core.http_routes import Route
from engrain.core.validation import to_plain
from engrain.memory.http_verbs import Verb

Schema = dict[str, Any]
JSON_TYPE = "application/json"

_PLAIN: Mapping[Any, Schema] = {
    str: {"type": "string"},
    int: {"type": "integer"},
    float: {"type": "number"},
    bool: {"type": "boolean"},
    type(None): {"type": "null"},
    datetime: {"type": "string", "format": "date-time"},
    Any: {},
    object: {},
}


def encode_answer(route: Route, value: Any) -> bytes | None:
    """Return the JSON of a verb's value; None for a verb without one. NotFound if the value is missing."""
    if value is None:
        if route.missing:
            raise NotFound("there is no such thing in this memory.")
        if not route.answer:
            return None
    plain = to_plain(value)
    if route.answer:
        plain = {route.answer: plain}
    elif route.text:
        plain = {**plain, "text": str(value)}
    return to_json(plain)


def to_json(plain: Any) -> bytes:
    try:
        return orjson.dumps(plain)
    except TypeError:
        # A task's state may hold numbers of more than 64 bits, which orjson does not write.
        return json.dumps(plain, ensure_ascii=False, allow_nan=False).encode()


class AnswerSchemas:
    """The JSON schemas of answers. Each dataclass becomes a component of its name."""

    def __init__(self) -> None:
        self.components: dict[str, Schema] = {}

    def describe(self, verb: Verb) -> Schema | None:
        """Return the schema of a route's answer; None if it has no body."""
        route, returned = verb.route, verb.returns
        if returned is None and not route.answer:
            return None
        if route.missing:
            returned = _drop_none(returned)
        schema = self._describe_type(returned)
        if route.answer:
            return _describe_object({route.answer: schema})
        if route.text:
            return {"allOf": [schema, _describe_object({"text": {"type": "string"}})]}
        return schema

    def _describe_type(self, kind: Any) -> Schema:
        origin, inside = get_origin(kind), get_args(kind)
        if kind in _PLAIN:
            return dict(_PLAIN[kind])
        if origin is Literal:
            return {"enum": list(inside)}
        if origin in (Union, types.UnionType):
            return {"anyOf": [self._describe_type(member) for member in inside]}
        if origin is tuple and not (len(inside) == 2 and inside[1] is Ellipsis):
            return {"type": "array", "items": {}, "minItems": len(inside), "maxItems": len(inside)}
        if origin in (list, tuple, frozenset, set) or (isinstance(origin, type) and issubclass(origin, Sequence)):
            return {"type": "array", "items": self._describe_type(inside[0])}
        if origin is not None and issubclass(origin, Mapping):
            return {"type": "object", "additionalProperties": self._describe_type(inside[1])}
        if isinstance(kind, type) and (is_dataclass(kind) or hasattr(kind, "_fields")):
            return self._describe_class(kind)
        return {}

    def _describe_class(self, kind: type) -> Schema:
        name = kind.__name__
        if name not in self.components:
            self.components[name] = {}
            hints = get_type_hints(kind, localns=load_public_names())
            names = [field.name for field in fields(kind)] if is_dataclass(kind) else list(kind._fields)  # type: ignore[attr-defined]
            described = _describe_object({name: self._describe_type(hints[name]) for name in names})
            self.components[name] = {"title": name, **described}
        return {"$ref": f"#/components/schemas/{name}"}


def _describe_object(properties: Mapping[str, Schema]) -> Schema:
    return {"type": "object", "properties": dict(properties), "required": list(properties)}


def _drop_none(kind: Any) -> Any:
    left = [member for member in get_args(kind) if member is not type(None)]
    return left[0] if len(left) == 1 else kind
