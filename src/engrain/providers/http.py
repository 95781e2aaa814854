"""Post JSON to a service and read its answer, whole or as a stream of events, trying again when that may help."""

from __future__ import annotations

import email.utils
import logging
import os
import random
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar
from urllib.parse import urlsplit

import orjson

from engrain.core.errors import ConfigError, InvalidInput
from engrain.core.secrets.urls import hide_secrets

if TYPE_CHECKING:
    import httpx

T = TypeVar("T")

MAX_ATTEMPTS = 4
TOTAL_SECONDS = 60.0  # for all attempts together; a service that asks to wait longer fails at once
FIRST_WAIT_SECONDS, MAX_WAIT_SECONDS = 0.5, 10.0
STREAM_SECONDS = 600.0  # for a streamed answer, however it drips
MAX_ANSWER_BYTES = 128 * 2**20
TRANSIENT_STATUSES = frozenset({408, 425, 429, 500, 502, 503, 504, 520, 522, 524, 529})
BEARER = "Authorization"
# Reached without a proxy, even if the environment sets one for everything else.
LOOPBACK_HOSTS = frozenset({"localhost", "127.0.0.1", "::1"})

# Called with a sentence before each further attempt. A ContextVar: a program changes it for its own calls alone.
on_retry: ContextVar[Callable[[str], object]] = ContextVar("on_retry", default=logging.getLogger("engrain").info)


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address and key of a service. `name` appears in messages; users set the key in `key_variable`.

    `timeout` is for one attempt. `key_header` is for services that do not use "Authorization: Bearer".
    """

    name: str
    url: str = field(repr=False)  # it may hold a password
    key: str = field(repr=False)
    key_variable: str
    timeout: float = 30.0
    key_header: str = BEARER
    headers: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not _is_web_url(self.url):
            raise ConfigError(f"The URL of {self.name} must start with http:// or https://, not {self.shown!r}.")
        if not (self.key.isascii() and self.key.isprintable()):
            raise ConfigError(
                f"The key of {self.name} has characters that cannot be in a key. Check {self.key_variable}."
            )

    @property
    def shown(self) -> str:
        """The URL without its password, for messages."""
        return hide_secrets(self.url)


class ServiceError(Exception):
    """A failed request. `retry`: another attempt may succeed; `after`: the seconds that the service asks to wait."""

    def __init__(self, message: str, retry: bool = False, after: float | None = None) -> None:
        super().__init__(message)
        self.retry = retry
        self.after = after


def post(endpoint: Endpoint, body: dict[str, Any], total_seconds: float = TOTAL_SECONDS) -> Any:
    """Post the body and return the answer. ServiceError after the last attempt."""
    data = _encode(endpoint, body)
    return _try_again(lambda seconds: _post_once(endpoint, data, seconds), endpoint.timeout, total_seconds)


def post_events(
    endpoint: Endpoint, body: dict[str, Any], total_seconds: float = TOTAL_SECONDS
) -> Iterator[dict[str, Any]]:
    """Post the body and yield the JSON events of the answer (SSE). A service that does not stream gives one event.

    Another attempt is made only before the first event. The time-out is for the wait between two pieces; the whole
    answer has STREAM_SECONDS, or a longer time-out.
    """
    data = _encode(endpoint, body)

    def open_stream(seconds: float) -> tuple[dict[str, Any] | None, Iterator[dict[str, Any]]]:
        events = _read_events(endpoint, data, seconds)
        return next(events, None), events

    first, rest = _try_again(open_stream, endpoint.timeout, total_seconds)
    if first is not None:
        yield first
        yield from rest


def _encode(endpoint: Endpoint, body: dict[str, Any]) -> bytes:
    try:
        return orjson.dumps(body)
    except orjson.JSONEncodeError as exc:
        raise InvalidInput(f"The request to {endpoint.name} cannot be written as JSON: {exc}.") from exc


def _try_again(attempt: Callable[[float], T], timeout: float, total_seconds: float) -> T:
    deadline = time.monotonic() + total_seconds
    max_wait = min(MAX_WAIT_SECONDS, total_seconds / MAX_ATTEMPTS)
    for number in range(1, MAX_ATTEMPTS + 1):
        try:
            return attempt(max(0.01, min(timeout, deadline - time.monotonic())))
        except ServiceError as exc:
            backoff = min(max_wait, FIRST_WAIT_SECONDS * (2 ** (number - 1) + random.random()))
            wait = backoff if exc.after is None else exc.after
            if not exc.retry or number == MAX_ATTEMPTS or time.monotonic() + wait >= deadline:
                raise
            on_retry.get()(f"{exc} Trying again in {wait:.1f} s.")
        time.sleep(wait)
    raise AssertionError("the last attempt returns or raises")


def read_key(api_key: str | None, variable: str, service: str, *, required: bool) -> str:
    """The given key, or that of the variable. An empty `api_key` sends none, whatever the variable holds."""
    key = (os.environ.get(variable, "") if api_key is None else api_key).strip()
    if required and not key:
        raise ConfigError(f"{service} needs a key. Set {variable}, or pass api_key.")
    return key


def read_error_message(answer: object) -> str:
    """The message inside an error answer, in any of the shapes that services use."""
    for name in ("error", "message", "detail"):
        if isinstance(answer, dict) and name in answer:
            answer = answer[name]
    return " ".join(answer.split())[:300].rstrip(".") if isinstance(answer, str) else ""


def _is_web_url(url: str) -> bool:
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return False
    is_plain = url.isascii() and url.isprintable() and " " not in url
    return is_plain and parts.scheme in ("http", "https") and bool(parts.hostname) and port != 0


def _post_once(endpoint: Endpoint, data: bytes, seconds: float) -> Any:
    with _send(endpoint, data, seconds, seconds) as response:
        content = b"".join(_limit_size(endpoint, response.iter_raw()))
    return _parse_json(endpoint, content)


def _read_events(endpoint: Endpoint, data: bytes, seconds: float) -> Iterator[dict[str, Any]]:
    with _send(endpoint, data, seconds, max(seconds, STREAM_SECONDS)) as response:
        chunks = _limit_size(endpoint, response.iter_raw())
        if "text/event-stream" not in response.headers.get("Content-Type", ""):
            yield _parse_json(endpoint, b"".join(chunks))
            return
        for line in _split_lines(chunks):
            value = line.removeprefix(b"data:").strip()
            # Other lines name an event, or keep the connection open.
            if line.startswith(b"data:") and value and value != b"[DONE]":
                yield _parse_json(endpoint, value)


def _split_lines(chunks: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the lines of a stream; each of them is scanned once, however it is cut into chunks."""
    parts: list[bytes] = []
    for chunk in chunks:
        *ends, rest = chunk.split(b"\n")
        for end in ends:
            yield b"".join([*parts, end])
            parts = []
        parts.append(rest)
    if any(parts):
        yield b"".join(parts)


def _limit_size(endpoint: Endpoint, chunks: Iterable[bytes]) -> Iterator[bytes]:
    size = 0
    for chunk in chunks:
        size += len(chunk)
        if size > MAX_ANSWER_BYTES:
            raise ServiceError(f"{endpoint.name} sent an answer of more than {MAX_ANSWER_BYTES:,} bytes.")
        yield chunk


def _parse_json(endpoint: Endpoint, content: bytes) -> Any:
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError as exc:
        start = content[:80].decode("utf-8", "replace")
        raise ServiceError(
            f"{endpoint.name} at {endpoint.shown} did not answer in JSON: {start!r}. Check the URL."
        ) from exc


@contextmanager
def _send(endpoint: Endpoint, data: bytes, seconds: float, total: float) -> Iterator[httpx.Response]:
    """Open the answer to a request. Errors of the connection, also while it is read, become ServiceErrors.

    `seconds` is the time-out of each read, `total` of the whole answer.
    """
    import httpx

    url = urlsplit(endpoint.url)
    verify = url.scheme != "http"  # certificates take 40 ms to load
    try:
        # Apart from the URL, which httpx logs.
        address = httpx.URL(endpoint.url)
        auth = (address.username, address.password) if address.userinfo else None
        address = address.copy_with(username=None, password=None)
        # A client with a transport of its own reads no proxy from the environment.
        direct = httpx.HTTPTransport(verify=verify) if url.hostname in LOOPBACK_HOSTS else None
        with (
            _cut_connection_after(total) as trace,
            httpx.Client(timeout=seconds, verify=verify, transport=direct) as client,
            client.stream(
                "POST", address, auth=auth, content=data, headers=_headers(endpoint), extensions={"trace": trace}
            ) as response,
        ):
            if not response.is_success:
                content = b"".join(_limit_size(endpoint, response.iter_raw()))
                raise _refusal_error(endpoint, response.status_code, response.headers.get("Retry-After"), content)
            yield response
    except (TimeoutError, httpx.TimeoutException) as exc:
        dripped = isinstance(exc, TimeoutError) and total > seconds
        limit = f"end its answer within {total:g} s" if dripped else f"answer within {round(seconds, 1):g} s"
        raise ServiceError(f"{endpoint.name} at {endpoint.shown} did not {limit}.", retry=not dripped) from exc
    except (httpx.HTTPError, httpx.InvalidURL, ImportError, ValueError) as exc:
        # ImportError and ValueError: httpx cannot use the proxy that the environment names.
        unreachable = f"{endpoint.name} cannot be reached at {endpoint.shown}: {exc}. Check that it runs there."
        raise ServiceError(unreachable, retry=isinstance(exc, httpx.HTTPError)) from exc


def _headers(endpoint: Endpoint) -> dict[str, str]:
    # Not compressed: the limit is on the bytes that come in.
    headers = {"Content-Type": "application/json", "Accept-Encoding": "identity", "User-Agent": "engrain"}
    if endpoint.key:
        headers[endpoint.key_header] = f"Bearer {endpoint.key}" if endpoint.key_header == BEARER else endpoint.key
    return headers | dict(endpoint.headers)


@contextmanager
def _cut_connection_after(seconds: float) -> Iterator[Callable[[str, dict[str, Any]], None]]:
    """Yields a trace function for httpx. Raises TimeoutError when the time is over.

    httpx's own time-outs begin again with every read, so a server that sends a byte now and then is never late.
    """
    sockets: list[socket.socket] = []
    expired = threading.Event()

    def cut() -> None:
        expired.set()
        for connected in sockets:
            with suppress(OSError):
                # Not SSLSocket.shutdown, which would take the TLS state from under a read.
                socket.socket.shutdown(connected, socket.SHUT_RDWR)

    def trace(event: str, info: dict[str, Any]) -> None:
        if event.endswith(("connect_tcp.complete", "start_tls.complete")):
            sockets.append(info["return_value"].get_extra_info("socket"))
            if expired.is_set():
                cut()

    timer = threading.Timer(seconds, cut)
    timer.daemon = True
    timer.start()
    try:
        yield trace
    except Exception as exc:
        if expired.is_set():
            raise TimeoutError from exc
        raise
    finally:
        timer.cancel()
    # An answer without a length ends where the connection was cut.
    if expired.is_set():
        raise TimeoutError


def _refusal_error(endpoint: Endpoint, status: int, retry_after: str | None, content: bytes) -> ServiceError:
    try:
        reason = read_error_message(orjson.loads(content))
    except orjson.JSONDecodeError:
        reason = ""
    message = f"{endpoint.name} answered {status}" + (f": {reason}" if reason else "") + "."
    if status in (401, 403):
        return ServiceError(f"{message} Check the key: set {endpoint.key_variable} or pass api_key.")
    if 300 <= status < 400:
        return ServiceError(
            f"{message} It redirects, and keys are not sent to another address: check the URL {endpoint.shown}."
        )
    if status == 404:
        return ServiceError(f"{message} Check the URL {endpoint.shown} and the name of the model.")
    if status not in TRANSIENT_STATUSES or b"insufficient_quota" in content:
        return ServiceError(message)
    seconds = _parse_retry_after(retry_after)
    if seconds is not None and seconds >= 1:
        message += f" It asks to wait {seconds:.0f} s."
    return ServiceError(message, retry=True, after=seconds)


def _parse_retry_after(retry_after: str | None) -> float | None:
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
