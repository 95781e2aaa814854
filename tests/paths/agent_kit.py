"""Models and servers for the tests of agents."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from wire_server import WireServer

from engrain.core.model.messages import ChatReply, ChatRequest, Message, ToolCall
from engrain.ports import Model
from engrain.providers.chat import AnthropicModel, OpenAIModel

Line = str | ChatReply | Exception | Callable[[ChatRequest], "str | ChatReply"]


class Scripted:
    """A model in this process that says its lines, then "ok"."""

    name = "scripted"

    def __init__(self, *lines: Line) -> None:
        self.lines = list(lines)
        self.asked: list[ChatRequest] = []

    def reply(self, ask: ChatRequest) -> ChatReply:
        self.asked.append(ask)
        line = self.lines.pop(0) if self.lines else "ok"
        said = line(ask) if callable(line) else line
        if isinstance(said, Exception):
            raise said
        return says(said) if isinstance(said, str) else said


def says(text: str = "", *calls: tuple[str, dict[str, Any]], stop: Any = None) -> ChatReply:
    made = tuple(ToolCall(f"call_{at}", name, arguments) for at, (name, arguments) in enumerate(calls))
    return ChatReply(text, made, stop or ("tools" if made else "end"), "scripted", 10, 5)


def model_on(kind: str, server: WireServer) -> Model:
    if kind == "anthropic":
        return AnthropicModel("claude-test", base_url=server.anthropic_url, timeout=60.0)
    return OpenAIModel("gpt-test", base_url=server.openai_url, timeout=60.0)


def told(messages: Sequence[Message]) -> list[tuple[str, str]]:
    """A conversation in short: who, and what was said, called or answered."""
    lines = []
    for one in messages:
        calls = "".join(f"<{call.name} {dict(call.arguments)}>" for call in one.calls)
        mark = "!" if one.failed else ""
        lines.append((one.role, f"{mark}{one.text}{calls}"))
    return lines
