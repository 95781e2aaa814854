"""Have the server analyze the tables of a store that is filled for the first time."""

from __future__ import annotations

import contextlib

import psycopg
from psycopg import sql

from engrain.core.errors import EngrainError
from engrain.stores.postgres.connection import Database, TimedConnection

_TABLES = ("item", "source", "citation", "word", "embedding", "episode", "session")
# After so many writes of this process. From then on the server's own rhythm is enough.
_ANALYZE_AT = (100, 1_000, 10_000)
# The server's estimate; negative before the first analysis.
_SIZE = "select reltuples from pg_class where oid = 'item'::regclass"


class TableStatistics:
    """Without statistics the server takes a scope for a row or two, and may scan all of it for one id.

    It analyzes a table once a minute by itself: a first load is over by then."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._written = 0
        ((size,),) = database.read(None, lambda db: db.rows(_SIZE))
        self._due = [] if size > _ANALYZE_AT[-1] else list(_ANALYZE_AT)

    def count_writes(self, count: int) -> None:
        self._written += count
        if self._due and self._written >= self._due[0] and not self._database.joint:
            self._due = [one for one in self._due if one > self._written]
            with contextlib.suppress(EngrainError):
                self._database.alone(self._analyze)

    def _analyze(self, connection: TimedConnection) -> None:
        for table in _TABLES:
            with contextlib.suppress(psycopg.errors.InsufficientPrivilege):
                name = sql.Identifier(self._database.address.schema, table)
                connection.execute(sql.SQL("analyze {}").format(name))
