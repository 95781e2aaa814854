"""Turn a running answer into an iterator of its events, for threads and for asyncio."""

from __future__ import annotations

import asyncio
import contextvars
import queue
import threading
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import suppress

from engrain.agent.results import AgentEvent, AgentReply

CLOSE_SECONDS = 5.0  # that a closed stream waits for its answer to stop


class StreamClosed(BaseException):
    """Nobody reads the stream any more: the answer stops at its next event, as after Ctrl-C."""


def iterate_events(run: Callable[[Callable[[AgentEvent], None]], AgentReply]) -> Iterator[AgentEvent]:
    """Run an answer on a thread, and yield its events; the AgentReply comes last. Closing the iterator stops it."""
    events: queue.SimpleQueue[AgentEvent | BaseException] = queue.SimpleQueue()
    closed = threading.Event()

    def emit(event: AgentEvent) -> None:
        if closed.is_set():
            raise StreamClosed
        events.put(event)

    def work() -> None:
        try:
            events.put(run(emit))
        except BaseException as exc:  # noqa: BLE001  # raised where the stream is read
            events.put(exc)

    thread = threading.Thread(target=contextvars.copy_context().run, args=(work,), name="engrain-stream", daemon=True)
    thread.start()
    try:
        while True:
            event = events.get()
            if isinstance(event, BaseException):
                raise event
            yield event
            if isinstance(event, AgentReply):
                return
    finally:
        closed.set()
        thread.join(CLOSE_SECONDS)


async def iterate_events_async(
    run: Callable[[Callable[[AgentEvent], None]], Awaitable[AgentReply]],
) -> AsyncIterator[AgentEvent]:
    """Run an answer as a task of this event loop, and yield its events; closing the iterator cancels it."""
    loop = asyncio.get_running_loop()
    events: asyncio.Queue[AgentEvent | None] = asyncio.Queue()

    def emit(event: AgentEvent) -> None:
        loop.call_soon_threadsafe(events.put_nowait, event)

    async def work() -> AgentReply:
        try:
            return await run(emit)
        finally:
            # Behind the events that threads have sent.
            loop.call_soon_threadsafe(events.put_nowait, None)

    task = asyncio.create_task(work())
    try:
        while (event := await events.get()) is not None:
            yield event
        yield await task
    finally:
        task.cancel()
        with suppress(BaseException):
            await task
