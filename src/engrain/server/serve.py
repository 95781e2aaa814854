"""Listen on a TCP address or a unix socket, and stop without losing a request in progress."""

from __future__ import annotations

import asyncio
import errno
import fcntl
import ipaddress
import os
import signal
import socket
import stat
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Protocol

import uvicorn
from starlette.types import Receive, Scope, Send

from engrain.core.errors import ConfigError, Conflict
from engrain.server.resident import lock_path

DEFAULT_HOST = "127.0.0.1"
DEFAULT_PORT = 8377
DEFAULT_DRAIN_SECONDS = 30
BACKLOG = 2048
# Longer than the client's own: a client that reuses a connection must not find it closed.
KEEP_ALIVE_SECONDS = 60
_EXTRA_SECONDS = 1.0  # for verbs that end together with the drain


@dataclass(frozen=True)
class Listener:
    """A bound socket, and the URL or path by which clients reach it."""

    socket: socket.socket
    address: str
    is_local: bool
    path: Path | None = None
    lock: int | None = None
    identity: tuple[int, int] | None = None

    def is_reachable(self) -> bool:
        """True unless the file of the socket was removed or replaced."""
        return self.path is None or _identify(self.path) == self.identity

    def release(self) -> None:
        """Remove the file of the socket: no new client arrives. The lock stays until `close`."""
        if self.path is not None and self.is_reachable():
            self.path.unlink(missing_ok=True)

    def close(self) -> None:
        self.release()
        self.socket.close()
        if self.lock is not None and self.path is not None:
            lock_path(self.path).unlink(missing_ok=True)  # before the lock ends: nobody else has it yet
            os.close(self.lock)


class DrainingApp(Protocol):
    """An ASGI application that can be drained."""

    @property
    def draining(self) -> asyncio.Event: ...

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None: ...

    def close(self, seconds: float) -> bool:
        """Wait this long for running verbs, and start no other. False if some are still running."""


class ApiServer(uvicorn.Server):
    """uvicorn with a drain: a signal ends event streams, answers what is in progress, and refuses the rest."""

    def __init__(self, api: DrainingApp, drain_seconds: int = DEFAULT_DRAIN_SECONDS) -> None:
        super().__init__(
            uvicorn.Config(
                api,
                lifespan="on",
                ws="none",
                log_config=None,
                access_log=False,
                server_header=False,
                proxy_headers=False,
                timeout_graceful_shutdown=drain_seconds,
                timeout_keep_alive=KEEP_ALIVE_SECONDS,
                backlog=BACKLOG,
            )
        )
        self._api = api

    def serve_until_stopped(self, listener: Listener) -> bool:
        """Serve until a signal or `stop`. False if a verb was still running when the time for draining was over."""
        self.run(sockets=[listener.socket])
        return self._api.close(_EXTRA_SECONDS)

    def stop(self) -> None:
        """Begin to stop, from any thread."""
        self.should_exit = True

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:
        if self.should_exit and sig == signal.SIGINT:
            self.force_exit = True
        self.stop()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        self._api.draining.set()
        await super().shutdown(sockets)

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Handle SIGINT and SIGTERM. uvicorn would raise them again at the end, before the store is closed."""
        if threading.current_thread() is not threading.main_thread():
            yield
            return
        before = {sig: signal.signal(sig, self.handle_exit) for sig in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for sig, handler in before.items():
                signal.signal(sig, handler)


async def answer_lifespan(receive: Receive, send: Send) -> None:
    """Answer for an application that has nothing to open or close."""
    while True:
        message = await receive()
        await send({"type": f"{message['type']}.complete"})
        if message["type"] == "lifespan.shutdown":
            return


def listen_tcp(host: str, port: int) -> Listener:
    """Bind a TCP address. Conflict if another program has it."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
    except socket.gaierror as exc:
        raise ConfigError(f"{host!r} is not an address of this machine: {exc.strerror}.") from exc
    # With the protocol named: else asyncio sets no TCP_NODELAY, and each answer waits 40 ms for an acknowledgement.
    bound = socket.socket(family, kind, protocol)
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        bound.bind(address)
    except OSError as exc:
        bound.close()
        if exc.errno == errno.EADDRINUSE:
            raise Conflict(f"{host}:{port} cannot be used: another program has it. Choose another --port.") from exc
        raise ConfigError(f"{host}:{port} cannot be used: {exc.strerror}.") from exc
    name = f"[{host}]" if family == socket.AF_INET6 else host
    return Listener(bound, f"http://{name}:{bound.getsockname()[1]}", is_loopback(str(address[0])))


def listen_unix(path: Path) -> Listener:
    """Bind a unix socket that only this user can open. One server at a time has it, by a lock next to it."""
    lock = _take_lock(path)
    bound = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)  # the socket must never be open to others, not even before a chmod
    try:
        _remove_stale_socket(path)
        bound.bind(str(path))
    except BaseException as exc:
        bound.close()
        os.close(lock)
        if isinstance(exc, OSError):
            raise ConfigError(f"the socket {path} cannot be made: {exc.strerror or exc}.") from exc
        raise
    finally:
        os.umask(before)
    return Listener(bound, f"unix:{path}", True, path, lock, _identify(path))


def is_loopback(host: str) -> bool:
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _take_lock(path: Path) -> int:
    """Return the lock of a socket. A server that ends removes its lock: a file that is gone by then is no lock."""
    while True:
        try:
            lock = os.open(lock_path(path), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as exc:
            raise ConfigError(f"the socket {path} cannot be made: {exc.strerror or exc}.") from exc
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as exc:
            os.close(lock)
            raise Conflict(f"another server listens on {path}.") from exc
        locked = os.fstat(lock)
        if _identify(lock_path(path)) == (locked.st_dev, locked.st_ino):
            os.truncate(lock, 0)
            os.write(lock, str(os.getpid()).encode())
            return lock
        os.close(lock)


def _identify(path: Path) -> tuple[int, int] | None:
    try:
        found = path.lstat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _remove_stale_socket(path: Path) -> None:
    try:
        if not stat.S_ISSOCK(path.lstat().st_mode):
            raise Conflict(f"{path} exists and is not a socket: choose another path.")
    except FileNotFoundError:
        return
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
        try:
            probe.connect(str(path))
        except OSError:
            path.unlink(missing_ok=True)
            return
    raise Conflict(f"another server listens on {path}.")
