"""Write a conversation as plain data, JSON or YAML, and read it back exactly."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from itertools import pairwise
from typing import Any

from engrain.core.clock import check_time
from engrain.core.errors import BackendMissing, InvalidInput, TooLarge
from engrain.core.model.items import MAX_PLACE
from engrain.core.model.messages import Message, ToolCall, check_message, message_to_note
from engrain.core.model.queries import Summary
from engrain.core.validation import check_count, check_keys, check_list, check_name, check_text

FORMAT, VERSION = "engrain.conversation", 1
MAX_FILE_CHARACTERS = 200_000_000

_TRANSCRIPT_KEYS = ("format", "version", "session", "messages", "summary", "cleared")
_OPTIONAL_KEYS = ("speaker", "answers", "tool", "failed", "event", "metadata")
_MESSAGE_KEYS = ("number", "role", "text", "at", "calls", *_OPTIONAL_KEYS)
_CALL_KEYS = ("id", "name", "arguments", "malformed")


@dataclass(frozen=True, slots=True)
class Transcript:
    """A whole session: its messages and its rolling summary. The window was cleared before message `cleared`."""

    session: str
    messages: tuple[Message, ...] = ()
    summary: Summary | None = None
    cleared: int = 0


def transcript_to_data(transcript: Transcript) -> dict[str, Any]:
    summary = transcript.summary
    # The number of a forgotten message stays free, and no copy can have it.
    end = 1 + max((message.number or 0 for message in transcript.messages), default=-1)
    return {
        "format": FORMAT,
        "version": VERSION,
        "session": transcript.session,
        "messages": [_message_to_data(message) for message in transcript.messages],
        "summary": {"text": summary.text, "upto": min(summary.upto, end), "by": summary.by} if summary else None,
        "cleared": min(transcript.cleared, end),
    }


def data_to_json(data: Mapping[str, Any]) -> str:
    return json.dumps(data, ensure_ascii=False, indent=1)


def data_to_yaml(data: Mapping[str, Any]) -> str:
    yaml = _import_yaml()

    class Plain(yaml.SafeDumper):  # type: ignore[name-defined, misc]
        def ignore_aliases(self, data: object) -> bool:
            return True

    return str(yaml.dump(data, Dumper=Plain, allow_unicode=True, sort_keys=False))


def parse_transcript(source: object) -> Transcript:
    """Parse a dict, or its JSON or YAML. Everything is checked before anything is stored."""
    data = _parse_file(source) if isinstance(source, str) else source
    data = check_keys(data, _TRANSCRIPT_KEYS, "conversation")
    if data.get("format") != FORMAT:
        raise InvalidInput(f'this is not a conversation that engrain wrote: "format" must be "{FORMAT}".')
    if data.get("version") != VERSION:
        raise InvalidInput(
            f"this conversation has version {data.get('version')!r}; this engrain reads {VERSION}. Upgrade engrain."
        )
    messages = tuple(_parse_message(message) for message in check_list(data.get("messages"), "messages"))
    numbers = [message.number or 0 for message in messages]
    if any(later <= earlier for earlier, later in pairwise(numbers)):
        raise InvalidInput("the numbers of the messages must increase.")
    end = numbers[-1] + 1 if numbers else 0
    session = check_name(data.get("session", ""), "session")
    cleared = check_count(data.get("cleared", 0), "cleared", 0, end)
    return Transcript(session, messages, _parse_summary(data.get("summary"), end), cleared)


def _message_to_data(message: Message) -> dict[str, Any]:
    assert isinstance(message.occurred_at, datetime)
    data: dict[str, Any] = {"number": message.number, "role": message.role, "text": message.text}
    data["at"] = message.occurred_at.isoformat()
    for call in message.calls:
        arguments = {"malformed": call.malformed} if call.malformed else {"arguments": dict(call.arguments)}
        data.setdefault("calls", []).append({"id": call.id, "name": call.name, **arguments})
    return data | {name: getattr(message, name) for name in _OPTIONAL_KEYS if getattr(message, name)}


def _parse_message(data: object) -> Message:
    data = check_keys(data, _MESSAGE_KEYS, "message")
    number = check_count(data.get("number"), "the number of a message", 0, MAX_PLACE)
    try:
        facets = {name: data[name] for name in _OPTIONAL_KEYS if data.get(name) is not None}
        calls = tuple(_parse_call(call) for call in check_list(data.get("calls"), "calls"))
        parsed = Message(data.get("role", ""), data.get("text", ""), calls=calls, number=number, **facets)
        message = check_message(replace(parsed, occurred_at=check_time(data.get("at"), "at")))
        message_to_note(message, "")
    except InvalidInput as exc:
        raise type(exc)(f"message {number}: {exc}") from exc
    return message


def _parse_call(data: object) -> ToolCall:
    data = check_keys(data, _CALL_KEYS, "call")
    return ToolCall(data.get("id", ""), data.get("name", ""), data.get("arguments", {}), _get_text(data, "malformed"))


def _parse_summary(data: object, end: int) -> Summary | None:
    if data is None:
        return None
    data = check_keys(data, ("text", "upto", "by"), "summary")
    upto = check_count(data.get("upto"), "upto", 0, end)
    return Summary(_get_text(data, "text"), upto, 0, check_name(data.get("by", ""), "by"))


def _get_text(data: Mapping[str, Any], name: str) -> str:
    value = data.get(name, "")
    return "" if value == "" else check_text(value, name)


def _parse_file(text: str) -> object:
    if len(text) > MAX_FILE_CHARACTERS:
        raise TooLarge(f"the conversation has {len(text):,} characters; the limit is {MAX_FILE_CHARACTERS:,}.")
    if not text.lstrip().startswith("{"):
        return _parse_yaml(text)
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as exc:
        raise InvalidInput(f"this is not a conversation that engrain wrote: {exc}") from exc


def _parse_yaml(text: str) -> object:
    yaml = _import_yaml()

    class Plain(yaml.SafeLoader):  # type: ignore[name-defined, misc]
        def compose_node(self, parent: object, index: object) -> object:
            # A few lines of references to references can expand to gigabytes.
            if self.check_event(yaml.AliasEvent):
                raise InvalidInput("a conversation in YAML must not have references (*name).")
            return super().compose_node(parent, index)

    try:
        return yaml.load(text, Loader=Plain)
    except (yaml.YAMLError, RecursionError) as exc:
        raise InvalidInput(f"this is not a conversation that engrain wrote: {exc}") from exc


def _import_yaml() -> Any:
    try:
        import yaml  # type: ignore[import-untyped]
    except ImportError as exc:
        raise BackendMissing("YAML", "yaml") from exc
    return yaml
