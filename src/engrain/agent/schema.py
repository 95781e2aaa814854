"""Describe the parameters of a function as a JSON schema, from its type hints and its docstring."""

from __future__ import annotations

import inspect
import json
import re
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from engrain.core.errors import InvalidInput
from engrain.core.validation import check_json

Schema = dict[str, Any]

KNOWN = "str, int, float, bool, list[…], dict[str, …], Literal[…], Optional[…] and unions of these"
_PLAIN: Mapping[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
_LISTS = (list, Sequence)
_DICTS = (dict, Mapping)

# Headings after which a docstring no longer tells what the function does.
_SECTION = re.compile(r"^\s*(args|arguments|parameters|returns|raises|yields|examples?|note)s?:\s*$", re.IGNORECASE)
_ARGS = re.compile(r"^\s*(args|arguments|parameters):\s*$", re.IGNORECASE)
_ARG = re.compile(r"^\s*\*{0,2}(\w+)(?:\s*\([^)]*\))?:\s*(.*)$")
_PARAM = re.compile(r"^\s*:param\s+(?:[\w\[\], |]+\s+)?(\w+):\s*(.*)$")


def parameters_of(function: Callable[..., Any], name: str) -> Schema:
    """The schema of the arguments, for a function that is called by keyword."""
    hints = _hints(function, name)
    told = _told_arguments(inspect.getdoc(function) or "")
    properties: Schema = {}
    required: list[str] = []
    for parameter in _signature(function, name):
        where = f"parameter {parameter.name!r} of tool {name!r}"
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise InvalidInput(f"{where} cannot be described: a model gives every argument by its name.")
        if parameter.name not in hints:
            raise InvalidInput(f"{where} has no type hint. Known are {KNOWN}.")
        optional = parameter.default is not parameter.empty
        schema = _described(hints[parameter.name], where, optional)
        if parameter.name in told:
            schema.setdefault("description", told[parameter.name])
        if optional and parameter.default is not None and _is_plain(parameter.default):
            schema["default"] = parameter.default
        properties[parameter.name] = schema
        required += [] if optional else [parameter.name]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def purpose_of(function: Callable[..., Any]) -> str:
    """What the docstring says before it comes to its sections; "" if there is none."""
    lines: list[str] = []
    for line in (inspect.getdoc(function) or "").splitlines():
        if _SECTION.match(line) or line.lstrip().startswith(":"):
            break
        lines.append(line.strip())
    return "\n".join(lines).strip()


def _signature(function: Callable[..., Any], name: str) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError) as exc:
        raise InvalidInput(f"tool {name!r} has no signature to read: give a Tool with its parameters.") from exc


def _hints(function: Any, name: str) -> dict[str, Any]:
    while hasattr(function, "func"):  # functools.partial
        function = function.func
    where = function if inspect.isroutine(function) else type(function).__call__
    try:
        return get_type_hints(where, include_extras=True)
    except (NameError, TypeError, AttributeError) as exc:
        raise InvalidInput(f"the type hints of tool {name!r} cannot be read: {exc}.") from exc


def _described(hint: Any, where: str, optional: bool = False) -> Schema:
    origin, inside = get_origin(hint), get_args(hint)
    if origin is Annotated:
        text = next((one for one in inside[1:] if isinstance(one, str)), None)
        return {**_described(inside[0], where, optional), **({"description": text} if text else {})}
    if hint in (Any, object):
        return {}
    if hint in _PLAIN:
        return {"type": _PLAIN[hint]}
    if origin is Literal:
        return _choice(inside, where)
    if origin in (Union, types.UnionType):
        return _union(inside, where, optional)
    if hint in _LISTS or origin in _LISTS:
        return {"type": "array", "items": _described(inside[0], where) if inside else {}}
    if hint in _DICTS or origin in _DICTS:
        if inside and inside[0] is not str:
            raise InvalidInput(f"{where} is a dict whose keys are not str, which JSON does not have.")
        return {"type": "object", "additionalProperties": _described(inside[1], where) if inside else True}
    raise InvalidInput(f"{where} is a {_named(hint)}, which cannot be described to a model. Known are {KNOWN}.")


def _choice(values: tuple[Any, ...], where: str) -> Schema:
    kinds = {_PLAIN.get(type(value)) for value in values}
    if None in kinds:
        raise InvalidInput(f"{where} is one of {values!r}: a Literal for a model is of texts, numbers or bools.")
    one_kind: Schema = {"type": kinds.pop()} if len(kinds) == 1 else {}
    return {**one_kind, "enum": list(values)}


def _union(parts: tuple[Any, ...], where: str, optional: bool) -> Schema:
    """Where a value may be left out, null means that it is: few models know when to write which."""
    kept = [part for part in parts if not (optional and part is type(None))]
    described = [_described(part, where) for part in kept]
    return described[0] if len(described) == 1 else {"anyOf": described}


def _told_arguments(doc: str) -> dict[str, str]:
    """What a docstring says of each argument, in the forms of Google (Args:) and Sphinx (:param name:)."""
    told: dict[str, str] = {}
    inside, last = False, ""
    for line in doc.splitlines():
        if _ARGS.match(line):
            inside, last = True, ""
        elif _SECTION.match(line):
            inside = False
        elif found := _PARAM.match(line) or (inside and _ARG.match(line)):
            last = found[1]
            told[last] = found[2].strip()
        elif last and line.strip() and not line.lstrip().startswith(":"):
            told[last] = f"{told[last]} {line.strip()}".strip()
        else:
            last = ""
    return {name: text for name, text in told.items() if text}


def _is_plain(value: object) -> bool:
    try:
        check_json(value, "default")
    except InvalidInput:
        return False
    return True


def _named(hint: Any) -> str:
    return getattr(hint, "__name__", None) or str(hint)


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
