"""Wait for a call of foreign code for a limited time."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from concurrent.futures import Future, wait
from typing import TypeVar

T = TypeVar("T")


def call_within(seconds: float, call: Callable[[], T]) -> T:
    """Call on another thread, and wait this long. A thread cannot be stopped: a late call goes on alone."""
    answer: Future[T] = Future()

    def work() -> None:
        try:
            answer.set_result(call())
        except BaseException as exc:  # noqa: BLE001  # raised on the waiting thread
            answer.set_exception(exc)

    threading.Thread(target=contextvars.copy_context().run, args=(work,), name="engrain-call", daemon=True).start()
    if not wait([answer], max(0.0, seconds)).done:
        raise TimeoutError(f"no answer within {seconds:g} s.")
    return answer.result()
