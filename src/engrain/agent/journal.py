"""Where a turn keeps what it has done: nowhere, or in the journal of a durable task."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from engrain.tasks.driver import Flow, StoreCall
from engrain.tasks.policies import Retry
from engrain.tasks.run import AsyncRun, Run
from engrain.tasks.steps import StepWork

Part = Callable[[], Flow[Any]]
# Plays a part of a turn to its end, as the face does it, by a plain function or a coroutine function. Further arguments
# are those that a step is compared by when it is replayed; the part has them already.
Play = Callable[..., Any]


class NoJournal:
    """A turn that ends with its process."""

    durable = False
    over = False  # whether all of it was done in an earlier life
    snapshot: Any = None

    def step(self, name: str, part: Part, args: tuple[Any, ...] = ()) -> Flow[Any]:
        return (yield from part())

    def call(self, name: str, key: str, part: Part, effect: bool) -> Flow[Any]:
        return (yield from part())

    def keep(self, snapshot: Any) -> Flow[None]:
        yield from ()

    def request(self, turn: str, number: int) -> str | None:
        return None


class TaskJournal(NoJournal):
    """A turn whose parts are steps of a task: what is recorded is not done again."""

    durable = True

    def __init__(self, run: Run | AsyncRun, play: Play) -> None:
        self._run = run
        self._play = play
        self.over = run.status == "done"
        self.snapshot = run.snapshot

    def step(self, name: str, part: Part, args: tuple[Any, ...] = ()) -> Flow[Any]:
        return (yield from self._run.step_flow(name, None, self._work(part, args)))

    def call(self, name: str, key: str, part: Part, effect: bool) -> Flow[Any]:
        flow = self._run.effect_flow if effect else self._run.step_flow
        return (yield from flow(name, key, self._work(part, ())))

    def keep(self, snapshot: Any) -> Flow[None]:
        yield StoreCall(partial(self._run.execution.keep, snapshot))

    def request(self, turn: str, number: int) -> str | None:
        """The same for the same write of the same turn, in every life of the task."""
        return f"agent:{turn}:{number}"

    def _work(self, part: Part, args: tuple[Any, ...]) -> StepWork:
        return StepWork(partial(self._play, part), args, Retry())
