"""What the Anthropic Messages API and the OpenAI Chat Completions API refuse, as strictly as they are known to do."""

from __future__ import annotations

import base64
import itertools
import json
import re
from typing import Any

ID = re.compile(r"[a-zA-Z0-9_-]+")
NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


class Rejected(Exception):
    """The service would answer 400, with this message."""


def refuse_unless(good: object, message: str) -> None:
    if not good:
        raise Rejected(message)


def check_anthropic_request(body: Any) -> None:
    refuse_unless(isinstance(body, dict), "body: Input should be an object")
    known = {"model", "max_tokens", "messages", "system", "tools", "tool_choice", "stream", "temperature"}
    extra = set(body) - known
    refuse_unless(not extra, f"{extra}: Extra inputs are not permitted")
    refuse_unless(isinstance(body.get("model"), str) and body["model"], "model: Field required")
    refuse_unless(_positive(body.get("max_tokens")), "max_tokens: Input should be greater than or equal to 1")
    if "system" in body:
        refuse_unless(_text(body["system"]), "system: text content blocks must be non-empty")
    names = []
    for tool in body.get("tools", []):
        refuse_unless(set(tool) == {"name", "description", "input_schema"}, "tools: Extra inputs are not permitted")
        _check_tool(tool["name"], tool["description"], tool["input_schema"], "tools")
        names.append(tool["name"])
    refuse_unless(len(set(names)) == len(names), "tools: Tool names must be unique.")
    if "tool_choice" in body:
        refuse_unless(names, "tool_choice: may only be specified while providing tools")
        plain = [{"type": kind} for kind in ("none", "auto", "any")]
        named = [{"type": "tool", "name": name} for name in names]
        refuse_unless(body["tool_choice"] in [*plain, *named], "tool_choice: unexpected value")
    check_anthropic(body.get("messages"))
    used = any(
        block["type"] in ("tool_use", "tool_result") for message in body["messages"] for block in message["content"]
    )
    refuse_unless(names or not used, "Requests which include `tool_use` or `tool_result` blocks must define tools.")


def check_anthropic(messages: Any) -> None:
    refuse_unless(isinstance(messages, list) and messages, "messages: at least one message is required")
    refuse_unless(messages[0].get("role") == "user", "messages: first message must use the user role")
    seen: set[str] = set()
    waiting: list[str] = []
    for at, message in enumerate(messages):
        where = f"messages.{at}"
        refuse_unless(set(message) == {"role", "content"}, f"{where}: Extra inputs are not permitted")
        role, content = message["role"], message["content"]
        refuse_unless(role in ("user", "assistant"), f"{where}.role: unexpected role {role!r}")
        refuse_unless(role == ("user", "assistant")[at % 2], f"{where}: roles must alternate")
        refuse_unless(isinstance(content, list) and content, f"{where}: content must be non-empty")
        for block in content:
            _check_block(block, role, where)
        _check_results(content, waiting, where)
        waiting = [block["id"] for block in content if block["type"] == "tool_use"]
        refuse_unless(not seen & set(waiting), f"{where}: `tool_use` ids must be unique")
        refuse_unless(len(set(waiting)) == len(waiting), f"{where}: `tool_use` ids must be unique")
        seen.update(waiting)
        kinds = [block["type"] for block in content]
        refuse_unless(kinds == sorted(kinds, key=lambda kind: kind == "tool_use"), f"{where}: text after a tool_use")
    refuse_unless(not waiting, f"`tool_use` ids were found without `tool_result` blocks immediately after: {waiting}")
    last = messages[-1]
    if last["role"] == "assistant":
        text = last["content"][-1]["text"]
        refuse_unless(text == text.rstrip(), "final assistant content cannot end with trailing whitespace")


def _check_block(block: dict[str, Any], role: str, where: str) -> None:
    kind = block.get("type")
    if kind == "text":
        refuse_unless(set(block) == {"type", "text"}, f"{where}: Extra inputs are not permitted")
        refuse_unless(_text(block["text"]), f"{where}: text content blocks must contain non-whitespace text")
    elif kind == "tool_use":
        refuse_unless(role == "assistant", f"{where}: `tool_use` blocks can only be in `assistant` messages")
        refuse_unless(set(block) == {"type", "id", "name", "input"}, f"{where}: Extra inputs are not permitted")
        refuse_unless(isinstance(block["id"], str) and ID.fullmatch(block["id"]), f"{where}.id: should match pattern")
        refuse_unless(NAME.fullmatch(block["name"]), f"{where}.name: should match pattern")
        refuse_unless(isinstance(block["input"], dict), f"{where}.input: Input should be a valid dictionary")
    elif kind == "tool_result":
        refuse_unless(role == "user", f"{where}: `tool_result` blocks can only be in `user` messages")
        refuse_unless(
            set(block) - {"is_error"} == {"type", "tool_use_id", "content"}, f"{where}: Extra inputs are not permitted"
        )
        refuse_unless(_text(block["content"]), f"{where}: text content blocks must be non-empty")
        refuse_unless(block.get("is_error", True) is True, f"{where}.is_error: should be a boolean")
    elif kind in ("image", "document"):
        refuse_unless(role == "user", f"{where}: `{kind}` blocks can only be in `user` messages")
        refuse_unless(set(block) == {"type", "source"}, f"{where}: Extra inputs are not permitted")
        source = block["source"]
        refuse_unless(set(source) == {"type", "media_type", "data"}, f"{where}.source: Extra inputs are not permitted")
        refuse_unless(_base64(source["data"]), f"{where}.source.data: not base64")
    else:
        raise Rejected(f"{where}: unknown content block {kind!r}")


def _check_results(content: list[dict[str, Any]], waiting: list[str], where: str) -> None:
    answered = [block["tool_use_id"] for block in content if block["type"] == "tool_result"]
    missing = [id for id in waiting if id not in answered]
    refuse_unless(not missing, f"{where}: `tool_use` ids were found without `tool_result` blocks: {missing}")
    unknown = [id for id in answered if id not in waiting]
    refuse_unless(not unknown, f"{where}: unexpected `tool_use_id` found in `tool_result` blocks: {unknown}")
    refuse_unless(len(set(answered)) == len(answered), f"{where}: each tool_use must have a single result")
    first = [block["type"] for block in content[: len(answered)]]
    refuse_unless(set(first) <= {"tool_result"}, f"{where}: tool_result blocks must come first")


def check_openai_request(body: Any) -> None:
    refuse_unless(isinstance(body, dict), "body: expected an object")
    limits = {"max_tokens", "max_completion_tokens"}
    extra = (
        set(body) - limits - {"model", "messages", "tools", "tool_choice", "stream", "stream_options", "temperature"}
    )
    refuse_unless(not extra, f"Unrecognized request argument supplied: {extra}")
    refuse_unless(isinstance(body.get("model"), str) and body["model"], "you must provide a model parameter")
    given = [body[name] for name in limits if name in body]
    refuse_unless(len(given) == 1 and _positive(given[0]), "Setting both limits at the same time is not supported.")
    refuse_unless("stream_options" not in body or body.get("stream"), "stream_options: only when stream is set")
    if "tools" in body:
        refuse_unless(body["tools"], "[] is too short - 'tools'")
    for tool in body.get("tools", []):
        refuse_unless(set(tool) == {"type", "function"} and tool["type"] == "function", "Invalid 'tools'")
        function = tool["function"]
        _check_tool(function["name"], function["description"], function["parameters"], "tools.function")
        refuse_unless("properties" in function["parameters"], "object schema missing properties")
    check_openai(body.get("messages"))


def check_openai(messages: Any) -> None:
    refuse_unless(isinstance(messages, list) and messages, "[] is too short - 'messages'")
    waiting: list[str] = []
    for at, message in enumerate(messages):
        where = f"messages.[{at}]"
        role = message.get("role")
        if role == "tool":
            refuse_unless(set(message) == {"role", "tool_call_id", "content"}, f"{where}: additional properties")
            refuse_unless(
                message["tool_call_id"] in waiting,
                f"{where}: messages with role 'tool' must be a response to a preceding message with 'tool_calls'",
            )
            waiting.remove(message["tool_call_id"])
            refuse_unless(isinstance(message["content"], str), f"{where}.content: expected a string")
            continue
        refuse_unless(not waiting, f"{where}: tool_call_ids did not have response messages: {waiting}")
        # The API takes it anywhere; the templates of local models take it only in front.
        refuse_unless(role in ("user", "assistant") or (role == "system" and at == 0), f"{where}: role {role!r}")
        if role == "assistant":
            waiting = _check_openai_assistant(message, where)
        else:
            refuse_unless(set(message) == {"role", "content"}, f"{where}: additional properties")
            parts = message["content"] if role == "user" and isinstance(message["content"], list) else []
            refuse_unless(parts or _text(message["content"]), f"{where}.content: expected a string")
            for part in parts:
                _check_openai_part(part, where)
    refuse_unless(not waiting, f"tool_call_ids did not have response messages: {waiting}")
    _check_alternation([message["role"] for message in messages if message["role"] in ("user", "assistant")], messages)


def _check_openai_part(part: dict[str, Any], where: str) -> None:
    kind = part["type"]
    if kind == "text":
        refuse_unless(_text(part["text"]), f"{where}: empty text")
        return
    url = part["image_url"]["url"] if kind == "image_url" else part["file"]["file_data"]
    head, _, data = url.partition(";base64,")
    refuse_unless(head.startswith("data:") and _base64(data), f"{where}: not a data URL")


def _check_openai_assistant(message: dict[str, Any], where: str) -> list[str]:
    refuse_unless(set(message) - {"tool_calls"} == {"role", "content"}, f"{where}: additional properties")
    calls = message.get("tool_calls")
    refuse_unless(calls is None or calls, f"[] is too short - '{where}.tool_calls'")
    refuse_unless(_text(message["content"]) or (calls and message["content"] is None), f"{where}.content: empty")
    ids = []
    for call in calls or []:
        refuse_unless(set(call) == {"id", "type", "function"} and call["type"] == "function", f"{where}: bad call")
        refuse_unless(isinstance(call["id"], str) and 1 <= len(call["id"]) <= 40, f"{where}.id: length")
        refuse_unless(set(call["function"]) == {"name", "arguments"}, f"{where}: bad function")
        refuse_unless(NAME.fullmatch(call["function"]["name"]), f"{where}.name: does not match pattern")
        refuse_unless(isinstance(call["function"]["arguments"], str), f"{where}.arguments: expected a string")
        # The API itself does not look inside; the servers of local models do.
        refuse_unless(_json_object(call["function"]["arguments"]), f"{where}.arguments: not a JSON object")
        ids.append(call["id"])
    refuse_unless(len(set(ids)) == len(ids), f"{where}: duplicate tool call ids")
    return ids


def _check_alternation(sides: list[str], messages: list[dict[str, Any]]) -> None:
    """Not of the API, but of many templates of local models: the user begins, and nobody speaks twice in a row."""
    refuse_unless(not sides or sides[0] == "user", "Conversation roles must alternate user/assistant")
    for before, after in itertools.pairwise(messages):
        refuse_unless(before["role"] == "tool" or before["role"] != after["role"], "Conversation roles must alternate")


def _check_tool(name: str, description: object, schema: Any, where: str) -> None:
    refuse_unless(isinstance(name, str) and NAME.fullmatch(name), f"{where}.name: does not match pattern")
    refuse_unless(isinstance(description, str), f"{where}.description: expected a string")
    refuse_unless(isinstance(schema, dict) and schema.get("type") == "object", f"{where}: schema must be an object")


def _text(value: object) -> bool:
    return isinstance(value, str) and bool(value.strip())


def _positive(value: object) -> bool:
    return isinstance(value, int) and value >= 1


def _base64(text: str) -> bool:
    try:
        return bool(base64.b64decode(text, validate=True))
    except ValueError:
        return False


def _json_object(text: str) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except ValueError:
        return False
