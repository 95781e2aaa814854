"""Post JSON to a service and read its JSON answer, trying again when that may help."""

from __future__ import annotations

import email.utils
import time
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

import orjson

from engrain.core.errors import ConfigError

ATTEMPTS = 4
PATIENCE = 60.0  # seconds after which no further attempt is made; a longer Retry-After ends at once
FIRST_WAIT = 0.5
LARGEST_ANSWER = 128 * 2**20
TRANSIENT = frozenset({408, 425, 429, 500, 502, 503, 504, 520, 522, 524, 529})


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a service is. `who` names it in messages, `key_variable` is what a user sets to give the key."""

    who: str
    url: str
    key: str = field(repr=False)
    key_variable: str
    timeout: float = 30.0

    def __post_init__(self) -> None:
        parts = urlsplit(self.url)
        if parts.scheme not in ("http", "https") or not parts.hostname:
            raise ConfigError(f"The URL of {self.who} must start with http:// or https://, not {self.url!r}.")


class ServiceError(Exception):
    """What went wrong, for a person; `wait` is True, or seconds, if another attempt may succeed."""

    def __init__(self, message: str, wait: bool | float = False) -> None:
        super().__init__(message)
        self.wait = wait


def post(endpoint: Endpoint, body: dict[str, Any]) -> Any:
    import stamina

    data = orjson.dumps(body)
    for attempt in stamina.retry_context(
        on=_wait, attempts=ATTEMPTS, timeout=PATIENCE, wait_initial=FIRST_WAIT, wait_max=10.0, wait_jitter=FIRST_WAIT
    ):
        with attempt:
            return _post_once(endpoint, data)
    raise AssertionError("a retry context ends with a result or an error")


def _wait(error: Exception) -> bool | float:
    return error.wait if isinstance(error, ServiceError) else False


def _post_once(endpoint: Endpoint, data: bytes) -> Any:
    import http.client
    import urllib.error
    import urllib.request

    headers = {"Content-Type": "application/json", "Accept": "application/json", "User-Agent": "engrain"}
    if endpoint.key:
        headers["Authorization"] = f"Bearer {endpoint.key}"
    request = urllib.request.Request(endpoint.url, data, headers, method="POST")
    try:
        with urllib.request.build_opener(_no_redirects()).open(request, timeout=endpoint.timeout) as answer:
            content = answer.read(LARGEST_ANSWER + 1)
    except urllib.error.HTTPError as exc:
        with exc:
            raise _refused(endpoint, exc.code, exc.headers.get("Retry-After"), exc.read(4_096)) from exc
    except TimeoutError as exc:
        raise _silent(endpoint) from exc
    except (OSError, http.client.HTTPException) as exc:
        reason = getattr(exc, "reason", exc)
        if isinstance(reason, TimeoutError):
            raise _silent(endpoint) from exc
        raise ServiceError(f"{endpoint.who} cannot be reached at {endpoint.url}: {reason}.", wait=True) from exc
    return _parsed(endpoint, content)


def _parsed(endpoint: Endpoint, content: bytes) -> Any:
    if len(content) > LARGEST_ANSWER:
        raise ServiceError(f"{endpoint.who} sent an answer of more than {LARGEST_ANSWER:,} bytes.")
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError as exc:
        start = content[:80].decode("utf-8", "replace")
        raise ServiceError(f"{endpoint.who} at {endpoint.url} did not answer in JSON: {start!r}.") from exc


def _silent(endpoint: Endpoint) -> ServiceError:
    return ServiceError(f"{endpoint.who} at {endpoint.url} did not answer within {endpoint.timeout:g} s.", wait=True)


def _refused(endpoint: Endpoint, status: int, retry_after: str | None, content: bytes) -> ServiceError:
    said = _reason(content)
    told = f"{endpoint.who} answered {status}" + (f": {said}" if said else "") + "."
    if status in (401, 403):
        return ServiceError(f"{told} Check the key: set {endpoint.key_variable} or pass api_key.")
    if 300 <= status < 400:
        return ServiceError(f"{told} It redirects, and a key is not sent on: check the URL {endpoint.url}.")
    if status not in TRANSIENT or b"insufficient_quota" in content:
        return ServiceError(told)
    wait = _seconds(retry_after)
    if wait is not None and wait > PATIENCE:
        return ServiceError(f"{told} It asks to wait {wait:.0f} s: try again then.")
    return ServiceError(told, wait=True if wait is None else wait)


def _reason(content: bytes) -> str:
    """The message inside an error answer, in any of the shapes that services use."""
    try:
        said = orjson.loads(content)
    except orjson.JSONDecodeError:
        return ""
    for name in ("error", "message", "detail"):
        if isinstance(said, dict) and name in said:
            said = said[name]
    return " ".join(str(said).split())[:300].rstrip(".") if isinstance(said, str) else ""


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


def _no_redirects() -> Any:
    import urllib.request

    class NoRedirects(urllib.request.HTTPRedirectHandler):
        def redirect_request(self, *_: Any) -> None:
            return None

    return NoRedirects()
