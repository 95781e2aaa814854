"""What an agent answers, and what a tool did on the way."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from engrain.agent.schema import fitted
from engrain.agent.tools import Tool, storable, told
from engrain.core.errors import EffectNotPerformed, InvalidInput
from engrain.core.model.chat import ChatReply, ToolCall
from engrain.core.model.messages import encode_arguments
from engrain.tasks.driver import Flow, Sleep, UserCall

Stopped = Literal["end", "steps", "length", "refused", "failed"]


@dataclass(frozen=True, slots=True)
class Called:
    """A call of a tool that a model asked for, and what came of it."""

    tool: str
    arguments: Mapping[str, Any]
    result: str
    failed: bool = False


@dataclass(frozen=True, slots=True)
class AgentReply:
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


MAX_ERROR = 2_000
NOT_KEPT = "(shown when it was called, not kept)"


@dataclass(frozen=True, slots=True)
class Result:
    """What the model is shown."""

    text: str
    failed: bool = False

    @property
    def plain(self) -> Any:
        """As a journal keeps it."""
        return {"failed": self.text} if self.failed else self.text


def result_of(plain: Any) -> Result:
    """From a journal, where a person may have put any value as the result of an effect."""
    if isinstance(plain, dict) and plain.keys() == {"failed"}:
        return Result(told(plain["failed"]), failed=True)
    return Result(told(plain))


def made(call: ToolCall, tools: Mapping[str, Tool], once: bool) -> Flow[Result]:
    """Call the tool, as often as it may be tried.

    An error of an effect, unless it is EffectNotPerformed, leaves open whether it happened. It is not tried again, and
    with `once`, in a durable run, it is raised."""
    used = tools.get(call.name)
    if used is None:
        known = ", ".join(tools) or "none"
        return Result(f"There is no tool {call.name!r}. Known: {known}.", failed=True)
    if call.malformed:
        return Result(f"The arguments of {call.name} must be a JSON object, not {call.malformed[:200]}", failed=True)
    arguments, wrong = fitted(call.arguments, used.parameters)
    if wrong:
        return Result(f"{call.name} was not called: {'; '.join(wrong)}.", failed=True)
    failures = 0
    while True:
        try:
            return Result(told((yield UserCall(used.bound(arguments)))))
        except Exception as exc:
            unsure = used.effect and not isinstance(exc, EffectNotPerformed)
            if unsure and once:
                raise
            if unsure or failures >= used.retry.times:
                return Result(_failure(exc, unsure), failed=True)
        failures += 1
        yield Sleep(used.retry.pause(failures))


def _failure(exc: Exception, unsure: bool) -> str:
    text = told(f"{type(exc).__name__}: {exc}".removesuffix(": ")[:MAX_ERROR])
    return f"{text}\nIt may have happened all the same: do not repeat it before you know." if unsure else text


UNNAMED = "unnamed"
LONGEST = 64  # characters of a name and of an id: what services accept


@dataclass(frozen=True, slots=True)
class ModelReply:
    """A reply, and how many messages the session had when the model was asked."""

    reply: ChatReply
    seen: int

    @property
    def plain(self) -> dict[str, Any]:
        """As a journal keeps it."""
        said = self.reply
        calls = [
            {"id": c.id, "name": c.name, "arguments": dict(c.arguments), "malformed": c.malformed} for c in said.calls
        ]
        tokens = {"tokens_in": said.tokens_in, "tokens_out": said.tokens_out}
        return {"text": said.text, "calls": calls, "stop": said.stop, "model": said.model, **tokens, "seen": self.seen}


def heard_of(plain: dict[str, Any]) -> ModelReply:
    values = {name: value for name, value in plain.items() if name not in ("calls", "seen")}
    return ModelReply(ChatReply(calls=tuple(ToolCall(**call) for call in plain["calls"]), **values), plain["seen"])


def storable_reply(reply: ChatReply) -> ChatReply:
    """The reply with nothing in it that a store or a journal would refuse: it has been paid for."""
    return replace(reply, text=storable(reply.text), calls=tuple(map(_storable_call, reply.calls)))


def _storable_call(call: ToolCall) -> ToolCall:
    known = replace(
        call,
        id=storable(call.id)[:LONGEST],
        name=storable(call.name)[:LONGEST].strip() or UNNAMED,
        malformed=storable(call.malformed),
    )
    try:
        encode_arguments(known)
    except InvalidInput:
        written = storable(json.dumps(dict(call.arguments), default=str, ensure_ascii=False))
        return replace(known, arguments={}, malformed=written[:10_000] or "(not JSON)")
    return known
