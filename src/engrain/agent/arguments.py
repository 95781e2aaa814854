"""Prove the arguments that a model gives against the schema of a tool, in words that help it to do better."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

_KINDS: Mapping[str, tuple[type, ...]] = {
    "string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,), "null": (type(None),),
    "array": (list,), "object": (dict,),
}  # fmt: skip
_WORDS = {
    "string": "a text", "integer": "a whole number", "number": "a number", "boolean": "true or false", "null": "null",
    "array": "a list", "object": "an object",
}  # fmt: skip
_SHOWN = 60


def fitted(arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """The arguments as the function takes them, and what is wrong with them. Keywords of JSON schema that are not
    known here are left to the tool."""
    required = schema.get("required", ())
    # Models write null for what they want to leave out.
    given = {name: value for name, value in arguments.items() if value is not None or _takes_null(name, schema)}
    wrong = [f"{name!r} is missing" for name in required if name not in given]
    return _object(given, schema, "", wrong), wrong


def _takes_null(name: str, schema: Mapping[str, Any]) -> bool:
    known = schema.get("properties", {})
    return name not in known or name in schema.get("required", ()) or not _problems(None, known[name])


def _value(value: Any, schema: Any, where: str, wrong: list[str]) -> Any:
    if not isinstance(schema, Mapping):
        return value
    if "anyOf" in schema:
        for option in schema["anyOf"]:
            if not _problems(value, option):
                return _value(value, option, where, wrong)
        wrong.append(f"{where} must be {_told(schema)}, not {_shown(value)}")
        return value
    if "enum" in schema:
        if not any(type(one) is type(value) and one == value for one in schema["enum"]):
            wrong.append(f"{where} must be {_told(schema)}, not {_shown(value)}")
        return value
    kinds = _types(schema)
    if "integer" in kinds and isinstance(value, float) and value.is_integer():
        value = int(value)
    if kinds and not any(_is(value, kind) for kind in kinds):
        wrong.append(f"{where} must be {_told(schema)}, not {_shown(value)}")
    elif isinstance(value, list) and "items" in schema:
        return [_value(one, schema["items"], f"{where}[{place}]", wrong) for place, one in enumerate(value)]
    elif isinstance(value, dict):
        wrong += [f"{where}[{name!r}] is missing" for name in schema.get("required", ()) if name not in value]
        return _object(value, schema, where, wrong)
    return value


def _object(value: Mapping[str, Any], schema: Mapping[str, Any], where: str, wrong: list[str]) -> dict[str, Any]:
    known, others = schema.get("properties", {}), schema.get("additionalProperties", True)
    found: dict[str, Any] = {}
    for name, one in value.items():
        inner = f"{where}[{name!r}]" if where else repr(name)
        if name not in known and others is False:
            names = ", ".join(known) or "no argument at all"
            wrong.append(f"{inner} is not known (it takes {names})")
        found[name] = _value(one, known.get(name, others), inner, wrong)
    return found


def _problems(value: Any, schema: Any) -> list[str]:
    wrong: list[str] = []
    _value(value, schema, "", wrong)
    return wrong


def _is(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    return kind not in _KINDS or isinstance(value, _KINDS[kind])


def _types(schema: Mapping[str, Any]) -> Sequence[str]:
    kinds = schema.get("type", ())
    return (kinds,) if isinstance(kinds, str) else kinds


def _told(schema: Mapping[str, Any]) -> str:
    if "anyOf" in schema:
        return " or ".join(map(_told, schema["anyOf"]))
    if "enum" in schema:
        return "one of " + ", ".join(json.dumps(one, ensure_ascii=False) for one in schema["enum"])
    return " or ".join(_WORDS.get(kind, kind) for kind in _types(schema)) or "anything"


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
