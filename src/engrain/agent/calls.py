"""Make the calls that a model asks for: whatever goes wrong with one becomes a result that tells it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from engrain.agent.arguments import fitted
from engrain.agent.tools import Tool, told
from engrain.core.chat import ToolCall
from engrain.core.errors import NotDone
from engrain.tasks.flow import Call, Flow, Pause

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
    """Call the tool, as often as it may be tried. An error of an effect, unless it is NotDone, leaves open whether it
    happened: it is not tried again, and with `once`, in a durable run, it is raised."""
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
            return Result(told((yield Call(used.bound(arguments)))))
        except Exception as exc:
            unsure = used.effect and not isinstance(exc, NotDone)
            if unsure and once:
                raise
            if unsure or failures >= used.retry.times:
                return Result(_failure(exc, unsure), failed=True)
        failures += 1
        yield Pause(used.retry.pause(failures))


def _failure(exc: Exception, unsure: bool) -> str:
    text = told(f"{type(exc).__name__}: {exc}".removesuffix(": ")[:MAX_ERROR])
    return f"{text}\nIt may have happened all the same: do not repeat it before you know." if unsure else text
