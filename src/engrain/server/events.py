"""Stream the committed changes of one memory as server-sent events."""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass
from functools import partial

import orjson

from engrain.core.identity import Scope
from engrain.core.model.queries import Changes
from engrain.memory.store import Store
from engrain.server.pool import VerbPool
from engrain.server.problems import Problem, limit_problem

EVENTS_TYPE = "text/event-stream"
POLL_SECONDS = 0.5
KEEP_ALIVE_SECONDS = 15.0
PAGE_SIZE = 500
MAX_STREAMS = 256


@dataclass
class EventStreams:
    """The open streams of a server. Each polls the change number of its scope."""

    store: Store
    pool: VerbPool
    draining: asyncio.Event
    count: int = 0

    async def open(self, scope: Scope, last_id: str | None) -> AsyncIterator[bytes]:
        """Start after the change `last_id`, or with the next one. The stream ends when the server stops."""
        if self.count >= MAX_STREAMS:
            raise limit_problem(f"{MAX_STREAMS} streams are open, which is the most.", KEEP_ALIVE_SECONDS)
        if last_id is not None and not re.fullmatch(r"[0-9]{1,18}", last_id):
            raise Problem(400, "Last-Event-ID must be the id of an event.")
        since = await self.pool.run(lambda: self._find_start(scope, last_id))
        return self._stream(scope, since)

    def _find_start(self, scope: Scope, last_id: str | None) -> int:
        newest = self.store.services.items.newest(scope)
        # An id beyond the newest is of another store: such a reader would miss everything until then.
        return newest if last_id is None else min(int(last_id), newest)

    async def _stream(self, scope: Scope, since: int) -> AsyncIterator[bytes]:
        self.count += 1
        idle, read = 0.0, self.store.services.items.changes
        try:
            yield b"retry: 1000\n: from " + str(since).encode() + b"\n\n"
            while not self.draining.is_set():
                found = await self.pool.run(partial(read, scope, since, PAGE_SIZE))
                since = max(since, found.seq)
                if found.changes:
                    idle = 0.0
                    yield _render(found)
                elif idle >= KEEP_ALIVE_SECONDS:
                    idle = 0.0
                    yield b": still here\n\n"
                if found.complete:
                    idle += POLL_SECONDS
                    await self._wait()
        finally:
            self.count -= 1

    async def _wait(self) -> None:
        try:
            await asyncio.wait_for(self.draining.wait(), POLL_SECONDS)
        except TimeoutError:
            return


def _render(found: Changes) -> bytes:
    parts = []
    for change in found.changes:
        name = b"removed" if change.deleted else b"changed"
        data = orjson.dumps({"id": change.id, "removed": change.deleted})
        parts.append(b"id: %d\nevent: %s\ndata: %s\n\n" % (change.seq, name, data))
    return b"".join(parts)
