"""The journal of a turn: none, or the steps of a durable task."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from engrain.core.errors import InvalidInput
from engrain.tasks.flow_requests import Flow, StoreCall
from engrain.tasks.run import AsyncRun, Run
from engrain.tasks.step_kinds import Retry, StepWork

Part = Callable[[], Flow[Any]]
# Runs a part of a turn; a plain function or a coroutine function. A replay compares the further arguments of a step.
PartRunner = Callable[..., Any]


class EphemeralJournal:
    """No record: the turn ends with its process."""

    durable = False
    is_over = False  # True if all of it was done in an earlier run
    snapshot: Any = None

    def step(self, name: str, part: Part, args: tuple[Any, ...] = ()) -> Flow[Any]:
        return (yield from part())

    def call(self, name: str, key: str, part: Part, effect: bool) -> Flow[Any]:
        return (yield from part())

    def keep(self, snapshot: Any) -> Flow[None]:
        yield from ()

    def wait_event(self, name: str) -> Flow[Any]:
        raise InvalidInput(f"the turn cannot wait for {name!r}: run(…, task_id=…).")

    def request_id(self, turn: str, number: int) -> str | None:
        return None


class DurableJournal(EphemeralJournal):
    """The parts of the turn are steps of a task: recorded parts are not done again."""

    durable = True

    def __init__(self, run: Run | AsyncRun, run_part: PartRunner) -> None:
        self._run = run
        self._run_part = run_part
        self.is_over = run.status == "done"
        self.snapshot = run.snapshot

    def step(self, name: str, part: Part, args: tuple[Any, ...] = ()) -> Flow[Any]:
        return (yield from self._run.step_flow(name, None, self._work(part, args)))

    def call(self, name: str, key: str, part: Part, effect: bool) -> Flow[Any]:
        flow = self._run.effect_flow if effect else self._run.step_flow
        return (yield from flow(name, key, self._work(part, ())))

    def keep(self, snapshot: Any) -> Flow[None]:
        yield StoreCall(partial(self._run.execution.keep, snapshot))

    def wait_event(self, name: str) -> Flow[Any]:
        """Return the payload of an event. TaskWaiting, and the task is released, if there is none yet."""
        return (yield from self._run.execution.event(name, None, None, False, ...))

    def request_id(self, turn: str, number: int) -> str | None:
        """Return one id for the same write of the same turn, in every run of the task."""
        return f"agent:{turn}:{number}"

    def _work(self, part: Part, args: tuple[Any, ...]) -> StepWork:
        return StepWork(partial(self._run_part, part), args, Retry())
