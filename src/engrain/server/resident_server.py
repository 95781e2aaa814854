"""Serve as the resident process of a store: answer who it is, and stop when it is idle, replaced or upgraded."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from pathlib import Path

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

import engrain
from engrain.core.http_routes import RESIDENT_PATH
from engrain.server.answers import JSON_TYPE, to_json
from engrain.server.app import HttpApi
from engrain.server.serve import ApiServer, Listener

Identity = tuple[int, int, int] | None
_TICKS_BETWEEN_CHECKS = 10  # of 0.1 s
_TICKS_OF_GRACE = 3  # for connections that were accepted by the kernel alone


@dataclass
class ResidentApi:
    """The HTTP API of a resident process, with the count of requests in progress."""

    api: HttpApi
    active: int = 0
    last_used: float = field(default_factory=time.monotonic)
    stop_asked: bool = False

    def __post_init__(self) -> None:
        self.draining = self.api.draining

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.api(scope, receive, send)
            return
        if scope["path"] == RESIDENT_PATH:
            await self._answer_identity(scope, receive, send)
            return
        self.active += 1
        try:
            await self.api(scope, receive, send)
        finally:
            self.active -= 1
            self.last_used = time.monotonic()

    def close(self, seconds: float) -> bool:
        return self.api.close(seconds)

    async def _answer_identity(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Say who this is. It does not count as use: a check keeps no process alive."""
        self.stop_asked |= scope["method"] == "POST"
        body = to_json({"version": engrain.__version__, "pid": os.getpid()})
        await Response(body, media_type=JSON_TYPE)(scope, receive, send)


class ResidentServer(ApiServer):
    """A server that stops by itself. Its socket goes first, so that the next program starts another one."""

    def __init__(self, api: ResidentApi, idle_seconds: int, listener: Listener, files: list[Path]) -> None:
        super().__init__(api)
        self._resident = api
        self._idle_seconds = idle_seconds
        self._listener = listener
        self._watched = {path: identify(path) for path in [*files, Path(engrain.__file__)]}
        self._ticks_left: int | None = None

    async def on_tick(self, counter: int) -> bool:
        if self._ticks_left is None and counter % _TICKS_BETWEEN_CHECKS == 0 and self._should_stop():
            self._listener.release()
            self._ticks_left = _TICKS_OF_GRACE
        elif self._ticks_left is not None:
            self._ticks_left -= 1
            if self._ticks_left <= 0:
                self.stop()
        return await super().on_tick(counter)

    def _should_stop(self) -> bool:
        api = self._resident
        idle = not api.active and time.monotonic() - api.last_used > self._idle_seconds
        changed = any(identify(path) != before for path, before in self._watched.items())
        return idle or changed or api.stop_asked or not self._listener.is_reachable()


def identify(path: Path) -> Identity:
    """Return which file this is: another one if it was replaced; None if it is gone."""
    try:
        found = path.stat()
    except OSError:
        return None
    return (found.st_dev, found.st_ino, 0 if path.suffix != ".py" else found.st_mtime_ns)
