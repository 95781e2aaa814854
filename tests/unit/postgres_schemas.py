"""Stores of a test's own on the real Postgres server."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from typing import Any

import psycopg
from servers import postgres

from engrain.core.scope import Scope
from engrain.stores.postgres import PostgresStore

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
