"""Chat with models of Anthropic."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from engrain.core.chat.render import split_system, to_anthropic, tools_to_anthropic
from engrain.core.model.chat import ChatMessage, ChatReply, ChatRequest, StopReason, ToolSpec, check_timeout
from engrain.providers.chat import count_tokens, no_message_error, parse_tool_call, read_text, send_chat, settle_stop
from engrain.providers.http import Endpoint, read_key

ANTHROPIC_URL = "https://api.anthropic.com"
SMALL_MODEL = "claude-haiku-4-5"
API_VERSION = "2023-06-01"
CACHED_TOKENS = ("cache_creation_input_tokens", "cache_read_input_tokens")

STOP_REASONS: Mapping[str, StopReason] = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refused",
}


class AnthropicModel:
    """A model of Anthropic. Its key is `api_key` or ANTHROPIC_API_KEY, its server `base_url` or ANTHROPIC_BASE_URL."""

    def __init__(
        self,
        name: str = SMALL_MODEL,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        timeout: float = 60.0,
    ) -> None:
        base = (base_url or os.environ.get("ANTHROPIC_BASE_URL", "") or ANTHROPIC_URL).rstrip("/").removesuffix("/v1")
        who = "Anthropic" if base == ANTHROPIC_URL else "The Anthropic-compatible model"
        self._name = name
        self._endpoint = Endpoint(
            who,
            base + "/v1/messages",
            read_key(api_key, "ANTHROPIC_API_KEY", who, required=base == ANTHROPIC_URL),
            "ANTHROPIC_API_KEY",
            check_timeout(timeout),
            key_header="x-api-key",
            headers={"anthropic-version": API_VERSION},
        )

    @property
    def name(self) -> str:
        return self._name

    def reply(self, ask: ChatRequest) -> ChatReply:
        answer = send_chat(self._endpoint, ask, self._make_body(ask))
        try:
            return self._read(answer)
        except (AttributeError, KeyError, TypeError) as exc:
            raise no_message_error(self._endpoint) from exc

    def _make_body(self, ask: ChatRequest) -> dict[str, Any]:
        messages = to_anthropic(ask.messages)
        body: dict[str, Any] = {"model": self._name, "max_tokens": ask.max_tokens, "messages": messages}
        system, _ = split_system((ChatMessage("system", ask.system), *ask.messages))
        if system:
            body["system"] = system
        if ask.tools:
            body["tools"] = tools_to_anthropic(ask.tools)
        elif called := _list_called_tools(messages):
            # The service refuses earlier calls if no tools are given. These must not be called now.
            body |= {"tools": tools_to_anthropic(called), "tool_choice": {"type": "none"}}
        return body

    def _read(self, answer: dict[str, Any]) -> ChatReply:
        content = answer["content"]
        used = [block for block in content if block.get("type") == "tool_use"]
        calls = [parse_tool_call(n, b.get("id"), b.get("name"), b.get("input")) for n, b in enumerate(used)]
        stop, calls_to_make = settle_stop(STOP_REASONS.get(answer.get("stop_reason") or "", "end"), calls)
        usage = answer.get("usage")
        return ChatReply(
            read_text(content),
            calls_to_make,
            stop,
            str(answer.get("model") or self._name),
            count_tokens(usage, "input_tokens", *CACHED_TOKENS),
            count_tokens(usage, "output_tokens"),
        )


def _list_called_tools(messages: list[dict[str, Any]]) -> list[ToolSpec]:
    blocks = [block for message in messages for block in message["content"]]
    names = dict.fromkeys(block["name"] for block in blocks if block["type"] == "tool_use")
    return [ToolSpec(name, "Was called earlier.") for name in names]
