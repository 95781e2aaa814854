"""Compare the schema of a file with ours, and read files from outside: nothing in them is executed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from functools import cache, lru_cache
from pathlib import Path
from typing import NamedTuple

from engrain.core.errors import SchemaMismatch
from engrain.stores.sqlite import migrate
from engrain.stores.sqlite.connection import Action, Connection, Row, connect
from engrain.stores.sqlite.opening import StoreFile, open_connection

LIST_OBJECTS = "select type, name, tbl_name, sql, rootpage from sqlite_schema"
_READ = {Action.SELECT, Action.READ, Action.FUNCTION, Action.TRANSACTION}
_PRAGMAS = {"application_id", "user_version", "encoding", "integrity_check", "foreign_key_check"}
_COPY_NAME = "vacuum_"  # begins the name of the database that VACUUM INTO fills
_SHOWN_CHARACTERS = 80
_LITESTREAM_TABLES = {"_litestream_seq", "_litestream_lock"}


class SchemaObject(NamedTuple):
    """A row of sqlite_schema. White space in its SQL counts as one space."""

    type: str
    name: str
    table: str
    sql: str

    def __str__(self) -> str:
        return f"the {self.type} {self.name[:_SHOWN_CHARACTERS]!r}"


def check_schema(rows: Sequence[Row], file: StoreFile, version: int) -> None:
    """Raise SchemaMismatch unless the file has exactly the tables, indexes and triggers of this version.

    A trigger, a view or a table of somebody else could copy what is written, or keep what is forgotten.
    """
    if fault := find_fault(rows, version):
        raise SchemaMismatch(
            f"{file.path}: {fault}. Nothing in it was run. Restore a backup; or, if you know who changed the file, "
            "undo it with the sqlite3 program."
        )


def find_fault(rows: Sequence[Row], version: int) -> str | None:
    """The first difference from our own schema, as a sentence. The rows are those of LIST_OBJECTS."""
    found, pages = _read_objects(rows)
    expected = load_objects(version)
    if set(found) == expected and len(found) == len(expected):
        shared = len(set(pages)) < len(pages) or min(pages) <= 1
        return "two tables or indexes begin on the same page" if shared else None
    if litestream := sorted(object_.name for object_ in found if object_.name in _LITESTREAM_TABLES):
        return (
            f"it has tables of Litestream ({', '.join(litestream)}), which engrain does not open. Replicate backups "
            "(engrain backup), and drop these tables"
        )
    names = {object_.name for object_ in found}
    known = {object_.name for object_ in expected}
    for object_ in found:
        if object_.name not in known:
            return f"{object_} is in the file, and engrain did not make it"
        if object_ not in expected:
            return f"{object_} is not as engrain makes it"
    missing = [object_ for object_ in sorted(expected) if object_.name not in names]
    return f"{missing[0]} is missing" if missing else "an object is listed twice"


def _read_objects(rows: Sequence[Row]) -> tuple[list[SchemaObject], list[int]]:
    """The objects, and the first pages of tables and indexes."""
    texts = [[str(value or "") for value in row[:4]] for row in rows]
    found = [SchemaObject(type_, name, table, _collapse_spaces(sql)) for type_, name, table, sql in texts]
    return found, [int(row[4] or 0) for row in rows if row[0] != "trigger"]


@lru_cache(256)
def _collapse_spaces(sql: str) -> str:
    return " ".join(sql.split())


@cache
def _build_objects(scripts: tuple[tuple[int, str], ...]) -> frozenset[SchemaObject]:
    with closing(connect(":memory:")) as db:
        migrate.run_migrations(db, scripts)
        return frozenset(_read_objects(db.rows(LIST_OBJECTS))[0])


def load_objects(version: int | None = None) -> frozenset[SchemaObject]:
    """The objects that our own migrations make, up to a version."""
    scripts = migrate.load_migrations()
    return _build_objects(tuple(script for script in scripts if version is None or script[0] <= version))


def list_tables(version: int) -> list[str]:
    """The names of our own tables: no name is ever taken out of a file."""
    tables = (object_.name for object_ in load_objects(version) if object_.type == "table")
    return sorted(name for name in tables if not name.startswith("sqlite_"))


@contextmanager
def open_outside(file: StoreFile, copy_to: Path | None = None) -> Iterator[tuple[Connection, int]]:
    """Open a file that anybody may have made, and give its schema version: 0 for an empty file.

    It can be read, and copied to `copy_to`. Everything else is denied, and its schema must be ours.
    """
    with closing(open_connection(file)) as db:
        db.restrict(ReadPermission(copy_to))
        version = migrate.read_version(db, file)
        if version:
            check_schema(db.rows(LIST_OBJECTS), file, version)
        yield db, version


class ReadPermission:
    """Lets a statement read, and copy the whole file to one place."""

    def __init__(self, copy_to: Path | None = None) -> None:
        self._copy = copy_to.absolute().as_uri() if copy_to else None

    def __call__(self, action: int, first: str | None, second: str | None, database: str | None) -> bool:
        if action in _READ:
            return second != "load_extension"
        if action == Action.PRAGMA:
            return first in _PRAGMAS
        if self._copy is None:
            return False
        if action == Action.ATTACH:
            return (first or "").partition("?")[0] == self._copy
        return (database or "").startswith(_COPY_NAME)
