"""Wait for a call for a limited time."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")


def call_within(seconds: float, call: Callable[[], T]) -> T:
    """Return what the call returns, or raise what it raises. TimeoutError if it is late: the call itself goes on."""
    answers: list[T] = []
    errors: list[BaseException] = []

    def run() -> None:
        try:
            answers.append(call())
        except BaseException as exc:  # noqa: BLE001  # raised again in the thread that waits
            errors.append(exc)

    thread = threading.Thread(target=contextvars.copy_context().run, args=(run,), daemon=True)
    thread.start()
    thread.join(max(0.0, seconds))
    if errors:
        raise errors[0]
    if not answers:
        raise TimeoutError
    return answers[0]
