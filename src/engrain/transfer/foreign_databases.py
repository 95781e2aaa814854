"""Read notes out of the databases of other systems: SQLite files, and LangGraph's stores."""

from __future__ import annotations

import json
import os
import sqlite3
import stat
from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any
from urllib.parse import quote

from engrain.core.errors import BackendMissing, EngrainError, InvalidInput, StoreUnavailable, TooLarge
from engrain.core.formats.foreign_exports import make_note
from engrain.core.model.items import Note, check_note
from engrain.core.secrets.urls import hide_secrets
from engrain.core.validation import parse_strict
from engrain.ports.plain_files import AnyPath, open_plain

MAX_FILE_BYTES = 64 << 30
MAX_VALUE_BYTES = 64 << 20
# A damaged or forged tree may lead to the same page again and again. A true row takes far fewer steps than this.
_MAX_STEPS_A_BYTE, _FREE_STEPS = 5, 1_000_000
_STEPS_BETWEEN_LOOKS = 10_000
# Rows of a forged tree may share their bytes. A join of ours repeats some.
_MAX_BYTES_A_BYTE, _FREE_BYTES = 16, 64 << 20
# No function, no pragma, no other file: views of the file come to nothing.
_ALLOWED = (sqlite3.SQLITE_SELECT, sqlite3.SQLITE_READ)
_DEFENSIVE = 1010  # SQLITE_DBCONFIG_DEFENSIVE, which Python names since 3.12


def read_foreign_rows(path: AnyPath, kind: str, tables: Sequence[str], statement: str) -> list[tuple[Any, ...]]:
    """Return the rows of a statement of ours over ordinary tables of the file. The file is not changed.

    `kind` is what the file should be, such as "a store of LangGraph", for the message of an error.

    InvalidInput if it is no plain file or no such database, or if a table is a view, virtual or missing, or computes
    a column: SQLite runs the functions of such a column, whatever is denied.
    """
    name = os.fspath(path)
    size = _check_files(name)
    try:
        with closing(sqlite3.connect(f"file:{quote(name)}?mode=ro", uri=True)) as connection:
            computing = _restrict(connection, size, tables)
            for table in tables:
                if table in computing or not _is_ordinary_table(connection, table):
                    raise InvalidInput(f"{name} has no table `{table}`: it is not {kind}.")
            return _fetch(connection.execute(statement), _FREE_BYTES + size * _MAX_BYTES_A_BYTE)
    except (sqlite3.Error, OverflowError, MemoryError) as exc:
        raise InvalidInput(f"{name} cannot be read as {kind}: {exc}.") from exc


def _check_files(name: str) -> int:
    """Return the bytes that the file takes on the disk. SQLite also opens the files beside it."""
    with open_plain(name) as file:
        about = os.fstat(file.fileno())
    if about.st_size > MAX_FILE_BYTES:
        raise TooLarge(f"{name} has more than {MAX_FILE_BYTES:,} bytes, which is the limit.")
    for end in ("-wal", "-shm", "-journal"):
        if os.path.lexists(name + end) and not stat.S_ISREG(os.lstat(name + end).st_mode):
            raise InvalidInput(f"{name}{end} is not a plain file. Move it away.")
    return about.st_size


def _restrict(connection: sqlite3.Connection, size: int, tables: Sequence[str]) -> set[str]:
    """Deny all but reading. Return the tables with a column that is computed or hidden."""
    connection.execute("pragma trusted_schema = off")
    connection.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, MAX_VALUE_BYTES)
    if hasattr(connection, "setconfig"):
        connection.setconfig(_DEFENSIVE, True)
    left = (_FREE_STEPS + size * _MAX_STEPS_A_BYTE) // _STEPS_BETWEEN_LOOKS

    def stop() -> bool:
        nonlocal left
        left -= 1
        return left < 0

    connection.set_progress_handler(stop, _STEPS_BETWEEN_LOOKS)
    computing = {table for table in tables if any(row[6] for row in connection.execute(f"pragma table_xinfo({table})"))}
    connection.set_authorizer(
        lambda action, *_: sqlite3.SQLITE_OK if action in _ALLOWED else sqlite3.SQLITE_DENY,
    )
    return computing


def _fetch(rows: sqlite3.Cursor, limit: int) -> list[tuple[Any, ...]]:
    found = []
    for row in rows:
        limit -= sum(len(value) for value in row if isinstance(value, (str, bytes)))
        if limit < 0:
            raise sqlite3.DatabaseError("its rows hold far more than the file")
        found.append(row)
    return found


def _is_ordinary_table(connection: sqlite3.Connection, table: str) -> bool:
    found = connection.execute("select type, sql from sqlite_master where name = ?", (table,)).fetchall()
    return [kind for kind, _ in found] == ["table"] and str(found[0][1]).lower().startswith("create table")


SQLITE_MAGIC = b"SQLite format 3\x00"
TEXT_FIELDS = ("text", "content", "memory", "data", "fact")
_QUERY = "select prefix, key, value, created_at from store order by prefix, key"

Row = tuple[str, str, Any, Any]  # namespace, key, value, created_at


def is_postgres_url(location: object) -> bool:
    return isinstance(location, str) and location.startswith(("postgresql://", "postgres://"))


def read_langgraph_notes(location: str) -> Iterator[Note | EngrainError]:
    """Yield a note for each value, in the order of namespaces and keys; an error for one that cannot be a note.

    A value is one of these texts, or else its JSON. Namespace and key become metadata.
    """
    rows = (
        _read_postgres(location)
        if is_postgres_url(location)
        else read_foreign_rows(location, "a store of LangGraph", ["store"], _QUERY)
    )
    for namespace, key, value, at in rows:
        try:
            yield _build_note(namespace, key, value, at)
        except EngrainError as exc:
            yield exc


def _build_note(namespace: str, key: str, value: Any, at: Any) -> Note:
    if isinstance(value, (str, bytes)):
        try:
            value = parse_strict(value.encode() if isinstance(value, str) else value)
        except (ValueError, InvalidInput) as exc:
            raise InvalidInput(f"the value of {namespace}/{key} is not JSON: {str(exc).rstrip('.')}.") from exc
    fields = value if isinstance(value, dict) else {}
    text = next((fields[name] for name in TEXT_FIELDS if isinstance(fields.get(name), str)), None)
    written = json.dumps(value, ensure_ascii=False) if text is None else text
    metadata = {"namespace": namespace, "key": key}
    happened = str(at).replace(" ", "T") if at else None
    if happened and "T" in happened and "+" not in happened and not happened.endswith("Z"):
        happened += "Z"  # SQLite's clock is in UTC
    return check_note(make_note("langgraph", written, f"{namespace}\x1f{key}", metadata=metadata, occurred_at=happened))


def _read_postgres(url: str) -> list[Row]:
    try:
        import psycopg
    except ImportError as exc:
        raise BackendMissing("The Postgres driver", "postgres") from exc
    try:
        with psycopg.connect(url, connect_timeout=10) as connection:
            connection.read_only = True
            return connection.execute(_QUERY).fetchall()
    except psycopg.errors.UndefinedTable as exc:
        raise InvalidInput(f"{hide_secrets(url)} has no table `store`: it is not a store of LangGraph.") from exc
    except psycopg.Error as exc:
        raise StoreUnavailable(f"{hide_secrets(url)} cannot be read: {type(exc).__name__}.") from exc
