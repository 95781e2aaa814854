"""The run of a durable task as a program sees it: Run for threads, AsyncRun for coroutines."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from types import FunctionType, TracebackType
from typing import TYPE_CHECKING, Any, Self

from engrain.core.clock import check_duration
from engrain.core.errors import InvalidInput, TaskError
from engrain.core.model.tasks import TaskStatus
from engrain.core.validation import check_key
from engrain.tasks.driver import Flow, Hop, adrive, drive, line, outlast, to_the_end
from engrain.tasks.execution import TaskExecution
from engrain.tasks.journal import Wish
from engrain.tasks.outcomes import shown
from engrain.tasks.policies import ONCE, OnAmbiguous, Retry, as_retry, checked_key_as, checked_policy
from engrain.tasks.steps import Work

if TYPE_CHECKING:
    from engrain.tiers.working import WorkingMemory


class _Task:
    """What both faces show of a task, and the flows that both drive."""

    _course: TaskExecution | None = None

    @property
    def course(self) -> TaskExecution:
        if self._course is None:
            raise TaskError("enter the run first: async with memory.task(…) as run: …")
        return self._course

    @property
    def id(self) -> str:
        return self.course.terms.task

    @property
    def goal(self) -> str:
        return self.course.record.goal if self.course.record else self.course.terms.goal

    @property
    def epoch(self) -> int:
        """The number of this claim. It rises with every claim, and when somebody parks, resumes or cancels the task."""
        return self.course.record.epoch if self.course.record else 0

    @property
    def status(self) -> TaskStatus | None:
        """As it was when the run was entered: "running", or "done" for a task that is only replayed."""
        return self.course.record.status if self.course.record else None

    @property
    def snapshot(self) -> Any:
        """What `keep` stored last, in this run or an earlier one; None if nothing."""
        return self.course.snapshot

    @property
    def working(self) -> WorkingMemory:
        """The working memory of this task: memory.working, unless another task was at hand there when it began; then
        one of its own. As it is when a step ends it is stored with the step."""
        return self.course.working  # type: ignore[no-any-return]

    @property
    def outcome(self) -> str:
        """A line for people, shown by `engrain tasks` once the task is done, and remembered."""
        return self.course.outcome.text

    @outcome.setter
    def outcome(self, text: str) -> None:
        self.course.outcome = self.course.outcome._replace(text=shown(str(text)))

    @property
    def cites(self) -> tuple[str, ...]:
        """The ids of items that the outcome rests on: what is remembered of it is forgotten with any of them."""
        return self.course.outcome.cites

    @cites.setter
    def cites(self, ids: Sequence[str]) -> None:
        if not isinstance(ids, Iterable):
            raise InvalidInput(f"cites takes the ids of items, not {ids!r}.")
        found = (ids,) if isinstance(ids, str) else tuple(ids)
        self.course.outcome = self.course.outcome._replace(cites=tuple(check_key(one, "cites") for one in found))

    def step_flow(self, name: str, key: str | None, work: Work) -> Flow[Any]:
        return self.course.step(Wish("step", name, key, work.args), work)

    def effect_flow(self, name: str, key: str | None, work: Work) -> Flow[Any]:
        checked_policy(work.on_ambiguous)
        checked_key_as(work.key_as)
        return self.course.step(Wish("effect", name, key, work.args), work)


class Run(_Task):
    """A durable task under way: with memory.task("order-42") as run: …

    Steps may be called from several threads; those of one name at the same time need a `key=` each. Positional
    arguments after the function go to it and are what is compared when the step is replayed; what a step returns is
    plain JSON.
    """

    _course: TaskExecution

    def __init__(self, course: TaskExecution) -> None:
        self._course = course

    def step(
        self, name: str, function: Callable[..., Any], *args: Any, key: str | None = None, retries: int | Retry = 0
    ) -> Any:
        """Call the function once; recorded done, it never runs again and its result is replayed."""
        work = Work(_plain(function), args, as_retry(retries) if retries else ONCE)
        return drive(self._course.step(Wish("step", name, key, args), work))

    def effect(
        self,
        name: str,
        function: Callable[..., Any],
        *args: Any,
        key: str | None = None,
        retries: int | Retry = 0,
        on_ambiguous: OnAmbiguous = "halt",
        key_as: str | None = None,
    ) -> Any:
        """Do something that must not happen twice: the intent is on disk before the call, the result after it.

        `key_as` names the parameter that gets the step's stable key, for a receiver that tells repetitions by it. If a
        crash or an error leaves open whether it happened, `on_ambiguous` decides: "halt" raises StepAmbiguous and parks
        the task; "retry" calls again with the same key; a probe, called like the function, answers what it found (None
        or False: it did not happen); Compensate(undo) undoes it first. An effect that knows it did not happen raises
        NotDone, and is tried again as often as `retries` says.
        """
        work = Work(_plain(function), args, as_retry(retries), on_ambiguous, key_as)
        return drive(self.effect_flow(name, key, work))

    def remember_step(self, name: str, what: Any, *, key: str | None = None, **fields: Any) -> Any:
        """Remember a text (or a Note, or a list of them) exactly once: item and record are one transaction.

        `fields` are those of `remember`: importance, slot, metadata, source, occurred_at, place. Returns the id, or the
        list of ids.
        """
        return drive(self.course.remember(name, what, key, fields))

    def sleep_until(
        self, until: datetime | str, *, name: str = "sleep", key: str | None = None, block: bool = True
    ) -> None:
        """Wait for a time, across crashes: the first time that was given stands.

        With block=False the task is given back and TaskWaiting raised; `recover` continues it when it is due.
        """
        drive(self.course.sleep(name, until, key, block))

    def sleep(self, seconds: float, *, name: str = "sleep", key: str | None = None, block: bool = True) -> None:
        """Wait so long from the first call on, across crashes."""
        until = self.course.now() + check_duration(seconds, "seconds")
        self.sleep_until(until, name=name, key=key, block=block)

    def wait_event(
        self,
        event: str,
        *,
        timeout: float | None = None,
        default: Any = ...,
        key: str | None = None,
        block: bool = True,
    ) -> Any:
        """The payload of an event, as soon as somebody has called memory.signal(task, event, payload).

        If it has not come `timeout` seconds after the first wait for it, across crashes: `default`, which is recorded
        in its place, or TimeoutError if none is given.
        """
        return drive(self.course.event(event, key, timeout, block, default))

    def keep(self, snapshot: Any) -> None:
        """Store plain JSON with the task, in place of what was kept before."""
        self.course.keep(snapshot)

    def __enter__(self) -> Self:
        self.course.open(line())
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.course.close(error)


class AsyncRun(_Task):
    """Run for asyncio: the same steps, awaited. A coroutine function runs in the loop, a plain one on a thread."""

    def __init__(self, course: Callable[[], TaskExecution], hop: Hop) -> None:
        self._made = course
        self.hop = hop
        self._under_way: dict[asyncio.Future[None], asyncio.Task[Any] | None] = {}

    async def step(
        self, name: str, function: Callable[..., Any], *args: Any, key: str | None = None, retries: int | Retry = 0
    ) -> Any:
        """Call the function once; recorded done, it never runs again and its result is replayed."""
        work = Work(checked_function(function), args, as_retry(retries))
        return await self._driven(self.step_flow(name, key, work))

    async def effect(
        self,
        name: str,
        function: Callable[..., Any],
        *args: Any,
        key: str | None = None,
        retries: int | Retry = 0,
        on_ambiguous: OnAmbiguous = "halt",
        key_as: str | None = None,
    ) -> Any:
        """Do something that must not happen twice: the intent is on disk before the call, the result after it.

        `key_as` and `on_ambiguous` are as in Run.effect; a probe and an undo may be coroutine functions, too.
        """
        work = Work(checked_function(function), args, as_retry(retries), on_ambiguous, key_as)
        return await self._driven(self.effect_flow(name, key, work))

    async def remember_step(self, name: str, what: Any, *, key: str | None = None, **fields: Any) -> Any:
        """Remember a text (or a Note, or a list of them) exactly once, with the fields of `remember`."""
        return await self._driven(self.course.remember(name, what, key, fields))

    async def sleep_until(
        self, until: datetime | str, *, name: str = "sleep", key: str | None = None, block: bool = True
    ) -> None:
        """Wait for a time, across crashes; with block=False the task is given back, and `recover` continues it."""
        await self._driven(self.course.sleep(name, until, key, block))

    async def sleep(self, seconds: float, *, name: str = "sleep", key: str | None = None, block: bool = True) -> None:
        """Wait so long from the first call on, across crashes."""
        until = self.course.now() + check_duration(seconds, "seconds")
        await self.sleep_until(until, name=name, key=key, block=block)

    async def wait_event(
        self,
        event: str,
        *,
        timeout: float | None = None,
        default: Any = ...,
        key: str | None = None,
        block: bool = True,
    ) -> Any:
        """The payload of an event, as soon as somebody has signalled it; after `timeout` seconds the default."""
        return await self._driven(self.course.event(event, key, timeout, block, default))

    async def keep(self, snapshot: Any) -> None:
        """Store plain JSON with the task, in place of what was kept before."""
        await to_the_end(self.hop, self.course.keep, snapshot)

    async def __aenter__(self) -> Self:
        self._course = await self.hop(self._made)
        try:
            await to_the_end(self.hop, self._course.open, line())
        except BaseException as exc:
            # Cancelled after it was claimed: nobody else will give it back.
            await to_the_end(self.hop, self._course.close, exc)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A thread that a cancelled step waits for: given back now, the task could be continued beside it.
        for left, task in list(self._under_way.items()):
            if error is not None and task is not None and task.cancelling():
                await outlast(left)
        await to_the_end(self.hop, self.course.close, error)

    async def _driven(self, flow: Flow[Any]) -> Any:
        left: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._under_way[left] = asyncio.current_task()
        try:
            return await adrive(flow, self.hop)
        finally:
            del self._under_way[left]
            left.set_result(None)


def checked_function(function: Callable[..., Any]) -> Callable[..., Any]:
    if not callable(function):
        raise InvalidInput(f"this takes a function to call, not {function!r}.")
    return function


def _plain(function: Callable[..., Any]) -> Callable[..., Any]:
    if type(function) is FunctionType and not function.__code__.co_flags & inspect.CO_COROUTINE:
        return function
    if inspect.iscoroutinefunction(checked_function(function)):
        raise InvalidInput(f"{function!r} is a coroutine function. AsyncMemory runs it: await run.step(…).")
    return function
