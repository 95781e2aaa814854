"""ResumableAgent: a list of functions and a state handed on from one to the next, continued where it was cut off."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from engrain.core.errors import InputChanged, InvalidInput
from engrain.tasks.driver import Flow, adrive, drive
from engrain.tasks.policies import OnAmbiguous, Retry, as_retry
from engrain.tasks.run import AsyncRun, Run
from engrain.tasks.serialization import decode, encode
from engrain.tasks.steps import Work

if TYPE_CHECKING:
    from engrain.memory import Memory
    from engrain.memory.async_memory import AsyncMemory

State = dict[str, Any]
OWN = ("completed", "results")


@dataclass(frozen=True, slots=True)
class Effect:
    """A step of a ResumableAgent that must not happen twice: ResumableAgent(memory).run(id, [plan, Effect(send)])."""

    function: Callable[..., Any]
    on_ambiguous: OnAmbiguous = "halt"
    key_as: str | None = None


class ResumableAgent:
    """Runs steps in order, each once. A step is called with the state and returns plain JSON.

        ResumableAgent(memory).run("order-42", [plan, book, Effect(send_mail)])

    The state is a dict: "results" by step, "completed" in order, and whatever else the steps put there, which travels
    along. With an AsyncMemory `run` is awaited, and steps may be coroutine functions.
    """

    def __init__(self, memory: Memory | AsyncMemory, *, version: str = "", retries: int | Retry = 0) -> None:
        self._memory = memory
        self._version = version
        self._retry = as_retry(retries)

    def run(self, task_id: str, steps: Sequence[Callable[..., Any] | Effect], *, goal: str = "") -> Any:
        """The state after the last step; to be awaited if the memory is an AsyncMemory."""
        if isinstance(steps, str) or not isinstance(steps, Sequence):
            raise InvalidInput(f"steps are a list of functions, not {steps!r}.")
        names = [_name(number, step) for number, step in enumerate(steps)]
        run = self._memory.task(task_id, goal=goal, version=self._version)
        if isinstance(run, AsyncRun):
            return self._awaited(run, steps, names)
        for step in steps:
            if inspect.iscoroutinefunction(_function(step)):
                raise InvalidInput(f"{_function(step)!r} is a coroutine function: give ResumableAgent an AsyncMemory.")
        with run:
            return drive(self._play(run, steps, names))

    async def _awaited(self, run: AsyncRun, steps: Sequence[Callable[..., Any] | Effect], names: list[str]) -> State:
        async with run:
            return await adrive(self._play(run, steps, names), run.hop)

    def _play(self, run: Run | AsyncRun, steps: Sequence[Callable[..., Any] | Effect], names: list[str]) -> Flow[State]:
        _prove_order(run.id, run.course.recorded, names)
        state: State = {"completed": [], "results": {}}
        for step, name in zip(steps, names, strict=True):
            call = _noting_changes(_function(step), state)
            if isinstance(step, Effect):
                work = Work(call, (), self._retry, step.on_ambiguous, step.key_as)
                found = yield from run.effect_flow(name, None, work)
            else:
                found = yield from run.step_flow(name, None, Work(call, (), self._retry))
            _continue(state, name, found)
        return state


def _continue(state: State, name: str, found: State | None) -> None:
    """As it was after the step, whether the step ran now or in an earlier life."""
    found = found or {}  # an effect that was left out
    for key in found.get("gone", ()):
        state.pop(key, None)
    state.update(found.get("state", {}))
    state["results"][name] = found.get("result")
    state["completed"].append(name)


def _noting_changes(function: Callable[..., Any], state: State) -> Callable[..., Any]:
    """The function, called with a copy of the state; returns its result together with what it changed there. A copy,
    because an attempt that fails half way must leave nothing to the next."""

    def copied(before: dict[str, str]) -> State:
        own: State = {key: deepcopy(state[key]) for key in OWN}
        return own | {key: decode(text) for key, text in before.items()}

    def noted(before: dict[str, str], given: State, result: Any) -> State:
        # Only what changed: a journal of whole states would grow with the square of the steps.
        after = _extras(given)
        changed = {key: given[key] for key, text in after.items() if before.get(key) != text}
        gone = [key for key in before if key not in after]
        return {"result": result, **({"state": changed} if changed else {}), **({"gone": gone} if gone else {})}

    async def awaited(**named: Any) -> State:
        before = _extras(state)
        given = copied(before)
        return noted(before, given, await function(given, **named))

    def called(**named: Any) -> State:
        before = _extras(state)
        given = copied(before)
        return noted(before, given, function(given, **named))

    return awaited if inspect.iscoroutinefunction(function) else called


def _prove_order(task: str, recorded: Sequence[str], names: Sequence[str]) -> None:
    """What is recorded by its place in the list must be found there again, or it would run a second time."""
    gone = [name for name in recorded if name not in names]
    if gone:
        raise InputChanged(
            f"task {task!r} has recorded {gone[0]!r}, which is not in that place of the list now. Finish it with the "
            "list it began with, or start another task."
        )


def _extras(state: State) -> dict[str, str]:
    return {key: encode(value, f"state[{key!r}]") for key, value in state.items() if key not in OWN}


def _function(step: Callable[..., Any] | Effect) -> Callable[..., Any]:
    return step.function if isinstance(step, Effect) else step


def _name(number: int, step: Callable[..., Any] | Effect) -> str:
    function = _function(step)
    if not callable(function):
        raise InvalidInput(f"step {number} is {function!r}, which cannot be called.")
    name = getattr(function, "__name__", type(function).__name__)
    return f"step_{number}_{name.strip('<>')}"
