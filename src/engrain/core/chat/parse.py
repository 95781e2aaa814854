"""Parse messages in the forms of the Anthropic and OpenAI chat APIs and in engrain's own."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import fields, replace
from itertools import islice
from typing import Any

from engrain.core.errors import InvalidInput, TooLarge
from engrain.core.model.items import ROLES
from engrain.core.model.messages import Message, ToolCall, check_message
from engrain.core.validation import check_keys, check_list

MAX_MESSAGES = 10_000

_OWN_KEYS = tuple(field.name for field in fields(Message) if field.name not in ("id", "number"))
_API_KEYS = ("role", "content", "name", "tool_calls", "tool_call_id")
# Keys of an API's response that are not part of the message.
_RESPONSE_KEYS = ("id", "type", "model", "stop_reason", "stop_sequence", "usage", "status", "phase")
_KNOWN_BLOCKS = {
    "text": ("text",), "tool_use": ("id", "name", "input"), "tool_result": ("tool_use_id", "content", "is_error"),
}  # fmt: skip
# Blocks that are text under another name.
_TEXT_BLOCKS = {"input_text": "text", "output_text": "text", "refusal": "refusal"}
_NOT_IN_BLOCK_NAME = re.compile(r"[^\w.-]")
_MAX_BLOCK_NAME = 40
# A model's thinking is not part of what was said.
_THINKING_BLOCKS = ("thinking", "redacted_thinking", "reasoning")


def parse_messages(values: object) -> list[Message]:
    """Return checked messages from Messages, dicts of any of the three forms, and objects of the APIs' packages.

    A user's dict with tool results becomes a message per result and one for the user's text.
    A result takes the name of its tool from the call.
    """
    if isinstance(values, (str, bytes, Mapping, Message)) or not isinstance(values, Iterable):
        raise InvalidInput("add_messages takes a list of messages; for one use add_message.")
    listed = list(islice(values, MAX_MESSAGES + 1))
    if len(listed) > MAX_MESSAGES:
        raise TooLarge(f"more than {MAX_MESSAGES:,} messages in one call; pass them in several calls.")
    found = [check_message(message) for value in listed for message in _parse_value(value)]
    names = {call.id: call.name for message in found for call in message.calls}
    return [
        replace(message, tool=message.tool or names.get(message.answers or "")) if message.role == "tool" else message
        for message in found
    ]


def _parse_value(given: object) -> list[Message]:
    if isinstance(given, Message):
        return [given]
    value = dump_model(given)
    if not isinstance(value, Mapping):
        raise InvalidInput(f"a message is a Message or a dict with a role, not {type(value).__name__}.")
    if "role" not in value:
        raise InvalidInput(f"a message needs a role: one of {', '.join(ROLES)}.")
    if "content" not in value and "tool_calls" not in value:
        return [_parse_own(value)]
    return _parse_api_message(check_keys(value, (*_API_KEYS, *_RESPONSE_KEYS), "message", ignore_empty=True))


def dump_model(value: object) -> object:
    """Return an object of an API's package, which is a pydantic model, as its dict. Others stay as they are."""
    dump = getattr(value, "model_dump", None)
    return dump(exclude_none=True) if callable(dump) else value


def _parse_own(value: Mapping[str, Any]) -> Message:
    # Responses of the APIs have many keys with empty values.
    check_keys(value, _OWN_KEYS, "message", ignore_empty=True)
    calls = [_parse_own_call(call) for call in check_list(value.get("calls"), "calls")]
    filled = {name: field for name, field in value.items() if name in _OWN_KEYS and field is not None}
    return Message(**{**filled, "calls": tuple(calls)})


def _parse_own_call(call: object) -> ToolCall:
    if isinstance(call, ToolCall):
        return call
    try:
        return ToolCall(**check_keys(call, ("id", "name", "arguments", "malformed"), "call"))
    except TypeError as exc:
        raise InvalidInput(f"a call needs another value: {exc}.") from exc


def _parse_api_message(value: Mapping[str, Any]) -> list[Message]:
    role = "system" if value["role"] == "developer" else value["role"]
    texts: list[str] = []
    calls = [_parse_openai_call(call) for call in map(dump_model, check_list(value.get("tool_calls"), "tool_calls"))]
    results: list[Message] = []
    for block in _read_blocks(value.get("content")):
        if block["type"] == "text":
            texts.append(_check_str(block.get("text"), "the text of a content block"))
        elif block["type"] == "tool_use":
            calls.append(_make_call(block.get("id"), block.get("name"), block.get("input", {})))
        else:
            results.append(_parse_anthropic_result(block))
    text = "\n".join(texts)
    if results and role != "user":
        raise InvalidInput(f"tool_result blocks belong in a message of the user, not of the {role}.")
    if results and not text.strip():
        return results
    speaker, tool = (None, value.get("name")) if role == "tool" else (value.get("name"), None)
    return [*results, Message(role, text, speaker, tuple(calls), value.get("tool_call_id"), tool)]


def _read_blocks(content: object) -> list[Mapping[str, Any]]:
    if content is None or isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    blocks = []
    for block in map(dump_model, check_list(content, "content")):
        if isinstance(block, str):
            blocks += _read_blocks(block)
            continue
        kind = block.get("type") if isinstance(block, Mapping) else None
        if not isinstance(block, Mapping) or not isinstance(kind, str):
            raise InvalidInput('a content block must be a str, or a dict with a "type".')
        if kind not in _THINKING_BLOCKS:
            blocks.append(block if kind in _KNOWN_BLOCKS else _block_to_text(kind, block))
    return blocks


def _block_to_text(kind: str, block: Mapping[str, Any]) -> Mapping[str, Any]:
    """Put a name in the place of a block that is not text: "[image]". Its bytes are not kept."""
    text = block.get(_TEXT_BLOCKS.get(kind, ""))
    if isinstance(text, str):
        return {"type": "text", "text": text}
    name = _NOT_IN_BLOCK_NAME.sub("", kind.removeprefix("input_").removesuffix("_url"))[:_MAX_BLOCK_NAME]
    return {"type": "text", "text": f"[{name or 'block'}]"}


def _parse_openai_call(call: object) -> ToolCall:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(call, Mapping) or not isinstance(function, Mapping):
        raise InvalidInput("every entry of tool_calls must be a function call.")
    return _make_call(call.get("id"), function.get("name"), function.get("arguments", {}))


def _make_call(id: object, name: object, arguments: object) -> ToolCall:
    """Make a call. Arguments may be a dict or its JSON. Any other text is kept as `malformed`."""
    name = _check_str(name, "the name of a called tool")
    if isinstance(arguments, str):
        try:
            parsed = json.loads(arguments or "{}")
        except (ValueError, RecursionError):
            parsed = None
        if not isinstance(parsed, dict):
            return ToolCall(_check_str(id, "the id of a call"), name, malformed=arguments)
        arguments = parsed
    return ToolCall(_check_str(id, "the id of a call"), name, arguments)  # type: ignore[arg-type]  # check_message does it


def _parse_anthropic_result(block: Mapping[str, Any]) -> Message:
    parts = _read_blocks(block.get("content"))
    if any(part["type"] != "text" for part in parts):
        raise InvalidInput("a tool_result may contain only text blocks.")
    text = "\n".join(_check_str(part.get("text"), "the text of a content block") for part in parts)
    return Message("tool", text, answers=block.get("tool_use_id"), failed=block.get("is_error") is True)


def _check_str(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise InvalidInput(f"{what} must be a str, not {type(value).__name__}.")
    return value
