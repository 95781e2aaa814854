"""ResumableAgent: a list of functions that share a state, continued where it was interrupted."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from engrain.core.errors import InputChanged, InvalidInput
from engrain.tasks.flow_requests import Flow
from engrain.tasks.result_encoding import decode, encode
from engrain.tasks.run import AsyncRun, Run, run_flow, run_flow_async
from engrain.tasks.step_kinds import OnAmbiguous, Retry, StepWork, parse_retry

if TYPE_CHECKING:
    from engrain.memory import Memory
    from engrain.memory.async_memory import AsyncMemory

State = dict[str, Any]
OWN_KEYS = ("completed", "results")


@dataclass(frozen=True, slots=True)
class Effect:
    """A step of a ResumableAgent that must not happen twice: ResumableAgent(memory).run(id, [plan, Effect(send)])."""

    function: Callable[..., Any]
    on_ambiguous: OnAmbiguous = "halt"
    key_as: str | None = None


class ResumableAgent:
    """Run steps in order, each once. A step gets the state and returns plain JSON.

        ResumableAgent(memory).run("order-42", [plan, book, Effect(send_mail)])

    The state is a dict: "results" by step, "completed" in order, and the steps' own values. With an AsyncMemory, `run`
    is awaited, and steps may be coroutine functions.
    """

    def __init__(self, memory: Memory | AsyncMemory, *, version: str = "", retries: int | Retry = 0) -> None:
        self._memory = memory
        self._version = version
        self._retry = parse_retry(retries)

    def run(self, task_id: str, steps: Sequence[Callable[..., Any] | Effect], *, goal: str = "") -> Any:
        """Return the state after the last step. Await it if the memory is an AsyncMemory."""
        if isinstance(steps, str) or not isinstance(steps, Sequence):
            raise InvalidInput(f"steps are a list of functions, not {steps!r}.")
        names = [_build_name(number, step) for number, step in enumerate(steps)]
        run = self._memory.task(task_id, goal=goal, version=self._version)
        if isinstance(run, AsyncRun):
            return self._run_async(run, steps, names)
        for function in map(_unwrap_function, steps):
            if inspect.iscoroutinefunction(function):
                raise InvalidInput(f"{function!r} is a coroutine function: give ResumableAgent an AsyncMemory.")
        with run:
            return run_flow(self._run_steps(run, steps, names))

    async def _run_async(self, run: AsyncRun, steps: Sequence[Callable[..., Any] | Effect], names: list[str]) -> State:
        async with run:
            return await run_flow_async(self._run_steps(run, steps, names), run.run_in_thread)

    def _run_steps(
        self, run: Run | AsyncRun, steps: Sequence[Callable[..., Any] | Effect], names: list[str]
    ) -> Flow[State]:
        _check_order(run.id, run.execution.recorded, names)
        state: State = {"completed": [], "results": {}}
        for step, name in zip(steps, names, strict=True):
            call = _record_changes(_unwrap_function(step), state)
            if isinstance(step, Effect):
                work = StepWork(call, (), self._retry, step.on_ambiguous, step.key_as)
                found = yield from run.effect_flow(name, None, work)
            else:
                found = yield from run.step_flow(name, None, StepWork(call, (), self._retry))
            found = found or {}  # a skipped effect
            for key in found.get("gone", ()):
                state.pop(key, None)
            state.update(found.get("state", {}))
            state["results"][name] = found.get("result")
            state["completed"].append(name)
        return state


def _record_changes(function: Callable[..., Any], state: State) -> Callable[..., Any]:
    """Call the function with a copy of the state. Return its result and its changes of the state.

    A copy, because an attempt that fails half way must leave nothing to the next.
    """

    def copy_state() -> tuple[dict[str, str], State]:
        before = _encode_extras(state)
        own: State = {key: deepcopy(state[key]) for key in OWN_KEYS}
        return before, own | {key: decode(text) for key, text in before.items()}

    def describe_changes(before: dict[str, str], copy: State, result: Any) -> State:
        # Only the changes: a journal of whole states would grow with the square of the steps.
        after = _encode_extras(copy)
        changed = {key: copy[key] for key, text in after.items() if before.get(key) != text}
        gone = [key for key in before if key not in after]
        return {"result": result, **({"state": changed} if changed else {}), **({"gone": gone} if gone else {})}

    async def call_async(**named: Any) -> State:
        before, copy = copy_state()
        return describe_changes(before, copy, await function(copy, **named))

    def call(**named: Any) -> State:
        before, copy = copy_state()
        return describe_changes(before, copy, function(copy, **named))

    return call_async if inspect.iscoroutinefunction(function) else call


def _check_order(task: str, recorded: Sequence[str], names: Sequence[str]) -> None:
    """A recorded step must be at the same place of the list again, or it would run a second time."""
    gone = [name for name in recorded if name not in names]
    if gone:
        raise InputChanged(
            f"task {task!r} has recorded {gone[0]!r}, which is not in that place of the list now. Finish it with the "
            "list it began with, or start another task."
        )


def _encode_extras(state: State) -> dict[str, str]:
    return {key: encode(value, f"state[{key!r}]") for key, value in state.items() if key not in OWN_KEYS}


def _unwrap_function(step: Callable[..., Any] | Effect) -> Callable[..., Any]:
    return step.function if isinstance(step, Effect) else step


def _build_name(number: int, step: Callable[..., Any] | Effect) -> str:
    function = _unwrap_function(step)
    if not callable(function):
        raise InvalidInput(f"step {number} is {function!r}, which cannot be called.")
    name = getattr(function, "__name__", type(function).__name__)
    return f"step_{number}_{name.strip('<>')}"
