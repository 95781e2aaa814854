"""Give a large scope an index of its own vectors, beside the writes and while searches go on."""

from __future__ import annotations

import logging
import threading

import psycopg
from psycopg import sql

from engrain.core.errors import EngrainError
from engrain.stores.postgres.link import Link, Timed

# From so many vectors on an index is faster than comparing all: measured, decision 10.
LARGE = 10_000
# So many that pass a filter are compared by themselves.
FEW = 5_000
# What pgvector indexes of a halfvec.
WIDEST = 4_000
_MEMORY = "256MB"
_log = logging.getLogger("engrain")


def index_name(model: int, scope: str) -> str:
    return f"near_{model}_{scope}"


class NearIndexes:
    """One is built at a time in a process, and one process at a time builds one."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._guard = threading.Lock()
        self._asked: set[str] = set()
        self._thread: threading.Thread | None = None

    def ask(self, scope: str, model: int, dimension: int) -> None:
        """Begin to build it, unless that was tried already."""
        name = index_name(model, scope)
        with self._guard:
            if name in self._asked or dimension > WIDEST or (self._thread and self._thread.is_alive()):
                return
            self._asked.add(name)
            values = (name, scope, model, dimension)
            self._thread = threading.Thread(target=self._build, args=values, name="engrain-near", daemon=True)
            self._thread.start()

    def wait(self) -> None:
        thread = self._thread
        if thread:
            thread.join()

    def _build(self, name: str, scope: str, model: int, dimension: int) -> None:
        try:
            connection = self._link.connect()
        except EngrainError:
            _log.warning("no connection to build the index %s; every vector is compared until the next start", name)
            return
        # It takes as long as it takes.
        connection.patience = float("inf")
        try:
            self._create(connection, name, sql.Literal(scope), (model, dimension))
        except psycopg.Error:
            _log.exception("the index %s could not be built; every vector is compared until the next start", name)
        finally:
            connection.close()

    def _create(self, connection: Timed, name: str, scope: sql.Literal, size: tuple[int, int]) -> None:
        model, dimension = size
        schema = self._link.address.schema
        # Of the session, which ends with the connection: no pool sees it again.
        ((free,),) = connection.execute(
            b"select pg_try_advisory_lock(hashtext(%s), hashtext(%s))", (schema, name)
        ).fetchall()
        if not free:
            return
        connection.execute(b"select set_config('search_path', %s, false)", (self._link.path,))
        connection.execute(b"select set_config('maintenance_work_mem', %s, false)", (_MEMORY,))
        # What is left of a build that was cut short is not valid.
        connection.execute(sql.SQL("drop index concurrently if exists {}").format(sql.Identifier(schema, name)))
        statement = sql.SQL(
            "create index concurrently {} on embedding using hnsw ((vector::halfvec({})) halfvec_ip_ops) "
            "where scope = {} and model = {}"
        )
        connection.execute(statement.format(sql.Identifier(name), sql.Literal(dimension), scope, sql.Literal(model)))
