"""One face over apsw and the standard library's sqlite3."""

from __future__ import annotations

import errno
import importlib.util
import sqlite3
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, NoReturn, Protocol

from engrain.core.errors import (
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
Engine = Literal["auto", "apsw", "stdlib"]

# Primary result codes of SQLite; the same in both drivers.
BUSY, LOCKED, NOMEM, READONLY, IOERR, CORRUPT, FULL, CANTOPEN = 5, 6, 7, 8, 10, 11, 13, 14
PROTOCOL, TOOBIG, CONSTRAINT, NOTADB = 15, 18, 19, 26
# An index of the log that cannot grow: of all that this can mean, a full disk is what happens.
IOERR_SHMSIZE = IOERR | 19 << 8

# Strict tables, and json_each as filters use it.
OLDEST = (3, 37, 2)
_STATEMENTS = 256


@dataclass(frozen=True, slots=True)
class Sealed:
    """An engine for an encrypted file, with its key."""

    key: str = field(repr=False)  # shown to nobody
    engine: Engine = "auto"


class Connection(Protocol):
    """One connection, used by one thread at a time. Every error that it raises is an EngrainError."""

    def rows(self, sql: str, args: Args = ()) -> list[Row]: ...

    def run(self, sql: str, args: Args = ()) -> int:
        """The number of rows that the statement changed; for an insert, of the row it made, ask last_row."""

    def many(self, sql: str, rows: Iterable[Args]) -> None: ...

    def commit(self) -> None:
        """OutcomeUnknown if the commit may have become durable although it failed."""

    @property
    def last_row(self) -> int: ...

    @property
    def in_transaction(self) -> bool: ...

    def backup(self, target: Path) -> None: ...

    def pages(self) -> bytes:
        """All of them as they stand now; of an encrypted file as they are behind the key."""

    def close(self) -> None: ...


def engine_name(wanted: Engine) -> Literal["apsw", "stdlib"]:
    if wanted == "auto":
        return "apsw" if importlib.util.find_spec("apsw") else "stdlib"
    return wanted


def engine_version(engine: Literal["apsw", "stdlib"]) -> tuple[int, ...]:
    if engine == "stdlib":
        return sqlite3.sqlite_version_info
    import apsw

    return tuple(int(part) for part in apsw.sqlite_lib_version().split("."))


def connect(location: str, engine: Literal["apsw", "stdlib"], key: str | None = None) -> Connection:
    """`location` is a file: URI, or ":memory:". With a key the file is read and written encrypted."""
    if engine == "apsw":
        from engrain.stores.sqlite.engine_apsw import ApswConnection

        return ApswConnection(location, key)
    if key is not None:
        check_ciphers(engine)
    return StdlibConnection(location)


def check_ciphers(engine: Literal["apsw", "stdlib"]) -> None:
    """An error that says what to install, unless this engine can encrypt."""
    if engine == "stdlib":
        raise ConfigError('the engine "stdlib" cannot encrypt. Leave the engine to "auto", or give no key.')
    from engrain.stores.sqlite.engine_apsw import check_module

    check_module()


def uri(path: Path, mode: Literal["ro", "rw", "rwc"], immutable: bool = False) -> str:
    return f"{path.absolute().as_uri()}?mode={mode}" + ("&immutable=1" if immutable else "")


def statements(script: str) -> list[str]:
    """The statements of a script whose every statement ends a line. (executescript would commit first.)"""
    found, lines = [], []
    for line in script.splitlines():
        lines.append(line)
        if line.rstrip().endswith(";"):
            found.append("\n".join(lines).strip())
            lines = []
    return found


class StdlibConnection:
    def __init__(self, location: str) -> None:
        try:
            self._raw = sqlite3.connect(
                location, uri=True, isolation_level=None, check_same_thread=False, cached_statements=_STATEMENTS
            )
        except sqlite3.Error as exc:
            _raise(exc)

    def rows(self, sql: str, args: Args = ()) -> list[Row]:
        try:
            return self._raw.execute(sql, args).fetchall()
        except sqlite3.Error as exc:
            _raise(exc)

    def run(self, sql: str, args: Args = ()) -> int:
        try:
            return self._raw.execute(sql, args).rowcount
        except sqlite3.Error as exc:
            _raise(exc)

    def many(self, sql: str, rows: Iterable[Args]) -> None:
        try:
            self._raw.executemany(sql, rows)
        except sqlite3.Error as exc:
            _raise(exc)

    def commit(self) -> None:
        try:
            self._raw.execute("commit")
        except sqlite3.Error as exc:
            code = getattr(exc, "sqlite_errorcode", None)
            raise commit_failure(code, str(exc)) from exc

    @property
    def last_row(self) -> int:
        return int(self._raw.execute("select last_insert_rowid()").fetchone()[0])

    @property
    def in_transaction(self) -> bool:
        return self._raw.in_transaction

    def backup(self, target: Path) -> None:
        try:
            other = sqlite3.connect(target)
            try:
                self._raw.backup(other)
            finally:
                other.close()
        except sqlite3.Error as exc:
            _raise(exc)

    def pages(self) -> bytes:
        try:
            return self._raw.serialize()
        except sqlite3.Error as exc:
            _raise(exc)

    def close(self) -> None:
        try:
            self._raw.close()
        except sqlite3.Error as exc:
            _raise(exc)


def _raise(exc: sqlite3.Error) -> NoReturn:
    if isinstance(exc, sqlite3.ProgrammingError) and "closed" in str(exc):
        raise StoreClosed("this store was closed. Open it again.") from exc
    raise failure(getattr(exc, "sqlite_errorcode", None), str(exc)) from exc


def failure(code: int | None, message: str, system: int = 0) -> EngrainError:
    """The error for a result code, extended or not; `system` is the operating system's own, where known."""
    primary = (code or 0) & 0xFF
    if code == IOERR_SHMSIZE or (primary in (IOERR, CANTOPEN) and system in (errno.ENOSPC, errno.EDQUOT)):
        primary = FULL
    kind, advice = _FAILURES.get(primary, (StoreError, ""))
    return kind(f"{advice or 'SQLite reported an error.'} (SQLite {code}: {message})")


def commit_failure(code: int | None, message: str) -> EngrainError:
    """The error for a COMMIT that failed.

    Busy, a full disk, a broken constraint and a read-only file are met before the frame (or the journal's end) that
    makes the commit: nothing is kept. Any other failure may come after it: a sync that fails may have written, an
    index in shared memory that cannot grow follows a durable log, a journal may be cut before its sync fails.
    """
    if (code or 0) & 0xFF in (BUSY, LOCKED, FULL, CONSTRAINT, READONLY, TOOBIG):
        return failure(code, message)
    return OutcomeUnknown(
        "the commit reported an error, so the write may or may not be durable. Repeat it with the same request_id. "
        f"(SQLite {code}: {message})"
    )


_FAILURES: Mapping[int, tuple[type[EngrainError], str]] = {
    BUSY: (StoreBusy, "another process held the store for too long. Try again."),
    LOCKED: (StoreBusy, "another connection held the store for too long. Try again."),
    PROTOCOL: (StoreBusy, "another process held the store for too long. Try again."),
    NOMEM: (StoreError, "there is not enough memory."),
    READONLY: (
        ReadOnlyStore,
        "the file or its folder cannot be written. Change its permissions, or open it read-only.",
    ),
    IOERR: (
        StoreError,
        "the disk reported an error. Nothing of this write was kept; repeat it.",
    ),
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
