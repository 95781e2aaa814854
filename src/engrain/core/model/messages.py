"""Messages of a session and of a chat model, their tool calls, and their form as items of the log."""

from __future__ import annotations

import hashlib
import json
import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from engrain.core.clock import Time, check_time
from engrain.core.errors import InvalidInput
from engrain.core.model.items import RESERVED_KEY, ROLES, Item, Note, SessionPosition, Source, SourceKind
from engrain.core.validation import (
    MAX_TEXT,
    check_key,
    check_metadata,
    check_name,
    check_text,
    encode_json,
    fields_to_plain,
)

Role = Literal["user", "assistant", "tool", "system"]
StopReason = Literal["end", "tools", "length", "refused"]

# The tool names that both services accept.
_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool that a model may call. `parameters` is the JSON schema of its arguments."""

    name: str
    description: str
    parameters: Mapping[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _TOOL_NAME.fullmatch(self.name):
            raise InvalidInput(
                f"{self.name!r} cannot be the name of a tool: it takes 1 to 64 letters, digits, hyphens or underscores."
            )
        if not isinstance(self.parameters, Mapping) or self.parameters.get("type") != "object":
            raise InvalidInput(f'The parameters of tool {self.name!r} must be a JSON schema with "type": "object".')


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that a model asks for.

    `malformed` is the model's text if its arguments are not a JSON object; `arguments` are empty then. Do not make such
    a call: answer it as failed, and the model sees its text.
    """

    id: str
    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    malformed: str = ""


MEDIA_TYPES = ("image/png", "image/jpeg", "image/gif", "image/webp", "application/pdf")


@dataclass(frozen=True, slots=True)
class Attachment:
    """An image or a PDF document in a user's message."""

    body: bytes = field(repr=False)
    media_type: str
    name: str = ""

    def __post_init__(self) -> None:
        if self.media_type not in MEDIA_TYPES:
            raise InvalidInput(f"{self.media_type!r} cannot be attached. Known: {', '.join(MEDIA_TYPES)}.")
        if not isinstance(self.body, bytes) or not self.body:
            raise InvalidInput("the body of an attachment must be bytes, and not empty.")
        check_key(self.name or "attachment", "the name of an attachment")

    @property
    def hash(self) -> str:
        return hashlib.sha256(self.body).hexdigest()

    @property
    def reference(self) -> dict[str, Any]:
        """The plain form in the metadata of a message, without the bytes."""
        return {"name": self.name, "media_type": self.media_type, "sha256": self.hash, "bytes": len(self.body)}


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One message. Only an assistant's has `calls`; only a tool's `answers` a call's id and may have `failed`.

    Only a user's message has `attachments`.
    """

    role: Role
    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    answers: str | None = None
    failed: bool = False
    attachments: tuple[Attachment, ...] = ()

    def __post_init__(self) -> None:
        _check_role_and_text(self)
        if self.answers is not None and self.role != "tool":
            raise InvalidInput(f"only a tool's message answers a call, not one of the {self.role}.")


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """The messages for a model. The last one is the user's or a tool's.

    `timeout` is in seconds and includes retries; None means the model's own. `tool_choice` is "auto", "any" (the model
    must call a tool) or the name of the tool that it must call. `parameters` are passed on to the service, such as
    {"temperature": 0.2}. With `on_text` the reply is streamed: it is called with each piece of the text as it comes.
    """

    messages: tuple[ChatMessage, ...]
    system: str = ""
    tools: tuple[ToolSpec, ...] = ()
    max_tokens: int = 1024
    timeout: float | None = None
    tool_choice: str = "auto"
    parameters: Mapping[str, Any] = field(default_factory=dict)
    on_text: Callable[[str], object] | None = field(default=None, compare=False)

    def __post_init__(self) -> None:
        if isinstance(self.max_tokens, bool) or not isinstance(self.max_tokens, int) or self.max_tokens < 1:
            raise InvalidInput(f"max_tokens must be a whole number above 0, not {self.max_tokens!r}.")
        if self.timeout is not None:
            check_timeout(self.timeout)
        names = [tool.name for tool in self.tools]
        if len(set(names)) < len(names):
            raise InvalidInput(f"each tool needs a name of its own: {', '.join(sorted(names))}.")


@dataclass(frozen=True, slots=True)
class ChatReply:
    """`calls` exist if and only if `stop` is "tools": truncated calls are dropped.

    Token counts are 0 if the service does not report them.
    """

    text: str
    calls: tuple[ToolCall, ...]
    stop: StopReason
    model: str
    tokens_in: int = 0
    tokens_out: int = 0

    @property
    def chat_message(self) -> ChatMessage:
        """The reply as the next message of the conversation."""
        return ChatMessage("assistant", self.text, self.calls)


def match_results(messages: Sequence[Message | ChatMessage]) -> dict[int, tuple[int, int]]:
    """Map the index of each tool result to the message that called and the number of its call.

    Some servers reuse ids: a result belongs to the nearest earlier call with its id.
    """
    waiting: dict[str | None, list[tuple[int, int]]] = {}
    found: dict[int, tuple[int, int]] = {}
    for index, message in enumerate(messages):
        for number in reversed(range(len(message.calls))):
            waiting.setdefault(message.calls[number].id, []).append((index, number))
        if message.role == "tool" and waiting.get(message.answers):
            found[index] = waiting[message.answers].pop()
    return found


def check_timeout(seconds: object, what: str = "timeout") -> float:
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 < seconds < math.inf:
        raise InvalidInput(f"{what} must be a number of seconds above 0, not {seconds!r}.")
    return float(seconds)


NO_OUTPUT = "(no output)"
EVENTS = ("decision", "error", "resolution", "note")

_SOURCES: Mapping[str, SourceKind] = {"user": "user", "assistant": "agent", "system": "system", "tool": "tool"}


@dataclass(frozen=True, slots=True)
class MessageResult:
    """The id of a message that was kept, and what followed from it, as ids of items.

    `proposed` are items that the message may ask to forget, in words that may not be the speaker's own. They are kept
    until `memory.forget(id)` confirms it.
    """

    id: str
    facts: tuple[str, ...] = ()
    replaced: tuple[str, ...] = ()
    forgotten: tuple[str, ...] = ()
    proposed: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        return fields_to_plain(self)


@dataclass(frozen=True, slots=True)
class Message:
    """One message. `event` marks a decision, error, resolution or note.

    Only an assistant's message has `calls`. Only a tool's message `answers` a call's id, names its `tool` and may have
    `failed`. `id` and `number` are set on messages that were read from a log.
    """

    role: str
    text: str = ""
    speaker: str | None = None
    calls: tuple[ToolCall, ...] = ()
    answers: str | None = None
    tool: str | None = None
    failed: bool = False
    event: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    occurred_at: Time | None = None
    id: str | None = None
    number: int | None = None

    @property
    def chat_message(self) -> ChatMessage:
        """The message as a model gets it."""
        return ChatMessage(self.role, self.text, self.calls, self.answers, self.failed)  # type: ignore[arg-type]


def check_message(message: Message) -> Message:
    """Return the message with every value checked, except the content of the text, which `message_to_note` checks."""
    _check_role_and_text(message)
    if message.role != "tool" and (message.answers is not None or message.tool is not None or message.failed):
        raise InvalidInput(
            f"answers, tool and failed are for the result of a tool, not for a message of the {message.role}."
        )
    if message.event is not None and message.event not in EVENTS:
        raise InvalidInput(f"unknown event {message.event!r}. Known: {', '.join(EVENTS)}.")
    for name in ("speaker", "tool"):
        if getattr(message, name) is not None:
            check_key(getattr(message, name), name)
    metadata = check_metadata(message.metadata)
    if RESERVED_KEY in metadata:
        raise InvalidInput(f"metadata[{RESERVED_KEY!r}] is engrain's own: choose another key.")
    return replace(
        message,
        role=str.__str__(message.role),
        text=str.__str__(message.text),
        calls=tuple(_check_call(call) for call in message.calls),
        answers=None if message.answers is None else check_name(message.answers, "answers"),
        failed=bool(message.failed),
        metadata=metadata,
        occurred_at=None if message.occurred_at is None else check_time(message.occurred_at, "occurred_at"),
    )


def _check_role_and_text(message: Message | ChatMessage) -> None:
    if message.role not in ROLES:
        raise InvalidInput(f"unknown role {message.role!r}. Known: {', '.join(ROLES)}.")
    if not isinstance(message.text, str):
        raise InvalidInput(f"the text of a message must be a str, not {type(message.text).__name__}.")
    if message.calls and message.role != "assistant":
        raise InvalidInput(f"only an assistant's message calls tools, not one of the {message.role}.")


def message_to_note(message: Message, session: str, *, placed: bool = False, derived: bool = False) -> Note:
    """Return a checked message as the note of its log row. With `placed` it keeps its own number.

    Calls are written into the text as JSON, so that search and forgetting reach them. The metadata says where.
    """
    text, own = _write_text(message)
    own |= {name: value for name in ("answers", "tool", "event") if (value := getattr(message, name)) is not None}
    own |= {"failed": True} if message.failed else {}
    return Note(
        text=check_text(text),
        metadata={**message.metadata, RESERVED_KEY: own} if own else message.metadata,
        source=Source(message.tool, _SOURCES[message.role]),
        occurred_at=message.occurred_at,
        position=SessionPosition(session, message.number if placed else None, message.speaker, message.role),
        derived=derived,
    )


def item_to_message(item: Item) -> Message:
    """Return the message of a log row. A row that was cut or corrected gives its present words as text."""
    metadata = dict(item.metadata)
    metadata.pop(RESERVED_KEY, None)
    own = _get_own(item.metadata)
    role = item.role if item.role in ROLES else "user"
    text, calls = _read_text(item.text, own)
    result = own if role == "tool" else {}
    return Message(
        role=str(role),
        text=text,
        speaker=item.speaker,
        calls=calls if role == "assistant" else (),
        answers=_text_or_none(result.get("answers")),
        tool=_text_or_none(result.get("tool")),
        failed=result.get("failed") is True,
        event=_text_or_none(own.get("event")),
        metadata=metadata,
        occurred_at=item.occurred_at or item.recorded_at,
        id=item.id,
        number=item.place,
    )


def read_calls(text: str, metadata: Mapping[str, Any]) -> tuple[ToolCall, ...]:
    """Return the calls in the text of a log row; none if the row was cut or corrected."""
    return _read_text(text, _get_own(metadata))[1]


def get_answered_call(metadata: Mapping[str, Any]) -> str | None:
    """Return the id of the call that a log row answers."""
    return _text_or_none(_get_own(metadata).get("answers"))


def encode_arguments(call: ToolCall) -> str:
    return call.malformed or encode_json(call.arguments, f"the arguments of a call of {call.name!r}", MAX_TEXT)


def find_call_spans(row: Item) -> list[tuple[int, int]]:
    """Return the spans of the calls' arguments in the text of a log row; none if the row was cut since."""
    own = _get_own(row.metadata)
    whole = own.get("size") == len(row.text)
    return [(start, end) for _, _, start, end, _ in own.get("calls", ())] if whole else []


def _check_call(call: object) -> ToolCall:
    if not isinstance(call, ToolCall):
        raise InvalidInput(f"calls must be ToolCalls, not {type(call).__name__}.")
    check_name(call.id, "the id of a call")
    check_key(call.name, "the name of a called tool")
    if not isinstance(call.arguments, Mapping):
        kind = type(call.arguments).__name__
        raise InvalidInput(f"the arguments of a call of {call.name!r} must be a dict, not {kind}.")
    plain = replace(call, arguments=dict(call.arguments))
    return replace(plain, arguments={} if call.malformed else json.loads(encode_arguments(plain)))


def _write_text(message: Message) -> tuple[str, dict[str, Any]]:
    """Return the text of the log row, and the metadata needed to read it back if it is not the message's own text."""
    if not message.calls and (message.role != "tool" or message.text.strip()):
        return message.text, {}
    text = message.text
    calls: list[list[Any]] = []
    for call in message.calls:
        text += f"\n{call.name} " if text else f"{call.name} "
        start = len(text)
        text += encode_arguments(call)
        calls.append([call.id, call.name, start, len(text), bool(call.malformed)])
    text = text if text.strip() else text + NO_OUTPUT
    return text, {"own": len(message.text), "size": len(text), **({"calls": calls} if calls else {})}


def _get_own(metadata: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return engrain's own part of the metadata of a log row."""
    own = metadata.get(RESERVED_KEY)
    return own if isinstance(own, Mapping) else {}


def _read_text(text: str, own: Mapping[str, Any]) -> tuple[str, tuple[ToolCall, ...]]:
    size = own.get("own")
    if not isinstance(size, int) or own.get("size") != len(text):
        return text, ()
    try:
        return text[:size], tuple(_read_call(text, *values) for values in own.get("calls", ()))
    except (TypeError, ValueError, RecursionError):
        return text, ()


def _read_call(text: str, id: str, name: str, start: int, end: int, malformed: bool) -> ToolCall:
    if not isinstance(id, str) or not isinstance(name, str):
        raise TypeError("a call has an id and a name.")
    if malformed:
        return ToolCall(id, name, malformed=text[start:end])
    arguments = json.loads(text[start:end])
    if not isinstance(arguments, dict):
        raise ValueError(f"{arguments!r} are no arguments.")
    return ToolCall(id, name, arguments)


def _text_or_none(value: object) -> str | None:
    return value if isinstance(value, str) else None
