"""Ask a chat service, and read its texts and tool calls."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import orjson

from engrain.core.errors import ConfigError, InvalidInput, ModelFailed
from engrain.core.model.chat import ChatRequest, StopReason, ToolCall, check_timeout
from engrain.providers.http import Endpoint, ServiceError, post, read_error_message

if TYPE_CHECKING:
    from engrain.ports import Model


MAX_NESTING = 64  # deeper arguments could not be sent back


def send_chat(endpoint: Endpoint, request: ChatRequest, body: dict[str, Any]) -> dict[str, Any]:
    """Return the service's answer. The time limit is that of the request, or else of the endpoint."""
    messages = body["messages"]
    if not messages or messages[-1]["role"] not in ("user", "tool"):
        raise InvalidInput("A model answers a user or a tool: the last message with a text must come from one of them.")
    timeout = check_timeout(endpoint.timeout if request.timeout is None else request.timeout)
    try:
        answer = post(replace(endpoint, timeout=timeout), body, timeout)
    except ServiceError as exc:
        raise ModelFailed(str(exc)) from exc
    if not isinstance(answer, dict):
        raise no_message_error(endpoint)
    if answer.get("error"):
        reason = read_error_message(answer)
        raise ModelFailed(
            f"{endpoint.name} at {endpoint.url} answered with an error" + (f": {reason}." if reason else ".")
        )
    return answer


def no_message_error(endpoint: Endpoint) -> ModelFailed:
    return ModelFailed(
        f"{endpoint.name} at {endpoint.url} did not return a message. Check that the URL belongs to a chat service."
    )


def parse_tool_call(position: int, id: object, name: object, arguments: object) -> ToolCall:
    """Read a call as a model wrote it: arguments are JSON, or text that should be JSON; a missing id is made up."""
    call_id = id if isinstance(id, str) and id.strip() else f"call_{position}"
    call = ToolCall(call_id, name if isinstance(name, str) else "")
    if isinstance(arguments, str):
        text = arguments
        try:
            arguments = orjson.loads(text) if text.strip() else {}
        except orjson.JSONDecodeError:
            return replace(call, malformed=text)
    if not arguments:
        return call
    if _is_deeper(arguments, MAX_NESTING):
        return replace(call, malformed="(nested too deeply)")
    if isinstance(arguments, dict):
        return replace(call, arguments=arguments)
    return replace(call, malformed=orjson.dumps(arguments).decode())


def settle_stop(stop: StopReason, calls: list[ToolCall]) -> tuple[StopReason, tuple[ToolCall, ...]]:
    """Correct the stop reason: servers say "end" although there are calls, and a cut reply has no usable calls."""
    if stop in ("length", "refused"):
        return stop, ()
    return ("tools" if calls else "end"), tuple(calls)


def read_text(content: Any) -> str:
    """Join content that is a text, a list of parts, or missing. NUL characters are dropped: no store takes them."""
    if not isinstance(content, str):
        content = "".join(part["text"] for part in content or () if part.get("type") == "text")
    return str(content).replace("\x00", "")


def count_tokens(usage: object, *names: str) -> int:
    counts = [usage.get(name) for name in names] if isinstance(usage, dict) else []
    return sum(count for count in counts if isinstance(count, int) and count > 0)


def _is_deeper(value: object, levels: int) -> bool:
    if isinstance(value, dict):
        value = list(value.values())
    return isinstance(value, list) and (levels == 0 or any(_is_deeper(part, levels - 1) for part in value))


MODEL_FORMS = ("anthropic", "anthropic:NAME", "openai:NAME", "ollama:NAME")
OLLAMA_URL = "http://localhost:11434/v1"


def open_model(name: str, url: str | None = None) -> Model:
    """Open a model by name, one of MODEL_FORMS; "anthropic" alone is its small model. `url` names another server."""
    from engrain.providers.anthropic import SMALL_MODEL, AnthropicModel
    from engrain.providers.openai_chat import OpenAIModel

    kind, _, model = name.partition(":")
    if kind == "anthropic":
        return AnthropicModel(model or SMALL_MODEL, base_url=url)
    if kind == "openai" and model:
        return OpenAIModel(model, base_url=url)
    if kind == "ollama" and model:
        return OpenAIModel(model, base_url=url or OLLAMA_URL, api_key="")
    raise ConfigError(f"unknown model {name!r}. Known: {', '.join(MODEL_FORMS)}.")
