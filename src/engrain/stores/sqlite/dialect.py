"""SQLite's part of the relational store: fragments, binding and transactions."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import Any, TypeVar

from engrain.core.clock import Clock, system_clock, to_micros
from engrain.core.errors import EngrainError, InvalidInput, ReadOnlyStore, StoreBusy, StoreClosed
from engrain.core.identity import Scope
from engrain.core.model.filters import Filter
from engrain.core.model.items import Vectors, Words
from engrain.stores.relational.dialect import Deferred, Do, Fetched, ScopeKey, Transaction
from engrain.stores.relational.rows import Row, decoding
from engrain.stores.relational.scopes import TABLES, hash_owner
from engrain.stores.relational.statements import Statement, number_parameters
from engrain.stores.sqlite.checksums import build_counter_raise, find_target, list_insert_triggers, prepare_insert
from engrain.stores.sqlite.connection import CLOSED, Connection
from engrain.stores.sqlite.opening import StoreFile, find_steady_clock
from engrain.stores.sqlite.pool import Loan, Pool, Snapshot, ThreadReads
from engrain.stores.sqlite.scope_rows import add_scope_row
from engrain.stores.sqlite.syntax import build_where, load_sql, load_statements, vector_key
from engrain.stores.sqlite.writer import WriteQueue

Answer = TypeVar("Answer")
# The counters, the number of the scope and the highest number that an item ever had.
_BEGIN_WRITE = (
    "select change, now, (select scope from scope where id = ?1), "
    "(select seq from sqlite_sequence where name = 'item') from counter where n = 0"
)
# Columns that get their values later.
_NEW_ITEM = {"retracted_at": None, "access_count": 0, "last_accessed": None}
# Made once: json.dumps makes an encoder for each call with options.
_encode_list = json.JSONEncoder(ensure_ascii=False).encode


class SqliteTransaction:
    def __init__(self, dialect: SqliteDialect, db: Connection, scope: Scope | None) -> None:
        self.scope, self.dialect, self.changes = scope, dialect, 0
        self.db = db
        self._key: int | None = None
        self._change: int | None = None
        self._now = 0
        self._owner: str | None = None
        self._numbers: dict[str, int] = {}  # of items that were added, by their ids

    @property
    def owner(self) -> str:
        if self._owner is None:
            self._owner = hash_owner(self.dialect.key, self.scope) if self.scope else ""
        return self._owner

    def rows(self, statement: str | Statement, **values: Any) -> list[Row]:
        found = self.dialect.find(statement)
        sql, order = number_parameters(found.sql)
        return self.db.rows(sql, order(self._complete(found, {**self._supply(found), **values})))

    def ask(self, statement: str | Statement, **values: Any) -> Fetched:
        return Fetched(self.rows(statement, **values))

    def run(self, statement: str | Statement, **values: Any) -> None:
        self.many(statement, (values,))

    def many(self, statement: str | Statement, rows: Iterable[Mapping[str, Any]]) -> None:
        found = self.dialect.find(statement)
        own = self._supply(found)
        if "checksum" in found.parameters:
            complete = self._complete_source if "number" in found.parameters else self._complete_item
            insert = prepare_insert(found.sql)
            self.db.insert(insert.sql, [insert.read_columns(complete(row, own)) for row in rows], own["scope"])
            return
        if find_target(found.sql):
            self.db.add_insert_triggers(list_insert_triggers())
        sql, order = number_parameters(found.sql)
        self.db.many(sql, (order(self._complete(found, {**own, **row})) for row in rows))

    def _complete_source(self, row: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
        return {**row, **own, "item": self._find_number(row["id"])}

    def _complete_item(self, row: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
        """Number a new item, and give its values the types that SQLite stores."""
        number = self._numbers[row["id"]] = self.db.take_number()
        return {
            **row, **own, **_NEW_ITEM, "n": number, "changed": self._take_change(), "pinned": int(row["pinned"]),
            "importance": float(row["importance"]), "trust": float(row["trust"]),
        }  # fmt: skip

    def _find_number(self, id_: str) -> int:
        if id_ not in self._numbers:
            ((self._numbers[id_],),) = self.rows("find_item", id=id_)
        return self._numbers[id_]

    def lock_scope(self) -> None:
        """The transaction has the whole file already."""
        assert self.scope is not None
        if self._scope_key() is None:
            self._key = add_scope_row(self)

    def add_scope(self) -> None:
        self.lock_scope()

    def open_scopes(self, scopes: Iterable[Scope], lock: Iterable[Scope] = ()) -> dict[Scope, ScopeKey]:
        keys = {scope: self.dialect.find_scope(self.db, scope) for scope in scopes}
        return {scope: add_scope_row(self.within(scope)) if key is None else key for scope, key in keys.items()}

    def within(self, scope: Scope, key: ScopeKey | None = None) -> SqliteTransaction:
        inside = SqliteTransaction(self.dialect, self.db, scope)
        inside._key = None if key is None else int(key)
        return inside

    def lock_known_scope(self) -> bool:
        return self._scope_key() is not None

    def lock_new_scopes(self, subject_hash: str) -> None:
        """The transaction has the whole file already."""

    def delete_scope_index(self) -> None:
        self.run("delete_scope_codes")
        self.run("delete_scope_vectors")

    def add_erased_scope(self, id: str) -> int:
        self.run("add_erased_scope", id=id)
        ((number, _),) = self.rows("find_scope", id=id)
        return int(number)

    def lock_holds(self, subject_hash: str | None = None, *, change: bool = False) -> None:
        """The transaction has the whole file already."""

    def mark_purge(self) -> None:
        # No two marks are the same, so that a purge never clears a later one.
        self.run("set_meta", name="purge", value=time.time_ns())
        self.dialect.expect_purge()

    def begin_write(self) -> tuple[int, int]:
        ((self._change, newest, known, last),) = self.db.rows(_BEGIN_WRITE, (self.scope.id if self.scope else None,))
        self.db.next_item = (last or 0) + 1
        if self.scope is not None and self._key is None:
            self._key = add_scope_row(self) if known is None else int(known)
        self._now = self.dialect.newest_time = max(self.dialect.clock_micros(), newest)
        return self._change, self._now

    def end_write(self, changed: Iterable[ScopeKey] = ()) -> Fetched:
        self.db.run(build_counter_raise(), (self._change or 0, self._now))
        return Fetched([(self._change,)])

    def write_index(self, entries: Sequence[tuple[int, Words, Vectors | None]]) -> None:
        IndexRows(self.db, self.dialect.codes).add(entries)

    def find_numbers(self, ids: Sequence[str]) -> dict[str, int]:
        return {id_: self._find_number(id_) for id_ in ids}

    def replace_vectors(self, vectors: Mapping[tuple[int, str], Vectors]) -> None:
        for (n, _), replacement in vectors.items():
            IndexRows(self.db, self.dialect.codes).replace_vectors(n, replacement)

    def retract_index(self, id_: str) -> None:
        """The index goes by the time at which an item was retracted."""

    def delete_index(self, numbers: Sequence[int]) -> None:
        for n in numbers:
            IndexRows(self.db).delete(n)

    def store_time(self, now: int) -> None:
        self.db.run(build_counter_raise(), (0, now))

    def now(self) -> int:
        ((now,),) = self.rows("find_now")
        return int(now)

    def _supply(self, statement: Statement) -> dict[str, Any]:
        """The values that the transaction supplies, but for those of a single row."""
        values: dict[str, Any] = {}
        if "scope" in statement.parameters:
            values["scope"] = self._scope_key()
        if "owner" in statement.parameters:
            values["owner"] = self.owner
        if "clock" in statement.parameters:
            values["clock"] = self.dialect.clock_micros()
        if "steady_clock" in statement.parameters:
            values["steady_clock"] = self.dialect.steady_clock and self.dialect.steady_clock()
        return values

    def _complete(self, statement: Statement, values: dict[str, Any]) -> dict[str, Any]:
        """Encode lists, and take the next change number."""
        for name in statement.lists:
            values[name] = _encode_list(list(values[name]))
        if statement.changes:
            values["change"] = self._take_change()
        return values

    def _take_change(self) -> int:
        assert self._change is not None, "begin_write comes first"
        self._change += 1
        self.changes += 1
        return self._change

    def _scope_key(self) -> int | None:
        if self._key is None and self.scope is not None:
            self._key = self.dialect.find_scope(self.db, self.scope)
        return self._key


class IndexRows:
    """The rows that search reads: the words of an item, and its vectors both rounded and in full.

    The caller holds the transaction."""

    def __init__(self, db: Connection, codes: Mapping[int, bytes] | None = None) -> None:
        self._db = db
        self._codes = codes or {}  # as SqliteDialect has them

    def add(self, entries: Iterable[tuple[int, Words, Vectors | None]]) -> None:
        """Add rows of items that have none, with the vectors of one model or of several."""
        by_model: dict[str, list[tuple[int, Vectors]]] = {}
        words_by_item: dict[int, Words] = {}
        for n, words, vectors in entries:
            words_by_item[n] = words
            if vectors is not None and vectors.rows:
                by_model.setdefault(vectors.model, []).append((n, vectors))
        self._insert("add_index_words", [(n, words.pairs) for n, words in words_by_item.items()])
        for items in by_model.values():
            self._add_vectors(items)

    def replace_words(self, n: int, words: Words) -> None:
        self._db.run(load_sql()["delete_index_words"], {"item": n})
        self._insert("add_index_words", [(n, words.pairs)])

    def replace_vectors(self, n: int, vectors: Vectors) -> None:
        """Replace the item's vectors of the same model."""
        self.delete_vectors(n, vectors.model)
        if vectors.rows:
            self._add_vectors([(n, vectors)])

    def delete(self, n: int) -> None:
        self._db.run(load_sql()["delete_index_words"], {"item": n})
        self.delete_vectors(n)

    def delete_vectors(self, n: int, model: str | None = None) -> None:
        """Delete the item's vectors of one model, or of all."""
        find = "list_vector_models" if model is None else "find_vector_model"
        for number, _ in self._db.rows(load_sql()[find], {} if model is None else {"model": model}):
            for delete in ("delete_code", "delete_index_vector"):
                self._db.run(load_sql()[delete], {"key": vector_key(number, n)})

    def rewrite_codes(self, items: Sequence[int]) -> None:
        """Make the codes of these items from their vectors. A vector of a wrong size is left alone."""
        from engrain.stores.sqlite.index.vectors import encode_stored

        for model, dimension in self._db.rows(load_sql()["list_vector_models"]):
            for key in (vector_key(model, n) for n in items):
                for (windows,) in self._db.rows(load_sql()["load_index_vector"], {"key": key}):
                    if coded := encode_stored(windows, dimension):
                        self._db.run(load_sql()["delete_code"], {"key": key})
                        self._insert("add_code", [(key, coded)])

    def _insert(self, statement: str, rows: Iterable[Row]) -> None:
        self._db.insert(prepare_insert(load_sql()[statement]).sql, rows)

    def _add_vectors(self, items: Sequence[tuple[int, Vectors]]) -> None:
        """Vectors of one model, coded in one pass of arithmetic."""
        from engrain.stores.sqlite.index.vectors import encode_items

        first = items[0][1]
        model = self._find_or_add_model(first.model, len(first.rows[0]) // 4)
        coded = [self._codes[id(vectors)] for _, vectors in items if id(vectors) in self._codes]
        if len(coded) < len(items):
            coded = encode_items([vectors for _, vectors in items])
        keys = [vector_key(model, n) for n, _ in items]
        self._insert("add_code", zip(keys, coded, strict=True))
        windows = (b"".join(vectors.rows) for _, vectors in items)
        self._insert("add_index_vector", zip(keys, windows, strict=True))

    def _find_or_add_model(self, model: str, dimension: int) -> int:
        found = self._db.models.get(model)
        if found is None:
            rows = self._db.rows(load_sql()["find_vector_model"], {"model": model})
            values = {"model": model, "dimension": dimension}
            found = (rows or self._db.rows(load_sql()["add_vector_model"], values))[0]
            self._db.models[model] = found
        number, known = found
        if known != dimension:
            raise InvalidInput(f"vectors of {model} have {known} dimensions here, not {dimension}.")
        return int(number)


class SqliteDialect:
    """An open file: the thread that writes to it and the connections that read it."""

    scope_tables = TABLES

    def __init__(
        self, writer: WriteQueue, pool: Pool, file: StoreFile, expect_purge: Callable[[], None], clock: Clock
    ) -> None:
        self._writer, self._pool, self._file, self._clock = writer, pool, file, clock
        self._local = ThreadReads()
        self.closed = False
        self.expect_purge = expect_purge
        # Judges leases. A clock that was handed in does so itself.
        self.steady_clock = find_steady_clock() if clock is system_clock else None
        self.key = b""  # read when the file is open
        self.newest_time = 0  # that was read or recorded here
        self.codes: dict[int, bytes] = {}  # of vectors that are about to be written, by the identity of the object

    @property
    def name(self) -> str:
        return str(self._file.path)

    @property
    def statements(self) -> Mapping[str, Statement]:
        return load_statements()

    def find(self, statement: str | Statement) -> Statement:
        return load_statements()[statement] if isinstance(statement, str) else statement

    def clock_micros(self) -> int:
        return to_micros(self._clock())

    def find_scope(self, db: Connection, scope: Scope) -> int | None:
        """The scope's number. Looked up each time: another process may have erased or hidden it since."""
        rows = db.rows("select scope from scope where id = ?", (scope.id,))
        return int(rows[0][0]) if rows else None

    def find_time(self, recorded: int) -> int:
        """Now: the clock, or the newest time that the store has recorded if that is later."""
        self.newest_time = max(self.newest_time, recorded)
        return max(self.clock_micros(), recorded)

    def read(self, scope: Scope | None, do: Do[Answer], *, latest: bool = False) -> Answer:
        return self.snapshot(lambda db: _finish(do(SqliteTransaction(self, db, scope))))

    def write(
        self, scope: Scope | None, do: Do[Answer], *, repeat: bool = False, request_id: str | None = None
    ) -> Answer:
        return self.transaction(lambda db: _finish(do(SqliteTransaction(self, db, scope))), request_id)

    def write_each(self, writes: Sequence[tuple[Scope, Do[Answer], str | None]]) -> list[Answer | EngrainError]:
        """Run each `do` of a scope as `write` does, with its request id: the answer or the error of each."""
        self._check_writable()
        if self._writer.current_transaction() is not None:
            raise StoreBusy("several plans cannot be applied inside another transaction.")

        def make_work(scope: Scope, do: Do[Answer]) -> Callable[[Connection], Answer]:
            return lambda db: _finish(do(SqliteTransaction(self, db, scope)))

        return self._writer.run_each([(make_work(scope, do), request_id) for scope, do, request_id in writes])

    def ask(self, scope: Scope | None, statement: str | Statement, **values: Any) -> list[Row]:
        return self.snapshot(lambda db: SqliteTransaction(self, db, scope).rows(statement, **values))

    def read_clock(self, scope: Scope | None) -> int:
        self._check_open()
        return max(self.clock_micros(), self.newest_time)

    def prepare_index(self, models: Mapping[str, int]) -> None:
        # It loads numpy: not in a transaction, where others wait, and not with `import engrain`.
        import engrain.stores.sqlite.index.vectors  # noqa: F401

    @contextmanager
    def encoding(self, vectors: Sequence[Vectors]) -> Iterator[None]:
        """Code vectors that the block writes, in one pass of arithmetic, while the thread that writes serves others."""
        from engrain.stores.sqlite.index.vectors import encode_items

        by_model: dict[str, list[Vectors]] = {}
        for item_vectors in vectors:
            by_model.setdefault(item_vectors.model, []).append(item_vectors)
        for same in by_model.values():
            with suppress(InvalidInput):  # the write of the wrong one raises it
                self.codes.update(zip(map(id, same), encode_items(same), strict=True))
        try:
            yield
        finally:
            for item_vectors in vectors:
                self.codes.pop(id(item_vectors), None)

    def after_writes(self, count: int) -> None:
        """SQLite needs no statistics."""

    def index_values(self, words: Words | None = None, metadata: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
        return {}

    def build_where(self, where: Filter | None) -> tuple[str, dict[str, Any]]:
        return build_where(where)

    @decoding
    def read_vectors(self, rows: Iterable[Row]) -> dict[str, tuple[bytes, ...]]:
        """All windows of an item are in one row."""
        return {
            id_: tuple(windows[start : start + 4 * dimension] for start in range(0, len(windows), 4 * dimension))
            for id_, dimension, windows in rows
        }

    def check_full_access(self, tx: Transaction) -> None:
        """Do nothing: every process that opens the file may read all of it."""

    def snapshot(self, fn: Callable[[Connection], Answer]) -> Answer:
        """Run `fn` in a read transaction, in this thread: all its reads see one snapshot."""
        self._check_open()
        current = self._writer.current_transaction()
        if current is not None:
            return fn(current)
        if self._file.path is None:
            return self._read_in_memory(fn)
        if lent := self._local.find_lent(self._pool):
            return fn(lent)
        loan = Loan(self._local.snapshot)
        try:
            return fn(self._pool.lend(loan))
        finally:
            loan.over = True
            self._pool.take_back(loan)

    @property
    def reads_newest(self) -> bool:
        """True unless this thread has a snapshot or a transaction, which an index in memory may differ from."""
        return not (self._local.pinned or self._local.snapshot) and self._writer.current_transaction() is None

    def pin_snapshot(self) -> AbstractContextManager[None]:
        """Let all reads of this thread in the block see one snapshot, which begins with the first of them."""
        can_pin = self.reads_newest and self._file.path is not None
        return self._local.pin(self._pool) if can_pin else nullcontext()

    def _read_in_memory(self, fn: Callable[[Connection], Answer]) -> Answer:
        """A store in memory has one connection for all."""
        before, self._local.reads = self._local.reads, True
        try:
            with self._writer.access:
                return fn(self._writer.connection())
        finally:
            self._local.reads = before

    def transaction(self, fn: Callable[[Connection], Answer], request_id: str | None = None) -> Answer:
        """Run `fn` in a write transaction, in the thread that writes: see WriteQueue.

        All that it wrote is durable when this returns; an error undoes it. `fn` calls no code of the user's.
        """
        self._check_writable()
        current = self._writer.current_transaction()
        return fn(current) if current is not None else self._writer.run(fn, request_id)

    def _check_open(self) -> None:
        if self.closed:
            raise StoreClosed(CLOSED)

    def _check_writable(self) -> None:
        self._check_open()
        if self._file.read_only:
            raise ReadOnlyStore(self._file.explain_read_only())
        if self._local.reads and self._writer.current_transaction() is None:
            raise StoreBusy("this thread reads a store in memory: a signal handler must not write to it then.")

    def in_transaction(self, do: Callable[[], Answer], request_id: str | None = None) -> Answer:
        """Run `do` in the thread that writes: all its reads and writes here are one transaction."""
        return self.transaction(lambda db: do(), request_id)

    def on_snapshot(self, do: Callable[[], Answer]) -> Answer:
        """Run `do` with one snapshot for all its reads in this thread.

        A fork ends the snapshot, and later reads see a newer one. In a store in memory each read sees its own."""
        if self._local.snapshot or self._writer.current_transaction():
            return do()
        snapshot = Snapshot()
        try:
            self._local.snapshot = snapshot
            self._pool.begin(snapshot)
            return do()
        finally:
            self._pool.end(snapshot)
            self._local.snapshot = None


def _finish(answer: Answer | Deferred[Answer]) -> Answer:
    return answer.read() if isinstance(answer, Deferred) else answer
