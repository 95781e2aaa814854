"""The schema of a file: create it, upgrade it, compare it with ours, and read foreign files without executing them."""

from __future__ import annotations

import os
import secrets
import threading
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext, suppress
from functools import cache, lru_cache
from pathlib import Path
from typing import NamedTuple

from engrain.core.errors import EngrainError, NewerStore, NotADatabase, OlderStore, SchemaMismatch, StoreError
from engrain.stores.relational.statements import read_migrations
from engrain.stores.sqlite.checksums import replace_meta, seal_rows, split_statements
from engrain.stores.sqlite.connection import Action, Connection, Row, connect
from engrain.stores.sqlite.lock import FileLock
from engrain.stores.sqlite.opening import RENUMBER_LOGS, StoreFile, open_connection, sync_folder, write_copy

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
        run_migrations(db, scripts)
        return frozenset(_read_objects(db.rows(LIST_OBJECTS))[0])


def load_objects(version: int | None = None) -> frozenset[SchemaObject]:
    """The objects that our own migrations make, up to a version."""
    scripts = load_migrations()
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
        version = read_version(db, file)
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


APPLICATION_ID = 0x656E6772  # "engr"
LOCK_SECONDS = 60.0


def load_migrations() -> tuple[tuple[int, str], ...]:
    return read_migrations("engrain.stores.sqlite")


def latest_version() -> int:
    return load_migrations()[-1][0]


def create_file(file: StoreFile) -> None:
    """Create a new store as one finished file: half the time of running the migrations in it.

    Does nothing if the path is taken, or the file system has no hard links. The migrations then run in the file."""
    if file.path is None or file.key is not None or file.path.exists():
        return
    new = file.sibling(f"-new-{os.getpid()}-{threading.get_ident()}")
    content = bytearray(_build_content())
    # Format versions 18 and 19 of the header say which journal the file has.
    content[18:20] = b"\2\2" if file.journal == "wal" else b"\1\1"
    with suppress(OSError):
        try:
            with open(new, "xb", opener=lambda name, flags: os.open(name, flags, 0o600)) as out:
                out.write(content)
                out.flush()
                os.fsync(out.fileno())
            os.link(new, file.path)  # refuses a path that is taken by now
            sync_folder(file.path.parent)
        finally:
            new.unlink(missing_ok=True)


def _build_content() -> bytes:
    """The content of a new store, with a key of its own."""
    with closing(connect(":memory:")) as db:
        db.load_pages(_build_template(load_migrations()))
        replace_meta(db, "key", secrets.token_hex(32))
        db.run(RENUMBER_LOGS)
        return db.pages()


@cache
def _build_template(scripts: tuple[tuple[int, str], ...]) -> bytes:
    with closing(connect(":memory:")) as db:
        run_migrations(db, scripts)
        seal_rows(db)
        return db.pages()


def upgrade(db: Connection, file: StoreFile, lock: FileLock | None) -> None:
    """Run the migrations that the file lacks. An older store is copied first."""
    if read_version(db, file) == latest_version():
        return
    if file.read_only:
        raise OlderStore(
            f"{file.path} has an older schema. Open it once without read_only, so that it is brought up to date."
        )
    with lock.hold(LOCK_SECONDS) if lock else nullcontext():
        _upgrade(db, file)


def read_version(db: Connection, file: StoreFile) -> int:
    """The version of the schema; 0 for an empty file."""
    ((application,),) = db.rows("pragma application_id")
    ((number,),) = db.rows("pragma user_version")
    if application != APPLICATION_ID:
        ((tables,),) = db.rows("select count(*) from sqlite_master")
        if application or number or tables:
            raise NotADatabase(f"{file.path} is an SQLite database of another program. Give the path of a new file.")
        if file.read_only:
            raise NotADatabase(f"{file.path} is empty: there is nothing to read. Check the path, or restore a backup.")
        return 0
    ((encoding,),) = db.rows("pragma encoding")
    if encoding != "UTF-8":  # forgotten texts are searched for in UTF-8
        raise NotADatabase(f"{file.path} has its texts in {encoding}: engrain did not make it. Restore a backup.")
    if number > latest_version():
        raise NewerStore(
            f"{file.path} was written by a newer engrain (schema {number}; this one knows {latest_version()}). "
            "Upgrade: pip install -U engrain."
        )
    return int(number)


def _upgrade(db: Connection, file: StoreFile) -> None:
    have = read_version(db, file)  # again: another process may have upgraded it meanwhile
    if have and have < latest_version() and file.path:
        _back_up(db, file.sibling(f"-before-v{latest_version()}"))
    db.begin_writing()
    try:
        run_migrations(db, [(number, script) for number, script in load_migrations() if number > have])
        seal_rows(db)
        if not have:
            db.run(RENUMBER_LOGS)
        db.commit()
    except EngrainError:
        if db.in_transaction:
            db.run("rollback")
        raise


def run_migrations(db: Connection, scripts: Sequence[tuple[int, str]]) -> None:
    for _, script in scripts:
        for statement in split_statements(script):
            db.run(statement)
    db.rows(f"pragma application_id = {APPLICATION_ID}")
    db.rows(f"pragma user_version = {latest_version()}")


def _back_up(db: Connection, target: Path) -> None:
    """Copy the store. The copy is on disk when this returns."""
    part = target.with_name(target.name + ".part")
    try:
        part.unlink(missing_ok=True)
        write_copy(db, part)
        part.replace(target)
    except OSError as exc:
        raise StoreError(
            f"the copy {target} before the upgrade could not be made: {exc.strerror}. Nothing was changed."
        ) from exc
    finally:
        part.unlink(missing_ok=True)
