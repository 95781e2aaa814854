"""Run verbs on threads, with a bound on those that run and those that wait."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Generic, TypeVar

from engrain.server.problems import overload_problem

T = TypeVar("T")
R = TypeVar("R")

DEFAULT_THREADS = 32
DEFAULT_QUEUE = 512
BATCHES_AT_A_TIME = 2
MAX_BATCH = 64
HEAVY_THREADS = 2
HEAVY_QUEUE = 8


class Batches(Generic[T, R]):
    """Calls that are done in batches, on threads of a pool: those that come in meanwhile are the next batch.

    Two batches run at a time: one is prepared while the disk syncs the other.
    """

    def __init__(self, pool: VerbPool, do: Callable[[Sequence[T]], Sequence[R | Exception]]) -> None:
        self._pool = pool
        self._do = do
        self._waiting: list[tuple[T, asyncio.Future[R]]] = []
        self._tasks: set[asyncio.Task[None]] = set()

    async def run(self, call: T) -> R:
        if len(self._waiting) >= self._pool.most:
            raise overload_problem(f"{self._pool.most:,} requests are in progress, which is the most. Try again.")
        answer: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._waiting.append((call, answer))
        self._start()
        return await answer

    def _start(self) -> None:
        if self._waiting and len(self._tasks) < BATCHES_AT_A_TIME:
            batch, self._waiting = self._waiting[:MAX_BATCH], self._waiting[MAX_BATCH:]
            task = asyncio.create_task(self._work(batch))
            self._tasks.add(task)
            task.add_done_callback(self._finish)

    def _finish(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._start()

    async def _work(self, batch: Sequence[tuple[T, asyncio.Future[R]]]) -> None:
        answers: Sequence[R | Exception]
        try:
            answers = await self._pool.run(lambda: self._do([call for call, _ in batch]))
        except Exception as exc:  # noqa: BLE001  # each caller gets it
            answers = [exc] * len(batch)
        for (_, waiting), answer in zip(batch, answers, strict=True):
            if waiting.done():  # its client went away
                continue
            if isinstance(answer, Exception):
                waiting.set_exception(answer)
            else:
                waiting.set_result(answer)


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
