"""Run one flow of decisions from a plain thread or from asyncio: the flow says what it needs, a driver does it."""

from __future__ import annotations

import asyncio
import inspect
import time
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

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
    while True:
        try:
            need = flow.throw(error) if error is not None else flow.send(answer)
        except StopIteration as end:
            return end.value  # type: ignore[no-any-return]
        answer = error = None
        try:
            if isinstance(need, Ask):
                answer = await to_the_end(hop, need.call, *need.args)
            elif isinstance(need, Call):
                answer = await _called(need)
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
        await asyncio.wait([asked])
        if not asked.cancelled():
            asked.exception()  # looked at: the cancellation is what counts
        raise


async def _called(need: Call) -> Any:
    """A coroutine function is awaited in the loop; a plain one may block, so it runs on another thread."""
    outer = INSIDE.set((*INSIDE.get(), need.run))
    try:
        if inspect.iscoroutinefunction(need.function):
            return await need.function(*need.args, **need.named)
        answer = await asyncio.to_thread(need.function, *need.args, **need.named)
        return await answer if inspect.isawaitable(answer) else answer
    finally:
        INSIDE.reset(outer)
