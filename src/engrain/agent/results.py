"""The answer of an agent, and the events of a streamed one."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

StopReason = Literal["end", "steps", "length", "refused", "failed"]


@dataclass(frozen=True, slots=True)
class CallResult:
    """A tool call of a model, and its result."""

    tool: str
    arguments: Mapping[str, Any]
    result: str
    failed: bool = False


@dataclass(frozen=True, slots=True)
class AgentReply:
    """The answer of an agent; `str()` of it is the text.

    `stopped` is the reason: "end", the answer is complete; "steps", max_steps was reached; "length", the answer was cut
    at max_tokens; "refused", the model did not want to answer; "failed", the answer was empty. `steps` counts the
    replies of the model. A journal supplied `replayed` of them without a new call. The tokens are those of all.
    `output` is the answer in the form that `run(output=…)` asked for; None if the model did not keep to it.
    """

    text: str
    stopped: StopReason
    session: str
    model: str
    steps: int
    replayed: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    calls: tuple[CallResult, ...] = ()
    output: Any = None

    def cost(self, per_million_in: float, per_million_out: float) -> float:
        """Return the price of all tokens of this answer, at prices for a million of them."""
        return (self.tokens_in * per_million_in + self.tokens_out * per_million_out) / 1_000_000

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class TextDelta:
    """A piece of the answer, as it comes."""

    text: str

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class ToolStarted:
    """A tool is called now. Its CallResult follows."""

    tool: str
    arguments: Mapping[str, Any]


# The last event of a stream is its AgentReply.
AgentEvent = TextDelta | ToolStarted | CallResult | AgentReply
