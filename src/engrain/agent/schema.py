"""Describe the parameters of a function as a JSON schema, from its type hints and its docstring."""

from __future__ import annotations

import inspect
import re
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from engrain.core.errors import InvalidInput
from engrain.core.plain import check_plain

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
        check_plain(value, "default")
    except InvalidInput:
        return False
    return True


def _named(hint: Any) -> str:
    return getattr(hint, "__name__", None) or str(hint)
