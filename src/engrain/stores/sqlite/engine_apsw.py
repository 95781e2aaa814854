"""A connection through apsw, which brings an SQLite of its own."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NoReturn

import apsw

from engrain.core.errors import BackendMissing, ConfigError, StoreClosed
from engrain.stores.sqlite.engine import Args, Row, commit_failure, failure


class ApswConnection:
    def __init__(self, location: str, key: str | None = None) -> None:
        if key is not None:
            check_module()
        self._encrypted = key is not None
        flags = apsw.SQLITE_OPEN_URI | apsw.SQLITE_OPEN_READWRITE | apsw.SQLITE_OPEN_CREATE
        try:
            self._raw = apsw.Connection(location, flags=flags, statementcachesize=256)
        except apsw.Error as exc:
            raise failure(_code(exc), str(exc)) from exc
        # A plan by the statement alone. Otherwise SQLite prepares a join anew whenever its values change: 16 µs, not 3.
        self._raw.config(apsw.SQLITE_DBCONFIG_ENABLE_QPSG, 1)
        self._execute = self._raw.execute
        if key is not None:
            # A pragma takes no bound values. It must be the first statement of all.
            self._execute("pragma key = '{}'".format(key.replace("'", "''")))

    def rows(self, sql: str, args: Args = ()) -> list[Row]:
        try:
            return self._execute(sql, args).fetchall()
        except apsw.Error as exc:
            self._raise(exc)

    def run(self, sql: str, args: Args = ()) -> int:
        try:
            self._execute(sql, args)
        except apsw.Error as exc:
            self._raise(exc)
        return self._raw.changes()

    def many(self, sql: str, rows: Iterable[Args]) -> None:
        try:
            self._raw.executemany(sql, rows)
        except apsw.Error as exc:
            self._raise(exc)

    def commit(self) -> None:
        try:
            self._execute("commit")
        except apsw.Error as exc:
            raise commit_failure(_code(exc), str(exc)) from exc

    @property
    def last_row(self) -> int:
        return self._raw.last_insert_rowid()

    @property
    def in_transaction(self) -> bool:
        return self._raw.in_transaction

    def backup(self, target: Path) -> None:
        if self._encrypted:
            # The copy has the same key. Pages of an encrypted file cannot be copied into a plain one.
            self.run("vacuum into ?", (target.absolute().as_uri(),))
            return
        try:
            other = apsw.Connection(str(target))
            try:
                with other.backup("main", self._raw, "main") as copying:
                    while not copying.done:
                        copying.step(1000)
            finally:
                other.close()
        except apsw.Error as exc:
            self._raise(exc)

    def pages(self) -> bytes:
        try:
            return self._raw.serialize("main")
        except apsw.Error as exc:
            self._raise(exc)

    def close(self) -> None:
        try:
            self._raw.close()
        except apsw.Error as exc:
            raise failure(_code(exc), str(exc)) from exc  # closed all the same, so there is nobody to ask for more

    def _raise(self, exc: apsw.Error) -> NoReturn:
        if isinstance(exc, apsw.ConnectionClosedError):
            raise StoreClosed("this store was closed. Open it again.") from exc
        raise failure(_code(exc), str(exc), self._raw.system_errno) from exc


def check_module() -> None:
    if hasattr(apsw, "mc_version"):
        return
    try:
        version("apsw-sqlite3mc")
    except PackageNotFoundError:
        raise BackendMissing("the engine that encrypts", "encryption") from None
    # Both packages are named apsw inside, and pip installs the plain one last.
    raise ConfigError(
        "apsw-sqlite3mc is installed, but apsw has taken its place. "
        "Run: pip install --force-reinstall --no-deps apsw-sqlite3mc."
    )


def _code(exc: apsw.Error) -> int | None:
    return getattr(exc, "extendedresult", None) or getattr(exc, "result", None)
