"""A connection to SQLite through apsw, whose every error is one of ours."""

from __future__ import annotations

import errno
import marshal
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import IntEnum
from pathlib import Path
from typing import Any, Literal, NamedTuple, NoReturn, Protocol

import apsw

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

Row = tuple[Any, ...]
Args = Sequence[Any] | Mapping[str, Any]

# Before this version a checkpoint could overwrite frames of the log that were not yet in the file.
SAFE_WAL_VERSION = (3, 51, 3)
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
# A damaged text is not UTF-8, and apsw lets Python's error through.
_DATA_ERRORS = (apsw.Error, UnicodeDecodeError, OverflowError)
_REPAIR = "Run: engrain doctor. Restore a backup; without one, engrain doctor --rebuild keeps the row as it is now."


class Action(IntEnum):
    """Codes of SQLite's authorizer."""

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


class Connection:
    """One connection, used by one thread at a time. Every error that it raises is an EngrainError."""

    def __init__(self, raw: apsw.Connection) -> None:
        self._raw = raw
        self._execute: Callable[..., Any] = raw.execute
        self._has_triggers = False
        # How the rows that this transaction has written change the digests: (scope, difference).
        self.differences: list[tuple[int | None, int]] = []
        self.next_item: int | None = None  # the number for the next new item, if this transaction knows it
        self.models: dict[str, Row] = {}  # number and dimension of models, which are never removed
        self._insert_triggers: Sequence[tuple[str, str]] = ()
        self._add_functions({"row_checksum": compute_checksum, "checked_row": check_row}, deterministic=True)

    def _add_functions(self, functions: Mapping[str, Callable[..., Any]], deterministic: bool) -> None:
        for name, function in functions.items():
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
        """Insert rows of one scope with their checksums. Each has every column."""
        given = list(rows)
        try:
            sealed = [(*row, compute_checksum(*row)) for row in given]
        except ValueError:  # a value of a subclass, such as an Enum, has no checksum
            plain = [tuple(map(_to_plain_value, row)) for row in given]
            sealed = [(*row, compute_checksum(*row)) for row in plain]
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

        noting: Mapping[str, Callable[..., Any]] = {
            "inserted_row": insert,
            "updated_row": update,
            "deleted_row": delete,
        }
        self._add_functions(noting, deterministic=False)

    def commit(self) -> None:
        """OutcomeUnknown if the commit may have become durable although it failed."""
        try:
            self._execute("commit")
        except apsw.Error as exc:
            self.models.clear()
            raise make_commit_error(_result_code(exc), str(exc)) from exc

    def authorize(self, allow: Permission) -> None:
        """Deny every action that `allow` refuses."""

        def decide(action: int, first: str | None, second: str | None, database: str | None, _: str | None) -> int:
            return 0 if allow(action, first, second, database) else 1

        self._raw.authorizer = decide

    def restrict(self, allow: Permission) -> None:
        """Do the same, and run one statement a call."""
        self.authorize(allow)
        allowed = [""]

        def execute(sql: str, args: Args = ()) -> Any:
            allowed[0] = sql
            return self._raw.execute(sql, args)

        self._raw.exec_trace = lambda _cursor, sql, _values: sql == allowed[0]
        self._execute = execute

    @property
    def in_transaction(self) -> bool:
        return self._raw.in_transaction

    @property
    def total_changes(self) -> int:
        """The rows that were changed since the connection was opened."""
        return self._raw.total_changes()

    def load_pages(self, content: bytes) -> None:
        """Replace a database in memory."""
        try:
            self._raw.deserialize("main", content)
        except apsw.Error as exc:
            self._raise(exc)

    def pages(self) -> bytes:
        """All pages as they are now; those of an encrypted file are decrypted."""
        try:
            return self._raw.serialize("main")
        except _DATA_ERRORS as exc:
            self._raise(exc)

    def close(self) -> None:
        try:
            self._raw.close()
        except apsw.Error as exc:
            raise make_error(_result_code(exc), str(exc)) from exc  # it is closed all the same

    def _raise(self, exc: Exception, noted: int = 0) -> NoReturn:
        del self.differences[noted:]  # what a failed statement wrote is undone
        self.models.clear()  # perhaps with the whole transaction
        if isinstance(exc, (UnicodeDecodeError, OverflowError)):  # a number that counts on from a forged one
            raise StoreCorrupt(f"a row of the file is damaged ({exc}). {_REPAIR}") from exc
        if isinstance(exc, apsw.ConnectionClosedError):
            raise StoreClosed(CLOSED) from exc
        raise make_error(_result_code(exc), str(exc), self._raw.system_errno) from exc


def compute_checksum(*values: Any) -> int:
    # CRC-32 finds every single flipped bit. Format 2 of marshal has no references: equal values give equal bytes.
    return NO_CHECKSUM + zlib.crc32(marshal.dumps(values, 2))


_CONVERSIONS: dict[type, Callable[[Any], Any]] = {
    str: str.__str__, int: int.__int__, float: float.__float__, bytes: bytes.__bytes__
}  # fmt: skip


def _to_plain_value(value: Any) -> Any:
    """Return a value of a subclass in the type that SQLite stores."""
    return next((convert(value) for kind, convert in _CONVERSIONS.items() if isinstance(value, kind)), value)


def check_row(value: Any, table: str, checksum: int | None, *values: Any) -> Any:
    """Return the value, for a row that is as it was written, or that an outer join did not find."""
    if checksum is not None and checksum != compute_checksum(*values):
        raise StoreCorrupt(f"a row of table {table} is damaged. {_REPAIR}")
    return value


def read_pages(db: Reader, statement: str, values: Mapping[str, Any]) -> Iterator[list[tuple[Any, ...]]]:
    """Yield the columns of a statement's rows page by page. The rows are ordered by their first column."""
    after = -1
    while True:
        rows = db.rows(statement, {**values, "after": after, "page": PAGE_ROWS})
        if rows:
            columns = list(zip(*rows, strict=True))
            after = columns[0][-1]
            yield columns
        if len(rows) < PAGE_ROWS:
            return


def connect(location: str, key: str | None = None) -> Connection:
    """`location` is a file: URI, or ":memory:". With a key the file is read and written encrypted."""
    if key is not None:
        require_encryption()
    try:
        return Connection(_open_raw(location, key))
    except apsw.Error as exc:
        raise make_error(_result_code(exc), str(exc)) from exc


def _open_raw(location: str, key: str | None) -> apsw.Connection:
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


def require_safe_version() -> None:
    """apsw's wheels bring a newer SQLite. A build against the system's library may have an old one."""
    version = apsw.sqlite_lib_version()
    if tuple(map(int, version.split("."))) < SAFE_WAL_VERSION:
        needed = ".".join(map(str, SAFE_WAL_VERSION))
        raise StoreError(
            f"SQLite {version} can lose writes; {needed} is needed. Run: pip install --force-reinstall apsw."
        )


def require_encryption() -> None:
    """Raise an error that says what to install, unless the installed SQLite can encrypt."""
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


# Primary result codes of SQLite.
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
    return kind(f"{advice or 'SQLite reported an error. Run: engrain doctor.'} (SQLite {code}: {message})")


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
    return getattr(exc, "extendedresult", None) or getattr(exc, "result", None)


_ERRORS: Mapping[int, tuple[type[EngrainError], str]] = {
    BUSY: (StoreBusy, "another process held the store for too long. Try again."),
    LOCKED: (StoreBusy, "another connection held the store for too long. Try again."),
    PROTOCOL: (StoreBusy, "another process held the store for too long. Try again."),
    NOMEM: (StoreError, "there is not enough memory. Close other programs, or ask for less at once."),
    READONLY: (
        ReadOnlyStore,
        "the file or its folder cannot be written. Change the permissions, or open read-only.",
    ),
    IOERR: (
        StoreError,
        "the disk reported an error. Nothing of this write was kept: repeat it. If it happens again, check the disk.",
    ),
    CORRUPT: (StoreCorrupt, "the file is damaged. Run: engrain doctor. Restore a backup."),
    FULL: (DiskFull, "the disk is full. Nothing of this write was kept; free some space and repeat it."),
    CANTOPEN: (StoreError, "the file cannot be opened. Look if its folder exists, and if you may write to both."),
    TOOBIG: (TooLarge, "a value is larger than SQLite takes. Split it and store the parts."),
    CONSTRAINT: (StoreError, "a rule of the schema was broken: this is a bug in engrain, please report it."),
    NOTADB: (
        NotADatabase,
        "the file is not an SQLite database, or it is encrypted. Give the path of an engrain store, or ENGRAIN_KEY.",
    ),
}
