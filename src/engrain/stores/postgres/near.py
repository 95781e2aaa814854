"""Give a large scope an index of its own vectors, beside the writes and while searches go on."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence
from contextlib import closing

import psycopg
from psycopg import sql

from engrain.core.errors import EngrainError
from engrain.stores.postgres.link import Link, Timed
from engrain.stores.postgres.migrate import vector_home

# From so many vectors on an index is faster than comparing all: measured, decision 10.
LARGE = 10_000
# So many that pass a filter are compared by themselves.
FEW = 5_000
# What pgvector indexes of a halfvec.
WIDEST = 4_000
_MEMORY = "256MB"
# Seconds after which one that is still not there is tried again: another process may have died while it built it.
_AGAIN = 600.0
_VALID = b"""select indisvalid and indisready from pg_index
  where indexrelid = to_regclass(format('%%I.%%I', %s::text, %s::text))"""
_log = logging.getLogger("engrain")


def index_name(model: int, scope: str) -> str:
    return f"near_{model}_{scope}"


class NearIndexes:
    """One is built at a time in a process, and one process at a time builds one."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._guard = threading.Lock()
        self._asked: dict[str, float] = {}
        self._thread: threading.Thread | None = None

    def ask(self, scope: str, model: int, dimension: int) -> None:
        """Begin to build it, unless that was tried a short while ago."""
        name = index_name(model, scope)
        with self._guard:
            if dimension > WIDEST or (self._thread and self._thread.is_alive()):
                return
            if time.monotonic() < self._asked.get(name, 0.0):
                return
            self._asked[name] = time.monotonic() + _AGAIN
            values = (name, scope, model, dimension)
            self._thread = threading.Thread(target=self._build, args=values, name="engrain-near", daemon=True)
            self._thread.start()

    def drop(self, names: Sequence[str]) -> None:
        """In the background: it waits for whoever reads the table. One that is left is found with the next."""
        with self._guard:
            if names and not (self._thread and self._thread.is_alive()):
                self._thread = threading.Thread(target=self._drop, args=(names,), name="engrain-near", daemon=True)
                self._thread.start()

    def _drop(self, names: Sequence[str]) -> None:
        try:
            with closing(self._link.connect()) as connection:
                connection.patience = float("inf")
                for name in names:
                    whole = sql.Identifier(self._link.address.schema, name)
                    connection.execute(sql.SQL("drop index concurrently if exists {}").format(whole))
                    self._asked.pop(name, None)
        except (EngrainError, psycopg.Error):
            _log.exception("an index of vectors that nobody needs any more could not be dropped")

    def wait(self) -> None:
        thread = self._thread
        if thread:
            thread.join()

    def _build(self, name: str, scope: str, model: int, dimension: int) -> None:
        try:
            with closing(self._link.connect()) as keeper, closing(self._link.connect()) as builder:
                # It takes as long as it takes.
                keeper.patience = builder.patience = float("inf")
                with keeper.transaction():
                    if self._alone(keeper, name):
                        self._create(builder, name, sql.Literal(scope), (model, dimension))
        except (EngrainError, psycopg.Error):
            _log.exception("the index %s could not be built; every vector is compared meanwhile", name)

    def _alone(self, keeper: Timed, name: str) -> bool:
        """Of the transaction, which a pooler leaves to us for as long; one of the session it may give to others."""
        keeper.execute(b"select set_config('idle_in_transaction_session_timeout', '0', true)")
        lock = sql.SQL("select pg_try_advisory_xact_lock(hashtext({}), hashtext({}))")
        # Without parameters: a question that has some keeps its moment until the next, and the build waits for that.
        ((free,),) = keeper.execute(lock.format(self._link.address.schema, name)).fetchall()
        return bool(free)

    def _create(self, builder: Timed, name: str, scope: sql.Literal, size: tuple[int, int]) -> None:
        """Everything by its whole name, for the same reason."""
        model, dimension = size
        schema = self._link.address.schema
        found = builder.execute(_VALID, (schema, name)).fetchall()
        if found == [(True,)]:
            return  # another process was faster
        if found:  # left by a build that was cut short
            builder.execute(sql.SQL("drop index concurrently {}").format(sql.Identifier(schema, name)))
        if self._link.address.prepare:
            builder.execute(b"select set_config('maintenance_work_mem', %s, false)", (_MEMORY,))
        ((_, home),) = vector_home(builder)
        statement = sql.SQL(
            "create index concurrently {} on {} using hnsw ((vector::{}.halfvec({})) {}.halfvec_ip_ops) "
            "where scope = {} and model = {}"
        )
        table, space = sql.Identifier(schema, "embedding"), sql.SQL(home)
        size_, model_ = sql.Literal(dimension), sql.Literal(model)
        builder.execute(statement.format(sql.Identifier(name), table, space, size_, space, scope, model_))
