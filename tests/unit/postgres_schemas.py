"""Stores of a test's own on the real Postgres server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import psycopg
from servers import postgres

from engrain.core.identity import Scope
from engrain.stores.postgres import PostgresStore
from engrain.stores.postgres.connection import TimedConnection

_numbers = count()


@contextmanager
def fresh_schema() -> Iterator[str]:
    name = f"unit_{next(_numbers)}"
    yield name
    postgres().run(f"drop schema if exists {name} cascade")


def open_store(schema: str, more: str = "", **values: Any) -> PostgresStore:
    return PostgresStore(f"{postgres().url()}?schema={schema}{more}", **values)


@contextmanager
def member(schema: str, scope: Scope | None = None) -> Iterator[psycopg.Connection[Any]]:
    """A bare connection of the role that owns the tables, as an injected statement would have it."""
    with psycopg.connect(postgres().url(), autocommit=True) as connection:
        connection.execute(f"set search_path = {schema}, public".encode())
        if scope:
            connection.execute("select set_config('engrain.scope', %s, false)", (scope.id,))
        yield connection


def tables(connection: psycopg.Connection[Any], schema: str) -> list[str]:
    """Those whose rows belong to a scope."""
    rows = connection.execute(
        "select table_name from information_schema.columns where table_schema = %s and column_name = 'scope'", (schema,)
    ).fetchall()
    return sorted({*(name for (name,) in rows), "scope"})


class Pooler:
    """Hands out what seems a connection, as a pooler in transaction mode does: each statement, or each transaction as a
    whole, goes to another session, and what one leaves behind in a session is there for all."""

    def __init__(self, parameters: dict[str, Any]) -> None:
        self._sessions = [TimedConnection.connect(**{**parameters, "prepare_threshold": None}) for _ in range(3)]
        self._turns = count()

    def connect(self) -> Any:
        return Pooled(self)

    def next(self) -> TimedConnection:
        for _ in self._sessions:
            one = self._sessions[next(self._turns) % len(self._sessions)]
            if one.info.transaction_status == psycopg.pq.TransactionStatus.IDLE:
                return one
        raise AssertionError("all sessions are in a transaction")

    def left(self) -> set[str]:
        """Settings and locks that a session was left with."""
        found: set[str] = set()
        for one in self._sessions:
            changed = "select name from pg_settings where source = 'session' and name <> 'client_encoding'"
            found |= {name for (name,) in one.execute(changed).fetchall()}
            held = "select locktype from pg_locks where pid = pg_backend_pid() and locktype = 'advisory'"
            found |= {kind for (kind,) in one.execute(held).fetchall()}
        return found

    def __enter__(self) -> Pooler:
        return self

    def __exit__(self, *_: object) -> None:
        for one in self._sessions:
            one.close()


class Pooled:
    patience = 60.0

    def __init__(self, pooler: Pooler) -> None:
        self._pooler = pooler
        self._mine: TimedConnection | None = None

    def execute(self, *args: Any, **values: Any) -> Any:
        return (self._mine or self._pooler.next()).execute(*args, **values)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        if self._mine is not None:
            with self._mine.transaction():
                yield
            return
        self._mine = self._pooler.next()
        try:
            with self._mine.transaction():
                yield
        finally:
            self._mine = None

    @property
    def info(self) -> psycopg.ConnectionInfo:
        return self._pooler.next().info

    def close(self) -> None:
        """The sessions stay."""
