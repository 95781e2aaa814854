"""Chat with models of Anthropic, of OpenAI, and of servers with their protocols, such as Ollama."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import orjson

from engrain.core.chat.render import split_system, to_anthropic, to_openai, tools_to_anthropic, tools_to_openai
from engrain.core.errors import ConfigError, InvalidInput, ModelFailed
from engrain.core.model.messages import (
    ChatMessage,
    ChatReply,
    ChatRequest,
    StopReason,
    ToolCall,
    ToolSpec,
    check_timeout,
)
from engrain.providers.http import Endpoint, ServiceError, post, post_events, read_error_message, read_key

if TYPE_CHECKING:
    from engrain.ports import Model


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


MAX_NESTING = 64  # deeper arguments could not be sent back
MODEL_FORMS = ("anthropic", "anthropic:NAME", "openai:NAME", "ollama:NAME")
OLLAMA_URL = "http://localhost:11434/v1"


def open_model(name: str, url: str | None = None) -> Model:
    """Open a model by name, one of MODEL_FORMS; "anthropic" alone is its small model. `url` names another server."""
    kind, _, model = name.partition(":")
    if kind == "anthropic":
        return AnthropicModel(model or SMALL_MODEL, base_url=url)
    if kind == "openai" and model:
        return OpenAIModel(model, base_url=url)
    if kind == "ollama" and model:
        return OpenAIModel(model, base_url=url or OLLAMA_URL, api_key="")
    raise ConfigError(f"unknown model {name!r}. Known: {', '.join(MODEL_FORMS)}.")


ANTHROPIC_URL = "https://api.anthropic.com"
SMALL_MODEL = "claude-haiku-4-5"
API_VERSION = "2023-06-01"
CACHED_TOKENS = ("cache_creation_input_tokens", "cache_read_input_tokens")

ANTHROPIC_STOP_REASONS: Mapping[str, StopReason] = {
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "refused",
}


# Parameters that a request sets itself.
OWN_PARAMETERS = ("messages", "model", "system", "tools", "tool_choice", "stream")


class ServedChatModel:
    """A chat model behind an HTTP service. Each service has its own request and answer."""

    _join_events: Callable[[Iterable[dict[str, Any]], OnText], dict[str, Any]]

    def __init__(self, name: str, endpoint: Endpoint) -> None:
        self.name = name
        self._endpoint = endpoint

    def reply(self, ask: ChatRequest) -> ChatReply:
        own = [name for name in OWN_PARAMETERS if name in ask.parameters]
        if own:
            raise InvalidInput(f"{', '.join(own)} cannot be among the parameters: a request sets them itself.")
        listener = None if ask.on_text is None else _Listener(ask.on_text)
        try:
            return self._read(self._send(replace(ask, on_text=listener)))
        except (AttributeError, IndexError, KeyError, TypeError) as exc:
            if listener is not None and exc is listener.error:
                raise
            raise no_message_error(self._endpoint) from exc

    def _send(self, ask: ChatRequest) -> dict[str, Any]:
        body = self._make_body(ask) | dict(ask.parameters)
        if ask.on_text is None:
            return send_chat(self._endpoint, ask, body)
        return stream_chat(self._endpoint, ask, body, type(self)._join_events)

    def _make_body(self, ask: ChatRequest) -> dict[str, Any]:
        raise NotImplementedError

    def _read(self, answer: dict[str, Any]) -> ChatReply:
        raise NotImplementedError


class _Listener:
    """Hands on the pieces of a stream. `error` is that of the function that gets them, not of the service."""

    def __init__(self, on_text: OnText) -> None:
        self._on_text = on_text
        self.error: Exception | None = None

    def __call__(self, piece: str) -> None:
        try:
            self._on_text(piece)
        except Exception as exc:
            self.error = exc
            raise


class AnthropicModel(ServedChatModel):
    """A model of Anthropic. Its key is `api_key` or ANTHROPIC_API_KEY, its server `base_url` or ANTHROPIC_BASE_URL."""

    _join_events = staticmethod(join_anthropic_events)

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
        key = read_key(api_key, "ANTHROPIC_API_KEY", who, required=base == ANTHROPIC_URL)
        url, version = base + "/v1/messages", {"anthropic-version": API_VERSION}
        endpoint = Endpoint(who, url, key, "ANTHROPIC_API_KEY", check_timeout(timeout), "x-api-key", version)
        super().__init__(name, endpoint)

    def _make_body(self, ask: ChatRequest) -> dict[str, Any]:
        messages = to_anthropic(ask.messages)
        body: dict[str, Any] = {"model": self.name, "max_tokens": ask.max_tokens, "messages": messages}
        system, _ = split_system((ChatMessage("system", ask.system), *ask.messages))
        if system:
            body["system"] = system
        if ask.tools:
            body["tools"] = tools_to_anthropic(ask.tools)
            if ask.tool_choice != "auto":
                named = {"type": "tool", "name": ask.tool_choice}
                body["tool_choice"] = {"type": "any"} if ask.tool_choice == "any" else named
        elif called := _list_called_tools(messages):
            # The service refuses earlier calls if no tools are given. These must not be called now.
            body |= {"tools": tools_to_anthropic(called), "tool_choice": {"type": "none"}}
        return body

    def _read(self, answer: dict[str, Any]) -> ChatReply:
        content = answer["content"]
        used = [block for block in content if block.get("type") == "tool_use"]
        calls = [parse_tool_call(n, b.get("id"), b.get("name"), b.get("input")) for n, b in enumerate(used)]
        stop, calls_to_make = settle_stop(ANTHROPIC_STOP_REASONS.get(answer.get("stop_reason") or "", "end"), calls)
        usage = answer.get("usage")
        return ChatReply(
            read_text(content),
            calls_to_make,
            stop,
            str(answer.get("model") or self.name),
            count_tokens(usage, "input_tokens", *CACHED_TOKENS),
            count_tokens(usage, "output_tokens"),
        )


def _list_called_tools(messages: list[dict[str, Any]]) -> list[ToolSpec]:
    blocks = [block for message in messages for block in message["content"]]
    names = dict.fromkeys(block["name"] for block in blocks if block["type"] == "tool_use")
    return [ToolSpec(name, "Was called earlier.") for name in names]


OPENAI_URL = "https://api.openai.com/v1"
OPENAI_STOP_REASONS: Mapping[str, StopReason] = {"length": "length", "content_filter": "refused"}


class OpenAIModel(ServedChatModel):
    """A model of OpenAI, or of the server at `base_url`, which needs no key.

    The key is `api_key` or OPENAI_API_KEY, the server `base_url` or OPENAI_BASE_URL.
    """

    _join_events = staticmethod(join_openai_events)

    def __init__(
        self,
        name: str,
        *,
        api_key: str | None = None,
        base_url: str | None = None,
        timeout: float = 60.0,
    ) -> None:
        url = (base_url or os.environ.get("OPENAI_BASE_URL", "") or OPENAI_URL).rstrip("/")
        official = url == OPENAI_URL
        # OpenAI's newer models refuse max_tokens; most other servers know only that.
        self._limit = "max_completion_tokens" if official else "max_tokens"
        who = "OpenAI" if official else "The OpenAI-compatible model"
        key = read_key(api_key, "OPENAI_API_KEY", who, required=official)
        endpoint = Endpoint(who, url + "/chat/completions", key, "OPENAI_API_KEY", check_timeout(timeout))
        super().__init__(name, endpoint)

    def _send(self, ask: ChatRequest) -> dict[str, Any]:
        try:
            return super()._send(ask)
        except ModelFailed as exc:
            if self._limit == "max_completion_tokens" or "max_completion_tokens" not in str(exc):
                raise
        self._limit = "max_completion_tokens"  # this server asks for it
        return super()._send(ask)

    def _make_body(self, ask: ChatRequest) -> dict[str, Any]:
        messages = to_openai((ChatMessage("system", ask.system), *ask.messages))
        body: dict[str, Any] = {"model": self.name, self._limit: ask.max_tokens, "messages": messages}
        if ask.tools:
            body["tools"] = tools_to_openai(ask.tools)
            if ask.tool_choice != "auto":
                named = {"type": "function", "function": {"name": ask.tool_choice}}
                body["tool_choice"] = "required" if ask.tool_choice == "any" else named
        # Without this option a stream has no token counts.
        return body | ({} if ask.on_text is None else {"stream_options": {"include_usage": True}})

    def _read(self, answer: dict[str, Any]) -> ChatReply:
        choice = answer["choices"][0]
        message = choice["message"]
        refusal = read_text(message.get("refusal"))
        called = [(call, call["function"]) for call in message.get("tool_calls") or ()]
        calls = [parse_tool_call(n, c.get("id"), f.get("name"), f.get("arguments")) for n, (c, f) in enumerate(called)]
        finish = OPENAI_STOP_REASONS.get(choice.get("finish_reason") or "", "end")
        stop, calls_to_make = settle_stop("refused" if refusal else finish, calls)
        usage = answer.get("usage")
        return ChatReply(
            refusal or read_text(message.get("content")),
            calls_to_make,
            stop,
            str(answer.get("model") or self.name),
            count_tokens(usage, "prompt_tokens"),
            count_tokens(usage, "completion_tokens"),
        )


def send_chat(endpoint: Endpoint, request: ChatRequest, body: dict[str, Any]) -> dict[str, Any]:
    """Return the service's answer. The time limit is that of the request, or else of the endpoint."""
    limited = _limit_time(endpoint, request, body)
    try:
        answer = post(limited, body, limited.timeout)
    except ServiceError as exc:
        raise ModelFailed(str(exc)) from exc
    if not isinstance(answer, dict):
        raise no_message_error(endpoint)
    if answer.get("error"):
        reason = read_error_message(answer)
        raise ModelFailed(
            f"{endpoint.name} at {endpoint.shown} answered with an error" + (f": {reason}." if reason else ".")
        )
    return answer


def stream_chat(
    endpoint: Endpoint,
    request: ChatRequest,
    body: dict[str, Any],
    join_events: Callable[[Iterable[dict[str, Any]], OnText], dict[str, Any]],
) -> dict[str, Any]:
    """Return the service's answer when all of it has come; `request.on_text` gets its pieces."""
    assert request.on_text is not None
    limited = _limit_time(endpoint, request, body)
    events = post_events(limited, {**body, "stream": True}, limited.timeout)
    try:
        with closing(events):  # type: ignore[type-var]
            return join_events(events, request.on_text)
    except ServiceError as exc:
        raise ModelFailed(str(exc)) from exc
    except BrokenStream as exc:
        raise ModelFailed(f"{endpoint.name} at {endpoint.shown} broke off its answer: {exc}.") from exc


def _limit_time(endpoint: Endpoint, request: ChatRequest, body: dict[str, Any]) -> Endpoint:
    messages = body["messages"]
    if not messages or messages[-1]["role"] not in ("user", "tool"):
        raise InvalidInput("A model answers a user or a tool: the last message with a text must come from one of them.")
    return replace(endpoint, timeout=check_timeout(endpoint.timeout if request.timeout is None else request.timeout))


def no_message_error(endpoint: Endpoint) -> ModelFailed:
    return ModelFailed(
        f"{endpoint.name} at {endpoint.shown} did not return a message. Check that the URL belongs to a chat service."
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
