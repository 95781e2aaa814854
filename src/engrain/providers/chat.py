"""Ask a chat service, and read texts and tool calls as models and servers write them."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import orjson

from engrain.core.errors import ConfigError, InvalidInput, ModelFailed
from engrain.core.model.chat import ChatRequest, StopReason, ToolCall, check_timeout
from engrain.providers.http import Endpoint, ServiceError, post, said

if TYPE_CHECKING:
    from engrain.ports import Model


DEEPEST = 64  # what is nested deeper could not be sent back


def asked(endpoint: Endpoint, ask: ChatRequest, body: dict[str, Any]) -> dict[str, Any]:
    """The service's answer, within the time that the ask gives, or else the endpoint."""
    messages = body["messages"]
    if not messages or messages[-1]["role"] not in ("user", "tool"):
        raise InvalidInput("A model answers the user or a tool: the last message with a text must be one of theirs.")
    timeout = check_timeout(endpoint.timeout if ask.timeout is None else ask.timeout)
    try:
        answer = post(replace(endpoint, timeout=timeout), body, timeout)
    except ServiceError as exc:
        raise ModelFailed(str(exc)) from exc
    if not isinstance(answer, dict):
        raise unusable(endpoint)
    if answer.get("error"):
        reason = said(answer)
        raise ModelFailed(
            f"{endpoint.who} at {endpoint.url} answered with an error" + (f": {reason}." if reason else ".")
        )
    return answer


def unusable(endpoint: Endpoint) -> ModelFailed:
    return ModelFailed(
        f"{endpoint.who} at {endpoint.url} did not return a message. Check that the URL is that of a chat service."
    )


def tool_call(place: int, id: object, name: object, written: object) -> ToolCall:
    """A call as a model wrote it: arguments as JSON or as text that should be; an id is made up where there is none."""
    known = id if isinstance(id, str) and id.strip() else f"call_{place}"
    call = ToolCall(known, name if isinstance(name, str) else "")
    if isinstance(written, str):
        try:
            arguments = orjson.loads(written) if written.strip() else {}
        except orjson.JSONDecodeError:
            return replace(call, malformed=written)
    else:
        arguments = written
    if not arguments:
        return call
    if _deeper(arguments, DEEPEST):
        return replace(call, malformed="(nested too deeply)")
    if isinstance(arguments, dict):
        return replace(call, arguments=arguments)
    return replace(call, malformed=orjson.dumps(arguments).decode())


def stopped(stop: StopReason, calls: list[ToolCall]) -> tuple[StopReason, tuple[ToolCall, ...]]:
    """Why it stopped, and the calls to make: servers say "end" though there are calls, and cut calls are none."""
    if stop in ("length", "refused"):
        return stop, ()
    return ("tools" if calls else "end"), tuple(calls)


def text_of(content: Any) -> str:
    """Content comes as a text, in parts, or not at all; a NUL, which no store takes, is left out."""
    if not isinstance(content, str):
        content = "".join(part["text"] for part in content or () if part.get("type") == "text")
    return str(content).replace("\x00", "")


def tokens(usage: object, *names: str) -> int:
    counts = [usage.get(name) for name in names] if isinstance(usage, dict) else []
    return sum(count for count in counts if isinstance(count, int) and count > 0)


def _deeper(value: object, levels: int) -> bool:
    if isinstance(value, dict):
        value = list(value.values())
    return isinstance(value, list) and (levels == 0 or any(_deeper(one, levels - 1) for one in value))


KNOWN = ("anthropic", "anthropic:NAME", "openai:NAME", "ollama:NAME")
OLLAMA_URL = "http://localhost:11434/v1"


def open_model(text: str, url: str | None = None) -> Model:
    """`text` is one of KNOWN, "anthropic" alone being its small model; `url` is where the server is, if elsewhere."""
    from engrain.providers.anthropic import SMALL, AnthropicModel
    from engrain.providers.openai_chat import OpenAIModel

    kind, _, name = text.partition(":")
    if kind == "anthropic":
        return AnthropicModel(name or SMALL, base_url=url)
    if kind == "openai" and name:
        return OpenAIModel(name, base_url=url)
    if kind == "ollama" and name:
        return OpenAIModel(name, base_url=url or OLLAMA_URL, api_key="")
    raise ConfigError(f"unknown model {text!r}. Known: {', '.join(KNOWN)}.")
