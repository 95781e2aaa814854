"""What an agent answers, and what a tool did on the way."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

Stopped = Literal["end", "steps", "length", "refused", "failed"]


@dataclass(frozen=True, slots=True)
class Called:
    """A call of a tool that a model asked for, and what came of it."""

    tool: str
    arguments: Mapping[str, Any]
    result: str
    failed: bool = False


@dataclass(frozen=True, slots=True)
class Answer:
    """`str()` of it is the text. `stopped` says why the agent stopped: "end", it had said all; "steps", it had used up
    its steps and answered with what it knew; "length", the answer was cut at max_tokens; "refused", the model would not
    answer; "failed", it answered with nothing.

    `steps` are the replies of the model, of which `replayed` came out of a journal and cost nothing this time; the
    tokens are those of all of them.
    """

    text: str
    stopped: Stopped
    session: str
    model: str
    steps: int
    replayed: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    calls: tuple[Called, ...] = field(default=())

    def __str__(self) -> str:
        return self.text
