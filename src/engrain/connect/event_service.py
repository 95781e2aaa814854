"""The resident process of a connected memory: that of its store, which also takes the events of hooks."""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from engrain.connect import hook
from engrain.connect.connect_home import ConnectHome, open_store
from engrain.connect.hook import BREAKER_FILE, ROUTE
from engrain.core.errors import Conflict
from engrain.server.resident import Place, ask, find_place
from engrain.server.resident_server import ResidentApi, ResidentServer
from engrain.server.serve import Listener, listen_unix

if TYPE_CHECKING:
    from starlette.types import Receive, Send
    from starlette.types import Scope as AsgiScope

    from engrain.connect.recorder import EventRecorder
    from engrain.memory import Store
    from engrain.server.app import HttpApi

IDLE_SECONDS = 15 * 60.0
IDLE_VARIABLE = "ENGRAIN_IDLE_SECONDS"
SPOOL_SECONDS = 1.0
DRAIN_SECONDS = 5
BACKLOG = 128
MAX_LOG_BYTES = 1 << 20
TAKE_OVER_SECONDS, TAKE_OVER_STEP = 10.0, 0.05
_log = logging.getLogger("engrain")


class ConnectApi(ResidentApi):
    """The ASGI application: events of hooks, and the HTTP API of the store for everything else."""

    def __init__(self, store: Store, recorder: EventRecorder) -> None:
        super().__init__(partial(_make_api, store), {"connect": True})
        self._recorder = recorder

    async def answer(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        if scope["path"] != ROUTE or scope["method"] != "POST":
            await super().answer(scope, receive, send)
            return
        from starlette.requests import Request
        from starlette.responses import Response

        body = await Request(scope, receive).body()
        status, answer = await asyncio.to_thread(self._handle, body)
        await Response(answer, status, media_type="application/json")(scope, receive, send)

    def _handle(self, body: bytes) -> tuple[int, bytes]:
        import orjson

        try:
            message = orjson.loads(body)
            if isinstance(message, dict):
                return 200, orjson.dumps({"output": self._recorder.answer(message)})
        except orjson.JSONDecodeError:
            pass
        except Exception:  # noqa: BLE001  # the rim: a defect must not reach the user's session
            _log.exception("an event failed")
            return 500, b"{}"
        return 422, b"{}"


def _make_api(store: Store) -> HttpApi:
    from engrain.server.access import Access, OpenAccess
    from engrain.server.app import HttpApi

    return HttpApi(store, Access(None, OpenAccess(None)))


def serve(home: ConnectHome, idle_seconds: float) -> None:
    """Serve until idle, outdated or stopped. Returns at once if another process serves this memory."""
    listener = _listen(home.prepare())
    if listener is None:
        return
    try:
        _serve(home, listener, idle_seconds)
    finally:
        home.socket.unlink(missing_ok=True)
        listener.close()


def _listen(home: ConnectHome) -> Listener | None:
    """Listen where every program looks for the resident process of this store; None if one handles events already.

    It happens before anything is loaded: a hook that connects now waits for its answer instead of trying again.
    """
    place = find_place(home.store)
    place.socket.parent.mkdir(mode=0o700, exist_ok=True)
    if not _take_over(place):
        return None
    try:
        listener = listen_unix(place.socket)
    except Conflict:
        return None
    listener.socket.listen(BACKLOG)
    home.socket.unlink(missing_ok=True)
    home.socket.symlink_to(place.socket)
    return listener


def _take_over(place: Place) -> bool:
    """Stop a process that serves the store but no hooks. False if one answers that handles them.

    Several programs may do so at once. The first one serves, and the others must not wait for its end.
    """
    found = ask(place)
    if found is not None and not found.get("connect"):
        ask(place, "POST")
        end = time.monotonic() + TAKE_OVER_SECONDS
        while place.is_locked() and time.monotonic() < end and not (found or {}).get("connect"):
            time.sleep(TAKE_OVER_STEP)
            found = ask(place)
    return not (found or {}).get("connect")


def _serve(home: ConnectHome, listener: Listener, idle_seconds: float) -> None:
    from logging.handlers import RotatingFileHandler

    from engrain.connect.recorder import EventRecorder
    from engrain.memory.store import warm_up_embedder

    log = RotatingFileHandler(home.folder / "resident.log", maxBytes=MAX_LOG_BYTES, backupCount=1)
    logging.basicConfig(handlers=[log], level=logging.WARNING, format="%(asctime)s %(message)s")
    with open_store(home) as store:
        recorder = EventRecorder(store, home)
        api = ConnectApi(store, recorder)
        files = [Path(hook.__file__), *([] if "://" in home.store else [Path(home.store)])]
        server = ResidentServer(api, idle_seconds, listener, files, DRAIN_SECONDS)
        stopped = threading.Event()
        warm_up = threading.Thread(target=warm_up_embedder, args=(store,), daemon=True)
        warm_up.start()

        def keep_house() -> None:
            while not stopped.wait(SPOOL_SECONDS):
                try:
                    recorder.take_spooled()
                    recorder.save_sessions()
                    if not api.active and not warm_up.is_alive():
                        # Hooks that gave up while we started, or were busy, may try again.
                        (home.folder / BREAKER_FILE).unlink(missing_ok=True)
                except Exception:  # noqa: BLE001  # the rim: the next round tries again
                    _log.exception("the spool could not be read")

        keeper = threading.Thread(target=keep_house, daemon=True)
        keeper.start()
        server.serve_until_stopped(listener)
        stopped.set()
        keeper.join(DRAIN_SECONDS)
        warm_up.join()  # an interpreter that ends while a model loads aborts
        recorder.save_sessions()


if __name__ == "__main__":
    os.chdir("/")  # the hook started it in the user's folder, which may go
    serve(ConnectHome(Path(sys.argv[1])), float(os.environ.get(IDLE_VARIABLE, IDLE_SECONDS)))
