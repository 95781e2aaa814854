"""Let the server look at a store that is filled for the first time."""

from __future__ import annotations

import contextlib

import psycopg
from psycopg import sql

from engrain.core.errors import EngrainError
from engrain.stores.postgres.link import Db, Link, Timed
from engrain.stores.postgres.sql import load

_SQL = load("queries.sql")
_TABLES = ("item", "source", "citation", "word", "embedding", "episode", "session")
# How many writes of ours after which the server looks; then it knows enough to go on by itself.
_LOOKS = (100, 1_000, 10_000)


class Youth:
    """A server that has no statistics of a table yet guesses that a scope is a row or two, and may then look through
    all of it for one id. It looks by itself once a minute; a first load is over by then."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._wrote = 0
        self._looks = list(_LOOKS)

    def begin(self, db: Db) -> None:
        ((size,),) = db.rows(_SQL["known_size"])
        self._looks = [] if size > _LOOKS[-1] else list(_LOOKS)

    def wrote(self, count: int) -> None:
        self._wrote += count
        if self._looks and self._wrote >= self._looks[0] and not self._link.joint:
            self._looks = [one for one in self._looks if one > self._wrote]
            with contextlib.suppress(EngrainError):
                self._link.alone(self._look)

    def _look(self, connection: Timed) -> None:
        for table in _TABLES:
            with contextlib.suppress(psycopg.errors.InsufficientPrivilege):
                name = sql.Identifier(self._link.address.schema, table)
                connection.execute(sql.SQL("analyze {}").format(name))
