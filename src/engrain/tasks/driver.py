"""Run one flow of decisions from a plain thread or from asyncio: the flow says what it needs, a driver does it."""

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

from engrain.core.errors import EffectNotPerformed

T = TypeVar("T")
_NOTHING: Mapping[str, Any] = MappingProxyType({})
# The runs inside whose steps this code is called.
INSIDE: ContextVar[tuple[object, ...]] = ContextVar("engrain_inside", default=())


class Ask(NamedTuple):
    """A call of ours that may wait for the store or the embedder."""

    call: Callable[..., Any]
    args: tuple[Any, ...] = ()


class Call(NamedTuple):
    """A call of the caller's own function, which may be a coroutine function under asyncio."""

    function: Callable[..., Any]
    args: tuple[Any, ...] = ()
    named: Mapping[str, Any] = _NOTHING
    run: object = None  # whose step it is

    def fits(self) -> bool:
        """Whether the function takes these arguments. One that does not was never entered."""
        try:
            inspect.signature(self.function).bind(*self.args, **self.named)
        except TypeError:
            return False
        except ValueError:  # it does not tell
            return True
        return True


class Pause(NamedTuple):
    seconds: float


Need = Ask | Call | Pause
Flow = Generator[Need, Any, T]
# Runs a call on another thread.
Hop = Callable[[Callable[[], Any]], Awaitable[Any]]


def line() -> object:
    """What does here one thing after the other: the task of asyncio, or the thread."""
    try:
        return asyncio.current_task() or threading.get_ident()
    except RuntimeError:
        return threading.get_ident()


def drive(flow: Flow[T]) -> T:
    answer: Any = None
    error: BaseException | None = None
    while True:
        try:
            need = flow.throw(error) if error is not None else flow.send(answer)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        answer = error = None
        try:
            if isinstance(need, Ask):
                answer = need.call(*need.args)
            elif isinstance(need, Call):
                outer = INSIDE.set((*INSIDE.get(), need.run))
                try:
                    answer = need.function(*need.args, **need.named)
                finally:
                    INSIDE.reset(outer)
            else:
                time.sleep(need.seconds)
        except BaseException as exc:  # noqa: BLE001  # the flow decides what becomes of it
            error = exc


async def adrive(flow: Flow[T], hop: Hop) -> T:
    answer: Any = None
    error: BaseException | None = None
    stopped: asyncio.CancelledError | None = None  # while a step was on a thread: what came of it is recorded first
    while True:
        try:
            need = flow.throw(error) if error is not None else flow.send(answer)
        except StopIteration as end:
            if stopped is not None:
                raise stopped from None
            return end.value  # type: ignore[no-any-return]
        except Exception as exc:
            if stopped is not None:
                raise stopped from exc
            raise
        answer = error = None
        try:
            if isinstance(need, Ask):
                answer = await to_the_end(hop, need.call, *need.args)
            elif stopped is not None:
                error = stopped
            elif isinstance(need, Call):
                answer, error, stopped = await _called(need)
            else:
                await asyncio.sleep(need.seconds)
        except BaseException as exc:  # noqa: BLE001  # the flow decides what becomes of it
            error = exc


async def to_the_end(hop: Hop, call: Callable[..., Any], *args: Any) -> Any:
    """Its answer; whoever is cancelled meanwhile is so afterwards. A thread cannot be stopped, and what goes on after a
    write must not overtake it."""
    asked = asyncio.ensure_future(hop(lambda: call(*args)))
    try:
        return await asyncio.shield(asked)
    except asyncio.CancelledError:
        await outlast(asked)
        if not asked.cancelled():
            asked.exception()  # looked at: the cancellation is what counts
        raise


class _Came(NamedTuple):
    """What came of a call: an answer or an error; and a cancellation that had to wait for it."""

    answer: Any = None
    error: BaseException | None = None
    stopped: asyncio.CancelledError | None = None


async def _called(need: Call) -> _Came:
    """A coroutine function is awaited in the loop; a plain one may block, so it runs on another thread."""
    outer = INSIDE.set((*INSIDE.get(), need.run))
    try:
        if inspect.iscoroutinefunction(need.function):
            return _Came(await need.function(*need.args, **need.named))
        came = await _on_thread(need)
        if came.stopped is None and inspect.isawaitable(came.answer):
            return _Came(await came.answer)
        return came
    finally:
        INSIDE.reset(outer)


async def _on_thread(need: Call) -> _Came:
    """A step is waited for even by whoever is cancelled: a run that was left while its step goes on would be continued
    by another, and an effect that a probe did not find would happen twice."""
    stopped: asyncio.CancelledError | None = None
    context = copy_context()

    def call() -> Any:
        if stopped is not None:
            raise EffectNotPerformed("it was cancelled while it waited for a thread")
        return context.run(need.function, *need.args, **need.named)

    asked = asyncio.get_running_loop().run_in_executor(None, call)
    try:
        await asyncio.wait([asked])
    except asyncio.CancelledError as exc:
        if need.run is None:
            raise
        stopped = exc
        await outlast(asked)
    error = asked.exception()
    return _Came(None if error else asked.result(), error, stopped)


async def outlast(asked: asyncio.Future[Any]) -> None:
    """Wait until it has ended, however often somebody cancels meanwhile."""
    while not asked.done():
        with suppress(asyncio.CancelledError):
            await asyncio.wait([asked])
