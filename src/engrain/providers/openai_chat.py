"""Chat with a model of OpenAI, or of anything that speaks its protocol: Ollama, vLLM, llama.cpp, a gateway."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from engrain.core.chat.render import to_openai, tools_to_openai
from engrain.core.model.chat import ChatMessage, ChatReply, ChatRequest, StopReason, ToolCall, check_timeout
from engrain.providers.chat import asked, stopped, text_of, tokens, tool_call, unusable
from engrain.providers.http import Endpoint, key_or_variable

OPENAI_URL = "https://api.openai.com/v1"
STOPS: Mapping[str, StopReason] = {"length": "length", "content_filter": "refused"}


class OpenAIModel:
    """Give `base_url` for another server than OpenAI's; a key is then sent only if there is one.

    The key comes from `api_key` or OPENAI_API_KEY, the server from `base_url` or OPENAI_BASE_URL.
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
        key = key_or_variable(api_key, "OPENAI_API_KEY", who, required=self._official)
        self._endpoint = Endpoint(who, url + "/chat/completions", key, "OPENAI_API_KEY", check_timeout(timeout))

    @property
    def name(self) -> str:
        return self._name

    def reply(self, ask: ChatRequest) -> ChatReply:
        answer = asked(self._endpoint, ask, self._body(ask))
        try:
            return self._read(answer)
        except (AttributeError, IndexError, KeyError, TypeError) as exc:
            raise unusable(self._endpoint) from exc

    def _body(self, ask: ChatRequest) -> dict[str, Any]:
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
        refusal = text_of(message.get("refusal"))
        calls = [_call(place, call) for place, call in enumerate(message.get("tool_calls") or ())]
        finish = STOPS.get(choice.get("finish_reason") or "", "end")
        stop, calls_to_make = stopped("refused" if refusal else finish, calls)
        usage = answer.get("usage")
        return ChatReply(
            refusal or text_of(message.get("content")),
            calls_to_make,
            stop,
            str(answer.get("model") or self._name),
            tokens(usage, "prompt_tokens"),
            tokens(usage, "completion_tokens"),
        )


def _call(place: int, call: dict[str, Any]) -> ToolCall:
    function = call["function"]
    return tool_call(place, call.get("id"), function.get("name"), function.get("arguments"))
