"""Connect to the server: a pool of connections, transactions on them, and retries after a lost connection."""

from __future__ import annotations

import math
import os
import threading
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import dataclass, field
from random import random
from typing import Any, TypeVar

import psycopg
from psycopg.conninfo import conninfo_to_dict
from psycopg_pool import ConnectionPool, PoolClosed, PoolTimeout

from engrain.core.errors import ConfigError, OutcomeUnknown, StoreBusy, StoreClosed, StoreUnavailable
from engrain.core.identity import Scope
from engrain.core.secrets.urls import hide_secrets
from engrain.stores.postgres.syntax import AdapterContext, is_lost, is_retryable, translate_error
from engrain.stores.relational.dialect import Deferred
from engrain.stores.urls import COMMON_OPTIONS, SWITCH, UrlOption, make_url_error, split_url

Answer = TypeVar("Answer")
Row = tuple[Any, ...]

_ATTEMPTS = 6
_PAUSE = 0.02
_ASK_AGAIN = 1.0
_LONGEST_PAUSE = 0.5
_JOINT_IDLE = 600_000  # milliseconds, in which another store may be read
# Added to the server's own timeouts: it gives up first and says why. Only a silent server is given up by us.
_GRACE_SECONDS = 5.0
# Words in the message of a server that refuses the connection, and how to fix each.
_REFUSALS = {
    "password": "Give it in the URL (postgresql://user:password@…), in PGPASSWORD or in ~/.pgpass.",
    "authentication": "Its pg_hba.conf says how this user must log in.",
    "no pg_hba.conf entry": "Its pg_hba.conf says who may come from where.",
    "does not exist": "Create it (createdb, createuser), or name another in the URL.",
    "is not permitted": "Another role may be.",
}
_BEGIN = {
    "read": b"begin isolation level repeatable read read only",
    # Each statement sees the latest commits.
    "look": b"begin isolation level read committed read only",
    "write": b"begin isolation level read committed",
    "repeat": b"begin isolation level read committed",
}
_READING = ("read", "look")
_COMMIT = b"commit"
_SETTINGS = b"""select set_config('search_path', %s, true), set_config('engrain.scope', %s, true),
  set_config('engrain.maintenance', %s, true), set_config('statement_timeout', %s, true),
  set_config('lock_timeout', %s, true), set_config('idle_in_transaction_session_timeout', %s, true),
  set_config('plan_cache_mode', 'force_custom_plan', true)"""


class TimedConnection(psycopg.Connection[Row]):
    """A connection whose every wait ends, even if the server accepts a statement and never answers."""

    patience = 60.0

    def wait(self, gen: Any, *args: Any, **kwargs: Any) -> Any:
        return super().wait(self._with_deadline(gen), *args, **kwargs)

    def _with_deadline(self, gen: Generator[Any, Any, Any]) -> Generator[Any, Any, Any]:
        deadline = time.monotonic() + self.patience
        try:
            wanted = next(gen)
            while True:
                ready = yield wanted
                if not ready and time.monotonic() > deadline:
                    seconds, self.patience = self.patience, 0.0  # closing must not wait for it again
                    raise psycopg.OperationalError(f"no answer within {seconds:g} seconds")
                wanted = gen.send(ready)
        except StopIteration as stop:
            return stop.value


@dataclass(frozen=True, slots=True)
class PipelinedConnection:
    """A connection inside a transaction of a scope, or of maintenance across all."""

    connection: TimedConnection

    def rows(self, sql: str, args: Any = None) -> list[Row]:
        return self.ask(sql, args).fetchall()

    def ask(self, sql: str, args: Any = None) -> psycopg.Cursor[Row]:
        """Send a query and fetch its rows later, so that several share one round trip."""
        return self.connection.execute(sql.encode(), args, binary=True)

    def run(self, sql: str, args: Any = None) -> None:
        """Send without waiting. An error is raised by the next statement that waits, and nothing is kept."""
        self.connection.execute(sql.encode(), args)


Do = Callable[[PipelinedConnection], Answer | Deferred[Answer]]
Lent = Callable[[], AbstractContextManager[TimedConnection]]


class Database:
    def __init__(self, address: Address) -> None:
        self.address = address
        self._guard = threading.Lock()
        self._joint = threading.local()
        self._pool: ConnectionPool[TimedConnection] | None = None
        self._pooled = False
        self._process = 0
        self.path = ""  # our schema and that of pgvector
        self._closed = False

    # Transactions

    def read(self, scope: Scope | None, do: Do[Answer], mode: str = "read") -> Answer:
        """Run `do` on one snapshot of a scope; without a scope, of the whole store."""
        if connection := self.joint or self._snapshot:
            return self._run_inside(connection, scope, do)
        return self.alone(lambda connection: self._transact(connection, scope, do, mode))

    def write(self, scope: Scope | None, do: Do[Answer], mode: str = "write") -> Answer:
        """Run `do` in one transaction, from the start again if other writers made it fail.

        In the mode "repeat", `do` may happen twice: a lost commit is repeated too."""
        if self.joint:
            return self._run_inside(self.joint, scope, do)
        return self.alone(lambda connection: self._transact(connection, scope, do, mode))

    def in_transaction(self, do: Callable[[], Answer]) -> Answer:
        """Run `do` as one transaction of this thread. It may run twice."""
        return self.alone(lambda connection: self._run_transaction(connection, do, "repeat"))

    def on_snapshot(self, do: Callable[[], Answer]) -> Answer:
        """Run `do` on one snapshot. It may run twice."""
        if self.joint or self._snapshot:
            return do()
        self.get_pool()  # StoreClosed after `close`
        # Outside the pool, because it may take long, and this thread may write meanwhile.
        lent = lambda: closing(self.connect(self.address.timeout))  # noqa: E731
        return self.alone(lambda connection: self._run_transaction(connection, do, "read"), lent)

    @property
    def joint(self) -> TimedConnection | None:
        """The connection of this thread's `in_transaction`."""
        return getattr(self._joint, "connection", None)

    @property
    def _snapshot(self) -> TimedConnection | None:
        return getattr(self._joint, "snapshot", None)

    def _run_transaction(self, connection: TimedConnection, do: Callable[[], Answer], mode: str) -> Answer:
        name = "snapshot" if mode in _READING else "connection"
        try:
            connection.execute(_BEGIN[mode])
            setattr(self._joint, name, connection)
            answer = do()
        except BaseException as exc:
            _leave(connection, exc)
            raise
        finally:
            setattr(self._joint, name, None)
        self._commit(connection, mode)
        return answer

    def _run_inside(self, connection: TimedConnection, scope: Scope | None, do: Do[Answer]) -> Answer:
        with connection.pipeline():
            connection.execute(_SETTINGS, (*self._settings(scope)[:-1], str(_JOINT_IDLE)))
            answer = do(PipelinedConnection(connection))
        return answer.read() if isinstance(answer, Deferred) else answer

    def _transact(self, connection: TimedConnection, scope: Scope | None, do: Do[Answer], mode: str) -> Answer:
        try:
            with connection.pipeline():
                connection.execute(_BEGIN[mode])
                connection.execute(_SETTINGS, self._settings(scope))
                answer = do(PipelinedConnection(connection))
                if mode in _READING:
                    connection.execute(_COMMIT)
            found = answer.read() if isinstance(answer, Deferred) else answer
        except BaseException as exc:
            _leave(connection, exc)
            raise
        if mode not in _READING:
            self._commit(connection, mode)
        return found

    def _commit(self, connection: TimedConnection, mode: str) -> None:
        """Send the commit alone and wait for it: only a connection lost here leaves the outcome unknown."""
        try:
            connection.execute(_COMMIT)
        except psycopg.Error as exc:
            if mode == "write" and is_lost(exc):
                raise OutcomeUnknown(
                    f"the connection to {self.address.shown} was lost during the commit, so the write may or may not "
                    "be durable. Repeat it with the same request_id."
                ) from exc
            raise

    def _settings(self, scope: Scope | None) -> tuple[str, ...]:
        millis = int(self.address.timeout * 1000)
        owner, maintenance = ("", "on") if scope is None else (scope.id, "")
        # A lock times out before its statement does, so that the error names the lock.
        return (self.path, owner, maintenance, str(millis), str(millis * 4 // 5), str(2 * millis))

    def alone(self, do: Callable[[TimedConnection], Answer], lent: Lent | None = None) -> Answer:
        """Call `do` with a connection outside any transaction; repeat it after a lost connection or a conflict."""
        attempt, deadline = 0, time.monotonic() + self.address.timeout
        while True:
            attempt += 1
            try:
                with (lent or self._connection)() as connection:
                    return do(connection)
            except psycopg.Error as exc:
                late = attempt >= _ATTEMPTS or time.monotonic() > deadline
                if late or not (is_retryable(exc) or is_lost(exc)):
                    raise translate_error(exc, self.address.shown) from exc
            time.sleep(_PAUSE * 2**attempt * (0.5 + random()))

    # Connections

    @contextmanager
    def _connection(self) -> Iterator[TimedConnection]:
        pool, connection = self._take_connection()
        try:
            yield connection
        except (psycopg.Error, OutcomeUnknown) as exc:
            if isinstance(exc, OutcomeUnknown) or is_lost(exc):
                connection.close()
                # Idle connections may be dead as well, and each would cost a timeout.
                pool.drain()
            raise
        finally:
            pool.putconn(connection)

    def _take_connection(self) -> tuple[ConnectionPool[TimedConnection], TimedConnection]:
        deadline = time.monotonic() + self.address.timeout
        while True:
            pool = self.get_pool()
            try:
                # In short waits: the pool tries to connect when it is asked, and not again while we wait.
                return pool, pool.getconn(min(_ASK_AGAIN, self.address.timeout))
            except PoolTimeout as exc:
                if time.monotonic() > deadline:
                    raise self._unavailable() from exc
            except PoolClosed:
                continue  # closed by `close`, which `get_pool` reports, or after an interrupt in another thread
            except Exception:
                raise
            except BaseException:
                self._give_up(pool)
                raise

    def _give_up(self, pool: ConnectionPool[TimedConnection]) -> None:
        """Replace the pool after an interrupt: it would hand a connection to the interrupted caller and lose it.

        Connections in use are closed when they come back."""
        with self._guard:
            if self._pool is pool:
                self._pool = None
        pool.close(timeout=_ASK_AGAIN)

    def get_pool(self) -> ConnectionPool[TimedConnection]:
        """Return the pool of this process: a forked child must not use the connections of its parent."""
        with self._guard:
            if self._closed:
                raise StoreClosed("this store was closed. Open it again.")
            if self._pool is None or self._process != os.getpid():
                self._pool = ConnectionPool(
                    connection_class=TimedConnection,
                    kwargs=self.parameters(),
                    min_size=0,
                    max_size=self.address.pool,
                    timeout=self.address.timeout,
                    configure=self._configure,
                    reconnect_timeout=_ASK_AGAIN,
                    name="engrain",
                    open=True,
                )
                self._process = os.getpid()
            return self._pool

    def connect(self, patience: float = 0.0) -> TimedConnection:
        """Open a connection outside the pool. A server that does not answer is tried again for `patience` seconds."""
        began, pause, tries = time.monotonic(), _PAUSE, 0
        until = began + min(patience, self.address.timeout)
        while True:
            tries += 1
            try:
                connection = TimedConnection.connect(**self.parameters())
            except psycopg.Error as exc:
                fault = self._explain_refusal(exc, tries, time.monotonic() - began)
                if isinstance(fault, ConfigError) or time.monotonic() + pause >= until:
                    raise fault from exc
            else:
                self._configure(connection)
                return connection
            time.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE)

    def parameters(self) -> dict[str, Any]:
        address = self.address
        try:
            parsed = conninfo_to_dict(address.url)
        except psycopg.ProgrammingError:
            raise make_url_error(address.url, "Postgres") from None
        return {
            "connect_timeout": math.ceil(address.timeout),
            "keepalives_idle": 30,
            "application_name": "engrain",
            **parsed,
            "client_encoding": "UTF8",
            "autocommit": True,
            "context": AdapterContext,
            "prepare_threshold": 5 if address.prepare and not self._pooled else None,
        }

    def _configure(self, connection: TimedConnection) -> None:
        connection.patience = self.address.timeout + _GRACE_SECONDS

    def look_for_pooler(self, connection: TimedConnection) -> None:
        """Detect a pooler by the session number that it makes up, and prepare no statements behind it.

        A prepared statement of the same name may be another client's, and would run instead of ours."""
        ((number,),) = connection.execute(b"select pg_backend_pid()").fetchall()
        self._pooled = number != connection.info.backend_pid

    def _unavailable(self) -> StoreBusy | StoreUnavailable | ConfigError:
        """The error of a pool that gave no connection: all are in use, or the server cannot be reached."""
        try:
            self.connect().close()
        except (StoreUnavailable, ConfigError) as exc:
            return exc
        return StoreBusy(
            f"all {self.address.pool} connections to {self.address.shown} were in use for "
            f"{self.address.timeout:g} seconds. Raise pool= in the URL, or use fewer threads."
        )

    def _explain_refusal(self, exc: psycopg.Error, tries: int, seconds: float) -> StoreUnavailable | ConfigError:
        tried = f"(tried {self.address.shown} {'once' if tries == 1 else f'{tries} times'} in {seconds:.1f} s)"
        lines = [line.strip().rstrip(".?") for line in str(exc).strip().splitlines()]
        message = "; ".join(lines).removeprefix("connection failed: ")
        # The driver gives a refused connection no code. Only the message tells a wrong password from a dead server.
        for words, fix in _REFUSALS.items():
            if words in message:
                return ConfigError(f"the server refused us: {message}. {fix} {tried}")
        return StoreUnavailable(f"the server did not answer: {message}. {tried}")

    def close(self) -> None:
        with self._guard:
            self._closed = True
            pool, self._pool = self._pool, None
        if pool and self._process == os.getpid():
            pool.close()


def _leave(connection: TimedConnection, why: BaseException) -> None:
    """Roll back; close a connection that is lost."""
    with suppress(psycopg.Error):
        if isinstance(why, psycopg.Error) and is_lost(why):
            connection.close()
        else:
            connection.rollback()


_LONGEST_NAME = 63
_SCHEMA = UrlOption(
    f"a name of at most {_LONGEST_NAME} bytes",
    lambda text: text if text and "\x00" not in text and len(text.encode()) <= _LONGEST_NAME else None,
)
_OPTIONS = {**COMMON_OPTIONS, "prepare": SWITCH, "schema": _SCHEMA}


@dataclass(frozen=True, slots=True)
class Address:
    """The address of a Postgres store. `timeout` limits connecting, the wait for the pool, a lock and a statement.

    `patience` is how long opening the store waits for a server that is still starting, at most the timeout. Both are in
    seconds.

    `prepare` is False behind a pooler that does not keep prepared statements apart.
    """

    url: str = field(repr=False)  # it may hold a password
    shown: str
    schema: str = "engrain"
    pool: int = 10
    timeout: float = 30.0
    patience: float = 5.0
    prepare: bool = True


def read_url(url: str) -> Address:
    """postgresql://user:password@host:5432/database?schema=engrain&pool=10&timeout=30&patience=5&prepare=off

    Every other parameter is libpq's own (sslmode, target_session_attrs, …).
    """
    rest, own = split_url(url, "Postgres", _OPTIONS)
    return Address(rest, hide_secrets(url), **own)
