"""The resident process: one per folder of a connected memory, on a unix socket, until nobody needs it."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from engrain import __version__
from engrain.connect.home import ConnectHome, open_store
from engrain.connect.hook import BREAKER_FILE, ROUTE, read_build
from engrain.core.errors import Conflict, EngrainError
from engrain.core.http_routes import RESIDENT_PATH
from engrain.ports.plain_files import read_plain_text
from engrain.server.resident import ask, find_place

if TYPE_CHECKING:
    from starlette.types import Receive, Send
    from starlette.types import Scope as AsgiScope

    from engrain.connect.recorder import EventRecorder
    from engrain.memory import Store
    from engrain.server.app import HttpApi
    from engrain.server.serve import Listener

IDLE_SECONDS = 15 * 60.0
IDLE_VARIABLE = "ENGRAIN_IDLE_SECONDS"
SPOOL_SECONDS = 1.0
SLOW_SECONDS = 0.3
DRAIN_SECONDS = 5
BACKLOG = 128
MAX_LOG_BYTES = 1 << 20
STOP_SECONDS, _POLL_SECONDS = 5.0, 0.02
TAKE_OVER_SECONDS = 10.0
_log = logging.getLogger("engrain")


class ConnectApi:
    """The ASGI application: events of hooks, and the HTTP API of the store for everything else."""

    def __init__(self, store: Store, recorder: EventRecorder, build: str) -> None:
        self.draining = asyncio.Event()
        self.last_request = time.monotonic()
        self.outdated = False
        self._running: dict[int, float] = {}
        self._store = store
        self._recorder = recorder
        self._build = build
        self._api: HttpApi | None = None
        self._api_lock = threading.Lock()

    async def __call__(self, scope: AsgiScope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http" and scope["path"] == RESIDENT_PATH:
            await self._answer_identity(scope["method"], receive, send)
            return
        if scope["type"] == "http":
            self.last_request = time.monotonic()
            if scope["path"] == ROUTE and scope["method"] == "POST":
                await self._answer_event(receive, send)
                return
        api = await asyncio.to_thread(self._load_api)
        await api(scope, receive, send)

    @property
    def is_prompt(self) -> bool:
        """True if no event has been waiting for its answer for long."""
        return all(time.monotonic() - began < SLOW_SECONDS for began in [*self._running.values()])

    def close(self, seconds: float) -> bool:
        return self._api is None or self._api.close(seconds)

    async def _answer_identity(self, method: str, receive: Receive, send: Send) -> None:
        """Say who this is, or with POST stop. It does not count as use."""
        from starlette.responses import JSONResponse

        self.outdated |= method == "POST"
        about = {"version": __version__, "pid": os.getpid(), "connect": True}
        await JSONResponse(about)({"type": "http"}, receive, send)

    async def _answer_event(self, receive: Receive, send: Send) -> None:
        from starlette.responses import Response

        body = b""
        while (part := await receive())["type"] == "http.request":
            body += part.get("body", b"")
            if not part.get("more_body"):
                break
        number = id(body)
        self._running[number] = time.monotonic()
        try:
            status, answer = await asyncio.to_thread(self._handle, body)
        finally:
            del self._running[number]
        response = Response(answer, status, media_type="application/json")
        await response({"type": "http"}, receive, send)

    def _handle(self, body: bytes) -> tuple[int, bytes]:
        import orjson

        try:
            message = orjson.loads(body)
            if not isinstance(message, dict):
                return 422, b"{}"
            # Our files were replaced by an upgrade: the next hook starts a process of the new version.
            self.outdated = self.outdated or message.get("build", self._build) != self._build
            return 200, orjson.dumps({"output": self._recorder.answer(message)})
        except orjson.JSONDecodeError:
            return 422, b"{}"
        except Exception:  # noqa: BLE001  # the rim: a defect must not reach the user's session
            _log.exception("an event failed")
            return 500, b"{}"

    def _load_api(self) -> HttpApi:
        """Build the HTTP API when it is first asked for: hooks do without, and it takes half a second."""
        with self._api_lock:
            if self._api is None:
                from engrain.server.access import Access, OpenAccess
                from engrain.server.app import HttpApi

                self._api = HttpApi(self._store, Access(None, OpenAccess(None)))
                self._api.draining = self.draining
            return self._api


def serve(home: ConnectHome, idle_seconds: float) -> None:
    """Serve until idle, outdated or stopped. Returns at once if another process serves this memory."""
    home.prepare()
    listener = _listen(home)
    if listener is None:
        return
    try:
        home.pid.write_text(str(os.getpid()))
        _serve(home, listener, idle_seconds)
    finally:
        home.socket.unlink(missing_ok=True)
        home.pid.unlink(missing_ok=True)
        listener.close()


def _listen(home: ConnectHome) -> Listener | None:
    """Listen where every program looks for the resident process of this store; None if one handles events already.

    It happens before anything is loaded: a hook that connects now waits for its answer instead of trying again.
    """
    from engrain.server.serve import listen_unix

    place = find_place(home.store)
    place.socket.parent.mkdir(mode=0o700, exist_ok=True)
    end = time.monotonic() + TAKE_OVER_SECONDS
    while True:
        try:
            listener = listen_unix(place.socket)
            break
        except Conflict:
            found = ask(place)
            if found is None or found.get("connect") or time.monotonic() > end:
                return None
            ask(place, "POST")  # it serves the store but no hooks: replace it
            time.sleep(0.1)
    listener.socket.listen(BACKLOG)
    home.socket.unlink(missing_ok=True)
    home.socket.symlink_to(place.socket)
    return listener


def _serve(home: ConnectHome, listener: Listener, idle_seconds: float) -> None:
    from logging.handlers import RotatingFileHandler

    from engrain.connect.recorder import EventRecorder
    from engrain.memory.store import warm_up_embedder
    from engrain.server.serve import ApiServer

    log = RotatingFileHandler(home.folder / "resident.log", maxBytes=MAX_LOG_BYTES, backupCount=1)
    logging.basicConfig(handlers=[log], level=logging.WARNING, format="%(asctime)s %(message)s")
    with open_store(home) as store:
        recorder = EventRecorder(store, home)
        api = ConnectApi(store, recorder, read_build())
        server = ApiServer(api, DRAIN_SECONDS)
        stopped = threading.Event()
        warm_up = threading.Thread(target=warm_up_embedder, args=(store,), daemon=True)
        warm_up.start()

        def is_needed() -> bool:
            # Somebody may remove the folder: a process that no hook can reach must not stay.
            idle = time.monotonic() - api.last_request > idle_seconds
            return listener.is_reachable() and not idle and not api.outdated

        def clear_breaker() -> None:
            # Hooks that gave up while we started, or were busy, may try again.
            if api.is_prompt and not warm_up.is_alive():
                (home.folder / BREAKER_FILE).unlink(missing_ok=True)

        def keep_house() -> None:
            while not stopped.wait(SPOOL_SECONDS):
                if not is_needed():
                    server.stop()
                    return
                try:
                    if recorder.take_spooled():
                        api.last_request = time.monotonic()
                    recorder.save_sessions()
                    clear_breaker()
                except Exception:  # noqa: BLE001  # the rim: the next round tries again
                    _log.exception("the spool could not be read")

        keeper = threading.Thread(target=keep_house, daemon=True)
        keeper.start()
        server.serve_until_stopped(listener)
        stopped.set()
        keeper.join(DRAIN_SECONDS)
        recorder.save_sessions()


def read_pid(home: ConnectHome) -> int | None:
    """The id of the process that serves this memory; None if nobody does. A number of a dead process is not it."""
    if not find_place(home.store).is_locked():
        return None
    with suppress(EngrainError):
        text = read_plain_text(home.pid)
        return int(text) if text.isdigit() else None
    return None


def stop_resident(home: ConnectHome) -> bool:
    """Stop the resident process and wait until it is gone. False if none was running."""
    pid = read_pid(home)
    if pid is None:
        return False
    end = time.monotonic() + STOP_SECONDS
    for kind in (signal.SIGTERM, signal.SIGKILL):
        with suppress(ProcessLookupError):
            os.kill(pid, kind)
            os.kill(pid, signal.SIGCONT)  # a stopped process acts on a signal only when it goes on
        while time.monotonic() < end:
            if read_pid(home) != pid and not _is_alive(pid):
                return True
            time.sleep(_POLL_SECONDS)
        end += STOP_SECONDS
    raise Conflict(f"process {pid} does not stop: end it by hand.")


def _is_alive(pid: int) -> bool:
    """True if the process runs. One that has ended, but whose parent has not asked for its result, does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


if __name__ == "__main__":
    os.chdir("/")  # the hook started it in the user's folder, which may go
    serve(ConnectHome(Path(sys.argv[1])), float(os.environ.get(IDLE_VARIABLE, IDLE_SECONDS)))
