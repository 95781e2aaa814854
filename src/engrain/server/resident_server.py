"""Serve as the resident process of a store: answer who it is, and stop when it is idle, replaced or upgraded."""

from __future__ import annotations

import asyncio
import os
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from starlette.responses import JSONResponse
from starlette.types import Receive, Scope, Send

import engrain
from engrain.core.http_routes import RESIDENT_PATH
from engrain.server.serve import DEFAULT_DRAIN_SECONDS, ApiServer, Listener, answer_lifespan

if TYPE_CHECKING:
    from engrain.server.app import HttpApi

Identity = tuple[int, int, int] | None
_TICKS_BETWEEN_CHECKS = 10  # of 0.1 s
_TICKS_OF_GRACE = 3  # for connections that were accepted by the kernel alone


class ResidentApi:
    """The HTTP API of a resident process, with the count of requests in progress.

    `make_api` is called for the first request: importing the API takes half a second. `about` is added to the answer
    that says who this is.
    """

    def __init__(self, make_api: Callable[[], HttpApi], about: Mapping[str, Any] | None = None) -> None:
        self.active = 0
        self.last_used = time.monotonic()
        self.stop_asked = False
        self._make_api = make_api
        self._about = dict(about or {})
        self._api: HttpApi | None = None
        self._lock = threading.Lock()
        self._never_loaded = asyncio.Event()

    @property
    def draining(self) -> asyncio.Event:
        return self._never_loaded if self._api is None else self._api.draining

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await answer_lifespan(receive, send)
            return
        if scope["path"] == RESIDENT_PATH:
            await self._answer_identity(scope, receive, send)
            return
        self.active += 1
        try:
            await self.answer(scope, receive, send)
        finally:
            self.active -= 1
            self.last_used = time.monotonic()

    async def answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        api = await asyncio.to_thread(self._load_api)
        await api(scope, receive, send)

    def close(self, seconds: float) -> bool:
        return self._api is None or self._api.close(seconds)

    async def _answer_identity(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Say who this is. It does not count as use: a check keeps no process alive."""
        self.stop_asked |= scope["method"] == "POST"
        about = {"version": engrain.__version__, "pid": os.getpid(), **self._about}
        await JSONResponse(about)(scope, receive, send)

    def _load_api(self) -> HttpApi:
        with self._lock:
            if self._api is None:
                self._api = self._make_api()
            return self._api


class ResidentServer(ApiServer):
    """A server that stops by itself. Its socket goes first, so that the next program starts another one."""

    def __init__(
        self,
        api: ResidentApi,
        idle_seconds: float,
        listener: Listener,
        files: list[Path],
        drain_seconds: int = DEFAULT_DRAIN_SECONDS,
    ) -> None:
        super().__init__(api, drain_seconds)
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
