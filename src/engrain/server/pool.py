"""Run verbs on threads, with a bound on those that run and those that wait."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from engrain.server.problems import overload_problem

R = TypeVar("R")

DEFAULT_THREADS = 32
DEFAULT_QUEUE = 512
HEAVY_THREADS = 2
HEAVY_QUEUE = 8


class VerbPool:
    """Threads for verbs. A request beyond the queue is refused at once, with the time to try again."""

    def __init__(self, threads: int = DEFAULT_THREADS, queue: int = DEFAULT_QUEUE) -> None:
        self.most = threads + queue
        self._lock = threading.Condition()
        self._running = 0
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix="engrain-http")

    @property
    def running(self) -> int:
        """The verbs that run or wait."""
        return self._running

    async def run(self, call: Callable[[], R]) -> R:
        with self._lock:
            if self._running >= self.most:
                raise overload_problem(f"{self.most:,} requests are in progress, which is the most. Try again.")
            self._running += 1
        try:
            future = self._threads.submit(call)
        except RuntimeError as exc:  # the server has stopped
            self._finish()
            raise overload_problem("the server is stopping.") from exc
        # Counted until its thread is done, also if the client went away meanwhile.
        future.add_done_callback(self._finish)
        return await asyncio.wrap_future(future)

    def close(self) -> None:
        """Start no verb any more. Those that run go on."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    def wait(self, seconds: float) -> bool:
        """Wait until no verb runs; False if some still do."""
        with self._lock:
            return self._lock.wait_for(lambda: not self._running, seconds)

    def _finish(self, _: object = None) -> None:
        with self._lock:
            self._running -= 1
            self._lock.notify_all()
