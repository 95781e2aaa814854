"""Connect to Redis: retries within a timeout, error translation, and the registry of scopes."""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

import redis
from redis import exceptions
from redis.backoff import NoBackoff
from redis.retry import Retry

from engrain.core import errors
from engrain.core.clock import from_micros
from engrain.core.identity import Scope
from engrain.stores.urls import RedisAddress, make_url_error

_NAME = re.compile(r"^-- (\w+) --$", re.MULTILINE)
_SHARED = "shared"


class Script(NamedTuple):
    text: str
    sha: str


@cache
def load_scripts(name: str) -> Mapping[str, Script]:
    """Load a file's scripts by name, each with the file's shared part in front."""
    pieces = _NAME.split((files("engrain.stores.redis") / name).read_text("utf-8"))
    parts = dict(zip(pieces[1::2], pieces[2::2], strict=True))
    shared = parts.pop(_SHARED, "")
    texts = {key: shared + body for key, body in parts.items()}
    return {
        key: Script(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest()) for key, text in texts.items()
    }


def pair_fields(flat: Sequence[str]) -> dict[str, str]:
    """Return the fields of a hash from a script's flat list of names and values."""
    return dict(zip(flat[::2], flat[1::2], strict=True))


def parse_time(micros: str | None) -> datetime | None:
    return from_micros(int(micros)) if micros else None


# Tries of a call that time out; a server that refuses at once is tried more often.
_MAX_SILENT_TRIES = 3
_FIRST_PAUSE, _LONGEST_PAUSE = 0.02, 0.5
_SCAN_COUNT = 1_000  # keys
RETRY_PAUSE_SECONDS = 5.0  # before the next optional call to a server that did not answer
# A server that cannot do a command yet, or is full, has not done it. It answers with an error of the client or, from
# within a script, with a word.
_TEMPORARY_WORDS = ("LOADING", "BUSY", "READONLY", "CLUSTERDOWN", "TRYAGAIN", "MASTERDOWN")
_TEMPORARY_ERRORS = (
    exceptions.ReadOnlyError,
    exceptions.ClusterDownError,
    exceptions.TryAgainError,
    exceptions.MasterDownError,
)
_CLIENT_ERRORS = (redis.RedisError, exceptions.RedisClusterException)
_FULL_WORDS = ("OOM", "MISCONF", "NOREPLICAS")


class RedisConnection:
    """A connection pool. Safe to use from several threads.

    Every call ends with an answer or an error of ours. No try begins after the address's timeout, and one takes at most
    a third of it. A `spare` call is optional: after a call without an answer it fails at once for a while. Then it is
    tried once at a time until the server answers.
    """

    def __init__(self, address: RedisAddress, read_only: bool = False) -> None:
        self.address = address
        self.last_error: str | None = None  # the reason why the last call had no answer
        self._again = 0.0
        self._read_only = read_only
        self._making = threading.Lock()
        self._closed = False
        # A cluster's client connects at once, so the first call creates it, within that call's retries.
        self._client: Any = None if address.cluster else _open_client(address)

    def run(self, script: Script, key: str, args: Sequence[str | int], spare: bool = False) -> Any:
        """Run a script that writes. It is sent again if its answer was lost, so running twice must not matter."""
        self.check_writable()
        return self._retry(lambda client: _run_script(client, script, key, args), writes=True, spare=spare)

    def ask(self, script: Script, key: str, args: Sequence[str | int], spare: bool = False) -> Any:
        """Run a script that only reads."""
        return self._retry(lambda client: _run_script(client, script, key, args), spare=spare)

    def check_writable(self) -> None:
        if self._read_only:
            raise errors.ReadOnlyStore(
                f"{self.address.shown} was opened read-only. Open it without read_only to write."
            )

    def command(self, *words: str | int, spare: bool = False) -> Any:
        """Run a command that reads, or that may run any number of times."""
        return self._retry(lambda client: client.execute_command(*words), spare=spare)

    def commands(self, many: Sequence[Sequence[str | int]]) -> list[Any]:
        """Run several commands that only read, in one pipeline."""

        def run_pipeline(client: Any) -> list[Any]:
            with client.pipeline(transaction=False) as pipe:
                for words in many:
                    pipe.execute_command(*words)
                return list(pipe.execute())

        return self._retry(run_pipeline) if many else []

    def keys(self, pattern: str) -> list[str]:
        """Find the keys that match, on all servers. It scans all their keys."""
        found: list[str] = self._retry(lambda client: list(client.scan_iter(match=pattern, count=_SCAN_COUNT)))
        return found

    def each_server(self, *words: str, patience: float = 0.0) -> list[Any]:
        """Run a command without a key on every server that holds data, with retries for `patience` seconds."""
        patience = min(patience, self.address.timeout)
        options = {"target_nodes": redis.RedisCluster.PRIMARIES} if self.address.cluster else {}
        answer = self._retry(lambda client: client.execute_command(*words, **options), patience=patience)
        return list(answer.values()) if self.address.cluster else [answer]

    def close(self) -> None:
        self._closed = True
        with self._making:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def _get_client(self) -> Any:
        with self._making:
            if self._closed:
                raise errors.StoreClosed("this store was closed. Open it again.")
            if self._client is None:
                self._client = _open_client(self.address)
            return self._client

    def _retry(
        self, ask: Callable[[Any], Any], writes: bool = False, patience: float | None = None, spare: bool = False
    ) -> Any:
        began, pause, tries, unsure = time.monotonic(), _FIRST_PAUSE, 0, False
        if spare and self.last_error is not None:
            if began < self._again:
                raise errors.StoreUnavailable(self.last_error)
            patience = 0.0
        until = began + (self.address.timeout if patience is None else patience)
        while True:
            tries += 1
            reached = self._client is not None
            try:
                answer = ask(self._get_client())
            except (redis.AuthenticationError, exceptions.NoPermissionError) as exc:
                why = f"Redis at {self.address.shown} refused access: {str(exc).rstrip('.')}."
                raise errors.ConfigError(
                    f"{why} Put user and password into the URL: redis://user:password@host"
                ) from exc
            except _CLIENT_ERRORS as exc:
                if not _is_temporary(exc):
                    full = isinstance(exc, exceptions.OutOfMemoryError) or any(word in str(exc) for word in _FULL_WORDS)
                    why = "takes no writes, and did not store this one" if full else "refused a command"
                    raise errors.StoreError(f"Redis at {self.address.shown} {why}: {exc}") from exc
                unsure = unsure or (writes and reached and not _was_never_done(exc))
                if time.monotonic() + pause >= until:
                    raise self._build_unavailable(exc, tries, time.monotonic() - began, unsure) from exc
            else:
                self.last_error = None
                return answer
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _build_unavailable(self, exc: Exception, tries: int, seconds: float, unsure: bool) -> errors.EngrainError:
        count, why = "one try" if tries == 1 else f"{tries} tries", str(exc).rstrip(".")
        message = f"Redis at {self.address.shown} did not answer in {count} within {seconds:.1f} s: {why}."
        self.last_error, self._again = message, time.monotonic() + RETRY_PAUSE_SECONDS
        if unsure:
            return errors.OutcomeUnknown(f"{message} The write may or may not have been done. Repeat it.")
        return errors.StoreUnavailable(f"{message} Is the server up, and can it be reached from here?")


def new_call_id() -> str:
    """Return the id of one call, under which the server keeps its answer for a while."""
    return secrets.token_hex(8)


def _open_client(address: RedisAddress) -> Any:
    # A cluster's client retries once by itself, after it has refreshed its map of the servers.
    share = address.timeout / _MAX_SILENT_TRIES / (2 if address.cluster else 1)
    options: dict[str, Any] = {
        "decode_responses": True,
        "socket_timeout": share,
        "socket_connect_timeout": min(share, 3.0),
        "socket_keepalive": True,
    }
    try:
        if address.cluster:
            once = Retry(NoBackoff(), 1)
            return redis.RedisCluster.from_url(address.url, retry=once, max_connections=address.pool, **options)
        pool = redis.BlockingConnectionPool.from_url(
            address.url, retry=Retry(NoBackoff(), 0), max_connections=address.pool, timeout=share, **options
        )
        return redis.Redis(connection_pool=pool)
    except (TypeError, ValueError):
        raise make_url_error(address.url, "Redis") from None


def _run_script(client: Any, script: Script, key: str, args: Sequence[str | int]) -> Any:
    try:
        return client.evalsha(script.sha, 1, key, *args)
    except exceptions.NoScriptError:
        return client.eval(script.text, 1, key, *args)


def _is_temporary(exc: Exception) -> bool:
    """Check whether a later try may succeed."""
    if isinstance(exc, redis.ResponseError):
        return isinstance(exc, _TEMPORARY_ERRORS) or any(word in str(exc) for word in _TEMPORARY_WORDS)
    return isinstance(exc, (redis.ConnectionError, redis.TimeoutError, exceptions.RedisClusterException))


def _was_never_done(exc: Exception) -> bool:
    """Check that the command certainly did not run."""
    if isinstance(exc, (redis.ResponseError, redis.BusyLoadingError)):
        return True
    return "connecting to" in str(exc) or "No connection available" in str(exc)


_FORGET_SCRIPT = load_scripts("registry.lua")["forget"]
# Each process notes a scope before it writes to it, at most once in _NOTE_SECONDS. A scope that was not noted for a day
# has no writer, and is removed once it is empty. So no write waits for this list. The interval is short because an
# erasure removes the name, and only the next note lists a user who comes back.
_NOTE_SECONDS, _KEPT_SECONDS = 60, 86_400
_MAX_KNOWN_SCOPES = 100_000
SHARDS = "0123456789abcdef"  # spread the list over many servers of a cluster
_PAGE_SIZE = 500


class RegisteredScope(NamedTuple):
    scope: Scope
    member: str
    at: float


class ScopeRegistry:
    """The list of scopes that have data of one kind on the server."""

    def __init__(self, link: RedisConnection, of: str, spare: bool = False) -> None:
        self._link = link
        self._of = of
        self._spare = spare
        self._known: dict[Scope, float] = {}

    def note(self, scope: Scope, again: bool = False) -> None:
        """List a scope; with `again`, even if this process listed it just now."""
        if not again and self._known.get(scope, 0.0) > time.monotonic():
            return
        self._link.check_writable()
        now, member = int(time.time()), _encode_scope(scope)
        self._link.command("ZADD", self._key(scope.id[0]), now, member, spare=self._spare)
        if len(self._known) >= _MAX_KNOWN_SCOPES:
            self._known.clear()
        self._known[scope] = time.monotonic() + _NOTE_SECONDS

    def has(self, scope: Scope) -> bool:
        return self._link.command("ZSCORE", self._key(scope.id[0]), _encode_scope(scope)) is not None

    def remove(self, scope: Scope) -> None:
        self._link.command("ZREM", self._key(scope.id[0]), _encode_scope(scope))

    def pages(self) -> Iterator[list[RegisteredScope]]:
        """Yield all scopes in pages. A scope that is noted meanwhile may be missing."""
        for shard in SHARDS:
            yield from self.shard(shard)

    def shard(self, shard: str) -> Iterator[list[RegisteredScope]]:
        """Yield the scopes whose ids begin with this digit."""
        cursor: Any = 0
        while True:
            cursor, found = self._link.command("ZSCAN", self._key(shard), cursor, "COUNT", _PAGE_SIZE)
            noted = [RegisteredScope(Scope(*json.loads(member)), member, float(at)) for member, at in found]
            for start in range(0, len(noted), _PAGE_SIZE):
                yield noted[start : start + _PAGE_SIZE]
            if int(cursor) == 0:
                break

    def forget(self, empty: Sequence[RegisteredScope]) -> None:
        for scope, member, at in empty:
            if at < time.time() - _KEPT_SECONDS:
                self._link.run(_FORGET_SCRIPT, self._key(scope.id[0]), [member, str(int(at))])

    def _key(self, shard: str) -> str:
        return f"engrain:scopes:{self._of}:{shard}"


def _encode_scope(scope: Scope) -> str:
    return json.dumps([scope.tenant, scope.agent, scope.user])
