"""Connections to SQLite, through apsw or through the standard library, with the same methods and errors."""

from __future__ import annotations

import errno
import marshal
import sqlite3
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import IntEnum
from functools import partial
from pathlib import Path
from typing import Any, Literal, NamedTuple, NoReturn, Protocol

from engrain.core.errors import (
    BackendMissing,
    ConfigError,
    DiskFull,
    EngrainError,
    NotADatabase,
    OutcomeUnknown,
    ReadOnlyStore,
    StoreBusy,
    StoreClosed,
    StoreCorrupt,
    StoreError,
    TooLarge,
)

try:
    import apsw
except ImportError:
    apsw = None  # type: ignore[assignment]

Row = tuple[Any, ...]
Args = Sequence[Any] | Mapping[str, Any]
Engine = Literal["auto", "apsw", "stdlib"]
EngineName = Literal["apsw", "stdlib"]

# Strict tables, and json_each as filters use it.
OLDEST_SQLITE = (3, 37, 2)
CLOSED = "this store was closed. Open it again."
# Checksums lie above it, so that SQLite writes each with six bytes. It stands in a row that has none yet.
NO_CHECKSUM = 1 << 40
# The digest of a scope stands in the row of its number, whose other columns are 0.
_ADD_TO_DIGEST = (
    "insert into counter (n, digest, checksum) values (?1, ?2, ?3) "
    "on conflict (n) do update set digest = digest + excluded.digest"
)
_CACHED_STATEMENTS = 256
# Measured: half the time of reading 100,000 rows at once, and the garbage collector has nothing to walk through.
PAGE_ROWS = 512
_DRIVER_ERRORS: tuple[type[Exception], ...] = (sqlite3.Error, apsw.Error) if apsw else (sqlite3.Error,)
# A damaged text is not UTF-8, and apsw lets Python's error through.
_DATA_ERRORS: tuple[type[Exception], ...] = (*_DRIVER_ERRORS, UnicodeDecodeError)
# Python's own driver says no more than this of an error in a function.
_DAMAGED = "user-defined function raised exception"
_REPAIR = "Run: engrain doctor. Restore a backup; without one, engrain doctor --rebuild keeps the row as it is now."
_CLOSED_ERRORS = (sqlite3.ProgrammingError, apsw.ConnectionClosedError) if apsw else (sqlite3.ProgrammingError,)


@dataclass(frozen=True, slots=True)
class EncryptedEngine:
    """An engine for an encrypted file, with its key."""

    key: str = field(repr=False)  # never shown
    engine: Engine = "auto"


class Action(IntEnum):
    """Codes of SQLite's authorizer; the same in both drivers."""

    PRAGMA = 19
    READ = 20
    SELECT = 21
    TRANSACTION = 22
    ATTACH = 24
    FUNCTION = 31


# Called with the action, its two arguments and the name of the database.
Permission = Callable[[int, str | None, str | None, str | None], bool]


class Reader(Protocol):
    """A connection that sees one snapshot of the store."""

    def rows(self, sql: str, args: Any = ()) -> Any: ...


class Insert(NamedTuple):
    """An insert that takes the columns of its table in their order, then a checksum."""

    sql: str
    read_columns: Callable[[Mapping[str, Any]], Row]


def _execute_numbered(raw: sqlite3.Connection, sql: str, args: Any = ()) -> sqlite3.Cursor:
    """Execute with ?1, ?2 … bound by name: from Python 3.14 on, the standard library takes a sequence for ? only."""
    if "?1" in sql and not isinstance(args, Mapping):
        args = {str(number): value for number, value in enumerate(args, 1)}
    return raw.execute(sql, args)


class Connection:
    """One connection, used by one thread at a time. Every error that it raises is an EngrainError."""

    def __init__(self, raw: Any) -> None:
        self._raw = raw
        self._execute = partial(_execute_numbered, raw) if isinstance(raw, sqlite3.Connection) else raw.execute
        self._has_triggers = False
        # How the rows that this transaction has written change the digests: (scope, difference).
        self.differences: list[tuple[int | None, int]] = []
        self.next_item: int | None = None  # the number for the next new item, if this transaction knows it
        self.models: dict[str, Row] = {}  # number and dimension of models, which are never removed
        self._insert_triggers: Sequence[tuple[str, str]] = ()
        self._add_function("row_checksum", compute_checksum)
        self._add_function("checked_row", check_row)

    def _add_function(self, name: str, function: Callable[..., Any], deterministic: bool = True) -> None:
        if isinstance(self._raw, sqlite3.Connection):
            self._raw.create_function(name, -1, function, deterministic=deterministic)
        else:
            self._raw.create_scalar_function(name, function, deterministic=deterministic)

    def rows(self, sql: str, args: Args = ()) -> list[Row]:
        noted = len(self.differences)
        try:
            found: list[Row] = self._execute(sql, args).fetchall()
        except _DATA_ERRORS as exc:
            self._raise(exc, noted)
        return found

    def run(self, sql: str, args: Args = ()) -> None:
        noted = len(self.differences)
        try:
            self._execute(sql, args)
        except _DATA_ERRORS as exc:
            self._raise(exc, noted)

    def many(self, sql: str, rows: Iterable[Args]) -> None:
        for args in rows:
            self.run(sql, args)

    def insert(self, sql: str, rows: Iterable[Row], scope: int | None = None) -> None:
        """Insert rows of one scope with their checksums. Each has every column in the type that SQLite stores."""
        sealed = [(*row, NO_CHECKSUM + zlib.crc32(marshal.dumps(row, 2))) for row in rows]
        try:
            self._raw.executemany(sql, sealed)
        except _DATA_ERRORS as exc:
            self._raise(exc, len(self.differences))
        self.differences.append((scope, sum(row[-1] for row in sealed) - NO_CHECKSUM * len(sealed)))

    def begin_writing(self) -> None:
        for name, _ in self._insert_triggers:
            self.run(f"drop trigger if exists temp.{name}")
        self._insert_triggers = ()
        self.run("begin immediate")
        self.differences.clear()  # of a transaction that was rolled back
        self.next_item = None

    def count_commit(self, count: str) -> int:
        """Write the digests of the scopes that this transaction has changed, and number its commit by this SQL.

        Call it last."""
        sums: dict[int | None, int] = {}
        for scope, difference in self.differences:
            sums[scope] = sums.get(scope, 0) + difference
        self.differences.clear()
        of_store = sums.pop(None, 0)
        for scope, difference in sums.items():
            self.run(_ADD_TO_DIGEST, (scope, difference, compute_checksum(scope, 0, 0, 0)))
        ((number,),) = self.rows(count, (of_store,))
        return int(number)

    def set_savepoint(self) -> int:
        """Begin what `undo` takes back, given the number that is returned."""
        self.run("savepoint member")
        return len(self.differences)

    def undo(self, savepoint: int) -> None:
        self.run("rollback to member")
        self.run("release member")
        del self.differences[savepoint:]
        self.next_item = None
        self.models.clear()

    def rollback(self) -> None:
        self.models.clear()
        self.run("rollback")

    def take_number(self) -> int:
        """A number for a new item: never that of an item that was deleted."""
        if self.next_item is None:
            rows = self.rows("select seq from sqlite_sequence where name = 'item'")
            self.next_item = rows[0][0] + 1 if rows else 1
        number, self.next_item = self.next_item, self.next_item + 1
        return number

    def add_triggers(self, triggers: Sequence[str]) -> None:
        """Add temporary triggers, once and outside any transaction."""
        if self._has_triggers:
            return
        self._add_noting_functions()
        self.run("begin")
        for trigger in triggers:
            self.run(trigger)
        self.run("commit")
        self._has_triggers = True

    def add_insert_triggers(self, triggers: Sequence[tuple[str, str]]) -> None:
        """Add more triggers, by name, until the end of the transaction: its statements choose numbers themselves."""
        self.next_item = None
        if not self._insert_triggers:
            self._insert_triggers = triggers
            for _, trigger in triggers:
                self.run(trigger)

    def _add_noting_functions(self) -> None:
        """Functions for triggers: each gives a row's checksum, and notes how it changes the digest."""
        note = self.differences.append

        def insert(scope: int | None, *values: Any) -> int:
            checksum = zlib.crc32(marshal.dumps(values, 2))
            note((scope, checksum))
            return NO_CHECKSUM + checksum

        def update(table: str, scope: int | None, before: int, *values: Any) -> int:
            half = len(values) // 2
            check_row(1, table, before, *values[:half])  # a damaged row must not get a new checksum
            checksum = compute_checksum(*values[half:])
            note((scope, checksum - before))
            return checksum

        def delete(scope: int | None, checksum: int) -> None:
            note((scope, NO_CHECKSUM - checksum))

        for name, function in (("inserted_row", insert), ("updated_row", update), ("deleted_row", delete)):
            self._add_function(name, function, deterministic=False)

    def commit(self) -> None:
        """OutcomeUnknown if the commit may have become durable although it failed."""
        try:
            self._execute("commit")
        except _DRIVER_ERRORS as exc:
            self.models.clear()
            raise make_commit_error(_result_code(exc), str(exc)) from exc

    def authorize(self, allow: Permission) -> None:
        """Deny every action that `allow` refuses."""

        def decide(action: int, first: str | None, second: str | None, database: str | None, _: str | None) -> int:
            return 0 if allow(action, first, second, database) else 1

        if isinstance(self._raw, sqlite3.Connection):
            self._raw.set_authorizer(decide)
        else:
            self._raw.authorizer = decide

    def restrict(self, allow: Permission) -> None:
        """Do the same, and run one statement a call. The standard library does so anyway."""
        self.authorize(allow)
        if isinstance(self._raw, sqlite3.Connection):
            return
        allowed = [""]

        def execute(sql: str, args: Args = ()) -> Any:
            allowed[0] = sql
            return self._raw.execute(sql, args)

        self._raw.exec_trace = lambda _cursor, sql, _values: sql == allowed[0]
        self._execute = execute

    @property
    def in_transaction(self) -> bool:
        return bool(self._raw.in_transaction)

    @property
    def total_changes(self) -> int:
        """The rows that were changed since the connection was opened."""
        changes = self._raw.total_changes
        return int(changes() if callable(changes) else changes)

    def load_pages(self, content: bytes) -> None:
        """Replace a database in memory."""
        try:
            if isinstance(self._raw, sqlite3.Connection):
                self._raw.deserialize(content)
            else:
                self._raw.deserialize("main", content)
        except _DRIVER_ERRORS as exc:
            self._raise(exc)

    def pages(self) -> bytes:
        """All pages as they are now; those of an encrypted file are decrypted."""
        try:
            return bytes(self._raw.serialize(name="main"))
        except _DATA_ERRORS as exc:
            self._raise(exc)

    def close(self) -> None:
        try:
            self._raw.close()
        except _DRIVER_ERRORS as exc:
            raise make_error(_result_code(exc), str(exc)) from exc  # it is closed all the same

    def _raise(self, exc: Exception, noted: int = 0) -> NoReturn:
        del self.differences[noted:]  # what a failed statement wrote is undone
        self.models.clear()  # perhaps with the whole transaction
        if isinstance(exc, UnicodeDecodeError) or _DAMAGED in str(exc):
            raise StoreCorrupt(f"a row of the file is damaged ({exc}). {_REPAIR}") from exc
        if isinstance(exc, _CLOSED_ERRORS) and "closed" in str(exc):
            raise StoreClosed(CLOSED) from exc
        # The standard library does not tell the errno.
        raise make_error(_result_code(exc), str(exc), getattr(self._raw, "system_errno", 0)) from exc


def compute_checksum(*values: Any) -> int:
    # CRC-32 finds every single flipped bit. Format 2 of marshal has no references: equal values give equal bytes.
    return NO_CHECKSUM + zlib.crc32(marshal.dumps(values, 2))


def check_row(value: Any, table: str, checksum: int | None, *values: Any) -> Any:
    """Return the value, for a row that is as it was written, or that an outer join did not find."""
    if checksum is not None and checksum != compute_checksum(*values):
        raise StoreCorrupt(f"a row of table {table} is damaged. {_REPAIR}")
    return value


def read_pages(db: Reader, statement: str, values: Mapping[str, Any]) -> Iterator[list[tuple[Any, ...]]]:
    """Yield the columns of a statement's rows page by page. The rows are ordered by their first column."""
    after = values["first"] - 1
    while True:
        rows = db.rows(statement, {**values, "after": after, "page": PAGE_ROWS})
        if rows:
            columns = list(zip(*rows, strict=True))
            after = columns[0][-1]
            yield columns
        if len(rows) < PAGE_ROWS:
            return


def connect(location: str, engine: EngineName, key: str | None = None) -> Connection:
    """`location` is a file: URI, or ":memory:". With a key the file is read and written encrypted."""
    if key is not None:
        require_encryption(engine)
    try:
        return Connection(_connect_apsw(location, key) if engine == "apsw" else _connect_stdlib(location))
    except _DRIVER_ERRORS as exc:
        raise make_error(_result_code(exc), str(exc)) from exc


def _connect_stdlib(location: str) -> sqlite3.Connection:
    return sqlite3.connect(
        location, uri=True, isolation_level=None, check_same_thread=False, cached_statements=_CACHED_STATEMENTS
    )


def _connect_apsw(location: str, key: str | None) -> apsw.Connection:
    """apsw brings an SQLite of its own."""
    flags = apsw.SQLITE_OPEN_URI | apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
    raw = apsw.Connection(location, flags=flags, statementcachesize=_CACHED_STATEMENTS)
    # A plan by the statement alone. Otherwise SQLite prepares a join anew whenever its values change: 16 µs, not 3.
    raw.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
    # The schema of a file cannot be edited, and a view in it, which is never ours, cannot be read.
    raw.config(apsw.SQLITE_DBCONFIG_DEFENSIVE, 1)
    raw.config(apsw.SQLITE_DBCONFIG_ENABLE_VIEW, 0)
    if key is not None:
        # A pragma takes no bound values. It must be the first statement of all.
        raw.execute("pragma key = '{}'".format(key.replace("'", "''")))
    return raw


def file_uri(path: Path, mode: Literal["ro", "rw", "rwc"], immutable: bool = False) -> str:
    return f"{path.absolute().as_uri()}?mode={mode}" + ("&immutable=1" if immutable else "")


def choose_engine(wanted: Engine) -> EngineName:
    if wanted == "auto":
        return "apsw" if apsw else "stdlib"
    if wanted == "apsw" and not apsw:
        raise ConfigError('the engine "apsw" is not installed. Run: pip install apsw, or leave the engine to "auto".')
    return wanted


def sqlite_version(engine: EngineName) -> tuple[int, ...]:
    if engine == "stdlib":
        return sqlite3.sqlite_version_info
    return tuple(int(part) for part in apsw.sqlite_lib_version().split("."))


def require_encryption(engine: EngineName) -> None:
    """Raise an error that says what to install, unless this engine can encrypt."""
    if engine == "stdlib":
        raise ConfigError('the engine "stdlib" cannot encrypt. Leave the engine to "auto", or give no key.')
    if hasattr(apsw, "mc_version"):
        return
    from importlib.metadata import PackageNotFoundError, version

    try:
        version("apsw-sqlite3mc")
    except PackageNotFoundError:
        raise BackendMissing("the engine that encrypts", "encryption") from None
    # Both packages are named apsw inside, and pip installs the plain one last.
    raise ConfigError(
        "apsw-sqlite3mc is installed, but apsw has taken its place. "
        "Run: pip install --force-reinstall --no-deps apsw-sqlite3mc."
    )


# Primary result codes of SQLite; the same in both drivers.
BUSY, LOCKED, NOMEM, READONLY, IOERR, CORRUPT, FULL, CANTOPEN = 5, 6, 7, 8, 10, 11, 13, 14
PROTOCOL, TOOBIG, CONSTRAINT, NOTADB = 15, 18, 19, 26
# The index of the log cannot grow. In practice that is a full disk.
IOERR_SHMSIZE = IOERR | 19 << 8


def make_error(code: int | None, message: str, system_error: int = 0) -> EngrainError:
    """The error for a result code, extended or not; `system_error` is the errno, where known."""
    primary = (code or 0) & 0xFF
    if code == IOERR_SHMSIZE or (primary in (IOERR, CANTOPEN) and system_error in (errno.ENOSPC, errno.EDQUOT)):
        primary = FULL
    kind, advice = _ERRORS.get(primary, (StoreError, ""))
    return kind(f"{advice or 'SQLite reported an error.'} (SQLite {code}: {message})")


def make_commit_error(code: int | None, message: str) -> EngrainError:
    """The error for a COMMIT that failed.

    Busy, a full disk, a broken constraint and a read-only file are met before the frame (or the journal's end) that
    makes the commit: nothing is kept. Any other failure may come after it: a sync that fails may have written, an
    index in shared memory that cannot grow follows a durable log, a journal may be cut before its sync fails.
    """
    if (code or 0) & 0xFF in (BUSY, LOCKED, FULL, CONSTRAINT, READONLY, TOOBIG):
        return make_error(code, message)
    return OutcomeUnknown(
        "the commit reported an error, so the write may or may not be durable. Repeat it with the same request_id. "
        f"(SQLite {code}: {message})"
    )


def _result_code(exc: Exception) -> int | None:
    names = ("sqlite_errorcode", "extendedresult", "result")  # of the standard library, then of apsw
    return next((code for name in names if (code := getattr(exc, name, None))), None)


_ERRORS: Mapping[int, tuple[type[EngrainError], str]] = {
    BUSY: (StoreBusy, "another process held the store for too long. Try again."),
    LOCKED: (StoreBusy, "another connection held the store for too long. Try again."),
    PROTOCOL: (StoreBusy, "another process held the store for too long. Try again."),
    NOMEM: (StoreError, "there is not enough memory."),
    READONLY: (
        ReadOnlyStore,
        "the file or its folder cannot be written. Change the permissions, or open read-only.",
    ),
    IOERR: (StoreError, "the disk reported an error. Nothing of this write was kept; repeat it."),
    CORRUPT: (StoreCorrupt, "the file is damaged. Run: engrain doctor."),
    FULL: (DiskFull, "the disk is full. Nothing of this write was kept; free some space and repeat it."),
    CANTOPEN: (StoreError, "the file cannot be opened: is the folder there, and may it be written?"),
    TOOBIG: (TooLarge, "a value is larger than SQLite takes."),
    CONSTRAINT: (StoreError, "a rule of the schema was broken: this is a bug in engrain, please report it."),
    NOTADB: (
        NotADatabase,
        "the file is not an SQLite database, or it is encrypted. Give the path of an engrain store, or ENGRAIN_KEY.",
    ),
}
