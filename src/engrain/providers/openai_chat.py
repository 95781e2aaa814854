"""Chat with models of OpenAI, or of a server with its protocol: Ollama, vLLM, llama.cpp, a gateway."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from engrain.core.chat.render import to_openai, tools_to_openai
from engrain.core.model.chat import ChatMessage, ChatReply, ChatRequest, StopReason, ToolCall, check_timeout
from engrain.providers.chat import count_tokens, no_message_error, parse_tool_call, read_text, send_chat, settle_stop
from engrain.providers.http import Endpoint, read_key

OPENAI_URL = "https://api.openai.com/v1"
STOP_REASONS: Mapping[str, StopReason] = {"length": "length", "content_filter": "refused"}


class OpenAIModel:
    """A model of OpenAI, or of the server at `base_url`, which needs no key.

    The key is `api_key` or OPENAI_API_KEY, the server `base_url` or OPENAI_BASE_URL.
    """

    def __init__(
        self,
        name: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        timeout: float = 60.0,
    ) -> None:
        url = (base_url or os.environ.get("OPENAI_BASE_URL", "") or OPENAI_URL).rstrip("/")
        self._name = name
        self._official = url == OPENAI_URL
        who = "OpenAI" if self._official else "The OpenAI-compatible model"
        key = read_key(api_key, "OPENAI_API_KEY", who, required=self._official)
        self._endpoint = Endpoint(who, url + "/chat/completions", key, "OPENAI_API_KEY", check_timeout(timeout))

    @property
    def name(self) -> str:
        return self._name

    def reply(self, ask: ChatRequest) -> ChatReply:
        answer = send_chat(self._endpoint, ask, self._make_body(ask))
        try:
            return self._read(answer)
        except (AttributeError, IndexError, KeyError, TypeError) as exc:
            raise no_message_error(self._endpoint) from exc

    def _make_body(self, ask: ChatRequest) -> dict[str, Any]:
        # OpenAI's newer models refuse max_tokens; other servers know only that.
        limit = "max_completion_tokens" if self._official else "max_tokens"
        messages = to_openai((ChatMessage("system", ask.system), *ask.messages))
        body = {"model": self._name, limit: ask.max_tokens, "messages": messages}
        if ask.tools:
            body["tools"] = tools_to_openai(ask.tools)
        return body

    def _read(self, answer: dict[str, Any]) -> ChatReply:
        choice = answer["choices"][0]
        message = choice["message"]
        refusal = read_text(message.get("refusal"))
        calls = [_parse_call(number, call) for number, call in enumerate(message.get("tool_calls") or ())]
        finish = STOP_REASONS.get(choice.get("finish_reason") or "", "end")
        stop, calls_to_make = settle_stop("refused" if refusal else finish, calls)
        usage = answer.get("usage")
        return ChatReply(
            refusal or read_text(message.get("content")),
            calls_to_make,
            stop,
            str(answer.get("model") or self._name),
            count_tokens(usage, "prompt_tokens"),
            count_tokens(usage, "completion_tokens"),
        )


def _parse_call(number: int, call: dict[str, Any]) -> ToolCall:
    function = call["function"]
    return parse_tool_call(number, call.get("id"), function.get("name"), function.get("arguments"))
