"""Postgres' part of the relational store: binding, transactions, and the rows that search reads."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, suppress
from functools import cache
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import psycopg
from psycopg import sql

from engrain.core.clock import Clock, system_clock, to_micros
from engrain.core.errors import ConfigError, EngrainError, ReadOnlyStore, raise_interrupt
from engrain.core.identity import Scope
from engrain.core.model.filters import Filter
from engrain.core.model.items import Vectors, Words
from engrain.stores.postgres.connection import Database, PipelinedConnection, TimedConnection
from engrain.stores.postgres.syntax import (
    SYNTAX,
    BigintArray,
    IntegerArray,
    RealArray,
    build_where,
    encode_filters,
    read_vector,
)
from engrain.stores.relational.dialect import Deferred, Do, Pending, ScopeKey, Transaction
from engrain.stores.relational.rows import Row
from engrain.stores.relational.scopes import TABLES, hash_owner, hash_scope
from engrain.stores.relational.statements import Statement
from engrain.stores.vector_math import stack_windows

Answer = TypeVar("Answer")
INDEX_TABLES = ("word", "embedding", "embedded")  # what search reads of a scope
_HOLDS, _SCOPES, _EVERYBODY = ".hold", ".scopes", ""
_BATCH = 500  # vectors of one statement
Models = Mapping[str, tuple[int, int]]  # number and dimension, by key
_ANALYZED = ("item", "source", "citation", "word", "embedding", "episode", "session")
# After so many writes of this process. From then on the server's own rhythm is enough.
_ANALYZE_AT = (100, 1_000, 10_000)
# The server's estimate; negative before the first analysis.
_SIZE = "select reltuples from pg_class where oid = 'item'::regclass"


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
        keys: dict[Scope, ScopeKey] = {scope: scope.id for scope in sorted(scopes, key=lambda member: member.id)}
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

    def find_numbers(self, ids: Sequence[str]) -> dict[str, int]:
        return {id_: n for id_, n, _ in self.rows("load_hashes", ids=ids)}

    def write_index(self, entries: Sequence[tuple[int, Words, Vectors | None]]) -> None:
        assert self.scope is not None
        write_words(self, self.scope.id, list({n: words for n, words, _ in entries}.items()))
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
            self.database.get_pool()  # a closed store says that first
            raise ReadOnlyStore(f"{self.name} was opened read-only. Open it without read_only to write.")
        mode = "repeat" if repeat else "write"
        return self.database.write(scope, lambda db: do(PostgresTransaction(self, db, scope)), mode)

    def in_transaction(self, do: Callable[[], Answer], request_id: str | None = None) -> Answer:
        """Run `do` with all its reads and writes in one transaction, which may run twice."""
        if self.database.joint:
            return do()
        known = dict(self.models)

        def run() -> Answer:
            self.models = dict(known)  # those of a first attempt may be rolled back with it
            return do()

        try:
            return self.database.in_transaction(run)
        except BaseException:
            self.models = known
            raise

    def write_each(self, writes: Sequence[tuple[Scope, Do[Answer], str | None]]) -> list[Answer | EngrainError]:
        """Each in a transaction of its own: those of several scopes would wait for each other's locks."""
        answers: list[Answer | EngrainError] = []
        for scope, do, request_id in writes:
            try:
                answers.append(self.write(scope, do, request_id=request_id))
            except EngrainError as exc:
                raise_interrupt(exc)
                answers.append(exc)
        return answers

    def encoding(self, vectors: Sequence[Vectors]) -> AbstractContextManager[None]:
        return nullcontext()

    def ask(self, scope: Scope | None, statement: str | Statement, **values: Any) -> list[Row]:
        return self.read(scope, lambda tx: Deferred(tx.ask(statement, **values), list))

    def read_clock(self, scope: Scope | None) -> int:
        ((now,),) = self.ask(scope, "find_now")
        return int(now)

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


def count_words(words: Words) -> int:
    """Count the words of all passages."""
    packed = np.frombuffer(words.pairs, dtype="<u4")[1::2]
    return int((packed & 0xFFFF).sum())


def write_words(tx: Transaction, scope: ScopeKey, entries: Sequence[tuple[int, Words]]) -> None:
    items, *columns = _make_postings(entries)
    if len(items):
        terms, passages, lengths, counts = map(IntegerArray, columns)
        values = {"terms": terms, "passages": passages, "lengths": lengths, "counts": counts}
        tx.run("add_words", scope=scope, items=BigintArray(items), **values)


def write_vectors(tx: Transaction, scope: ScopeKey, models: Models, entries: Sequence[tuple[int, Vectors]]) -> None:
    by_model: dict[str, list[tuple[int, Vectors]]] = {}
    for n, vectors in entries:
        by_model.setdefault(vectors.model, []).append((n, vectors))
    for key, group in by_model.items():
        model, dimension = models[key]
        matrix = stack_windows([vectors for _, vectors in group], dimension)
        places = [(n, number) for n, vectors in group for number in range(len(vectors.rows))]
        for start in range(0, len(places), _BATCH):
            some, rows = np.array(places[start : start + _BATCH]), matrix[start : start + _BATCH]
            columns = {
                "items": BigintArray(some[:, 0]),
                "numbers": IntegerArray(some[:, 1]),
                "vectors": RealArray(rows),
            }
            tx.run("add_vectors", scope=scope, model=model, dimension=dimension, **columns)
        tx.run("add_vector_count", scope=scope, model=model, count=len(matrix))


def replace_vectors(
    tx: Transaction, scope: ScopeKey, models: Models, vectors: Mapping[tuple[int, str], Vectors]
) -> None:
    """Replace the vectors that an item has of a model."""
    by_model: dict[str, list[int]] = {}
    for n, model in vectors:
        by_model.setdefault(model, []).append(n)
    for model, items in by_model.items():
        tx.run("delete_model_vectors", scope=scope, items=items, model=model)
    write_vectors(tx, scope, models, [(n, each) for (n, _), each in vectors.items() if each.rows])


def _make_postings(entries: Sequence[tuple[int, Words]]) -> tuple[npt.NDArray[np.int64], ...]:
    """A row for each different word of each passage: item, term, passage, length of the passage, count."""
    pairs = [np.frombuffer(words.pairs, dtype="<u4").reshape(-1, 2) for _, words in entries]
    items = np.repeat(np.array([n for n, _ in entries], dtype=np.int64), [len(each) for each in pairs])
    every = np.concatenate(pairs) if pairs else np.empty((0, 2), dtype="<u4")
    passages, counts = (every[:, 1] >> 16).astype(np.int64), (every[:, 1] & 0xFFFF).astype(np.int64)
    # Passages of one item lie together, in order.
    starts = np.flatnonzero(np.append(True, (np.diff(items) != 0) | (np.diff(passages) != 0))) if len(items) else items
    totals = np.add.reduceat(counts, starts) if len(items) else items
    lengths = np.repeat(totals, np.diff(np.append(starts, len(items))))
    return items, every[:, 0].astype(np.uint32).view(np.int32).astype(np.int64), passages, lengths, counts


class TableStatistics:
    """Without statistics the server takes a scope for a row or two, and may scan all of it for one id.

    It analyzes a table once a minute by itself: a first load is over by then."""

    def __init__(self, database: Database) -> None:
        self._database = database
        self._written = 0
        ((size,),) = database.read(None, lambda db: db.rows(_SIZE))
        self._due = [] if size > _ANALYZE_AT[-1] else list(_ANALYZE_AT)

    def count_writes(self, count: int) -> None:
        self._written += count
        if self._due and self._written >= self._due[0] and not self._database.joint:
            self._due = [due for due in self._due if due > self._written]
            with suppress(EngrainError):
                self._database.alone(self._analyze)

    def _analyze(self, connection: TimedConnection) -> None:
        for table in _ANALYZED:
            with suppress(psycopg.errors.InsufficientPrivilege):
                name = sql.Identifier(self._database.address.schema, table)
                connection.execute(sql.SQL("analyze {}").format(name))
