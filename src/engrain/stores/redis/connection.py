"""Reach the server: connections, tries within a time, and its errors as ours."""

from __future__ import annotations

import hashlib
import json
import re
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple

import redis
from redis import exceptions as errors
from redis.backoff import NoBackoff
from redis.retry import Retry

from engrain.core.errors import (
    ConfigError,
    EngrainError,
    OutcomeUnknown,
    ReadOnlyStore,
    StoreClosed,
    StoreError,
    StoreUnavailable,
)
from engrain.core.identity import Scope
from engrain.stores.urls import RedisAddress

_NAME = re.compile(r"^-- (\w+) --$", re.MULTILINE)
_SHARED = "shared"


class Script(NamedTuple):
    text: str
    sha: str


@cache
def load(name: str) -> Mapping[str, Script]:
    """Each script by its name, with what the file's scripts share in front."""
    pieces = _NAME.split((files("engrain.stores.redis") / name).read_text("utf-8"))
    parts = dict(zip(pieces[1::2], pieces[2::2], strict=True))
    shared = parts.pop(_SHARED, "")
    return {key: _script(shared + body) for key, body in parts.items()}


def _script(text: str) -> Script:
    return Script(text, hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest())


# A call may take this many silent tries; a server that refuses at once is tried more often.
_SILENT_TRIES = 3
_PAUSE, _LONGEST_PAUSE = 0.02, 0.5
_SCANNED = 1_000  # keys at a time
REST = 5.0  # seconds for which a server that did not answer is not asked for what can be done without
# What a server says that cannot do it yet, or is full, without having done it: as an error of the client, or, from
# within a script, as a word.
_NOT_YET = ("LOADING", "BUSY", "READONLY", "CLUSTERDOWN", "TRYAGAIN", "MASTERDOWN")
_NOT_YET_ERRORS = (errors.ReadOnlyError, errors.ClusterDownError, errors.TryAgainError, errors.MasterDownError)
_ERRORS = (redis.RedisError, errors.RedisClusterException)
_FULL = ("OOM", "MISCONF", "NOREPLICAS")


class Link:
    """Safe to use from several threads. Every call ends with an answer or an error of ours: no try begins after the
    address's time-out, and one takes a third of it at most. A `spare` call is for what can be done without: once the
    server did not answer, it is left alone for a while and then asked once at a time until it does."""

    def __init__(self, address: RedisAddress, read_only: bool = False) -> None:
        self.address = address
        self.trouble: str | None = None  # why the last call had no answer
        self._again = 0.0
        self._read_only = read_only
        self._making = threading.Lock()
        self._closed = False
        # The client of a cluster looks for its servers at once: it is made with the first call, and tried as one.
        self._client: Any = None if address.cluster else _client(address)

    def run(self, script: Script, key: str, args: Sequence[str | int], spare: bool = False) -> Any:
        """A script that writes. It is sent again when its answer was lost, so that doing it twice must not matter."""
        self.prove_writable()
        return self._tried(lambda client: _evaluated(client, script, key, args), writes=True, spare=spare)

    def ask(self, script: Script, key: str, args: Sequence[str | int], spare: bool = False) -> Any:
        """A script that only reads."""
        return self._tried(lambda client: _evaluated(client, script, key, args), spare=spare)

    def prove_writable(self) -> None:
        if self._read_only:
            raise ReadOnlyStore(f"{self.address.shown} was opened to be read only.")

    def command(self, *words: str | int, spare: bool = False) -> Any:
        """One that reads, or that may be done any number of times."""
        return self._tried(lambda client: client.execute_command(*words), spare=spare)

    def commands(self, many: Sequence[Sequence[str | int]]) -> list[Any]:
        """Several that only read, in one go where the server allows it."""

        def piped(client: Any) -> list[Any]:
            with client.pipeline(transaction=False) as pipe:
                for words in many:
                    pipe.execute_command(*words)
                return list(pipe.execute())

        return self._tried(piped) if many else []

    def keys(self, pattern: str) -> list[str]:
        """Every key like this, on all servers: it looks through all that they hold."""
        found: list[str] = self._tried(lambda client: list(client.scan_iter(match=pattern, count=_SCANNED)))
        return found

    def each_server(self, *words: str, patience: float = 0.0) -> list[Any]:
        """A command without a key, from every server that holds data; it is tried again for as long as `patience`."""
        patience = min(patience, self.address.timeout)
        if not self.address.cluster:
            return [self._tried(lambda client: client.execute_command(*words), patience=patience)]
        nodes = redis.RedisCluster.PRIMARIES
        many = self._tried(lambda client: client.execute_command(*words, target_nodes=nodes), patience=patience)
        return list(many.values())

    def close(self) -> None:
        self._closed = True
        with self._making:
            client, self._client = self._client, None
        if client is not None:
            client.close()

    def _connected(self) -> Any:
        with self._making:
            if self._closed:
                raise StoreClosed("this store was closed. Open it again.")
            if self._client is None:
                self._client = _client(self.address)
            return self._client

    def _tried(
        self, ask: Callable[[Any], Any], writes: bool = False, patience: float | None = None, spare: bool = False
    ) -> Any:
        began, pause, tries, unsure = time.monotonic(), _PAUSE, 0, False
        if spare and self.trouble is not None:
            if began < self._again:
                raise StoreUnavailable(self.trouble)
            patience = 0.0
        until = began + (self.address.timeout if patience is None else patience)
        while True:
            tries += 1
            reached = self._client is not None
            try:
                answer = ask(self._connected())
            except (redis.AuthenticationError, errors.NoPermissionError) as exc:
                told = f"Redis at {self.address.shown} does not let us in: {str(exc).rstrip('.')}."
                raise ConfigError(f"{told} User and password go into the URL: redis://user:password@host.") from exc
            except _ERRORS as exc:
                if not _may_pass(exc):
                    raise self._refused(exc) from exc
                unsure = unsure or (writes and reached and not _never_done(exc))
                if time.monotonic() + pause >= until:
                    raise self._given_up(exc, tries, time.monotonic() - began, unsure) from exc
            else:
                self.trouble = None
                return answer
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def _refused(self, exc: Exception) -> EngrainError:
        where = self.address.shown
        if isinstance(exc, errors.OutOfMemoryError) or any(word in str(exc) for word in _FULL):
            return StoreError(f"Redis at {where} takes no writes; nothing was kept of this one: {exc}")
        return StoreError(f"Redis at {where} could not do this: {exc}")

    def _given_up(self, exc: Exception, tries: int, seconds: float, unsure: bool) -> EngrainError:
        often, why = "one try" if tries == 1 else f"{tries} tries", str(exc).rstrip(".")
        told = f"Redis at {self.address.shown} did not answer in {often} within {seconds:.1f} s: {why}."
        self.trouble, self._again = told, time.monotonic() + REST
        if unsure:
            return OutcomeUnknown(f"{told} The write may or may not have been done. Repeat it.")
        return StoreUnavailable(f"{told} Is the server up, and can it be reached from here?")


def new_call() -> str:
    """The number of one call, under which its answer is kept for a while."""
    return secrets.token_hex(8)


def _client(address: RedisAddress) -> Any:
    # The client of a cluster tries once more by itself, after it has asked who is where.
    share = address.timeout / _SILENT_TRIES / (2 if address.cluster else 1)
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
    except (TypeError, ValueError) as exc:
        raise ConfigError(f"{address.shown} is not a Redis URL: {exc}.") from exc


def _evaluated(client: Any, script: Script, key: str, args: Sequence[str | int]) -> Any:
    try:
        return client.evalsha(script.sha, 1, key, *args)
    except errors.NoScriptError:
        return client.eval(script.text, 1, key, *args)


def _may_pass(exc: Exception) -> bool:
    """Whether a later try may go better."""
    if isinstance(exc, redis.ResponseError):
        return isinstance(exc, _NOT_YET_ERRORS) or any(word in str(exc) for word in _NOT_YET)
    return isinstance(exc, (redis.ConnectionError, redis.TimeoutError, errors.RedisClusterException))


def _never_done(exc: Exception) -> bool:
    """Whether the command certainly did not reach a server that does it."""
    if isinstance(exc, (redis.ResponseError, redis.BusyLoadingError)):
        return True
    return "connecting to" in str(exc) or "No connection available" in str(exc)


_FORGET = load("registry.lua")["forget"]
# A scope is noted before it is written to, by each process at most so often (seconds); one that was not noted for a day
# can have no writer, and is let go of once it is empty. So no write ever waits for this list. Not rarer: an erasure
# takes the name out, and who comes back is listed again only with the next note.
_EVERY, _KEPT = 60, 86_400
_MOST_KNOWN = 100_000
SHARDS = "0123456789abcdef"  # the list of a large deployment lies on many servers of a cluster
_PAGE = 500


class Noted(NamedTuple):
    scope: Scope
    member: str
    at: float

    @property
    def old(self) -> bool:
        return self.at < time.time() - _KEPT


class Registry:
    def __init__(self, link: Link, of: str, spare: bool = False) -> None:
        self._link = link
        self._of = of
        self._spare = spare
        self._known: dict[Scope, float] = {}

    def note(self, scope: Scope, again: bool = False) -> None:
        """With `again` also if it was noted just now."""
        if not again and self._known.get(scope, 0.0) > time.monotonic():
            return
        self._link.prove_writable()
        member = json.dumps([scope.tenant, scope.agent, scope.user])
        self._link.command("ZADD", self._key(scope.id[0]), int(time.time()), member, spare=self._spare)
        if len(self._known) >= _MOST_KNOWN:
            self._known.clear()
        self._known[scope] = time.monotonic() + _EVERY

    def pages(self) -> Iterator[list[Noted]]:
        """All scopes; one that is noted meanwhile may be left out."""
        for shard in SHARDS:
            yield from self.shard(shard)

    def shard(self, shard: str) -> Iterator[list[Noted]]:
        """Those whose ids begin with this digit."""
        cursor: Any = 0
        while True:
            cursor, found = self._link.command("ZSCAN", self._key(shard), cursor, "COUNT", _PAGE)
            noted = [Noted(Scope(*json.loads(member)), member, float(at)) for member, at in found]
            for start in range(0, len(noted), _PAGE):
                yield noted[start : start + _PAGE]
            if int(cursor) == 0:
                break

    def forget(self, empty: Sequence[Noted]) -> None:
        for one in empty:
            if one.old:
                self._link.run(_FORGET, self._key(one.scope.id[0]), [one.member, str(int(one.at))])

    def _key(self, shard: str) -> str:
        return f"engrain:scopes:{self._of}:{shard}"
