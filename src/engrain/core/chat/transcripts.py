"""Conversations as plain data, JSON and YAML that can be read back exactly."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from itertools import pairwise
from typing import Any

from engrain.core.clock import check_time
from engrain.core.errors import BackendMissing, InvalidInput, TooLarge, UnknownKey
from engrain.core.model.chat import ToolCall
from engrain.core.model.items import MAX_PLACE
from engrain.core.model.messages import Message, check_message, message_to_note
from engrain.core.model.queries import Summary
from engrain.core.validation import check_count, check_name, check_text

FORMAT, VERSION = "engrain.conversation", 1
MAX_FILE = 200_000_000  # characters

_KEYS = ("format", "version", "session", "messages", "summary", "cleared")
_FACETS = ("speaker", "answers", "tool", "failed", "event", "metadata")
_MESSAGE = ("number", "role", "text", "at", "calls", *_FACETS)
_CALL = ("id", "name", "arguments", "malformed")


@dataclass(frozen=True, slots=True)
class Transcript:
    """All of a session: its messages, its rolling summary, and the number before which the window was cleared."""

    session: str
    messages: tuple[Message, ...] = ()
    summary: Summary | None = None
    cleared: int = 0


def transcript_to_data(transcript: Transcript) -> dict[str, Any]:
    summary = transcript.summary
    # A forgotten message leaves its number, which no copy can have.
    end = 1 + max((message.number or 0 for message in transcript.messages), default=-1)
    return {
        "format": FORMAT,
        "version": VERSION,
        "session": transcript.session,
        "messages": [_message_data(message) for message in transcript.messages],
        "summary": {"text": summary.text, "upto": min(summary.upto, end), "by": summary.by} if summary else None,
        "cleared": min(transcript.cleared, end),
    }


def data_to_json(data: Mapping[str, Any]) -> str:
    return json.dumps(data, ensure_ascii=False, indent=1)


def data_to_yaml(data: Mapping[str, Any]) -> str:
    yaml = _yaml()

    class Plain(yaml.SafeDumper):  # type: ignore[name-defined, misc]
        def ignore_aliases(self, data: object) -> bool:
            return True

    return str(yaml.dump(data, Dumper=Plain, allow_unicode=True, sort_keys=False))


def parse_transcript(given: object) -> Transcript:
    """From a dict, or from the JSON or YAML of one; everything is checked before anything is taken."""
    data = _read(given) if isinstance(given, str) else given
    _keys(data, _KEYS, "conversation")
    assert isinstance(data, Mapping)
    if data.get("format") != FORMAT:
        raise InvalidInput(f'this is not a conversation that engrain wrote: "format" must be "{FORMAT}".')
    if data.get("version") != VERSION:
        raise InvalidInput(
            f"this conversation has version {data.get('version')!r}; this engrain reads {VERSION}. Upgrade it."
        )
    messages = tuple(_message(one) for one in _list(data.get("messages"), "messages"))
    numbers = [message.number or 0 for message in messages]
    if any(later <= earlier for earlier, later in pairwise(numbers)):
        raise InvalidInput("the numbers of the messages must rise.")
    end = numbers[-1] + 1 if numbers else 0
    session = check_name(data.get("session", ""), "session")
    cleared = check_count(data.get("cleared", 0), "cleared", 0, end)
    return Transcript(session, messages, _summary(data.get("summary"), end), cleared)


def _message_data(message: Message) -> dict[str, Any]:
    assert isinstance(message.occurred_at, datetime)
    data: dict[str, Any] = {"number": message.number, "role": message.role, "text": message.text}
    data["at"] = message.occurred_at.isoformat()
    if message.calls:
        data["calls"] = [_call_data(call) for call in message.calls]
    return data | {name: getattr(message, name) for name in _FACETS if getattr(message, name)}


def _call_data(call: ToolCall) -> dict[str, Any]:
    wrote = {"malformed": call.malformed} if call.malformed else {"arguments": dict(call.arguments)}
    return {"id": call.id, "name": call.name, **wrote}


def _message(data: object) -> Message:
    _keys(data, _MESSAGE, "message")
    assert isinstance(data, Mapping)
    number = check_count(data.get("number"), "the number of a message", 0, MAX_PLACE)
    what = f"message {number}"
    try:
        facets = {name: data[name] for name in _FACETS if data.get(name) is not None}
        calls = tuple(_call(call) for call in _list(data.get("calls"), "calls"))
        at = check_time(data.get("at"), "at")
        given = Message(
            data.get("role", ""), data.get("text", ""), calls=calls, occurred_at=at, number=number, **facets
        )
        message = check_message(given)
        message_to_note(message, "")
    except InvalidInput as exc:
        raise type(exc)(f"{what}: {exc}") from exc
    return message


def _call(data: object) -> ToolCall:
    _keys(data, _CALL, "call")
    assert isinstance(data, Mapping)
    return ToolCall(data.get("id", ""), data.get("name", ""), data.get("arguments", {}), _or_empty(data, "malformed"))


def _summary(data: object, end: int) -> Summary | None:
    if data is None:
        return None
    _keys(data, ("text", "upto", "by"), "summary")
    assert isinstance(data, Mapping)
    upto = check_count(data.get("upto"), "upto", 0, end)
    return Summary(_or_empty(data, "text"), upto, 0, check_name(data.get("by", ""), "by"))


def _or_empty(data: Mapping[str, Any], name: str) -> str:
    value = data.get(name, "")
    return "" if value == "" else check_text(value, name)


def _read(text: str) -> object:
    if len(text) > MAX_FILE:
        raise TooLarge(f"the conversation has {len(text):,} characters; the limit is {MAX_FILE:,}.")
    try:
        return json.loads(text) if text.lstrip().startswith("{") else _read_yaml(text)
    except InvalidInput:
        raise
    except (ValueError, RecursionError) as exc:
        raise InvalidInput(f"this is not a conversation that engrain wrote: {exc}") from exc


def _read_yaml(text: str) -> object:
    yaml = _yaml()

    class Plain(yaml.SafeLoader):  # type: ignore[name-defined, misc]
        def compose_node(self, parent: object, index: object) -> object:
            # A few lines of references to references stand for gigabytes.
            if self.check_event(yaml.AliasEvent):
                raise InvalidInput("a conversation in YAML has no references (*name).")
            return super().compose_node(parent, index)

    try:
        return yaml.load(text, Loader=Plain)
    except yaml.YAMLError as exc:
        raise InvalidInput(f"this is not a conversation that engrain wrote: {exc}") from exc


def _yaml() -> Any:
    try:
        import yaml  # type: ignore[import-untyped]
    except ImportError as exc:
        raise BackendMissing("YAML", "yaml") from exc
    return yaml


def _keys(data: object, known: Sequence[str], what: str) -> None:
    if not isinstance(data, Mapping):
        raise InvalidInput(f"a {what} must be a dict, not {type(data).__name__}.")
    for key in data:
        if key not in known:
            raise UnknownKey(f"unknown key {key!r} in a {what}. Known: {', '.join(known)}.")


def _list(value: object, what: str) -> Sequence[Any]:
    if value is None:
        return ()
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
        raise InvalidInput(f"{what} must be a list, not {type(value).__name__}.")
    return value
