"""Send requests to an engrain server, and repeat those that can be repeated without doing anything twice."""

from __future__ import annotations

import os
import random
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote, urlsplit

from engrain.client.problems import read_problem, to_error
from engrain.core.errors import ConfigError, OutcomeUnknown, StoreClosed, StoreUnavailable
from engrain.core.http_routes import IDEMPOTENCY_HEADER

if TYPE_CHECKING:
    import httpx

SCHEMES = ("http", "https", "unix")
DEFAULT_TIMEOUT = 30
DEFAULT_RETRIES = 3
HEAVY_SECONDS = 3_600.0
CONNECT_SECONDS = 5.0
# Shorter than the server's own time: a connection that the server closes at this moment would lose a request.
KEEP_ALIVE_SECONDS = 15.0
MAX_CONNECTIONS = 64
_FIRST_PAUSE, _LONGEST_PAUSE = 0.05, 5.0
_NOT_STARTED = (429,)
_NOT_NOW = (429, 502, 503, 504)


def is_server_url(location: str) -> bool:
    """True for the URL of an engrain server: http://, https:// or unix:///path."""
    scheme, separator, _ = location.partition(":")
    return bool(separator) and scheme in SCHEMES


@dataclass(frozen=True, slots=True)
class WireRequest:
    """One request. `repeatable` if it may arrive twice: it only reads, or has a request id."""

    method: str
    path: str
    headers: Mapping[str, str]
    query: Iterable[tuple[str, str]] = ()
    body: bytes | Iterable[bytes] | None = None
    body_type: str = "application/json"
    reads: bool = False
    heavy: bool = False
    request_id: str | None = None

    @property
    def repeatable(self) -> bool:
        return self.reads or self.request_id is not None


class StreamedAnswer(NamedTuple):
    headers: Mapping[str, str]
    parts: Iterator[bytes]


@dataclass
class Connection:
    """The connections of this process to one server. Threads may share it, and a fork makes its own.

    `revive` is called when nobody listens, before the request is sent again.
    """

    url: str
    api_key: str | None = field(default=None, repr=False)
    timeout: float = DEFAULT_TIMEOUT
    retries: int = DEFAULT_RETRIES
    revive: Callable[[], object] | None = None

    def __post_init__(self) -> None:
        self._base, self._socket = _parse_url(self.url)
        self._lock = threading.Lock()
        self._client: httpx.Client | None = None
        self._process = os.getpid()
        self._closed = False

    def send(self, request: WireRequest) -> bytes | None:
        """Return the body of the answer; None for one without. A problem is raised as the error that it names."""
        import httpx

        end = time.monotonic() + self.timeout
        for attempt in range(self.retries + 1):
            last = attempt == self.retries
            try:
                answer = self._request(request)
            except (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout) as exc:
                # Nothing was sent: even a write can be repeated.
                if last or not _pause(attempt, end):
                    raise self._build_unavailable(exc) from exc
                if self.revive is not None:
                    self.revive()
                continue
            except httpx.TransportError as exc:
                if last or not request.repeatable or not _pause(attempt, end):
                    raise self._build_interrupted(request, exc) from exc
                continue
            retried = _NOT_NOW if request.repeatable else _NOT_STARTED
            if last or answer.status_code not in retried or not _pause(attempt, end, answer.headers):
                break
        return _read_answer(request, answer)

    @contextmanager
    def stream(self, request: WireRequest) -> Iterator[StreamedAnswer]:
        """Yield a large answer. The request is not repeated."""
        import httpx

        client = self._open()
        try:
            with client.stream(**self._arguments(request)) as answer:
                if answer.status_code >= 400:
                    answer.read()
                    _read_answer(request, answer)
                yield StreamedAnswer(answer.headers, answer.iter_bytes())
        except httpx.TransportError as exc:
            raise self._build_unavailable(exc) from exc

    def close(self) -> None:
        with self._lock:
            self._closed = True
            client, self._client = self._client, None
        if client is not None and self._process == os.getpid():
            client.close()

    def _request(self, request: WireRequest) -> httpx.Response:
        return self._open().request(**self._arguments(request))

    def _arguments(self, request: WireRequest) -> dict[str, Any]:
        import httpx

        headers = dict(request.headers)
        if request.body is not None:
            headers["Content-Type"] = request.body_type
        if request.request_id is not None:
            headers[IDEMPOTENCY_HEADER] = request.request_id
        if self.api_key is not None:
            headers["Authorization"] = f"Bearer {self.api_key}"
        wait = max(self.timeout, HEAVY_SECONDS) if request.heavy else self.timeout
        return {
            "method": request.method,
            "url": self._base + request.path,
            "params": list(request.query) or None,
            "content": request.body,
            "headers": headers,
            "timeout": httpx.Timeout(wait, connect=min(CONNECT_SECONDS, self.timeout)),
        }

    def _open(self) -> httpx.Client:
        """Return the pool. After a fork the parent's sockets are left to the parent."""
        import httpx

        with self._lock:
            if self._closed:
                raise StoreClosed("this memory was closed. Open it again: Memory(…).")
            if self._client is None or self._process != os.getpid():
                self._process = os.getpid()
                limits = httpx.Limits(
                    max_connections=MAX_CONNECTIONS,
                    max_keepalive_connections=MAX_CONNECTIONS,
                    keepalive_expiry=KEEP_ALIVE_SECONDS,
                )
                verify = self._base.startswith("https")  # certificates take 30 ms to load
                transport = httpx.HTTPTransport(verify, uds=self._socket, limits=limits) if self._socket else None
                trust_env = self._socket is None
                self._client = httpx.Client(transport=transport, limits=limits, verify=verify, trust_env=trust_env)
            return self._client

    def _build_unavailable(self, exc: Exception) -> StoreUnavailable:
        return StoreUnavailable(f"the server at {self.url} does not answer: {exc or type(exc).__name__}.")

    def _build_interrupted(self, request: WireRequest, exc: Exception) -> StoreUnavailable | OutcomeUnknown:
        if request.reads:
            return self._build_unavailable(exc)
        return OutcomeUnknown(
            f"the server at {self.url} did not answer to a write, which may have happened: {type(exc).__name__}. "
            "Repeat it with the same request_id.",
            request.request_id,
        )


def _read_answer(request: WireRequest, answer: httpx.Response) -> bytes | None:
    if answer.status_code < 300:
        return answer.content if answer.status_code != 204 else None
    raise to_error(answer.status_code, read_problem(answer.status_code, answer.content), request.request_id)


def _pause(attempt: int, end: float, headers: Mapping[str, str] | None = None) -> bool:
    """Wait before another attempt, as long as the server asks for. False if the time for that is not left."""
    seconds = min(_LONGEST_PAUSE, _FIRST_PAUSE * 4**attempt) * random.uniform(0.5, 1.0)
    asked = (headers or {}).get("Retry-After", "")
    if asked.isdigit():
        seconds = max(seconds, float(asked))
    if time.monotonic() + seconds > end:
        return False
    time.sleep(seconds)
    return True


def _parse_url(url: str) -> tuple[str, str | None]:
    """Return the base of all paths, and the socket of a unix:// URL."""
    scheme, _, rest = url.partition(":")
    if scheme == "unix":
        path = unquote(rest.removeprefix("//"))
        if not path.startswith("/") or "\x00" in path:
            raise ConfigError(f"{url!r} names no socket: write unix:///run/engrain.sock.")
        return "http://localhost", path
    try:
        parts = urlsplit(url)
        named = bool(parts.hostname) and (parts.port or 1) > 0
    except ValueError:
        named = False
        parts = urlsplit("")
    if not named or parts.query or parts.fragment or "@" in parts.netloc:
        raise ConfigError(
            "the URL of a server is https://HOST, with a port or a path if needed; a key goes to ENGRAIN_API_KEY."
        )
    return f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}", None
