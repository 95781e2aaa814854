"""Write messages in the forms that the Anthropic and the OpenAI chat APIs accept."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from engrain.core.errors import InvalidInput
from engrain.core.model.chat import ChatMessage, ToolCall, ToolSpec

NO_RESULT = "no result was recorded"
NO_OUTPUT = "(no output)"
CONVERSATION_OPENING = "(The conversation began before this.)"

# The narrowest of the rules that services are known to have, for ids and for names.
_ID = re.compile(r"[a-zA-Z0-9_-]{1,40}")
_NOT_IN_A_NAME = re.compile(r"[^a-zA-Z0-9_-]")
_LONGEST_NAME = 64


def to_anthropic(messages: Sequence[ChatMessage]) -> list[dict[str, Any]]:
    """For the Messages API. System messages are not in it: see `split_system`."""
    return [{"role": turn.role, "content": [_block(part) for part in turn.parts]} for turn in _turns(messages)]


def to_openai(messages: Sequence[ChatMessage]) -> list[dict[str, Any]]:
    """For the Chat Completions API. System messages are joined into one, which comes first."""
    system, _ = split_system(messages)
    written: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
    for turn in _turns(messages):
        written += [_tool_message(part) for part in turn.parts if isinstance(part, _Result)]
        text = "\n\n".join(part for part in turn.parts if isinstance(part, str))
        calls = [_tool_call(part) for part in turn.parts if isinstance(part, ToolCall)]
        if calls:
            written.append({"role": turn.role, "content": text or None, "tool_calls": calls})
        elif text:
            written.append({"role": turn.role, "content": text})
    return written


def split_system(messages: Sequence[ChatMessage]) -> tuple[str, tuple[ChatMessage, ...]]:
    """The texts of the system messages as one, and the other messages."""
    texts = [_unicode(said.text) for said in messages if said.role == "system"]
    others = tuple(said for said in messages if said.role != "system")
    return "\n\n".join(text for text in texts if text.strip()), others


def tools_to_anthropic(tools: Sequence[ToolSpec]) -> list[dict[str, Any]]:
    return [{"name": t.name, "description": t.description, "input_schema": dict(t.parameters)} for t in tools]


def tools_to_openai(tools: Sequence[ToolSpec]) -> list[dict[str, Any]]:
    # OpenAI refuses an object schema that does not list its properties.
    return [
        {
            "type": "function",
            "function": {
                "name": tool.name,
                "description": tool.description,
                "parameters": {"properties": {}, **tool.parameters},
            },
        }
        for tool in tools
    ]


@dataclass(frozen=True, slots=True)
class _Result:
    call: str
    text: str
    failed: bool = False


@dataclass(frozen=True, slots=True)
class _Turn:
    """What one side says at a time. Results come first; calls come last, and the next turn has all their results."""

    role: Literal["user", "assistant"]
    parts: list[str | ToolCall | _Result]


def _turns(messages: Sequence[ChatMessage]) -> list[_Turn]:
    """Turns of the user and the assistant that alternate and begin with the user."""
    answered = _answered(messages)
    taken = set(answered.values())
    ids: set[str] = set()
    turns: list[_Turn] = []
    for at, said in enumerate(messages):
        text = _unicode(said.text)
        if said.role == "assistant":
            calls = [_presentable(call, ids) for call in said.calls]
            _add(turns, "assistant", text.rstrip(), *calls)
            results = [answered.get((at, place)) for place in range(len(calls))]
            found = [None if place is None else messages[place] for place in results]
            _add(turns, "user", *map(_result, calls, found))
        elif said.role == "tool" and at not in taken:
            _add(turns, "user", _quoted(said))
        elif said.role == "user":
            _add(turns, "user", text)
    if turns and turns[0].role == "assistant":
        turns.insert(0, _Turn("user", [CONVERSATION_OPENING]))
    return turns


def _add(turns: list[_Turn], role: Literal["user", "assistant"], *parts: str | ToolCall | _Result) -> None:
    kept = [part for part in parts if not isinstance(part, str) or part.strip()]
    if not kept:
        return
    if turns and turns[-1].role == role:
        turns[-1].parts.extend(kept)
    else:
        turns.append(_Turn(role, kept))


def _answered(messages: Sequence[ChatMessage]) -> dict[tuple[int, int], int]:
    """Where the result of each call is, calls being named by message and place.

    Some servers use an id again and again, so that a result belongs to the nearest message that calls by this id.
    """
    waiting: dict[str | None, list[tuple[int, int]]] = {}
    answered: dict[tuple[int, int], int] = {}
    for at, said in enumerate(messages):
        for place, call in reversed(list(enumerate(said.calls))):
            waiting.setdefault(call.id, []).append((at, place))
        if said.role == "tool" and waiting.get(said.answers):
            answered[waiting[said.answers].pop()] = at
    return answered


def _presentable(call: ToolCall, used: set[str]) -> ToolCall:
    """The call under an id and a name that services accept; an id that is fine and new stays."""
    id = _unicode(call.id)
    if not _ID.fullmatch(id) or id in used:
        count = len(used) + 1
        while (id := f"call{count:05}") in used:
            count += 1
    used.add(id)
    return replace(call, id=id, name=_NOT_IN_A_NAME.sub("_", call.name)[:_LONGEST_NAME] or "unnamed")


def _result(call: ToolCall, found: ChatMessage | None) -> _Result:
    if found is None:
        return _Result(call.id, NO_RESULT)
    return _Result(call.id, _output(found), found.failed)


def _quoted(result: ChatMessage) -> str:
    """A result whose call is not known: words of a tool, and not of the user."""
    told = "failed" if result.failed else "answered"
    return f"A tool {told}; its call is not recorded:\n> " + "\n> ".join(_output(result).splitlines())


def _output(result: ChatMessage) -> str:
    text = _unicode(result.text)
    return text if text.strip() else NO_OUTPUT


def _arguments(call: ToolCall) -> dict[str, Any]:
    return {"malformed": _unicode(call.malformed)} if call.malformed else dict(call.arguments)


def _block(part: str | ToolCall | _Result) -> dict[str, Any]:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    if isinstance(part, ToolCall):
        return {"type": "tool_use", "id": part.id, "name": part.name, "input": _arguments(part)}
    block = {"type": "tool_result", "tool_use_id": part.call, "content": part.text}
    return {**block, "is_error": True} if part.failed else block


def _tool_call(call: ToolCall) -> dict[str, Any]:
    try:
        arguments = json.dumps(_arguments(call), ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as exc:
        raise InvalidInput(f"The arguments of a call of {call.name!r} are not plain JSON: {exc}.") from exc
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _tool_message(result: _Result) -> dict[str, Any]:
    # This API has no mark for a result that is an error.
    text = f"The tool failed: {result.text}" if result.failed else result.text
    return {"role": "tool", "tool_call_id": result.call, "content": text}


def _unicode(text: str) -> str:
    """A lone surrogate cannot be sent."""
    return text.encode("utf-8", "replace").decode()
