"""Read messages in the forms that the Anthropic and the OpenAI chat APIs use, and in engrain's own."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields, replace
from itertools import islice
from typing import Any

from engrain.core.errors import InvalidInput, TooLarge, UnknownKey
from engrain.core.model.chat import ToolCall
from engrain.core.model.items import ROLES
from engrain.core.model.messages import Message, check_message

MAX_MESSAGES = 10_000

_OWN = tuple(field.name for field in fields(Message) if field.name not in ("id", "number"))
_API = ("role", "content", "name", "tool_calls", "tool_call_id")
# What answers of the APIs carry besides the message itself.
_AROUND = ("id", "type", "model", "stop_reason", "stop_sequence", "usage", "status", "phase")
_BLOCK = {
    "text": ("text",), "tool_use": ("id", "name", "input"), "tool_result": ("tool_use_id", "content", "is_error"),
}  # fmt: skip
# Blocks that are text under another name.
_TOLD = {"input_text": "text", "output_text": "text", "refusal": "refusal"}
_NOT_IN_A_NAME = re.compile(r"[^\w.-]")
_LONGEST_NAME = 40
# A model's thinking is not part of what was said.
_UNSAID = ("thinking", "redacted_thinking", "reasoning")


def parse_messages(values: object) -> list[Message]:
    """Checked messages from Messages and dicts of any of the three forms. A user's dict with results of tools becomes
    a message for each result, and one for what the user said; a result takes the name of the tool from its call."""
    if isinstance(values, (str, bytes, Mapping, Message)) or not isinstance(values, Iterable):
        raise InvalidInput("add_messages takes a list of messages; for one use add_message.")
    given = list(islice(values, MAX_MESSAGES + 1))
    if len(given) > MAX_MESSAGES:
        raise TooLarge(f"more than {MAX_MESSAGES:,} messages in one call; hand them over in parts.")
    found = [check_message(message) for value in given for message in _messages(value)]
    names = {call.id: call.name for message in found for call in message.calls}
    return [_named(message, names) for message in found]


def _named(message: Message, names: Mapping[str, str]) -> Message:
    if message.role != "tool" or message.tool is not None:
        return message
    return replace(message, tool=names.get(message.answers or ""))


def _messages(value: object) -> list[Message]:
    if isinstance(value, Message):
        return [value]
    if not isinstance(value, Mapping):
        raise InvalidInput(f"a message is a Message or a dict with a role, not {type(value).__name__}.")
    if "role" not in value:
        raise InvalidInput(f"a message lacks its role: one of {', '.join(ROLES)}.")
    if "content" not in value and "tool_calls" not in value:
        return [_own(value)]
    _known(value, (*_API, *_AROUND), "message")
    return _from_api(value)


def _own(value: Mapping[str, Any]) -> Message:
    _known(value, _OWN, "message")
    calls = [_own_call(call) for call in _list(value.get("calls"), "calls")]
    given = {name: one for name, one in value.items() if name in _OWN and one is not None}
    return Message(**{**given, "calls": tuple(calls)})


def _own_call(call: object) -> ToolCall:
    if isinstance(call, ToolCall):
        return call
    _known(call, ("id", "name", "arguments", "malformed"), "call")
    assert isinstance(call, Mapping)
    try:
        return ToolCall(**call)
    except TypeError as exc:
        raise InvalidInput(f"a call lacks a value: {exc}.") from exc


def _from_api(value: Mapping[str, Any]) -> list[Message]:
    role = "system" if value["role"] == "developer" else value["role"]
    texts: list[str] = []
    calls = [_openai_call(call) for call in _list(value.get("tool_calls"), "tool_calls")]
    results: list[Message] = []
    for block in _blocks(value.get("content")):
        if block["type"] == "text":
            texts.append(_str(block.get("text"), "the text of a content block"))
        elif block["type"] == "tool_use":
            calls.append(_anthropic_call(block))
        else:
            results.append(_anthropic_result(block))
    text = "\n".join(texts)
    if results and role != "user":
        raise InvalidInput(f"tool_result blocks stand in a message of the user, not of the {role}.")
    if results and not text.strip():
        return results
    speaker, tool = (None, value.get("name")) if role == "tool" else (value.get("name"), None)
    return [*results, Message(role, text, speaker, tuple(calls), value.get("tool_call_id"), tool)]


def _blocks(content: object) -> list[Mapping[str, Any]]:
    if content is None or isinstance(content, str):
        return [{"type": "text", "text": content}] if content else []
    blocks = []
    for block in _list(content, "content"):
        if isinstance(block, str):
            blocks += _blocks(block)
            continue
        kind = block.get("type") if isinstance(block, Mapping) else None
        if not isinstance(kind, str):
            raise InvalidInput("a content block is a str, or a dict that has its type.")
        if kind not in _UNSAID:
            blocks.append(block if kind in _BLOCK else _noted(kind, block))
    return blocks


def _noted(kind: str, block: Mapping[str, Any]) -> Mapping[str, Any]:
    """What is not text is named in its place: "[image]". Its bytes are not kept, and all around it is."""
    told = block.get(_TOLD.get(kind, ""))
    if isinstance(told, str):
        return {"type": "text", "text": told}
    name = _NOT_IN_A_NAME.sub("", kind.removeprefix("input_").removesuffix("_url"))[:_LONGEST_NAME]
    return {"type": "text", "text": f"[{name or 'block'}]"}


def _anthropic_call(block: Mapping[str, Any]) -> ToolCall:
    return _made(block.get("id"), block.get("name"), block.get("input", {}))


def _openai_call(call: object) -> ToolCall:
    function = call.get("function") if isinstance(call, Mapping) else None
    if not isinstance(call, Mapping) or not isinstance(function, Mapping):
        raise InvalidInput("an entry of tool_calls is not the call of a function.")
    return _made(call.get("id"), function.get("name"), function.get("arguments", {}))


def _made(id: object, name: object, arguments: object) -> ToolCall:
    """Arguments may be a dict or its JSON; a text that is not is kept as the model wrote it."""
    name = _str(name, "the name of a called tool")
    if isinstance(arguments, str):
        try:
            parsed = json.loads(arguments or "{}")
        except ValueError:
            parsed = None
        if not isinstance(parsed, dict):
            return ToolCall(_str(id, "the id of a call"), name, malformed=arguments)
        arguments = parsed
    return ToolCall(_str(id, "the id of a call"), name, arguments)  # type: ignore[arg-type]  # checked_message proves it


def _anthropic_result(block: Mapping[str, Any]) -> Message:
    parts = _blocks(block.get("content"))
    if any(part["type"] != "text" for part in parts):
        raise InvalidInput("a tool_result holds text; other blocks in it cannot be kept.")
    text = "\n".join(_str(part.get("text"), "the text of a content block") for part in parts)
    return Message("tool", text, answers=block.get("tool_use_id"), failed=block.get("is_error") is True)


def _known(value: object, names: Sequence[str], what: str) -> None:
    """A key that says nothing may have any name: answers of the APIs have many of them."""
    if not isinstance(value, Mapping):
        raise InvalidInput(f"a {what} must be a dict, not {type(value).__name__}.")
    for key, one in value.items():
        if key not in names and one not in (None, [], {}, ""):
            raise UnknownKey(f"unknown key {key!r} in a {what}. Known: {', '.join(names)}.")


def _list(value: object, what: str) -> Sequence[Any]:
    if value is None:
        return ()
    if isinstance(value, (str, bytes)) or not isinstance(value, Sequence):
        raise InvalidInput(f"{what} must be a list, not {type(value).__name__}.")
    return value


def _str(value: object, what: str) -> str:
    if not isinstance(value, str):
        raise InvalidInput(f"{what} must be a str, not {type(value).__name__}.")
    return value
