"""Post JSON to a service and read its JSON answer, trying again when that may help."""

from __future__ import annotations

import contextlib
import email.utils
import functools
import http.client
import logging
import os
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import orjson

from engrain.core.errors import ConfigError, InvalidInput

if TYPE_CHECKING:
    from stamina.instrumentation import RetryDetails, RetryHook


ATTEMPTS = 4
PATIENCE = 60.0  # seconds for all attempts together; what asks to wait longer ends at once
FIRST_WAIT, LONGEST_WAIT = 0.5, 10.0
LARGEST_ANSWER = 128 * 2**20
TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504, 520, 522, 524, 529})
BEARER = "Authorization"

_log = logging.getLogger("engrain")


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a service is. `who` names it in messages, `key_variable` is what a user sets to give the key.

    `timeout` is for one attempt; `key_header` is where the key goes if not with "Authorization: Bearer".
    """

    who: str
    url: str
    key: str = field(repr=False)
    key_variable: str
    timeout: float = 30.0
    key_header: str = BEARER
    headers: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not _usable(self.url):
            raise ConfigError(f"The URL of {self.who} must start with http:// or https://, not {self.url!r}.")
        if not (self.key.isascii() and self.key.isprintable()):
            raise ConfigError(f"The key of {self.who} holds characters that no key has. Check {self.key_variable}.")


class ServiceError(Exception):
    """What went wrong, for a person; `wait` is True, or seconds, if another attempt may succeed."""

    def __init__(self, message: str, wait: bool | float = False) -> None:
        super().__init__(message)
        self.wait = wait


def post(endpoint: Endpoint, body: dict[str, Any], patience: float = PATIENCE) -> Any:
    import stamina

    _log_our_own_retries()
    data = _written(endpoint, body)
    deadline = time.monotonic() + patience
    longest = min(LONGEST_WAIT, patience / ATTEMPTS)

    def wait(error: Exception) -> bool | float:
        """True, or seconds, only if the time left is enough."""
        if not isinstance(error, ServiceError) or error.wait is False:
            return False
        return error.wait if time.monotonic() + (longest if error.wait is True else error.wait) < deadline else False

    for attempt in stamina.retry_context(
        on=wait, attempts=ATTEMPTS, timeout=patience, wait_initial=FIRST_WAIT, wait_max=longest, wait_jitter=FIRST_WAIT
    ):
        with attempt:
            return _post_once(endpoint, data, max(0.01, min(endpoint.timeout, deadline - time.monotonic())))
    raise AssertionError("a retry context ends with a result or an error")


def _log_our_own_retries() -> None:
    """The warnings of the retry library name neither the service nor the cause. Its log of what others retry, and hooks
    that a program has set, stay as they are."""
    from stamina import instrumentation

    hooks = instrumentation.get_on_retry_hooks()
    if any(map(_only_logs, hooks)):
        instrumentation.set_on_retry_hooks([_logged(one) if _only_logs(one) else one for one in hooks])


def _only_logs(hook: RetryHook) -> bool:
    return hook.__module__ in ("stamina.instrumentation._logging", "stamina.instrumentation._structlog")


def _logged(hook: RetryHook) -> RetryHook:
    def told(details: RetryDetails) -> None:
        if isinstance(details.caused_by, ServiceError):
            _log.info("%s Trying again in %.1f s.", details.caused_by, details.wait_for)
        else:
            hook(details)

    return told


def key_or_variable(api_key: str | None, variable: str, who: str, *, required: bool) -> str:
    """An empty `api_key` means that none is to be sent, whatever the variable holds."""
    key = (os.environ.get(variable, "") if api_key is None else api_key).strip()
    if required and not key:
        raise ConfigError(f"{who} needs a key. Set {variable}, or pass api_key.")
    return key


def said(answer: object) -> str:
    """The message inside an error answer, in any of the shapes that services use."""
    for name in ("error", "message", "detail"):
        if isinstance(answer, dict) and name in answer:
            answer = answer[name]
    return " ".join(answer.split())[:300].rstrip(".") if isinstance(answer, str) else ""


def _usable(url: str) -> bool:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return False
    written = url.isascii() and url.isprintable() and " " not in url
    return written and parts.scheme in ("http", "https") and bool(parts.hostname) and port != 0


def _written(endpoint: Endpoint, body: dict[str, Any]) -> bytes:
    try:
        return orjson.dumps(body)
    except orjson.JSONEncodeError as exc:
        raise InvalidInput(f"What {endpoint.who} is to be asked cannot be written as JSON: {exc}.") from exc


def _post_once(endpoint: Endpoint, data: bytes, seconds: float) -> Any:
    import http.client
    import urllib.request

    headers = {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "engrain"}
    if endpoint.key:
        bearer = endpoint.key_header == BEARER
        headers[endpoint.key_header] = f"Bearer {endpoint.key}" if bearer else endpoint.key
    request = urllib.request.Request(endpoint.url, data, headers | dict(endpoint.headers), method="POST")
    try:
        content = send(request, seconds, LARGEST_ANSWER)
    except Refused as exc:
        raise _refused(endpoint, exc.status, exc.retry_after, exc.content) from exc
    except TimeoutError as exc:
        raise ServiceError(
            f"{endpoint.who} at {endpoint.url} did not answer within {round(seconds, 1):g} s.", True
        ) from exc
    except (OSError, http.client.HTTPException, UnicodeError) as exc:
        told = f"{endpoint.who} cannot be reached at {endpoint.url}: {getattr(exc, 'reason', exc)}."
        raise ServiceError(f"{told} Check that it runs there.", wait=True) from exc
    return _parsed(endpoint, content)


def _parsed(endpoint: Endpoint, content: bytes) -> Any:
    if len(content) > LARGEST_ANSWER:
        raise ServiceError(f"{endpoint.who} sent an answer of more than {LARGEST_ANSWER:,} bytes.")
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError as exc:
        start = content[:80].decode("utf-8", "replace")
        raise ServiceError(
            f"{endpoint.who} at {endpoint.url} did not answer in JSON: {start!r}. Check the URL."
        ) from exc


def _refused(endpoint: Endpoint, status: int, retry_after: str | None, content: bytes) -> ServiceError:
    try:
        reason = said(orjson.loads(content))
    except orjson.JSONDecodeError:
        reason = ""
    told = f"{endpoint.who} answered {status}" + (f": {reason}" if reason else "") + "."
    if status in (401, 403):
        return ServiceError(f"{told} Check the key: set {endpoint.key_variable} or pass api_key.")
    if 300 <= status < 400:
        return ServiceError(f"{told} It redirects, and a key is not sent on: check the URL {endpoint.url}.")
    if status == 404:
        return ServiceError(f"{told} Check the URL {endpoint.url} and the name of the model.")
    if status not in TRANSIENT or b"insufficient_quota" in content:
        return ServiceError(told)
    seconds = _seconds(retry_after)
    if seconds is None:
        return ServiceError(told, wait=True)
    return ServiceError(f"{told} It asks to wait {seconds:.0f} s." if seconds >= 1 else told, wait=seconds)


def _seconds(retry_after: str | None) -> float | None:
    """Retry-After is a number of seconds or a date."""
    if not retry_after:
        return None
    try:
        return max(0.0, float(retry_after))
    except ValueError:
        pass
    try:
        return max(0.0, email.utils.parsedate_to_datetime(retry_after).timestamp() - time.time())
    except ValueError:
        return None


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
