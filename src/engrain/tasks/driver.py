"""Run one flow from a plain thread or from asyncio: the flow requests calls and pauses, a driver performs them."""

from __future__ import annotations

import asyncio
import inspect
import threading
import time
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextlib import suppress
from contextvars import ContextVar, copy_context
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

from engrain.core.errors import EffectNotPerformed, find_interrupt

T = TypeVar("T")
_NO_ARGUMENTS: Mapping[str, Any] = MappingProxyType({})
# The journals of the runs inside whose steps the current code is called.
ENCLOSING_JOURNALS: ContextVar[tuple[object, ...]] = ContextVar("engrain_enclosing_journals", default=())


class StoreCall(NamedTuple):
    """A call of our own code that may wait for the store or the embedder."""

    call: Callable[..., Any]
    args: tuple[Any, ...] = ()


class UserCall(NamedTuple):
    """A call of the caller's own function; under asyncio it may be a coroutine function."""

    function: Callable[..., Any]
    args: tuple[Any, ...] = ()
    named: Mapping[str, Any] = _NO_ARGUMENTS
    journal: object = None  # the StepJournal whose step this call is

    def accepts_arguments(self) -> bool:
        """A function that does not accept its arguments was never entered."""
        try:
            inspect.signature(self.function).bind(*self.args, **self.named)
        except TypeError:
            return False
        except ValueError:  # the function has no signature
            return True
        return True


class Sleep(NamedTuple):
    seconds: float


Request = StoreCall | UserCall | Sleep
Flow = Generator[Request, Any, T]
ThreadRunner = Callable[[Callable[[], Any]], Awaitable[Any]]


def current_task_or_thread() -> object:
    """Return the asyncio task, or the thread's id outside asyncio: either does one thing after the other."""
    try:
        return asyncio.current_task() or threading.get_ident()
    except RuntimeError:
        return threading.get_ident()


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
