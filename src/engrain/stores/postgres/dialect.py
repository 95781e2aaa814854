"""Postgres' part of the relational store: fragments, binding and transactions."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from typing import Any, TypeVar

from engrain.core.clock import Clock, system_clock, to_micros
from engrain.core.errors import ConfigError, ReadOnlyStore
from engrain.core.identity import Scope
from engrain.core.model.filters import Filter
from engrain.core.model.items import Vectors, Words
from engrain.stores.postgres.adapters import read_vector
from engrain.stores.postgres.connection import Database, PipelinedConnection
from engrain.stores.postgres.filters import build_where, encode_filters
from engrain.stores.postgres.fragments import SYNTAX
from engrain.stores.postgres.index_rows import count_words, replace_vectors, write_vectors, write_words
from engrain.stores.postgres.statistics import TableStatistics
from engrain.stores.relational.dialect import Deferred, Do, IndexEntry, Pending, ScopeKey, Transaction
from engrain.stores.relational.holds import hash_owner
from engrain.stores.relational.rows import Row
from engrain.stores.relational.scopes import TABLES, hash_scope
from engrain.stores.relational.statements import Statement

Answer = TypeVar("Answer")
Value = TypeVar("Value")
INDEX_TABLES = ("word", "embedding", "embedded")  # what search reads of a scope
_HOLDS, _SCOPES, _EVERYBODY = ".hold", ".scopes", ""


@cache
def load_statements() -> Mapping[str, Statement]:
    return SYNTAX.load()


class PostgresTransaction:
    def __init__(self, dialect: PostgresDialect, db: PipelinedConnection, scope: Scope | None) -> None:
        self.scope, self.dialect, self.changes = scope, dialect, 0
        self.db = db
        self._key: ScopeKey | None = None  # of a scope whose rows are locked already
        self._owner: str | None = None

    @property
    def owner(self) -> str:
        if self._owner is None:
            self._owner = hash_owner(self.dialect.key, self.scope) if self.scope else ""
        return self._owner

    def rows(self, statement: str | Statement, **values: Any) -> list[Row]:
        return self.db.rows(*self._bind(statement, values))

    def ask(self, statement: str | Statement, **values: Any) -> Pending:
        return self.db.ask(*self._bind(statement, values))

    def run(self, statement: str | Statement, **values: Any) -> None:
        self.db.run(*self._bind(statement, values))

    def many(self, statement: str | Statement, rows: Iterable[Mapping[str, Any]]) -> None:
        for row in rows:
            self.db.run(*self._bind(statement, row))

    def lock_scope(self) -> None:
        if not self.rows("lock_scope"):
            self.add_scope()
            self.run("lock_scope")

    def add_scope(self) -> None:
        assert self.scope is not None
        scope = self.scope
        if self.owner:
            self.run("lock_shared", kind=_SCOPES, subject=self.owner)
        self.run("add_scope", tenant=scope.tenant, agent=scope.agent, user=scope.user)
        self.run("adopt_scope", hash=hash_scope(self.dialect.key, scope))

    def open_scopes(self, scopes: Iterable[Scope], lock: Iterable[Scope] = ()) -> dict[Scope, ScopeKey]:
        keys: dict[Scope, ScopeKey] = {scope: scope.id for scope in sorted(scopes, key=lambda one: one.id)}
        for scope in keys:
            self.within(scope).add_scope()
        self.run("lock_scopes", keys=sorted({*keys.values(), *(scope.id for scope in lock)}))
        return keys

    def within(self, scope: Scope, key: ScopeKey | None = None) -> PostgresTransaction:
        inside = PostgresTransaction(self.dialect, self.db, scope)
        inside._key = key
        return inside

    def lock_known_scope(self) -> bool:
        return bool(self.rows("lock_open_scope"))

    # Locks of what no row stands for: whether a user is held, and which scopes a user has. Taken in this order and
    # before any row is locked, so that nobody waits in a circle: all holds, those on one user, that user's scopes.
    # One circle is left: a writer that waited for a scope that was hidden or shown meanwhile has that row locked, and
    # may then want to make the scope. The server ends it, and it is done again; a lock with every write costs more.

    def lock_holds(self, subject_hash: str | None = None, *, change: bool = False) -> None:
        if subject_hash != "":  # a memory of no user has no hold
            self.run("lock" if change else "lock_shared", kind=_HOLDS, subject=subject_hash or _EVERYBODY)

    def lock_new_scopes(self, subject_hash: str) -> None:
        self.run("lock", kind=_SCOPES, subject=subject_hash)

    def delete_scope_index(self) -> None:
        for table in INDEX_TABLES:
            self.run(self.dialect.statements["delete_rows"].fill(table=table))

    def add_erased_scope(self, id: str) -> str:
        return id

    def mark_purge(self) -> None:
        self.run("mark_purge")

    def begin_write(self) -> tuple[int, int]:
        if self.scope is None or self._key is not None:
            ((now, _),) = self.rows("begin_changes")
            return 0, int(now)
        locked, began = self.ask("lock_scope"), self.ask("begin_changes")
        found = locked.fetchall()
        if not found:
            self.add_scope()
            locked, began = self.ask("lock_scope"), self.ask("begin_changes")
            found = locked.fetchall()
        ((now, _),) = began.fetchall()
        return int(found[0][0]), int(now)

    def end_write(self, changed: Iterable[ScopeKey] = ()) -> Pending:
        if self.scope is not None:
            return self.ask("store_last_change")
        return self.ask("store_last_changes", keys=changed)

    def write_index(self, entries: Sequence[tuple[int, Words, Vectors | None]]) -> None:
        assert self.scope is not None
        write_words(self, self.scope.id, [(n, words) for n, words, _ in entries])
        stored = [(n, vectors) for n, _, vectors in entries if vectors and vectors.rows]
        write_vectors(self, self.scope.id, self.dialect.models, stored)

    def replace_vectors(self, vectors: Mapping[tuple[int, str], Vectors]) -> None:
        assert self.scope is not None
        replace_vectors(self, self.scope.id, self.dialect.models, vectors)

    def retract_index(self, id_: str) -> None:
        self.run("delete_retracted_words", id=id_)

    def delete_index(self, numbers: Sequence[int]) -> None:
        self.run("delete_words", numbers=numbers)
        self.run("delete_vectors", numbers=numbers)

    def store_time(self, now: int) -> None:
        """The function tick has stored it already."""

    def now(self) -> int:
        ((now,),) = self.rows("find_now")
        return int(now)

    def replace_index(self, entries: Sequence[IndexEntry], replaced: Iterable[tuple[ScopeKey, int]]) -> None:
        for scope, numbers in _by_scope(replaced).items():
            self.run("delete_words", scope=scope, numbers=numbers)
            self.run("delete_vectors", scope=scope, numbers=numbers)
        for scope, some in _by_scope((one.scope, one) for one in entries).items():
            write_words(self, scope, [(one.item, one.words) for one in some if one.found])
            stored = [(one.item, Vectors(model, tuple(rows))) for one in some for model, rows in one.vectors.items()]
            write_vectors(self, scope, self.dialect.models, stored)

    def _bind(self, name: str | Statement, values: Mapping[str, Any]) -> tuple[str, dict[str, Any]]:
        """Return the statement's SQL and its values."""
        statement, bound = self.dialect.find(name), dict(values)
        self.changes += statement.changes
        for name in statement.lists:
            bound[name] = list(bound[name])
        if "scope" in statement.parameters and "scope" not in bound:
            bound["scope"] = self._key or (self.scope and self.scope.id)
        if "owner" in statement.parameters:
            bound["owner"] = self.owner
        if "clock" in statement.parameters:
            bound["clock"] = self.dialect.clock_micros()
        return statement.sql, bound


class PostgresDialect:
    """One schema of a database. Row-level security is set to the scope of each transaction.

    Without a clock of its own the store goes by the server's, which is one for all machines."""

    scope_tables: tuple[str, ...] = (*TABLES, *INDEX_TABLES)

    def __init__(self, database: Database, key: bytes, clock: Clock, read_only: bool) -> None:
        self.key = key
        self.models: dict[str, tuple[int, int]] = {}  # number and dimension, by key
        self.database, self.read_only = database, read_only
        self._clock = None if clock is system_clock else clock
        self.after_writes = TableStatistics(database).count_writes

    @property
    def name(self) -> str:
        return self.database.address.shown

    @property
    def statements(self) -> Mapping[str, Statement]:
        return load_statements()

    def find(self, statement: str | Statement) -> Statement:
        return load_statements()[statement] if isinstance(statement, str) else statement

    def clock_micros(self) -> int | None:
        """None: the server's."""
        return None if self._clock is None else to_micros(self._clock())

    def read(self, scope: Scope | None, do: Do[Answer], *, latest: bool = False) -> Answer:
        mode = "look" if latest else "read"
        return self.database.read(scope, lambda db: do(PostgresTransaction(self, db, scope)), mode)

    def write(
        self, scope: Scope | None, do: Do[Answer], *, repeat: bool = False, request_id: str | None = None
    ) -> Answer:
        if self.read_only:
            self.database.opened()  # a closed store says that first
            raise ReadOnlyStore(f"{self.name} was opened read-only. Open it without read_only to write.")
        mode = "repeat" if repeat else "write"
        return self.database.write(scope, lambda db: do(PostgresTransaction(self, db, scope)), mode)

    def together(self, do: Callable[[], Answer], request_id: str | None = None) -> Answer:
        """Run `do` with all its reads and writes in one transaction, which may run twice."""
        if self.database.joint:
            return do()
        known = dict(self.models)

        def run() -> Answer:
            self.models = dict(known)  # those of a first attempt may be rolled back with it
            return do()

        try:
            return self.database.together(run)
        except BaseException:
            self.models = known
            raise

    def ask(self, scope: Scope | None, statement: str | Statement, **values: Any) -> list[Row]:
        return self.read(scope, lambda tx: Deferred(tx.ask(statement, **values), list))

    def prepare_index(self, models: Mapping[str, int]) -> None:
        # In a transaction of its own: in that of a plan, the first vector of a model would hold up every other scope.
        for key, dimension in models.items():
            if key not in self.models:
                values = {"model": key, "dimension": dimension}
                self.write(None, lambda tx: tx.run("add_model", **values), repeat=True)  # noqa: B023
                ((number, known),) = self.ask(None, "find_model", model=key)
                self.models[key] = number, known

    def index_values(self, words: Words | None = None, metadata: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
        counted = {} if words is None else {"words": count_words(words)}
        return counted if metadata is None else {**counted, "filters": encode_filters(metadata)}

    def build_where(self, where: Filter | None) -> tuple[str, dict[str, Any]]:
        return build_where(where)

    def read_vectors(self, rows: Iterable[Row]) -> dict[str, tuple[bytes, ...]]:
        """Every window has a row of its own."""
        windows: dict[str, tuple[bytes, ...]] = {}
        for id_, sent in rows:
            windows[id_] = (*windows.get(id_, ()), read_vector(sent).astype("<f4").tobytes())
        return windows

    def check_full_access(self, tx: Transaction) -> None:
        if hidden := [name for (name,) in tx.rows("list_restricted_tables")]:
            raise ConfigError(
                f"{self.name}: row-level security hides rows of {', '.join(hidden)} from this role. "
                "Copy as a role that has BYPASSRLS or that the policy `maintenance` of these tables is for."
            )


def _by_scope(pairs: Iterable[tuple[ScopeKey, Value]]) -> dict[ScopeKey, list[Value]]:
    found: dict[ScopeKey, list[Value]] = {}
    for scope, value in pairs:
        found.setdefault(scope, []).append(value)
    return found
