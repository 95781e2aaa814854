"""Requests to a chat model and its replies."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, get_args

from engrain.core.errors import InvalidInput

Role = Literal["user", "assistant", "tool", "system"]
StopReason = Literal["end", "tools", "length", "refused"]

# The tool names that both services accept.
_TOOL_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class ToolSpec:
    """A tool that a model may call. `parameters` is the JSON schema of its arguments."""

    name: str
    description: str
    parameters: Mapping[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})

    def __post_init__(self) -> None:
        if not isinstance(self.name, str) or not _TOOL_NAME.fullmatch(self.name):
            raise InvalidInput(
                f"{self.name!r} cannot be the name of a tool: it takes 1 to 64 letters, digits, hyphens or underscores."
            )
        if not isinstance(self.parameters, Mapping) or self.parameters.get("type") != "object":
            raise InvalidInput(f'The parameters of tool {self.name!r} must be a JSON schema with "type": "object".')


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A call that a model asks for.

    `malformed` is the model's text if its arguments are not a JSON object; `arguments` are empty then. Do not make such
    a call: answer it as failed, and the model sees its text.
    """

    id: str
    name: str
    arguments: Mapping[str, Any] = field(default_factory=dict)
    malformed: str = ""


@dataclass(frozen=True, slots=True)
class ChatMessage:
    """One message. Only an assistant's has `calls`; only a tool's `answers` a call's id and may have `failed`."""

    role: Role
    text: str = ""
    calls: tuple[ToolCall, ...] = ()
    answers: str | None = None
    failed: bool = False

    def __post_init__(self) -> None:
        if self.role not in get_args(Role):
            raise InvalidInput(f"unknown role {self.role!r}. Known: {', '.join(get_args(Role))}.")
        if not isinstance(self.text, str):
            raise InvalidInput(f"the text of a message must be a str, not {type(self.text).__name__}.")
        if self.calls and self.role != "assistant":
            raise InvalidInput(f"only an assistant's message calls tools, not one of the {self.role}.")
        if self.answers is not None and self.role != "tool":
            raise InvalidInput(f"only a tool's message answers a call, not one of the {self.role}.")


@dataclass(frozen=True, slots=True)
class ChatRequest:
    """The messages for a model. The last one is the user's or a tool's.

    `timeout` is in seconds and includes retries; None means the model's own.
    """

    messages: tuple[ChatMessage, ...]
    system: str = ""
    tools: tuple[ToolSpec, ...] = ()
    max_tokens: int = 1024
    timeout: float | None = None

    def __post_init__(self) -> None:
        if isinstance(self.max_tokens, bool) or not isinstance(self.max_tokens, int) or self.max_tokens < 1:
            raise InvalidInput(f"max_tokens must be a whole number above 0, not {self.max_tokens!r}.")
        if self.timeout is not None:
            check_timeout(self.timeout)
        names = [tool.name for tool in self.tools]
        if len(set(names)) < len(names):
            raise InvalidInput(f"each tool needs a name of its own: {', '.join(sorted(names))}.")


@dataclass(frozen=True, slots=True)
class ChatReply:
    """`calls` exist if and only if `stop` is "tools": truncated calls are dropped.

    Token counts are 0 if the service does not report them.
    """

    text: str
    calls: tuple[ToolCall, ...]
    stop: StopReason
    model: str
    tokens_in: int = 0
    tokens_out: int = 0

    @property
    def said(self) -> ChatMessage:
        """The reply as the next message of the conversation."""
        return ChatMessage("assistant", self.text, self.calls)


class HasCalls(Protocol):
    """A message that makes calls or answers one."""

    @property
    def role(self) -> str: ...

    @property
    def calls(self) -> Sequence[ToolCall]: ...

    @property
    def answers(self) -> str | None: ...


def match_results(messages: Sequence[HasCalls]) -> dict[int, tuple[int, int]]:
    """Map the index of each tool result to the message that called and the number of its call.

    Some servers reuse ids: a result belongs to the nearest earlier call with its id.
    """
    waiting: dict[str | None, list[tuple[int, int]]] = {}
    found: dict[int, tuple[int, int]] = {}
    for index, message in enumerate(messages):
        for number in reversed(range(len(message.calls))):
            waiting.setdefault(message.calls[number].id, []).append((index, number))
        if message.role == "tool" and waiting.get(message.answers):
            found[index] = waiting[message.answers].pop()
    return found


def check_timeout(seconds: object) -> float:
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 < seconds < math.inf:
        raise InvalidInput(f"timeout must be a number of seconds above 0, not {seconds!r}.")
    return float(seconds)
