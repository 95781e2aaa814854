"""The run of a durable task as a program uses it: Run for threads, AsyncRun for coroutines."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from contextvars import copy_context
from datetime import datetime
from types import FunctionType, TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self, TypeVar

from engrain.core.clock import check_duration, check_time
from engrain.core.errors import EffectNotPerformed, InvalidInput, TaskError, find_interrupt
from engrain.core.model.tasks import TaskStatus
from engrain.core.validation import check_key
from engrain.tasks.flow_requests import (
    ENCLOSING_JOURNALS,
    Flow,
    StoreCall,
    ThreadRunner,
    UserCall,
    current_task_or_thread,
)
from engrain.tasks.result_encoding import describe_error
from engrain.tasks.run_lifecycle import TaskExecution
from engrain.tasks.step_journal import StepRequest
from engrain.tasks.step_kinds import OnAmbiguous, Retry, StepWork, check_effect, parse_retry

if TYPE_CHECKING:
    from engrain.tiers.working import WorkingMemory

T = TypeVar("T")


class _RunBase:
    _execution: TaskExecution | None = None

    @property
    def execution(self) -> TaskExecution:
        """Internal: the state of this run, for workflows and agents."""
        if self._execution is None:
            raise TaskError("enter the run first: async with memory.task(…) as run: …")
        return self._execution

    @property
    def id(self) -> str:
        return self.execution.task

    @property
    def goal(self) -> str:
        return self.execution.record.goal if self.execution.record else self.execution.options.goal

    @property
    def epoch(self) -> int:
        """The number of this claim. Every claim raises it, and so does parking, resuming or cancelling the task."""
        return self.execution.record.epoch if self.execution.record else 0

    @property
    def status(self) -> TaskStatus | None:
        """The status when the run was entered: "running", or "done" for a task that is only replayed."""
        return self.execution.record.status if self.execution.record else None

    @property
    def snapshot(self) -> Any:
        """The value that `keep` stored last, in this run or an earlier one; None if nothing."""
        return self.execution.snapshot

    @property
    def working(self) -> WorkingMemory:
        """The working memory of this task, stored at the end of each step.

        It is memory.working, unless another task was current there when this one began.
        """
        return self.execution.working  # type: ignore[no-any-return]

    @property
    def outcome(self) -> str:
        """A line for people. `engrain tasks` shows it once the task is done, and it is remembered."""
        return self.execution.outcome

    @outcome.setter
    def outcome(self, text: str) -> None:
        self.execution.outcome = describe_error(str(text))

    @property
    def cites(self) -> tuple[str, ...]:
        """The ids of items that the outcome cites. Forgetting one of them forgets the remembered outcome."""
        return self.execution.cites

    @cites.setter
    def cites(self, ids: Sequence[str]) -> None:
        if not isinstance(ids, Iterable):
            raise InvalidInput(f"cites takes the ids of items, not {ids!r}.")
        found = (ids,) if isinstance(ids, str) else tuple(ids)
        self.execution.cites = tuple(check_key(id, "cites") for id in found)

    def step_flow(self, name: str, key: str | None, work: StepWork) -> Flow[Any]:
        """Internal: run a step of a workflow or an agent, in either colour."""
        return self.execution.step(StepRequest("step", name, key, work.args), work)

    def effect_flow(self, name: str, key: str | None, work: StepWork) -> Flow[Any]:
        """Internal: run an effect of a workflow or an agent, in either colour."""
        check_effect(work)
        return self.execution.step(StepRequest("effect", name, key, work.args), work)


class Run(_RunBase):
    """One run of a durable task: with memory.task("order-42") as run: …

    Several threads may call steps. Steps of one name that run at the same time need a `key=` each. Positional
    arguments go to the function, and a replay compares them. A step returns plain JSON.
    """

    _execution: TaskExecution

    def __init__(self, execution: TaskExecution) -> None:
        self._execution = execution

    def step(
        self, name: str, function: Callable[..., Any], *args: Any, key: str | None = None, retries: int | Retry = 0
    ) -> Any:
        """Call the function once. After its result is recorded, it never runs again: the result is replayed."""
        work = StepWork(_check_sync_function(function), args, parse_retry(retries))
        return run_flow(self.step_flow(name, key, work))

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
        """Do something that must not happen twice. The intent is on disk before the call, the result after it.

        `key_as` names the parameter that gets the step's stable key, by which a receiver recognizes repetitions. After
        a crash or an error the effect may or may not have happened, and `on_ambiguous` decides. "halt" raises
        StepAmbiguous and parks the task. "retry" calls again with the same key. A probe is called like the function
        and returns the result that it found; None or False: it did not happen. Compensate(undo) undoes it first. An
        effect that did not happen may raise EffectNotPerformed; it is tried again as often as `retries` says.
        """
        work = StepWork(_check_sync_function(function), args, parse_retry(retries), on_ambiguous, key_as)
        return run_flow(self.effect_flow(name, key, work))

    def remember_step(self, name: str, what: Any, *, key: str | None = None, **fields: Any) -> Any:
        """Remember a text, a Note or a list of them exactly once: item and record are one transaction.

        `fields` are those of `remember`: importance, slot, metadata, source, occurred_at, place. Return the id or the
        list of ids.
        """
        return run_flow(self.execution.remember(name, what, key, fields))

    def sleep_until(
        self, until: datetime | str, *, name: str = "sleep", key: str | None = None, block: bool = True
    ) -> None:
        """Wait until a time, across crashes. The time of the first call counts.

        block=False releases the task and raises TaskWaiting; `recover` continues it when it is due.
        """
        run_flow(self.execution.sleep(name, check_time(until, "until"), key, block))

    def sleep(self, seconds: float, *, name: str = "sleep", key: str | None = None, block: bool = True) -> None:
        """Wait this long after the first call, across crashes."""
        run_flow(self.execution.sleep(name, check_duration(seconds, "seconds"), key, block))

    def wait_event(
        self,
        event: str,
        *,
        timeout: float | None = None,
        default: Any = ...,
        key: str | None = None,
        block: bool = True,
    ) -> Any:
        """Wait for an event and return its payload: memory.tasks.signal(task, event, payload) delivers it.

        `timeout` seconds after the first wait, across crashes, `default` is recorded and returned instead. Without a
        default, TimeoutError is raised.
        """
        return run_flow(self.execution.event(event, key, timeout, block, default))

    def keep(self, snapshot: Any) -> None:
        """Store plain JSON with the task, replacing the previous snapshot."""
        self.execution.keep(snapshot)

    def __enter__(self) -> Self:
        try:
            self.execution.open(current_task_or_thread())
        except (KeyboardInterrupt, SystemExit):  # perhaps just after the claim
            self.execution.abandon()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self.execution.close(error)
        except (KeyboardInterrupt, SystemExit):
            self.execution.abandon()
            raise


def run_flow(flow: Flow[T]) -> T:
    answer: Any = None
    error: BaseException | None = None
    while True:
        try:
            request = flow.throw(error) if error is not None else flow.send(answer)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        answer = error = None
        try:
            if isinstance(request, StoreCall):
                answer = request.call(*request.args)
            elif isinstance(request, UserCall):
                outer = ENCLOSING_JOURNALS.set((*ENCLOSING_JOURNALS.get(), request.journal))
                try:
                    answer = request.function(*request.args, **request.named)
                finally:
                    ENCLOSING_JOURNALS.reset(outer)
            else:
                time.sleep(request.seconds)
        except BaseException as exc:  # noqa: BLE001  # the flow decides how to handle it
            error = find_interrupt(exc) if isinstance(request, UserCall) else exc


class AsyncRun(_RunBase):
    """Run for asyncio, with the same steps. A coroutine function runs in the loop, a plain one on a thread."""

    def __init__(self, execution: Callable[[], TaskExecution], run_in_thread: ThreadRunner) -> None:
        self._create_execution = execution
        self.run_in_thread = run_in_thread
        self._running: dict[asyncio.Future[None], asyncio.Task[Any] | None] = {}

    async def step(
        self, name: str, function: Callable[..., Any], *args: Any, key: str | None = None, retries: int | Retry = 0
    ) -> Any:
        """Call the function once. After its result is recorded, it never runs again: the result is replayed."""
        work = StepWork(check_callable(function), args, parse_retry(retries))
        return await self._run(self.step_flow(name, key, work))

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
        """Do something that must not happen twice, as Run.effect. A probe and an undo may be coroutine functions."""
        work = StepWork(check_callable(function), args, parse_retry(retries), on_ambiguous, key_as)
        return await self._run(self.effect_flow(name, key, work))

    async def remember_step(self, name: str, what: Any, *, key: str | None = None, **fields: Any) -> Any:
        """Remember a text, a Note or a list of them exactly once, with the fields of `remember`."""
        return await self._run(self.execution.remember(name, what, key, fields))

    async def sleep_until(
        self, until: datetime | str, *, name: str = "sleep", key: str | None = None, block: bool = True
    ) -> None:
        """Wait until a time, across crashes. block=False releases the task, and `recover` continues it."""
        await self._run(self.execution.sleep(name, check_time(until, "until"), key, block))

    async def sleep(self, seconds: float, *, name: str = "sleep", key: str | None = None, block: bool = True) -> None:
        """Wait this long after the first call, across crashes."""
        await self._run(self.execution.sleep(name, check_duration(seconds, "seconds"), key, block))

    async def wait_event(
        self,
        event: str,
        *,
        timeout: float | None = None,
        default: Any = ...,
        key: str | None = None,
        block: bool = True,
    ) -> Any:
        """Wait for an event and return its payload; after `timeout` seconds the default."""
        return await self._run(self.execution.event(event, key, timeout, block, default))

    async def keep(self, snapshot: Any) -> None:
        """Store plain JSON with the task, replacing the previous snapshot."""
        await run_to_completion(self.run_in_thread, self.execution.keep, snapshot)

    async def __aenter__(self) -> Self:
        self._execution = await self.run_in_thread(self._create_execution)
        try:
            await run_to_completion(self.run_in_thread, self._execution.open, current_task_or_thread())
        except BaseException as exc:
            # Cancelled after the claim: nobody else would release it.
            await run_to_completion(self.run_in_thread, self._execution.close, exc)
            raise
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        # A cancelled step waits for its thread. Released now, another worker could continue the task meanwhile.
        for step_done, task in list(self._running.items()):
            if error is not None and task is not None and task.cancelling():
                await wait_until_done(step_done)
        await run_to_completion(self.run_in_thread, self.execution.close, error)

    async def _run(self, flow: Flow[Any]) -> Any:
        step_done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._running[step_done] = asyncio.current_task()
        try:
            return await run_flow_async(flow, self.run_in_thread)
        finally:
            del self._running[step_done]
            step_done.set_result(None)


async def run_flow_async(flow: Flow[T], run_in_thread: ThreadRunner) -> T:
    answer: Any = None
    error: BaseException | None = None
    cancelled: asyncio.CancelledError | None = None  # raised after the result of a step on a thread is recorded
    while True:
        try:
            request = flow.throw(error) if error is not None else flow.send(answer)
        except StopIteration as end:
            if cancelled is not None:
                raise cancelled from None
            return end.value  # type: ignore[no-any-return]
        except Exception as exc:
            if cancelled is not None:
                raise cancelled from exc
            raise
        answer = error = None
        try:
            if isinstance(request, StoreCall):
                answer = await run_to_completion(run_in_thread, request.call, *request.args)
            elif cancelled is not None:
                error = cancelled
            elif isinstance(request, UserCall):
                answer, error, cancelled = await _run_user_call(request)
            else:
                await asyncio.sleep(request.seconds)
        except BaseException as exc:  # noqa: BLE001  # the flow decides how to handle it
            error = find_interrupt(exc) if isinstance(request, UserCall) else exc


async def run_to_completion(run_in_thread: ThreadRunner, call: Callable[..., Any], *args: Any) -> Any:
    """Wait for the call even if cancelled: a thread cannot be stopped, and later work must not overtake its write."""
    future = asyncio.ensure_future(run_in_thread(lambda: call(*args)))
    try:
        return await asyncio.shield(future)
    except asyncio.CancelledError:
        await wait_until_done(future)
        if not future.cancelled():
            future.exception()  # marks the error as retrieved: only the cancellation is raised
        raise


async def wait_until_done(future: asyncio.Future[Any]) -> None:
    """Wait until the future is done, however often the waiter is cancelled."""
    while not future.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait([future])


class _CallResult(NamedTuple):
    """The answer or the error of a call, and a cancellation that waited for it."""

    answer: Any = None
    error: BaseException | None = None
    cancelled: asyncio.CancelledError | None = None


async def _run_user_call(request: UserCall) -> _CallResult:
    """Await a coroutine function in the loop. Run a plain function, which may block, on another thread."""
    outer = ENCLOSING_JOURNALS.set((*ENCLOSING_JOURNALS.get(), request.journal))
    try:
        if inspect.iscoroutinefunction(request.function):
            return _CallResult(await request.function(*request.args, **request.named))
        result = await _run_on_thread(request)
        if result.cancelled is None and inspect.isawaitable(result.answer):
            return _CallResult(await result.answer)
        return result
    finally:
        ENCLOSING_JOURNALS.reset(outer)


async def _run_on_thread(request: UserCall) -> _CallResult:
    """Wait for a step even if cancelled.

    If the run ended while its step goes on, another worker would continue it. An effect that its probe did not find
    yet would then happen twice.
    """
    cancelled: asyncio.CancelledError | None = None
    context = copy_context()

    def call() -> Any:
        if cancelled is not None:
            raise EffectNotPerformed("it was cancelled while it waited for a thread")
        return context.run(request.function, *request.args, **request.named)

    future = asyncio.get_running_loop().run_in_executor(None, call)
    try:
        await asyncio.wait([future])
    except asyncio.CancelledError as exc:
        if request.journal is None:
            raise
        cancelled = exc
        await wait_until_done(future)
    error = future.exception()
    return _CallResult(None if error else future.result(), error and find_interrupt(error), cancelled)


def check_callable(function: Callable[..., Any]) -> Callable[..., Any]:
    if not callable(function):
        raise InvalidInput(f"this takes a function to call, not {function!r}.")
    return function


def _check_sync_function(function: Callable[..., Any]) -> Callable[..., Any]:
    if type(function) is FunctionType and not function.__code__.co_flags & inspect.CO_COROUTINE:
        return function
    if inspect.iscoroutinefunction(check_callable(function)):
        raise InvalidInput(f"{function!r} is a coroutine function. AsyncMemory runs it: await run.step(…).")
    return function
