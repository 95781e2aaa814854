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

_DESCRIBE = """
  with relation as (select * from pg_class where relnamespace = to_regnamespace(%(schema)s))
  select concat_ws(' ', relname, relkind, relowner, relacl, relrowsecurity, relforcerowsecurity) from relation
  union all select concat_ws(' ', relname, attname, atttypid, attnotnull)
    from pg_attribute join relation on attrelid = relation.oid where attnum > 0
  union all select concat_ws(' ', relname, polname, polroles, pg_get_expr(polqual, polrelid))
    from pg_policy join relation on polrelid = relation.oid
  union all select concat_ws(' ', relname, tgname, tgenabled) from pg_trigger join relation on tgrelid = relation.oid
  union all select concat_ws(' ', relname, conname) from pg_constraint join relation on conrelid = relation.oid
  union all select concat_ws(' ', proname, md5(prosrc), proacl)
    from pg_proc where pronamespace = to_regnamespace(%(schema)s)
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
            _empty_tables(connection, schema)
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
    """A schema as it was made: what DDL made, the rows that it begins with, and where its sequences stand."""

    name: str
    description: set[str]
    tables: list[str]
    rows: dict[str, list[tuple[Any, ...]]]
    sequences: list[tuple[str, int, bool]]


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
        schema = _Schema(name, _describe(connection, name), [table for (table,) in tables], {}, sequences)
        for table in schema.tables:
            found = connection.execute(sql.SQL("select * from {}").format(sql.Identifier(table))).fetchall()
            if found:
                schema.rows[table] = found
        return schema


def _describe(connection: psycopg.Connection[Any], schema: str) -> set[str]:
    """All that DDL makes. A test that changed any of it leaves a schema that nobody else can use."""
    return {line for (line,) in connection.execute(_DESCRIBE, {"schema": schema}).fetchall()}


def _empty_tables(connection: psycopg.Connection[Any], schema: _Schema) -> None:
    # Deleting a few rows is ten times faster than truncating 27 tables. No trigger and no foreign key interferes.
    connection.execute("set local session_replication_role = replica")
    connection.execute(sql.SQL("set local search_path = {}").format(sql.Identifier(schema.name)))
    statements: list[sql.Composable] = [
        sql.SQL("delete from {}").format(sql.Identifier(table)) for table in schema.tables
    ]
    for table, rows in schema.rows.items():
        for row in rows:
            values = sql.SQL(", ").join(map(sql.Literal, row))
            statements.append(sql.SQL("insert into {} values ({})").format(sql.Identifier(table), values))
    for sequence in schema.sequences:
        statements.append(sql.SQL("select setval({}, {}, {})").format(*map(sql.Literal, sequence)))
    connection.execute(sql.SQL(";").join(statements))
