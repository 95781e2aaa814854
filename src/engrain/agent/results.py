"""The answer of an agent, the results of its tools, and their form in a journal."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from engrain.agent.schema import fit_arguments
from engrain.agent.tools import Tool, clean_text, render_value
from engrain.core.errors import EffectNotPerformed, InvalidInput
from engrain.core.model.chat import ChatReply, ToolCall
from engrain.core.model.messages import encode_arguments
from engrain.tasks.driver import Flow, Sleep, UserCall

StopReason = Literal["end", "steps", "length", "refused", "failed"]
MAX_ERROR_CHARACTERS = 2_000
MAX_NAME_CHARACTERS = 64  # of a tool's name and a call's id: the limit of the services
DEFAULT_NAME = "unnamed"
NOT_KEPT = "(shown when it was called, not kept)"


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
    """

    text: str
    stopped: StopReason
    session: str
    model: str
    steps: int
    replayed: int = 0
    tokens_in: int = 0
    tokens_out: int = 0
    calls: tuple[CallResult, ...] = field(default=())

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True, slots=True)
class ToolOutput:
    """The text that the model sees."""

    text: str
    failed: bool = False

    @property
    def plain(self) -> Any:
        """The form in a journal."""
        return {"failed": self.text} if self.failed else self.text


def parse_output(plain: Any) -> ToolOutput:
    """Parse an output from a journal. A person may have resolved an effect with any value."""
    if isinstance(plain, dict) and plain.keys() == {"failed"}:
        return ToolOutput(render_value(plain["failed"]), failed=True)
    return ToolOutput(render_value(plain))


def call_tool(call: ToolCall, tools: Mapping[str, Tool], once: bool) -> Flow[ToolOutput]:
    """Call the tool, with its retries.

    After an error other than EffectNotPerformed, an effect may have happened. It is not tried again; with `once`, in a
    durable run, the error is raised.
    """
    tool = tools.get(call.name)
    if tool is None:
        known = ", ".join(tools) or "none"
        return ToolOutput(f"There is no tool {call.name!r}. Known: {known}.", failed=True)
    if call.malformed:
        return ToolOutput(
            f"The arguments of {call.name} must be a JSON object, not {call.malformed[:200]}", failed=True
        )
    arguments, problems = fit_arguments(call.arguments, tool.parameters)
    if problems:
        return ToolOutput(f"{call.name} was not called: {'; '.join(problems)}.", failed=True)
    failures = 0
    while True:
        try:
            return ToolOutput(render_value((yield UserCall(tool.bind(arguments)))))
        except Exception as exc:
            ambiguous = tool.effect and not isinstance(exc, EffectNotPerformed)
            if ambiguous and once:
                raise
            if ambiguous or failures >= tool.retry.times:
                return ToolOutput(_describe_failure(exc, ambiguous), failed=True)
        failures += 1
        yield Sleep(tool.retry.pause(failures))


def _describe_failure(exc: Exception, ambiguous: bool) -> str:
    text = render_value(f"{type(exc).__name__}: {exc}".removesuffix(": ")[:MAX_ERROR_CHARACTERS])
    return f"{text}\nIt may have happened all the same: do not repeat it before you know." if ambiguous else text


@dataclass(frozen=True, slots=True)
class ModelReply:
    """A reply, and how many messages the session had when the model was asked."""

    reply: ChatReply
    seen: int

    @property
    def plain(self) -> dict[str, Any]:
        """The form in a journal."""
        calls = [
            {"id": call.id, "name": call.name, "arguments": dict(call.arguments), "malformed": call.malformed}
            for call in self.reply.calls
        ]
        return {**asdict(replace(self.reply, calls=())), "calls": calls, "seen": self.seen}


def parse_reply(plain: dict[str, Any]) -> ModelReply:
    values = {name: value for name, value in plain.items() if name not in ("calls", "seen")}
    return ModelReply(ChatReply(calls=tuple(ToolCall(**call) for call in plain["calls"]), **values), plain["seen"])


def clean_reply(reply: ChatReply) -> ChatReply:
    """Remove from a reply what a store or a journal would refuse: the reply has been paid for."""
    return replace(reply, text=clean_text(reply.text), calls=tuple(map(_clean_call, reply.calls)))


def _clean_call(call: ToolCall) -> ToolCall:
    cleaned = replace(
        call,
        id=clean_text(call.id)[:MAX_NAME_CHARACTERS],
        name=clean_text(call.name)[:MAX_NAME_CHARACTERS].strip() or DEFAULT_NAME,
        malformed=clean_text(call.malformed),
    )
    try:
        encode_arguments(cleaned)
    except InvalidInput:
        written = clean_text(json.dumps(dict(call.arguments), default=str, ensure_ascii=False))
        return replace(cleaned, arguments={}, malformed=written[:10_000] or "(not JSON)")
    return cleaned
