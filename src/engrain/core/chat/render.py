"""Write messages in the forms that the Anthropic and the OpenAI chat APIs accept."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

from engrain.core.errors import InvalidInput
from engrain.core.model.messages import NO_OUTPUT, Attachment, ChatMessage, ToolCall, ToolSpec, match_results

NO_RESULT = "no result was recorded"
CONVERSATION_OPENING = "(The conversation began before this.)"

# The narrowest rules of any known service, for ids and for names.
_VALID_ID = re.compile(r"[a-zA-Z0-9_-]{1,40}")
_NOT_IN_TOOL_NAME = re.compile(r"[^a-zA-Z0-9_-]")
_MAX_TOOL_NAME = 64


def to_anthropic(messages: Sequence[ChatMessage]) -> list[dict[str, Any]]:
    """Write messages for the Messages API, without system messages: see `split_system`."""
    return [
        {"role": turn.role, "content": [_to_anthropic_block(part) for part in turn.parts]}
        for turn in _group_turns(messages)
    ]


def to_openai(messages: Sequence[ChatMessage]) -> list[dict[str, Any]]:
    """Write messages for the Chat Completions API. The system messages become one, which comes first."""
    system, _ = split_system(messages)
    written: list[dict[str, Any]] = [{"role": "system", "content": system}] if system else []
    for turn in _group_turns(messages):
        written += [_to_openai_result(part) for part in turn.parts if isinstance(part, _Result)]
        text = "\n\n".join(part for part in turn.parts if isinstance(part, str))
        attached = [_to_openai_attachment(part) for part in turn.parts if isinstance(part, Attachment)]
        calls = [_to_openai_call(part) for part in turn.parts if isinstance(part, ToolCall)]
        if calls:
            written.append({"role": turn.role, "content": text or None, "tool_calls": calls})
        elif attached:
            written.append({"role": turn.role, "content": [*attached, {"type": "text", "text": text}]})
        elif text:
            written.append({"role": turn.role, "content": text})
    return written


def split_system(messages: Sequence[ChatMessage]) -> tuple[str, tuple[ChatMessage, ...]]:
    """Join the texts of the system messages, and return the other messages."""
    texts = [_replace_surrogates(said.text) for said in messages if said.role == "system"]
    others = tuple(said for said in messages if said.role != "system")
    return "\n\n".join(text for text in texts if text.strip()), others


def tools_to_anthropic(tools: Sequence[ToolSpec]) -> list[dict[str, Any]]:
    return [{"name": t.name, "description": t.description, "input_schema": dict(t.parameters)} for t in tools]


def tools_to_openai(tools: Sequence[ToolSpec]) -> list[dict[str, Any]]:
    # OpenAI refuses an object schema that does not list its properties.
    functions = (
        {"name": t.name, "description": t.description, "parameters": {"properties": {}, **t.parameters}} for t in tools
    )
    return [{"type": "function", "function": function} for function in functions]


@dataclass(frozen=True, slots=True)
class _Result:
    call: str
    text: str
    failed: bool = False


_Part = str | ToolCall | Attachment | _Result


@dataclass(frozen=True, slots=True)
class _Turn:
    """Consecutive messages of one side. Results come first. Calls come last; the next turn has their results."""

    role: Literal["user", "assistant"]
    parts: list[_Part]


def _group_turns(messages: Sequence[ChatMessage]) -> list[_Turn]:
    """Group messages into alternating turns of the user and the assistant, the user first."""
    callers = match_results(messages)
    results = {call: index for index, call in callers.items()}
    ids: set[str] = set()
    turns: list[_Turn] = []
    for at, said in enumerate(messages):
        text = _replace_surrogates(said.text)
        if said.role == "assistant":
            calls = [_make_acceptable(call, ids) for call in said.calls]
            _add_parts(turns, "assistant", text.rstrip(), *calls)
            answers = [results.get((at, number)) for number in range(len(calls))]
            found = [None if index is None else messages[index] for index in answers]
            _add_parts(turns, "user", *map(_make_result, calls, found))
        elif said.role == "tool" and at not in callers:
            _add_parts(turns, "user", _quote_result(said))
        elif said.role == "user":
            _add_parts(turns, "user", *said.attachments, text)
    if turns and turns[0].role == "assistant":
        turns.insert(0, _Turn("user", [CONVERSATION_OPENING]))
    return turns


def _add_parts(turns: list[_Turn], role: Literal["user", "assistant"], *parts: _Part) -> None:
    filled = [part for part in parts if not isinstance(part, str) or part.strip()]
    if not filled:
        return
    if turns and turns[-1].role == role:
        turns[-1].parts.extend(filled)
    else:
        turns.append(_Turn(role, filled))


def _make_acceptable(call: ToolCall, used: set[str]) -> ToolCall:
    """Return the call with an id and a name that services accept. A valid new id stays."""
    id = _replace_surrogates(call.id)
    if not _VALID_ID.fullmatch(id) or id in used:
        count = len(used) + 1
        while (id := f"call{count:05}") in used:
            count += 1
    used.add(id)
    return replace(call, id=id, name=_NOT_IN_TOOL_NAME.sub("_", call.name)[:_MAX_TOOL_NAME] or "unnamed")


def _make_result(call: ToolCall, found: ChatMessage | None) -> _Result:
    return _Result(call.id, _output(found), found.failed) if found else _Result(call.id, NO_RESULT)


def _quote_result(result: ChatMessage) -> str:
    """Quote a result whose call is unknown, so that it does not read as the user's words."""
    outcome = "failed" if result.failed else "answered"
    return f"A tool {outcome}; its call is not recorded:\n> " + "\n> ".join(_output(result).splitlines())


def _output(result: ChatMessage) -> str:
    text = _replace_surrogates(result.text)
    return text if text.strip() else NO_OUTPUT


def _arguments(call: ToolCall) -> dict[str, Any]:
    return {"malformed": _replace_surrogates(call.malformed)} if call.malformed else dict(call.arguments)


def _to_anthropic_block(part: _Part) -> dict[str, Any]:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    if isinstance(part, Attachment):
        source = {"type": "base64", "media_type": part.media_type, "data": base64.b64encode(part.body).decode()}
        return {"type": "image" if part.media_type.startswith("image/") else "document", "source": source}
    if isinstance(part, ToolCall):
        return {"type": "tool_use", "id": part.id, "name": part.name, "input": _arguments(part)}
    block = {"type": "tool_result", "tool_use_id": part.call, "content": part.text}
    return {**block, "is_error": True} if part.failed else block


def _to_openai_call(call: ToolCall) -> dict[str, Any]:
    try:
        arguments = json.dumps(_arguments(call), ensure_ascii=False, allow_nan=False)
    except (TypeError, ValueError) as exc:
        raise InvalidInput(f"The arguments of a call of {call.name!r} are not plain JSON: {exc}.") from exc
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": arguments}}


def _to_openai_attachment(part: Attachment) -> dict[str, Any]:
    url = f"data:{part.media_type};base64,{base64.b64encode(part.body).decode()}"
    if part.media_type.startswith("image/"):
        return {"type": "image_url", "image_url": {"url": url}}
    return {"type": "file", "file": {"filename": part.name or "document.pdf", "file_data": url}}


def _to_openai_result(result: _Result) -> dict[str, Any]:
    # This API has no mark for a result that is an error.
    text = f"The tool failed: {result.text}" if result.failed else result.text
    return {"role": "tool", "tool_call_id": result.call, "content": text}


def _replace_surrogates(text: str) -> str:
    # A lone surrogate cannot be sent.
    return text.encode("utf-8", "replace").decode()
