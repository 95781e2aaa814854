"""The types of arguments in JSON: their JSON schema, and how each becomes the value that a verb takes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError

from engrain.core.identity import Scope
from engrain.core.model.filters import FIELDS, FLAG, MAX_CHOICES, MAX_CONDITIONS, NUMBER, TEXT, TIME
from engrain.core.model.items import MAX_PLACE, Citation, SessionPosition, Source, SourceKind, parse_note
from engrain.core.validation import MAX_NAME, MAX_TEXT
from engrain.server.json_body import MAX_INTEGER, MIN_INTEGER

Schema = dict[str, Any]
# At least one character that is not white space, and no NUL. The core checks the number of bytes, which a schema cannot
# express.
_NOT_BLANK = r"^[^\x00]*[^\s\x00][^\x00]*$"
_NO_NUL = r"^[^\x00]*$"


def describe_text(limit: int, blank: bool = False) -> dict[str, Any]:
    """Return the schema of a text."""
    size = {"pattern": _NO_NUL} if blank else {"minLength": 1, "pattern": _NOT_BLANK}
    return {"type": "string", "description": f"At most {limit:,} bytes of UTF-8.", **size}


def _accept_whole_number(value: Any) -> Any:
    """Convert 317.0 to 317: in JSON they are the same number."""
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _refuse_blank(value: str) -> str:
    if not value.strip():
        raise PydanticCustomError("EmptyText", "a text must have more than white space")
    return value


def whole(least: int, most: int) -> Any:
    return Annotated[int, Field(ge=least, le=most), BeforeValidator(_accept_whole_number)]


def text(limit: int) -> Any:
    return Annotated[str, WithJsonSchema(describe_text(limit)), AfterValidator(_refuse_blank)]


def optional_text(limit: int) -> Any:
    """A text that may be empty."""
    return Annotated[str, WithJsonSchema(describe_text(limit, blank=True))]


class Strict(BaseModel):
    """An object without unknown keys, whose values are not converted."""

    model_config = ConfigDict(strict=True, extra="forbid")

    def to_value(self) -> Any:
        """Return what the verb takes."""
        return self.model_dump(exclude_unset=True)


Text = Annotated[str, WithJsonSchema(describe_text(MAX_TEXT)), AfterValidator(_refuse_blank)]
TextOrEmpty = Annotated[str, WithJsonSchema(describe_text(MAX_TEXT, blank=True))]
Name = Annotated[str, WithJsonSchema(describe_text(MAX_NAME)), AfterValidator(_refuse_blank)]
Offset = Annotated[int, Field(ge=0, le=2**31), BeforeValidator(_accept_whole_number)]
Place = Annotated[int, Field(ge=0, le=MAX_PLACE), BeforeValidator(_accept_whole_number)]
_MaybeName = Annotated[str, WithJsonSchema(describe_text(MAX_NAME, blank=True))]
LogHead = Annotated[str, Field(pattern="^[0-9]{1,18}:[0-9a-f]{32}$")]
Reason = Annotated[str, Field(pattern="^[A-Za-z0-9_.:+-]{1,64}$")]
Share = Annotated[float, Field(ge=0, le=1)]
Number = Annotated[float, Field(ge=0, le=3_155_760_000)]  # seconds: 100 years
Time = Annotated[str, Field(json_schema_extra={"format": "date-time", "description": "An ISO 8601 time or date."})]
Flag = bool
Role = Literal["user", "assistant", "system", "tool"]

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
        {"type": "object", "propertyNames": {"pattern": _NO_NUL}, "additionalProperties": _JSON},
    ],
}
Json = Annotated[Any, WithJsonSchema(_JSON)]
JsonObject = Annotated[
    dict[str, Any],
    WithJsonSchema({"type": "object", "propertyNames": {"pattern": _NO_NUL}, "additionalProperties": _JSON}),
]
Metadata = JsonObject


def _build_filter_schema() -> dict[str, Any]:
    scalars: dict[str, dict[str, Any]] = {
        TEXT: describe_text(MAX_NAME, blank=True),
        NUMBER: {"type": "number", "minimum": MIN_INTEGER, "maximum": MAX_INTEGER},
        TIME: {"type": "string", "format": "date-time"},
        FLAG: {"type": "boolean"},
    }
    ordered = {"anyOf": [scalars[TEXT], scalars[NUMBER]]}
    any_scalar = {"anyOf": [*ordered["anyOf"], scalars[FLAG]]}
    properties = {
        name: _describe_tests(
            scalars[kind], None if kind == FLAG else scalars[kind], scalars[TEXT] if kind == TEXT else None
        )
        for name, kind in FIELDS.items()
    }
    return {
        "type": "object",
        "description": "Conditions that must all hold: docs/reference/filters.md.",
        "properties": properties,
        "patternProperties": {r"^metadata\.[^\x00]+$": _describe_tests(any_scalar, ordered, scalars[TEXT], any_scalar)},
        "additionalProperties": False,
        "maxProperties": MAX_CONDITIONS,
    }


def _describe_tests(
    scalar: Schema, ordered: Schema | None, searched: Schema | None, contained: Schema | None = None
) -> Schema:
    """Describe the tests of a field: its value, or operators with the values that each of them takes."""
    nullable = {"anyOf": [scalar, {"type": "null"}]}
    choices: Schema = {"type": "array", "items": scalar, "maxItems": MAX_CHOICES}
    values: dict[str, Schema | None] = {
        **dict.fromkeys(("=", "!="), nullable),
        **dict.fromkeys(("<", "<=", ">", ">="), ordered),
        **dict.fromkeys(("in", "not in"), choices),
        "exists": {"type": "boolean"},
        "contains": contained or searched,
        "starts with": searched,
    }
    tests = {name: found for name, found in values.items() if found is not None}
    return {
        "anyOf": [
            *nullable["anyOf"],
            {"type": "object", "properties": tests, "additionalProperties": False, "minProperties": 1},
        ]
    }


def _refuse_huge_numbers(value: Any) -> Any:
    """A column holds 64 bits; the parser refuses whole numbers of more, and this refuses others."""
    if isinstance(value, float) and not MIN_INTEGER <= value <= MAX_INTEGER:
        raise ValueError(f"{value} is too large for a filter")
    for element in value.values() if isinstance(value, dict) else value if isinstance(value, list) else ():
        _refuse_huge_numbers(element)
    return value


Filter = Annotated[dict[str, Any], AfterValidator(_refuse_huge_numbers), WithJsonSchema(_build_filter_schema())]


class AtLeastOne(Strict):
    """An object with at least one value, and none of them null."""

    model_config = ConfigDict(strict=True, extra="forbid", json_schema_extra={"minProperties": 1})


class CitationIn(Strict):
    """A span of another item; the whole item without start and end."""

    item: Name
    start: Offset | None = None
    end: Offset | None = None

    def to_value(self) -> Any:
        return Citation(self.item, self.start, self.end)


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


class FunctionIn(Strict):
    """The function of a tool call, in the form of the OpenAI API. `arguments` is JSON as text."""

    name: Name
    arguments: TextOrEmpty = ""


class ToolCallIn(Strict):
    """A tool call in the form of the OpenAI API."""

    id: Name
    type: Literal["function"] = "function"
    function: FunctionIn


class MessageIn(Strict):
    """A message in engrain's own form."""

    role: Role
    text: TextOrEmpty = ""
    speaker: Name | None = None
    calls: list[CallIn] = []
    answers: Name | None = None
    tool: Name | None = None
    failed: bool = False
    event: Literal["decision", "error", "resolution", "note"] | None = None
    metadata: Metadata = {}
    occurred_at: Time | None = None


class ApiMessageIn(Strict):
    """A message as in the APIs of models. Empty values of other keys, which their answers have, are ignored."""

    role: Role
    content: TextOrEmpty | list[JsonObject] | None = None
    name: Name | None = None
    tool_calls: list[ToolCallIn] | None = None
    tool_call_id: Name | None = None
    id: Json = None
    type: Json = None
    model: Json = None
    stop_reason: Json = None
    stop_sequence: Json = None
    usage: Json = None
    status: Json = None
    phase: Json = None

    @model_validator(mode="before")
    @classmethod
    def _drop_empty(cls, values: Any) -> Any:
        if not isinstance(values, dict) or ("content" not in values and "tool_calls" not in values):
            raise ValueError("a message has text, or content as in the APIs of models")
        return {
            name: element
            for name, element in values.items()
            if name in cls.model_fields or element not in (None, [], {}, "")
        }


class BufferItemIn(Strict):
    """An item of working memory."""

    text: Text
    kind: Name = "note"
    speaker: _MaybeName = ""


class ChatItemIn(Strict):
    """An item of working memory, in the form of a chat message."""

    content: Text
    role: _MaybeName = ""


def _build_source(values: Mapping[str, Any]) -> Source:
    source = parse_note({"text": "source", "source": values}).source
    assert isinstance(source, Source)
    return source


Note = Text | NoteIn
