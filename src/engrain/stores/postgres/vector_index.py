"""Build an index of a large scope's vectors in the background, while writes and searches go on."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing

import psycopg
from psycopg import sql

from engrain.core.errors import EngrainError
from engrain.stores.postgres.connection import Database, TimedConnection
from engrain.stores.postgres.migrate import vector_home

# From so many vectors on an index is faster than comparing all: measured, decision 10.
LARGE = 10_000
# So many items that pass a filter are compared one by one.
FEW = 5_000
# The most dimensions of a halfvec that pgvector indexes.
MAX_DIMENSION = 4_000
_MEMORY = "256MB"
# Seconds after which a missing index is tried again: another process may have died while it built it.
_RETRY = 600.0
_IS_VALID = b"""select indisvalid and indisready from pg_index
  where indexrelid = to_regclass(format('%%I.%%I', %s::text, %s::text))"""
_log = logging.getLogger("engrain")


def make_index_name(model: int, scope: str) -> str:
    return f"near_{model}_{scope}"


class HnswIndexes:
    """A process builds one index at a time, and no two processes build the same one."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._lock = threading.Lock()
        self._retry_at: dict[str, float] = {}
        self._thread: threading.Thread | None = None

    def request(self, scope: str, model: int, dimension: int) -> None:
        """Begin to build an index, unless that was tried a short while ago."""
        name = make_index_name(model, scope)
        with self._lock:
            if dimension > MAX_DIMENSION or time.monotonic() < self._retry_at.get(name, 0.0):
                return
            if self._start(lambda: self._build(name, scope, model, dimension)):
                self._retry_at[name] = time.monotonic() + _RETRY

    def drop(self, names: Sequence[str]) -> None:
        """Drop indexes in the background: that waits for readers of the table. Left ones are found the next time."""
        with self._lock:
            if names:
                self._start(lambda: self._drop(names))

    def wait(self) -> None:
        thread = self._thread
        if thread:
            thread.join()

    def forget_attempts(self) -> None:
        """Let the next request try at once."""
        self._retry_at.clear()

    def _start(self, work: Callable[[], None]) -> bool:
        """False if another work is running."""
        if self._thread and self._thread.is_alive():
            return False
        self._thread = threading.Thread(target=work, name="engrain-vector-index", daemon=True)
        self._thread.start()
        return True

    def _drop(self, names: Sequence[str]) -> None:
        try:
            with closing(self._database.connect()) as connection:
                connection.patience = float("inf")
                for name in names:
                    whole = sql.Identifier(self._database.address.schema, name)
                    connection.execute(sql.SQL("drop index concurrently if exists {}").format(whole))
                    self._retry_at.pop(name, None)
        except (EngrainError, psycopg.Error):
            _log.exception("an index of vectors that nobody needs any more could not be dropped")

    def _build(self, name: str, scope: str, model: int, dimension: int) -> None:
        try:
            with closing(self._database.connect()) as keeper, closing(self._database.connect()) as builder:
                # A build takes as long as it takes.
                keeper.patience = builder.patience = float("inf")
                with keeper.transaction():
                    if self._lock_build(keeper, name):
                        self._create(builder, name, sql.Literal(scope), (model, dimension))
        except (EngrainError, psycopg.Error):
            _log.exception("the index %s could not be built; every vector is compared meanwhile", name)

    def _lock_build(self, keeper: TimedConnection, name: str) -> bool:
        """Lock in a transaction, which a pooler leaves to us; it may give a session to others."""
        keeper.execute(b"select set_config('idle_in_transaction_session_timeout', '0', true)")
        lock = sql.SQL("select pg_try_advisory_xact_lock(hashtext({}), hashtext({}))")
        # Without parameters: otherwise the session keeps its snapshot, and the build waits for that.
        ((free,),) = keeper.execute(lock.format(self._database.address.schema, name)).fetchall()
        return bool(free)

    def _create(self, builder: TimedConnection, name: str, scope: sql.Literal, size: tuple[int, int]) -> None:
        """Every name is qualified: a session's settings may be lost behind a pooler."""
        model, dimension = size
        schema = self._database.address.schema
        found = builder.execute(_IS_VALID, (schema, name)).fetchall()
        if found == [(True,)]:
            return  # another process was faster
        if found:  # left by a build that was cut short
            builder.execute(sql.SQL("drop index concurrently {}").format(sql.Identifier(schema, name)))
        if self._database.address.prepare:
            builder.execute(b"select set_config('maintenance_work_mem', %s, false)", (_MEMORY,))
        ((_, home),) = vector_home(builder)
        statement = sql.SQL(
            "create index concurrently {} on {} using hnsw ((vector::{}.halfvec({})) {}.halfvec_ip_ops) "
            "where scope = {} and model = {}"
        )
        table, space = sql.Identifier(schema, "embedding"), sql.SQL(home)
        size_, model_ = sql.Literal(dimension), sql.Literal(model)
        builder.execute(statement.format(sql.Identifier(name), table, space, size_, space, scope, model_))
