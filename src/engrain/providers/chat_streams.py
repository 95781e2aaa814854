"""Assemble the streamed answer of a chat service into the answer that it would have sent whole."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

Event = dict[str, Any]
OnText = Callable[[str], object]


class BrokenStream(Exception):
    """The stream reported an error, or ended before the answer did."""


def join_anthropic_events(events: Iterable[Event], on_text: OnText) -> Event:
    """Return the message of a stream of the Messages API. `on_text` gets each piece of text as it comes."""
    answer: Event = {}
    pieces: dict[int, list[str]] = {}  # of each content block
    for event in events:
        kind = event.get("type")
        if kind == "message":  # the service does not stream
            on_text("".join(block["text"] for block in event["content"] if block.get("type") == "text"))
            return event
        if kind == "message_start":
            answer = {**event["message"], "content": []}
        elif kind == "content_block_start":
            answer["content"].append(dict(event["content_block"]))
            pieces[event["index"]] = []
        elif kind == "content_block_delta":
            delta = event["delta"]
            piece = delta.get("text") or delta.get("partial_json") or ""
            pieces[event["index"]].append(piece)
            if delta.get("type") == "text_delta" and piece:
                on_text(piece)
        elif kind == "message_delta":
            answer |= event.get("delta") or {}
            answer["usage"] = {**(answer.get("usage") or {}), **(event.get("usage") or {})}
        elif kind == "error":
            raise BrokenStream(str((event.get("error") or {}).get("message") or "an error without a message"))
        elif kind == "message_stop":
            return _fill_blocks(answer, pieces)
    raise BrokenStream("it ended in the middle of the answer")


def _fill_blocks(answer: Event, pieces: dict[int, list[str]]) -> Event:
    for block, parts in zip(answer["content"], pieces.values(), strict=True):
        if block.get("type") == "tool_use":
            block["input"] = "".join(parts) or block.get("input")
        elif block.get("type") == "text":
            block["text"] = block.get("text", "") + "".join(parts)
    return answer


def join_openai_events(events: Iterable[Event], on_text: OnText) -> Event:
    """Return the completion of a stream of the Chat Completions API."""
    answer: Event = {}
    said: dict[str, list[str]] = {"content": [], "refusal": []}
    calls: dict[int, Event] = {}
    finish: str | None = None
    for event in events:
        if event.get("error"):
            error = event["error"]
            raise BrokenStream(str(error.get("message") if isinstance(error, dict) else error))
        choices = event.get("choices") or []
        if choices and "message" in choices[0]:  # the service does not stream
            on_text(choices[0]["message"].get("content") or "")
            return event
        answer |= {name: event[name] for name in ("model", "usage") if event.get(name)}
        for choice in choices[:1]:
            finish = choice.get("finish_reason") or finish
            delta = choice.get("delta") or {}
            for name, parts in said.items():
                if delta.get(name):
                    parts.append(delta[name])
                    on_text(delta[name])
            for part in delta.get("tool_calls") or ():
                _add_call_part(calls, part)
    if finish is None:
        raise BrokenStream("it ended in the middle of the answer")
    tool_calls = [{"id": call["id"], "function": _join_function(call)} for _, call in sorted(calls.items())]
    message = {"tool_calls": tool_calls, **{name: "".join(parts) for name, parts in said.items()}}
    return answer | {"choices": [{"finish_reason": finish, "message": message}]}


def _add_call_part(calls: dict[int, Event], part: Event) -> None:
    # Servers that send each call whole leave out the index, or repeat it with another id.
    index, id_ = part.get("index"), part.get("id")
    if index is None or (id_ and index in calls and calls[index]["id"] not in (None, id_)):
        index = len(calls)
    call = calls.setdefault(index, {"id": None, "name": None, "arguments": []})
    function = part.get("function") or {}
    call["id"] = id_ or call["id"]
    call["name"] = function.get("name") or call["name"]
    call["arguments"].append(function.get("arguments") or "")


def _join_function(call: Event) -> Event:
    return {"name": call["name"], "arguments": "".join(call["arguments"])}
