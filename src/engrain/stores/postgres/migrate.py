"""Bring a database to the schema of this version, step by numbered step, one process at a time."""

from __future__ import annotations

import os
import re

import psycopg
from psycopg import sql

from engrain.core.errors import ConfigError, NewerStore, NotADatabase, OlderStore, StoreError
from engrain.stores.postgres.connection import Database, TimedConnection
from engrain.stores.postgres.syntax import translate_error
from engrain.stores.relational.statements import read_migrations

_LEAST_VERSION = 14
_LEAST_VECTOR = (0, 8)
_MARK = "engrain"


def load_migrations() -> tuple[tuple[int, str], ...]:
    return read_migrations("engrain.stores.postgres")


def latest_version() -> int:
    return load_migrations()[-1][0]


def prepare(database: Database, read_only: bool) -> tuple[bytes, str]:
    """The store's key and the server's version, once its schema is that of this engrain."""
    connection = database.connect(database.address.patience)
    try:
        _check_server(connection)
        database.look_for_pooler(connection)
        have = version(connection, database.address.schema)
        if have < latest_version():
            if read_only:
                raise _make_outdated_error(database, have)
            _upgrade(connection, database.address.schema)
        database.path = _path(connection, database.address.schema)
        # By its whole name: a setting of the session would not hold behind a pooler, or hold for somebody else.
        found = sql.SQL("select value from {}.meta where name = 'key'").format(sql.Identifier(database.address.schema))
        ((key,),) = connection.execute(found).fetchall()
        shown = connection.info.parameter_status("server_version") or ""
        return bytes.fromhex(key), shown.split()[0]
    except psycopg.Error as exc:
        raise translate_error(exc, database.address.shown) from exc
    finally:
        connection.close()


def _make_outdated_error(database: Database, have: int) -> StoreError:
    schema, fix = database.address.schema, "Let a role that may write there open it once without read_only."
    if not have:
        return StoreError(f"{database.address.shown} holds no memory in its schema {schema!r}. {fix}")
    return OlderStore(
        f"the schema {schema!r} of {database.address.shown} is of version {have}, not {latest_version()}. {fix}"
    )


def version(connection: TimedConnection, schema: str) -> int:
    """0 for a database that holds nothing of ours yet."""
    ((meta, foreign),) = connection.execute(
        b"select to_regclass(format('%%I.meta', %s::text)), exists (select 1 from pg_class join pg_namespace as space "
        b"on space.oid = relnamespace where nspname = %s)",
        (schema, schema),
    ).fetchall()
    if meta is None:
        if foreign:
            raise NotADatabase(f"the schema {schema!r} holds tables of another program. Name one with ?schema=…")
        return 0
    statement = sql.SQL("select value from {}.meta where name = 'schema'").format(sql.Identifier(schema))
    found = connection.execute(statement).fetchone()
    number = int(found[0]) if found else 0
    if number > latest_version():
        raise NewerStore(
            f"the schema {schema!r} was written by a newer engrain (version {number}; this one knows "
            f"{latest_version()}). Upgrade: pip install -U engrain."
        )
    return number


def _upgrade(connection: TimedConnection, schema: str) -> None:
    with connection.transaction():
        # Held until the commit: of several that start at once, one works and the others find it done.
        connection.execute(b"select pg_advisory_xact_lock(hashtext(%s), hashtext(%s))", (_MARK, schema))
        have = version(connection, schema)
        if have == latest_version():
            return
        _ensure_vector(connection)
        if not have:
            connection.execute(sql.SQL("create schema if not exists {}").format(sql.Identifier(schema)))
        connection.execute(b"select set_config('search_path', %s, true)", (_path(connection, schema),))
        connection.execute(b"select set_config('engrain.maintenance', 'on', true)")
        for number, script in load_migrations():
            if number > have:
                connection.execute(script.encode())
        if not have:
            connection.execute(b"insert into meta (name, value) values ('key', %s)", (os.urandom(32).hex(),))
        connection.execute(
            b"insert into meta (name, value) values ('schema', %s) "
            b"on conflict (name) do update set value = excluded.value",
            (str(latest_version()),),
        )


def _check_server(connection: TimedConnection) -> None:
    if connection.info.server_version < _LEAST_VERSION * 10_000:
        raise ConfigError(f"Postgres {_LEAST_VERSION} or newer is needed; this server is older.")
    if connection.info.parameter_status("server_encoding") != "UTF8":
        raise ConfigError("the database's encoding must be UTF8: create database … encoding 'UTF8'.")


def _ensure_vector(connection: TimedConnection) -> None:
    if not vector_home(connection):
        try:
            with connection.transaction():
                connection.execute(b"create extension if not exists vector")
        except psycopg.Error as exc:
            raise ConfigError(
                "pgvector is not there and could not be made. Install it on the server, and let a superuser run "
                f"once in this database: create extension vector; ({exc.diag.message_primary or exc})"
            ) from exc
    ((found, _),) = vector_home(connection)
    if tuple(int(part) for part in re.findall(r"\d+", found)[:2]) < _LEAST_VECTOR:
        raise ConfigError(f"pgvector 0.8 or newer is needed, not {found}: alter extension vector update;")


def vector_home(connection: TimedConnection) -> list[tuple[str, str]]:
    """The version of pgvector and its schema, quoted; nothing if it is not there."""
    return connection.execute(
        b"select extversion, quote_ident(nspname) from pg_extension join pg_namespace as space "
        b"on space.oid = extnamespace where extname = 'vector'"
    ).fetchall()


def _path(connection: TimedConnection, schema: str) -> str:
    return ", ".join([sql.Identifier(schema).as_string(), *(home for _, home in vector_home(connection))])
