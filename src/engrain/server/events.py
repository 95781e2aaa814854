"""Stream the committed changes of one memory as server-sent events."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import AsyncGenerator, AsyncIterator
from dataclasses import dataclass, field
from functools import partial

import orjson

from engrain.core.errors import EngrainError
from engrain.core.identity import Scope
from engrain.core.model.queries import Changes
from engrain.memory.store import Store
from engrain.server.problems import Problem, limit_problem
from engrain.server.thread_pool import VerbPool

EVENTS_TYPE = "text/event-stream"
POLL_SECONDS = 0.5
KEEP_ALIVE_SECONDS = 15.0
PAGE_SIZE = 500
MAX_STREAMS = 256
_log = logging.getLogger("engrain")


class ScopePoll:
    """Watch one scope for all of its streams: one poll, and one read of each page."""

    def __init__(self, scope: Scope, store: Store, pool: VerbPool, draining: asyncio.Event) -> None:
        self._scope = scope
        self._items = store.services.items
        self._pool = pool
        self._draining = draining
        self._newest = -1
        self._pages: dict[int, asyncio.Task[Changes]] = {}
        self.readers = 0
        self.changed = asyncio.Event()
        self.task = asyncio.create_task(self._run())

    async def read(self, since: int) -> Changes:
        """Return the changes after a number. Streams at the same number share the read."""
        page = self._pages.get(since)
        if page is None or (page.done() and (page.cancelled() or page.exception())):
            page = asyncio.create_task(self._pool.run(partial(self._items.changes, self._scope, since, PAGE_SIZE)))
            self._pages[since] = page
        # A stream that goes away must not cancel the read of the others.
        return await asyncio.shield(page)

    async def _run(self) -> None:
        while not self._draining.is_set():
            try:
                newest = await self._pool.run(partial(self._items.newest, self._scope))
            except (EngrainError, Problem) as exc:
                _log.debug("a poll for changes failed, and is tried again: %s", exc)
                newest = self._newest
            if newest != self._newest:
                self._newest = newest
                self._wake()
            await _wait(self._draining, POLL_SECONDS)
        self._wake()

    def _wake(self) -> None:
        self._pages.clear()
        before, self.changed = self.changed, asyncio.Event()
        before.set()


@dataclass
class EventStreams:
    """The open streams of a server, by scope."""

    store: Store
    pool: VerbPool
    draining: asyncio.Event
    count: int = 0
    polls: dict[Scope, ScopePoll] = field(default_factory=dict)

    async def open(self, scope: Scope, last_id: str | None) -> EventStream:
        """Start after the change `last_id`, or with the next one. The stream ends when the server stops."""
        if self.count >= MAX_STREAMS:
            raise limit_problem(f"{MAX_STREAMS} streams are open, which is the most.", KEEP_ALIVE_SECONDS)
        if last_id is not None and not re.fullmatch(r"[0-9]{1,18}", last_id):
            raise Problem(400, "Last-Event-ID must be the id of an event.")
        # Counted before anything is awaited: requests that come together must not pass the limit together.
        self.count += 1
        try:
            since = await self.pool.run(lambda: self._find_start(scope, last_id))
        except BaseException:
            self.count -= 1
            raise
        return EventStream(self, scope, since)

    def join(self, scope: Scope) -> ScopePoll:
        """Return the poll of a scope, which begins with its first stream."""
        poll = self.polls.get(scope)
        if poll is None or poll.task.done():
            poll = self.polls[scope] = ScopePoll(scope, self.store, self.pool, self.draining)
        poll.readers += 1
        return poll

    def leave(self, scope: Scope, poll: ScopePoll) -> None:
        self.count -= 1
        poll.readers -= 1
        if poll.readers == 0:
            poll.task.cancel()
            if self.polls.get(scope) is poll:
                del self.polls[scope]

    def _find_start(self, scope: Scope, last_id: str | None) -> int:
        newest = self.store.services.items.newest(scope)
        # An id beyond the newest is of another store: such a reader would miss everything until then.
        return newest if last_id is None else min(int(last_id), newest)


class EventStream:
    """One stream. It counts until it is closed, also if nothing was read from it."""

    def __init__(self, streams: EventStreams, scope: Scope, since: int) -> None:
        self._streams = streams
        self._scope = scope
        self._poll: ScopePoll | None = streams.join(scope)
        self._parts = self._stream(self._poll, since)

    def __aiter__(self) -> AsyncIterator[bytes]:
        return self._parts

    async def aclose(self) -> None:
        await self._parts.aclose()
        if (poll := self._poll) is not None:
            self._poll = None
            self._streams.leave(self._scope, poll)

    async def _stream(self, poll: ScopePoll, since: int) -> AsyncGenerator[bytes, None]:
        yield b"retry: 1000\n: from " + str(since).encode() + b"\n\n"
        while not self._streams.draining.is_set():
            changed = poll.changed  # taken before the read: a change after it is not missed
            found = await poll.read(since)
            since = max(since, found.seq)
            if found.changes:
                yield _render(found)
            if found.complete and not await _wait(changed, KEEP_ALIVE_SECONDS):
                yield b": still here\n\n"


async def _wait(event: asyncio.Event, seconds: float) -> bool:
    """Wait for an event; False if it does not come in time."""
    try:
        await asyncio.wait_for(event.wait(), seconds)
    except TimeoutError:
        return False
    return True


def _render(found: Changes) -> bytes:
    parts = []
    for change in found.changes:
        name = b"removed" if change.deleted else b"changed"
        data = orjson.dumps({"id": change.id, "removed": change.deleted})
        parts.append(b"id: %d\nevent: %s\ndata: %s\n\n" % (change.seq, name, data))
    return b"".join(parts)
