"""The requests of a flow: calls and pauses, which Run performs on its thread and AsyncRun in its event loop."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable, Generator, Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any, NamedTuple, TypeVar

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
        except (TypeError, ValueError) as exc:
            return isinstance(exc, ValueError)  # the function has no signature
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
