"""An open store file: its connections, its clock, its closing, and what a fork does to it."""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TypeVar

from engrain.core.clock import Clock, system_clock
from engrain.core.errors import EngrainError, StoreBusy, StoreClosed, StoreError
from engrain.core.identity import IdSource, Scope, SortableIds
from engrain.stores.preview import run_rolled_back
from engrain.stores.relational.audit import Audit
from engrain.stores.relational.episodes import Episodes
from engrain.stores.relational.outcomes import Outcomes
from engrain.stores.relational.tasks import Tasks
from engrain.stores.relational.usage import UsageCounts
from engrain.stores.sqlite.checkpoint import Checkpointer, start_log
from engrain.stores.sqlite.connection import CLOSED, Connection, EncryptedEngine, Engine
from engrain.stores.sqlite.copies import find_copies, read_bytes
from engrain.stores.sqlite.dialect import SqliteDialect, load_sql
from engrain.stores.sqlite.erasure import SqliteErasures
from engrain.stores.sqlite.index.view import IndexCache
from engrain.stores.sqlite.lock import borrow_lock, return_lock
from engrain.stores.sqlite.migrate import LOCK_SECONDS, create_file, read_version, upgrade
from engrain.stores.sqlite.opening import (
    FileIdentity,
    Journal,
    ensure_readable,
    identify_file,
    inspect_path,
    open_connection,
    set_journal,
)
from engrain.stores.sqlite.pool import Pool
from engrain.stores.sqlite.purge import Purge
from engrain.stores.sqlite.scopes import add_scope
from engrain.stores.sqlite.writer import WriteQueue

Answer = TypeVar("Answer")

_SQL = load_sql()
INDEX_BYTES = 1_000_000_000
CHUNK_BYTES, CHUNK_OVERLAP = 1 << 24, 64
_opened: weakref.WeakSet[Handle] = weakref.WeakSet()


class Handle:
    def __init__(
        self,
        location: str | os.PathLike[str],
        *,
        clock: Clock = system_clock,
        ids: IdSource | None = None,
        engine: Engine | EncryptedEngine = "auto",
        read_only: bool = False,
        cache_bytes: int = INDEX_BYTES,
    ) -> None:
        self._clock = clock
        self.ids: IdSource = ids or SortableIds()
        self._site = ensure_readable(inspect_path(location, engine, read_only))
        # A read-only store never takes the lock, but counts as a user of the file.
        self._lock = borrow_lock(self._site.sibling("-lock")) if self._site.path else None
        self._name = str(self._site.path)
        self._identity: FileIdentity | None = None
        self._writer = WriteQueue(self._open_writer, self._lock, self)
        self._pool = Pool(self._open_reader)
        self._checkpointer = Checkpointer(self._pool, self._lock)
        self._purge = Purge(self._writer, self._pool, self._site, self._lock)
        self.dialect = SqliteDialect(
            self._writer, self._pool, self._site, self._add_scope, self._purge.make_mark, clock
        )
        self._scope, self._micros = self.dialect.find_scope, self.dialect.find_time
        self.snapshot, self.transaction = self.dialect.snapshot, self.dialect.transaction
        self.together, self.still = self.dialect.together, self.dialect.still
        self.index = IndexCache(self.snapshot, self.dialect.find_time, cache_bytes)
        self.nearest, self.cosines = self.index.nearest, self.index.cosines
        self.best, self.counts, self.speakers = self.index.best, self.index.counts, self.index.speakers
        self.sketches, self.having = self.index.sketches, self.index.having
        self.usage = UsageCounts(self.dialect, self._site.read_only)
        self.journal = Tasks(self.dialect)
        self.episodes = Episodes(self.dialect)
        self.outcomes = Outcomes(self.dialect)
        self.audit = Audit(self.dialect)
        self.erasing = SqliteErasures(self.dialect, self.audit, self._find_copies, self._read_bytes)
        try:
            self._begin()
        except BaseException:
            self.dialect.closed = True
            self._shut()
            raise
        _opened.add(self)

    def _begin(self) -> None:
        # In the caller's thread: nobody else has this store yet, and an interrupt ends the wait for another process.
        db = self._writer.connection()
        upgrade(db, self._site, self._lock)
        ((key,),) = db.rows(_SQL["find_meta"], {"name": "key"})
        self.dialect.key = bytes.fromhex(key)
        pending = db.rows(_SQL["find_meta"], {"name": "purge"})
        if pending and not self._site.read_only:
            # Forgotten bytes that a reader held when the store was last open.
            self._purge.pending = True
            with contextlib.suppress(EngrainError):
                self._purge.run()
        if self._lock and self._site.journal == "wal" and not self._site.read_only and not self._site.log_size():
            # It was closed by all: the log begins now, and not with the first write.
            try:
                with self._lock.hold(1.0):
                    start_log(self._writer.connection())
            except EngrainError:
                self._writer.clear()

    def _open_reader(self) -> Connection:
        self._check_there()
        db = open_connection(self._site)
        try:
            self._check_there()
        except BaseException:
            db.close()
            raise
        return db

    def _open_writer(self) -> Connection:
        # Only the first may make the file: an empty one in place of one that was removed would hide the loss.
        if self._identity is None and not self._site.read_only:
            create_file(self._site)
        db = self._open_reader() if self._identity else open_connection(self._site, create=True)
        self._identity = self._identity or (identify_file(self._name, self._site.remote) if self._site.path else None)
        try:
            read_version(db, self._site)  # before anything is changed: the file may be somebody else's
            journal = self._chosen_journal(db)
        except BaseException:
            db.close()
            raise
        if journal != self._site.journal:
            self._site = replace(
                self._site, journal=journal, no_wal=self._site.no_wal or "another process uses a rollback journal."
            )
        return db

    def _chosen_journal(self, db: Connection) -> Journal:
        # Only to or from a write-ahead log is a change of the file; the rest is a connection's own affair.
        settled = (db.rows("pragma journal_mode")[0][0] == "wal") == (self._site.journal == "wal")
        if self._lock is None or self._site.read_only or settled:
            return set_journal(db, self._site)
        with self._lock.hold(LOCK_SECONDS):
            try:
                return set_journal(db, self._site)
            except StoreBusy:
                return "truncate"

    def _check_there(self) -> None:
        if self._identity and identify_file(self._name, self._site.remote) != self._identity:
            raise StoreError(
                f"{self._name} was removed or replaced while open; what was written since cannot be found again. "
                "Close the store and open it anew."
            )

    # What the writer calls around a commit

    def confirm_commit(self) -> None:
        # After the commit, and not before: whoever is told that it is kept can find it.
        self._check_there()

    def after_commit(self, db: Connection) -> None:
        self._checkpointer.after_commit(db, self._site.journal)
        self._purge.after_commit(db)

    # What the other parts of the store use

    @property
    def _key(self) -> bytes:
        return self.dialect.key

    def preview(self, do: Callable[[], Answer]) -> Answer:
        self.usage.write_all()  # a write takes the counted uses along, and the rollback would lose them
        return run_rolled_back(self.together, do)

    def _scope_or_new(self, db: Connection, scope: Scope) -> int:
        known = self._scope(db, scope)
        return self._add_scope(db, scope) if known is None else known

    def _add_scope(self, db: Connection, scope: Scope) -> int:
        return add_scope(self.dialect.over(db, scope))

    def _find_copies(self) -> list[str]:
        return [str(path) for path in find_copies(self._site, self.dialect.key)]

    def _read_bytes(self) -> Iterator[bytes]:
        return read_bytes(self._site, self._lock, self._pool, CHUNK_BYTES, CHUNK_OVERLAP)

    # Closing and forking

    def purge(self) -> bool:
        if self.dialect.closed:
            raise StoreClosed(CLOSED)
        return self._purge.run(wait=True)

    def close(self) -> None:
        if self.dialect.closed:
            return
        try:
            self._checkpointer.stop()
            # What fails here is lost or found again: counts of use are no promise, and the store knows what is pending.
            with contextlib.suppress(EngrainError):
                self.usage.write_all()
                if self._purge.pending:
                    self._purge.run()
        finally:
            self.dialect.closed = True
            self._shut()

    def _shut(self) -> None:
        _opened.discard(self)
        self._pool.close()
        self._writer.close()
        if self._lock:
            return_lock(self._lock)

    def _before_fork(self) -> None:
        """Close all: a child that inherits a connection believes it holds locks that only its parent holds."""
        # Readers first: one that waits for its turn to write must be able to come back.
        self._pool.freeze()
        self._writer.freeze(drop=self._site.path is not None)

    def _after_fork(self, child: bool) -> None:
        if child:
            self.index.reset()
            self._writer.reset()
            self._pool.reset()
            self._checkpointer.reset()
        else:
            self._writer.thaw()
            self._pool.thaw()


_frozen: list[Handle] = []


def _freeze_all() -> None:
    _frozen.extend(_opened)
    for handle in _frozen:
        handle._before_fork()


def _resume_all(child: bool) -> None:
    while _frozen:
        _frozen.pop()._after_fork(child)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_freeze_all,
        after_in_parent=lambda: _resume_all(child=False),
        after_in_child=lambda: _resume_all(child=True),
    )
