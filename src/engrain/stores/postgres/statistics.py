"""Have the server analyze the tables of a store that is filled for the first time."""

from __future__ import annotations

import contextlib

import psycopg
from psycopg import sql

from engrain.core.errors import EngrainError
from engrain.stores.postgres.link import Link, Timed

_TABLES = ("item", "source", "citation", "word", "embedding", "episode", "session")
# After so many writes of this process. From then on the server's own rhythm is enough.
_ANALYZE_AT = (100, 1_000, 10_000)
# The server's estimate; negative before the first analysis.
_SIZE = "select reltuples from pg_class where oid = 'item'::regclass"


class TableStatistics:
    """Without statistics the server takes a scope for a row or two, and may scan all of it for one id.

    It analyzes a table once a minute by itself: a first load is over by then."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._written = 0
        ((size,),) = link.read(None, lambda db: db.rows(_SIZE))
        self._due = [] if size > _ANALYZE_AT[-1] else list(_ANALYZE_AT)

    def count_writes(self, count: int) -> None:
        self._written += count
        if self._due and self._written >= self._due[0] and not self._link.joint:
            self._due = [one for one in self._due if one > self._written]
            with contextlib.suppress(EngrainError):
                self._link.alone(self._analyze)

    def _analyze(self, connection: Timed) -> None:
        for table in _TABLES:
            with contextlib.suppress(psycopg.errors.InsufficientPrivilege):
                name = sql.Identifier(self._link.address.schema, table)
                connection.execute(sql.SQL("analyze {}").format(name))
