"""SQLite's part of the relational store: fragments, binding and transactions."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, Protocol, TypeVar

from engrain.core.clock import Clock, system_clock, to_micros
from engrain.core.identity import Scope
from engrain.stores.relational.dialect import Deferred, Do, Fetched
from engrain.stores.relational.holds import hash_owner
from engrain.stores.relational.rows import Row
from engrain.stores.relational.statements import Statement
from engrain.stores.sqlite.engine import Connection
from engrain.stores.sqlite.fragments import SYNTAX
from engrain.stores.sqlite.steady_clock import find_steady_clock

Answer = TypeVar("Answer")


@cache
def load_statements() -> Mapping[str, Statement]:
    return SYNTAX.load()


class SqliteTransaction:
    def __init__(self, dialect: SqliteDialect, db: Connection, scope: Scope | None) -> None:
        self.scope = scope
        self._dialect, self._db = dialect, db
        self._key: int | None = None
        self._change: int | None = None
        self._now = 0
        self._owner: str | None = None

    @property
    def owner(self) -> str:
        if self._owner is None:
            self._owner = hash_owner(self._dialect.key, self.scope) if self.scope else ""
        return self._owner

    def rows(self, statement: str | Statement, **values: Any) -> list[Row]:
        found = self._dialect.find(statement)
        return self._db.rows(found.sql, self._bind(found, values))

    def ask(self, statement: str | Statement, **values: Any) -> Fetched:
        return Fetched(self.rows(statement, **values))

    def run(self, statement: str | Statement, **values: Any) -> None:
        found = self._dialect.find(statement)
        self._db.run(found.sql, self._bind(found, values))

    def many(self, statement: str | Statement, rows: Iterable[Mapping[str, Any]]) -> None:
        found = self._dialect.find(statement)
        self._db.many(found.sql, (self._bind(found, row) for row in rows))

    def lock_scope(self) -> None:
        """The transaction has the whole file already."""
        assert self.scope is not None
        if self._scope_key() is None:
            self._key = self._dialect.add_scope(self._db, self.scope)

    def add_scope(self) -> None:
        self.lock_scope()

    def lock_user(self, subject_hash: str) -> None:
        """The transaction has the whole file already."""

    def lock_holds(self) -> None:
        """The transaction has the whole file already."""

    def mark_purge(self) -> None:
        self._dialect.mark_purge(self._db)

    def begin_write(self) -> tuple[int, int]:
        self.lock_scope()
        ((self._change,),) = self._db.rows("select change from counter")
        self._now = self.now()
        return self._change, self._now

    def end_write(self) -> Fetched:
        sql = "update counter set change = :change, now = max(now, :now) where n = 1"
        self._db.run(sql, {"change": self._change, "now": self._now})
        return Fetched([(self._change,)])

    def store_time(self, now: int) -> None:
        self._db.run("update counter set now = max(now, :now) where n = 1", {"now": now})

    def now(self) -> int:
        ((now,),) = self.rows("find_now")
        return int(now)

    def _bind(self, statement: Statement, values: Mapping[str, Any]) -> dict[str, Any]:
        bound = dict(values)
        for name in statement.lists:
            bound[name] = json.dumps(list(bound[name]), ensure_ascii=False)
        if "scope" in statement.parameters and "scope" not in bound:
            bound["scope"] = self._scope_key()
        if "owner" in statement.parameters:
            bound["owner"] = self.owner
        if "clock" in statement.parameters:
            bound["clock"] = self._dialect.clock_micros()
        if "steady_clock" in statement.parameters:
            bound["steady_clock"] = self._dialect.steady_clock and self._dialect.steady_clock()
        if "change" in statement.parameters:
            assert self._change is not None, "begin_write comes first"
            self._change += 1
            bound["change"] = self._change
        return bound

    def _scope_key(self) -> int | None:
        # Looked up in each transaction: another process may have erased or hidden it since.
        if self._key is None and self.scope is not None:
            self._key = self._dialect.find_scope(self._db, self.scope)
        return self._key


class Run(Protocol):
    def __call__(self, fn: Callable[[Connection], Answer], /) -> Answer: ...


class SqliteDialect:
    """`snapshot` and `transaction` run a closure on a connection of the open file."""

    def __init__(
        self,
        snapshot: Run,
        transaction: Run,
        find_scope: Callable[[Connection, Scope], int | None],
        add_scope: Callable[[Connection, Scope], int],
        mark_purge: Callable[[Connection], None],
        clock: Clock,
    ) -> None:
        self._snapshot, self._transaction, self._clock = snapshot, transaction, clock
        self.find_scope, self.add_scope, self.mark_purge = find_scope, add_scope, mark_purge
        # Judges leases. A clock that was handed in does so itself.
        self.steady_clock = find_steady_clock() if clock is system_clock else None
        self.key = b""  # read when the file is open

    @property
    def statements(self) -> Mapping[str, Statement]:
        return load_statements()

    def find(self, statement: str | Statement) -> Statement:
        return load_statements()[statement] if isinstance(statement, str) else statement

    def clock_micros(self) -> int:
        return to_micros(self._clock())

    def over(self, db: Connection, scope: Scope | None) -> SqliteTransaction:
        """A transaction that is open on this connection."""
        return SqliteTransaction(self, db, scope)

    def read(self, scope: Scope | None, do: Do[Answer]) -> Answer:
        return self._snapshot(lambda db: _finish(do(self.over(db, scope))))

    def write(self, scope: Scope | None, do: Do[Answer], *, repeat: bool = False) -> Answer:
        return self._transaction(lambda db: _finish(do(self.over(db, scope))))

    def ask(self, scope: Scope | None, statement: str | Statement, **values: Any) -> list[Row]:
        return self._snapshot(lambda db: self.over(db, scope).rows(statement, **values))


def _finish(answer: Answer | Deferred[Answer]) -> Answer:
    return answer.read() if isinstance(answer, Deferred) else answer
