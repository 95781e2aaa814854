"""The types of arguments in JSON: their JSON schema, and how each becomes the value that a verb takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema

from engrain.core.identity import Scope
from engrain.core.model.filters import FIELDS, FLAG, MAX_CONDITIONS, NUMBER, OPERATORS, TEXT, TIME
from engrain.core.model.items import MAX_PLACE, SessionPosition, Source, SourceKind, parse_note
from engrain.core.validation import MAX_NAME, MAX_TEXT
from engrain.server.json_body import MAX_INTEGER, MIN_INTEGER

# At least one character that is not white space, and no NUL. The core checks it; the schema only says so.
_NOT_BLANK = r"^[^\x00]*[^\s\x00][^\x00]*$"
_NO_NUL = r"^[^\x00]*$"


def _accept_whole_number(value: Any) -> Any:
    """In JSON 317.0 is the same number as 317."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def whole(least: int, most: int) -> Any:
    return Annotated[int, BeforeValidator(_accept_whole_number), Field(ge=least, le=most)]


def text(limit: int) -> Any:
    return Annotated[str, Field(min_length=1, max_length=limit, json_schema_extra={"pattern": _NOT_BLANK})]


def optional_text(limit: int) -> Any:
    """A text that may be empty."""
    return Annotated[str, Field(max_length=limit, json_schema_extra={"pattern": _NO_NUL})]


class Strict(BaseModel):
    """An object without unknown keys, whose values are not converted."""

    model_config = ConfigDict(strict=True, extra="forbid")

    def to_value(self) -> Any:
        """Return what the verb takes."""
        return self.model_dump(exclude_unset=True)


Text = Annotated[str, Field(min_length=1, max_length=MAX_TEXT, json_schema_extra={"pattern": _NOT_BLANK})]
TextOrEmpty = Annotated[str, Field(max_length=MAX_TEXT, json_schema_extra={"pattern": _NO_NUL})]
Name = Annotated[str, Field(min_length=1, max_length=MAX_NAME, json_schema_extra={"pattern": _NOT_BLANK})]
Offset = Annotated[int, BeforeValidator(_accept_whole_number), Field(ge=0, le=2**31)]
Place = Annotated[int, BeforeValidator(_accept_whole_number), Field(ge=0, le=MAX_PLACE)]
Share = Annotated[float, Field(ge=0, le=1)]
Number = Annotated[float, Field(ge=0, le=3_155_760_000)]  # seconds: 100 years
Time = Annotated[
    str, Field(max_length=64, json_schema_extra={"format": "date-time", "description": "An ISO 8601 time or date."})
]
Flag = bool

# A marker: openapi.py refers to the component `Json` instead, which refers to itself.
JSON_MARKER = "x-engrain-json"
_JSON = {JSON_MARKER: True}
JSON_SCHEMA: Mapping[str, Any] = {
    "description": "Plain JSON. A whole number has at most 64 bits.",
    "anyOf": [
        {"type": "null"},
        {"type": "boolean"},
        {"type": "integer", "minimum": MIN_INTEGER, "maximum": MAX_INTEGER},
        {"type": "number"},
        {"type": "string", "pattern": _NO_NUL},
        {"type": "array", "items": _JSON},
        {"type": "object", "additionalProperties": _JSON},
    ],
}
Json = Annotated[Any, WithJsonSchema(_JSON)]
JsonObject = Annotated[dict[str, Any], WithJsonSchema({"type": "object", "additionalProperties": _JSON})]
Metadata = JsonObject


def _build_filter_schema() -> dict[str, Any]:
    scalar: dict[str, dict[str, Any]] = {
        TEXT: {"type": "string", "maxLength": MAX_NAME, "pattern": _NO_NUL},
        NUMBER: {"type": "number", "minimum": MIN_INTEGER, "maximum": MAX_INTEGER},
        TIME: {"type": "string", "format": "date-time"},
        FLAG: {"type": "boolean"},
    }
    properties = {name: _describe_tests(scalar[kind], kind) for name, kind in FIELDS.items()}
    return {
        "type": "object",
        "description": "Conditions that must all hold: docs/reference/filters.md.",
        "properties": properties,
        "patternProperties": {r"^metadata\.[^\x00]+$": _describe_tests(scalar[TEXT], TEXT)},
        "additionalProperties": False,
        "maxProperties": MAX_CONDITIONS,
    }


def _describe_tests(scalar: dict[str, Any], kind: str) -> dict[str, Any]:
    tests: dict[str, Any] = {}
    for operator in OPERATORS:
        if operator in ("in", "not in"):
            tests[operator] = {"type": "array", "items": scalar, "maxItems": 1_000}
        elif operator == "exists":
            tests[operator] = {"type": "boolean"}
        elif operator in ("contains", "starts with"):
            if kind == TEXT:
                tests[operator] = scalar
        elif kind != FLAG or operator in ("=", "!="):
            tests[operator] = scalar
    # A single test, so that 32 conditions are not exceeded.
    test = {
        "type": "object",
        "properties": tests,
        "additionalProperties": False,
        "minProperties": 1,
        "maxProperties": 1,
    }
    return {"anyOf": [scalar, test]}


Filter = Annotated[dict[str, Any], WithJsonSchema(_build_filter_schema())]


class CitationIn(Strict):
    """A span of another item; the whole item without start and end."""

    item: Name
    start: Offset | None = None
    end: Offset | None = None


class SourceIn(Strict):
    """The origin of an item."""

    name: Name | None = None
    kind: SourceKind = "user"
    cites: list[CitationIn] = []

    def to_value(self) -> Any:
        return _build_source(self.model_dump())


class PositionIn(Strict):
    """A position in a session."""

    session: Name
    number: Place | None = None
    speaker: Name | None = None
    role: Name | None = None

    def to_value(self) -> Any:
        return SessionPosition(self.session, self.number, self.speaker, self.role)


class RelationIn(Strict):
    subject: Name
    relation: Name
    object: Name


class NoteIn(Strict):
    """One text to remember."""

    text: Text
    importance: Share = 0.5
    slot: Name | None = None
    metadata: Metadata | None = None
    source: Name | SourceIn | None = None
    occurred_at: Time | None = None
    position: PositionIn | None = None
    relation: RelationIn | None = None
    derived: bool = False
    request_id: Name | None = None
    expires_at: Time | None = None


class ScopeIn(Strict):
    """The owner of a memory, matched exactly."""

    tenant: Name | None = None
    agent: Name | None = None
    user: Name | None = None

    def to_value(self) -> Any:
        return Scope(self.tenant, self.agent, self.user)


class CallIn(Strict):
    """A tool call of an assistant."""

    id: Name
    name: Name
    arguments: JsonObject = {}
    malformed: str = ""


class MessageIn(Strict):
    """A message in engrain's own form, or with `content`, `tool_calls` and `tool_call_id` as in the APIs of models."""

    model_config = ConfigDict(strict=True, extra="ignore", json_schema_extra={"additionalProperties": True})

    role: Literal["user", "assistant", "system", "tool"]
    text: TextOrEmpty | None = None
    content: Json = None
    speaker: Name | None = None
    name: Name | None = None
    calls: list[CallIn] | None = None
    tool_calls: list[JsonObject] | None = None
    answers: Name | None = None
    tool_call_id: Name | None = None
    tool: Name | None = None
    failed: bool | None = None
    event: str | None = None
    metadata: Metadata | None = None
    occurred_at: Time | None = None


def _build_source(values: Mapping[str, Any]) -> Source:
    source = parse_note({"text": "source", "source": values}).source
    assert isinstance(source, Source)
    return source


Note = Text | NoteIn
