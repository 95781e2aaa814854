"""Send one HTTP request and read the whole answer within a set time."""

from __future__ import annotations

import contextlib
import functools
import http.client
import socket
import threading
import urllib.error
import urllib.request
from typing import Any
from urllib.parse import urlsplit

LARGEST_ERROR = 4_096
# These are never behind a proxy, though one may be set for everything else.
LOOPBACK = frozenset({"localhost", "127.0.0.1", "::1"})


class Refused(Exception):
    """Any status but success; a redirect is not followed."""

    def __init__(self, status: int, retry_after: str | None, content: bytes) -> None:
        super().__init__(status)
        self.status, self.retry_after, self.content = status, retry_after, content


def send(request: urllib.request.Request, seconds: float, largest: int) -> bytes:
    """At most `largest` + 1 bytes of the answer; TimeoutError after `seconds`, even if bytes still drip in."""
    with _Watch(seconds) as watch:
        try:
            content = _answer(request, seconds, largest, watch)
        except (OSError, http.client.HTTPException) as exc:
            if watch.expired or isinstance(getattr(exc, "reason", exc), TimeoutError):
                raise TimeoutError from exc
            raise
    if watch.expired:
        raise TimeoutError
    return content


def _answer(request: urllib.request.Request, seconds: float, largest: int, watch: _Watch) -> bytes:
    try:
        with _opener(request, watch).open(request, timeout=seconds) as answer:
            content: bytes = answer.read(largest + 1)
    except urllib.error.HTTPError as exc:
        said = b""
        with exc, contextlib.suppress(OSError, http.client.HTTPException):
            said = exc.read(LARGEST_ERROR)
        raise Refused(exc.code, exc.headers.get("Retry-After"), said) from exc
    return content


class _Watch:
    """Cuts a connection when its time is over: a socket's own time-out begins anew with every byte."""

    def __init__(self, seconds: float) -> None:
        self.expired = False
        self._socket: socket.socket | None = None
        self._timer = threading.Timer(seconds, self._expire)
        self._timer.daemon = True

    def __enter__(self) -> _Watch:
        self._timer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._timer.cancel()

    def over(self, connected: socket.socket) -> None:
        self._socket = connected
        if self.expired:
            self._cut()

    def _expire(self) -> None:
        self.expired = True
        self._cut()

    def _cut(self) -> None:
        if self._socket is not None:
            with contextlib.suppress(OSError):
                # Not SSLSocket.shutdown, which would take the TLS state from under a read.
                socket.socket.shutdown(self._socket, socket.SHUT_RDWR)


def _opener(request: urllib.request.Request, watch: _Watch) -> urllib.request.OpenerDirector:
    handlers: list[urllib.request.BaseHandler] = [_NoRedirects(), _Watched(watch)]
    if urlsplit(request.full_url).hostname in LOOPBACK:
        handlers.append(urllib.request.ProxyHandler({}))
    return urllib.request.build_opener(*handlers)


class _NoRedirects(urllib.request.HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


class _Watched(urllib.request.HTTPHandler, urllib.request.HTTPSHandler):
    def __init__(self, watch: _Watch) -> None:
        super().__init__()
        self._watch = watch

    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(functools.partial(_Connection, self._watch), req)

    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(functools.partial(_SecureConnection, self._watch), req)


class _Connection(http.client.HTTPConnection):
    def __init__(self, watch: _Watch, host: str, **options: Any) -> None:
        super().__init__(host, **options)
        self._watch = watch

    def connect(self) -> None:
        super().connect()
        self._watch.over(self.sock)


class _SecureConnection(http.client.HTTPSConnection):
    def __init__(self, watch: _Watch, host: str, **options: Any) -> None:
        super().__init__(host, **options)
        self._watch = watch

    def connect(self) -> None:
        super().connect()
        self._watch.over(self.sock)
