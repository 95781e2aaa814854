"""Describe a function's parameters as a JSON schema, and fit a model's arguments to one."""

from __future__ import annotations

import inspect
import json
import re
import types
from collections.abc import Callable, Mapping, Sequence
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from engrain.core.errors import InvalidInput
from engrain.core.tokens import shorten_line
from engrain.core.validation import check_json

Schema = dict[str, Any]

KNOWN_TYPES = "str, int, float, bool, list[…], dict[str, …], Literal[…], Optional[…] and unions of these"
_PLAIN_TYPES: Mapping[Any, str] = {str: "string", int: "integer", float: "number", bool: "boolean", type(None): "null"}
_LIST_TYPES = (list, Sequence)
_DICT_TYPES = (dict, Mapping)

# Headings that end the purpose in a docstring.
_SECTION = re.compile(r"^\s*(args|arguments|parameters|returns|raises|yields|examples?|note)s?:\s*$", re.IGNORECASE)
_ARGS = re.compile(r"^\s*(args|arguments|parameters):\s*$", re.IGNORECASE)
_ARG = re.compile(r"^\s*\*{0,2}(\w+)(?:\s*\([^)]*\))?:\s*(.*)$")
_PARAM = re.compile(r"^\s*:param\s+(?:[\w\[\], |]+\s+)?(\w+):\s*(.*)$")


def build_schema(function: Callable[..., Any], name: str) -> Schema:
    """Build the schema of the arguments, for a function that is called by keyword."""
    hints = _read_hints(function, name)
    descriptions = _read_argument_docs(inspect.getdoc(function) or "")
    properties: Schema = {}
    required: list[str] = []
    for parameter in _read_parameters(function, name):
        where = f"parameter {parameter.name!r} of tool {name!r}"
        if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
            raise InvalidInput(f"{where} cannot be described: a model gives every argument by its name.")
        if parameter.name not in hints:
            raise InvalidInput(f"{where} has no type hint. Known are {KNOWN_TYPES}.")
        optional = parameter.default is not parameter.empty
        schema = _describe_type(hints[parameter.name], where, optional)
        if parameter.name in descriptions:
            schema.setdefault("description", descriptions[parameter.name])
        if optional and parameter.default is not None and _is_plain(parameter.default):
            schema["default"] = parameter.default
        properties[parameter.name] = schema
        required += [] if optional else [parameter.name]
    return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}


def read_purpose(function: Callable[..., Any]) -> str:
    """Return the docstring before its sections; "" if there is none."""
    lines: list[str] = []
    for line in (inspect.getdoc(function) or "").splitlines():
        if _SECTION.match(line) or line.lstrip().startswith(":"):
            break
        lines.append(line.strip())
    return "\n".join(lines).strip()


def _read_parameters(function: Callable[..., Any], name: str) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError) as exc:
        raise InvalidInput(f"tool {name!r} has no signature to read: give a Tool with its parameters.") from exc


def _read_hints(function: Any, name: str) -> dict[str, Any]:
    while hasattr(function, "func"):  # functools.partial
        function = function.func
    where = function if inspect.isroutine(function) else type(function).__call__
    try:
        return get_type_hints(where, include_extras=True)
    except (NameError, TypeError, AttributeError) as exc:
        raise InvalidInput(f"the type hints of tool {name!r} cannot be read: {exc}.") from exc


def _describe_type(hint: Any, where: str, optional: bool = False) -> Schema:
    origin, inside = get_origin(hint), get_args(hint)
    if origin is Annotated:
        text = next((note for note in inside[1:] if isinstance(note, str)), None)
        return {**_describe_type(inside[0], where, optional), **({"description": text} if text else {})}
    if hint in (Any, object):
        return {}
    if hint in _PLAIN_TYPES:
        return {"type": _PLAIN_TYPES[hint]}
    if origin is Literal:
        return _describe_literal(inside, where)
    if origin in (Union, types.UnionType):
        return _describe_union(inside, where, optional)
    if hint in _LIST_TYPES or origin in _LIST_TYPES:
        return {"type": "array", "items": _describe_type(inside[0], where) if inside else {}}
    if hint in _DICT_TYPES or origin in _DICT_TYPES:
        if inside and inside[0] is not str:
            raise InvalidInput(f"{where} is a dict whose keys are not str, which JSON does not have.")
        return {"type": "object", "additionalProperties": _describe_type(inside[1], where) if inside else True}
    raise InvalidInput(
        f"{where} is a {_type_name(hint)}, which cannot be described to a model. Known are {KNOWN_TYPES}."
    )


def _describe_literal(values: tuple[Any, ...], where: str) -> Schema:
    kinds = {_PLAIN_TYPES.get(type(value)) for value in values}
    if None in kinds:
        raise InvalidInput(f"{where} is one of {values!r}: a Literal for a model is of texts, numbers or bools.")
    one_kind: Schema = {"type": kinds.pop()} if len(kinds) == 1 else {}
    return {**one_kind, "enum": list(values)}


def _describe_union(parts: tuple[Any, ...], where: str, optional: bool) -> Schema:
    """Describe a union. null is dropped where a value may be left out: few models know when to write which."""
    options = [part for part in parts if not (optional and part is type(None))]
    described = [_describe_type(part, where) for part in options]
    return described[0] if len(described) == 1 else {"anyOf": described}


def _read_argument_docs(doc: str) -> dict[str, str]:
    """Read the docstring's text on each argument, in Google (Args:) or Sphinx (:param name:) form."""
    found: dict[str, str] = {}
    inside, last = False, ""
    for line in doc.splitlines():
        if _ARGS.match(line):
            inside, last = True, ""
        elif _SECTION.match(line):
            inside = False
        elif match := _PARAM.match(line) or (inside and _ARG.match(line)):
            last = match[1]
            found[last] = match[2].strip()
        elif last and line.strip() and not line.lstrip().startswith(":"):
            found[last] = f"{found[last]} {line.strip()}".strip()
        else:
            last = ""
    return {name: text for name, text in found.items() if text}


def _is_plain(value: object) -> bool:
    try:
        check_json(value, "default")
    except InvalidInput:
        return False
    return True


def _type_name(hint: Any) -> str:
    return getattr(hint, "__name__", None) or str(hint)


_PYTHON_TYPES: Mapping[str, tuple[type, ...]] = {
    "string": (str,), "integer": (int,), "number": (int, float), "boolean": (bool,), "null": (type(None),),
    "array": (list,), "object": (dict,),
}  # fmt: skip
_TYPE_NAMES = {
    "string": "a text", "integer": "a whole number", "number": "a number", "boolean": "true or false", "null": "null",
    "array": "a list", "object": "an object",
}  # fmt: skip
_MAX_SHOWN_CHARACTERS = 60


def fit_arguments(arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Return the arguments as the function takes them, and the problems. The tool checks other schema keywords."""
    fitting = _Fitting(schema)
    try:
        required = schema.get("required", ())
        # Models write null for arguments that they leave out.
        filled = {name: value for name, value in arguments.items() if value is not None or fitting.takes_null(name)}
        fitting.problems += [f"{name!r} is missing" for name in required if name not in filled]
        return fitting.fit_object(filled, schema, ""), fitting.problems
    except RecursionError:
        return dict(arguments), ["its schema refers to itself without end"]


class _Fitting:
    """Fits values to the parts of a schema, and collects the problems."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self._root = root
        self.problems: list[str] = []

    def takes_null(self, name: str) -> bool:
        known = self._root.get("properties", {})
        return name not in known or name in self._root.get("required", ()) or self._fits(None, known[name])

    def fit_value(self, value: Any, schema: Any, where: str) -> Any:
        schema = self._resolve(schema)
        if not isinstance(schema, Mapping):
            return value
        for part in schema.get("allOf", ()):
            value = self.fit_value(value, part, where)
        if options := _list_options(schema):
            fitting = next((option for option in options if self._fits(value, option)), None)
            return self._refuse(value, schema, where) if fitting is None else self.fit_value(value, fitting, where)
        choices = _list_choices(schema)
        if choices is not None:
            known = any(type(choice) is type(value) and choice == value for choice in choices)
            return value if known else self._refuse(value, schema, where)
        kinds = _list_types(schema)
        if "integer" in kinds and isinstance(value, float) and value.is_integer():
            value = int(value)
        if kinds and not any(_has_type(value, kind) for kind in kinds):
            return self._refuse(value, schema, where)
        if isinstance(value, list) and "items" in schema:
            return [
                self.fit_value(element, schema["items"], f"{where}[{place}]") for place, element in enumerate(value)
            ]
        if isinstance(value, dict):
            missing = [name for name in schema.get("required", ()) if name not in value]
            self.problems += [f"{where}[{name!r}] is missing" for name in missing]
            return self.fit_object(value, schema, where)
        return value

    def fit_object(self, value: Mapping[str, Any], schema: Mapping[str, Any], where: str) -> dict[str, Any]:
        known, others = schema.get("properties", {}), schema.get("additionalProperties", True)
        found: dict[str, Any] = {}
        for name, argument in value.items():
            inner = f"{where}[{name!r}]" if where else repr(name)
            if name not in known and others is False:
                names = ", ".join(known) or "no argument at all"
                self.problems.append(f"{inner} is not known (it takes {names})")
            found[name] = self.fit_value(argument, known.get(name, others), inner)
        return found

    def _fits(self, value: Any, schema: Any) -> bool:
        attempt = _Fitting(self._root)
        attempt.fit_value(value, schema, "")
        return not attempt.problems

    def _refuse(self, value: Any, schema: Mapping[str, Any], where: str) -> Any:
        self.problems.append(f"{where} must be {self._describe(schema)}, not {_shorten_value(value)}")
        return value

    def _describe(self, schema: Any) -> str:
        schema = self._resolve(schema)
        if options := _list_options(schema):
            return " or ".join(map(self._describe, options))
        choices = _list_choices(schema)
        if choices is not None:
            shown = ", ".join(json.dumps(choice, ensure_ascii=False) for choice in choices)
            return f"one of {shown}" if len(choices) > 1 else shown
        kinds = _list_types(schema)
        if not kinds and (parts := schema.get("allOf")):
            return self._describe(parts[0])
        return " or ".join(_TYPE_NAMES.get(kind, kind) for kind in kinds) or "anything"

    def _resolve(self, schema: Any) -> Any:
        """Follow references inside of this schema. Any other one stands for anything."""
        if not isinstance(schema, Mapping) or not isinstance(schema.get("$ref"), str):
            return schema
        path, found = schema["$ref"].split("/"), self._root
        if path[0] != "#":
            return {}
        for name in path[1:]:
            found = found.get(name.replace("~1", "/").replace("~0", "~"), {}) if isinstance(found, Mapping) else {}
        return self._resolve(found)


def _list_options(schema: Mapping[str, Any]) -> Sequence[Any]:
    return schema.get("anyOf") or schema.get("oneOf") or ()


def _list_choices(schema: Mapping[str, Any]) -> Sequence[Any] | None:
    return [schema["const"]] if "const" in schema else schema.get("enum")


def _has_type(value: Any, kind: str) -> bool:
    if isinstance(value, bool):
        return kind == "boolean"
    return kind not in _PYTHON_TYPES or isinstance(value, _PYTHON_TYPES[kind])


def _list_types(schema: Mapping[str, Any]) -> Sequence[str]:
    kinds = schema.get("type", ())
    return (kinds,) if isinstance(kinds, str) else kinds


def _shorten_value(value: Any) -> str:
    return shorten_line(json.dumps(value, ensure_ascii=False, default=str), _MAX_SHOWN_CHARACTERS)
