"""Postgres schemas for tests: made once a process, emptied after each test, and handed out again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from itertools import count
from typing import Any

import psycopg
from psycopg import sql
from servers import postgres

from engrain.stores.postgres import PostgresStore

# Hashed by the server: the lines would be read anew after each test.
_DESCRIBE = """
  with relation as (select * from pg_class where relnamespace = to_regnamespace(%(schema)s)), made (line) as (
  select concat_ws(' ', relname, relkind, relowner, relacl, relrowsecurity, relforcerowsecurity) from relation
  union all select concat_ws(' ', relname, attname, atttypid, attnotnull)
    from pg_attribute join relation on attrelid = relation.oid where attnum > 0
  union all select concat_ws(' ', relname, polname, polroles, pg_get_expr(polqual, polrelid))
    from pg_policy join relation on polrelid = relation.oid
  union all select concat_ws(' ', relname, tgname, tgenabled) from pg_trigger join relation on tgrelid = relation.oid
  union all select concat_ws(' ', relname, conname) from pg_constraint join relation on conrelid = relation.oid
  union all select concat_ws(' ', proname, md5(prosrc), proacl)
    from pg_proc where pronamespace = to_regnamespace(%(schema)s)
  ) select md5(string_agg(line, ' ' order by line)) from made
"""
_numbers = count()
_free: list[_Schema] = []


@contextmanager
def empty_schema() -> Iterator[str]:
    """A schema with our tables and no rows. A test of how a schema is made names a new one instead."""
    schema = _free.pop() if _free else _create_schema()
    yield schema.name
    with _superuser() as connection:
        if _describe(connection, schema.name) == schema.description:
            connection.execute(schema.reset)
            _free.append(schema)
        else:
            connection.execute(sql.SQL("drop schema if exists {} cascade").format(sql.Identifier(schema.name)))


@contextmanager
def empty_store(parameters: str = "") -> Iterator[str]:
    """The address of a store in such a schema."""
    with empty_schema() as schema:
        yield f"{postgres().url()}?schema={schema}{parameters}"


@dataclass(frozen=True)
class _Schema:
    """A schema, a hash of all that DDL made in it, and the statements that bring its rows back to how they were."""

    name: str
    description: str
    reset: bytes


@contextmanager
def _superuser() -> Iterator[psycopg.Connection[Any]]:
    """A transaction on the one connection that is kept: a new one reads the catalog of 27 tables again."""
    try:
        connection = _connect()
        connection.execute("select 1")
    except psycopg.OperationalError:  # a test has killed or restarted the server
        _connect.cache_clear()
        connection = _connect()
    with connection.transaction():
        yield connection


@cache
def _connect() -> psycopg.Connection[Any]:
    return psycopg.connect(postgres().url("postgres"), autocommit=True)


def _create_schema() -> _Schema:
    name = f"pool_{next(_numbers)}"
    PostgresStore(f"{postgres().url()}?schema={name}").close()
    with _superuser() as connection:
        connection.execute(sql.SQL("set local search_path = {}").format(sql.Identifier(name)))
        sequences = connection.execute(
            "select sequencename::text, coalesce(last_value, start_value), last_value is not null"
            " from pg_sequences where schemaname = %s",
            (name,),
        ).fetchall()
        tables = connection.execute("select tablename::text from pg_tables where schemaname = %s", (name,)).fetchall()
        rows = {table: connection.execute(_select(table)).fetchall() for (table,) in tables}
        reset = _write_reset(name, rows, sequences).as_bytes(connection)
        return _Schema(name, _describe(connection, name), reset)


def _select(table: str) -> sql.Composed:
    return sql.SQL("select * from {}").format(sql.Identifier(table))


def _describe(connection: psycopg.Connection[Any], schema: str) -> str:
    """A hash of all that DDL makes. A test that changed any of it leaves a schema that nobody else can use."""
    found = connection.execute(_DESCRIBE, {"schema": schema}).fetchone()
    return str(found and found[0])


def _write_reset(
    schema: str, rows: dict[str, list[tuple[Any, ...]]], sequences: list[tuple[str, int, bool]]
) -> sql.Composed:
    # Deleting a few rows is ten times faster than truncating 27 tables. No trigger and no foreign key interferes.
    statements: list[sql.Composable] = [
        sql.SQL("set local session_replication_role = replica"),
        sql.SQL("set local search_path = {}").format(sql.Identifier(schema)),
        *(sql.SQL("delete from {}").format(sql.Identifier(table)) for table in rows),
    ]
    for table, found in rows.items():
        for row in found:
            values = sql.SQL(", ").join(map(sql.Literal, row))
            statements.append(sql.SQL("insert into {} values ({})").format(sql.Identifier(table), values))
    for sequence in sequences:
        statements.append(sql.SQL("select setval({}, {}, {})").format(*map(sql.Literal, sequence)))
    return sql.SQL(";").join(statements)
