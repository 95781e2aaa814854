"""The embedded store: open a file, put its parts together, close it, and survive a fork."""

from __future__ import annotations

import contextlib
import os
import warnings
import weakref
from dataclasses import replace

from engrain.core.clock import Clock, system_clock
from engrain.core.errors import EngrainError, OutcomeUnknown, StoreBusy, StoreClosed, StoreCorrupt, StoreError
from engrain.core.identity import IdSource, SortableIds, hash_keyed
from engrain.stores.relational.audit import Audit
from engrain.stores.relational.dump import Dump
from engrain.stores.relational.records import Records
from engrain.stores.relational.request_ids import Requests
from engrain.stores.relational.restore import Restore
from engrain.stores.relational.sessions import Episodes, Sessions
from engrain.stores.relational.tasks import Tasks
from engrain.stores.relational.usage import Outcomes, UsageCounts
from engrain.stores.relational.writes import ItemWrites
from engrain.stores.sqlite.backup import Backups, remove_killed_restore
from engrain.stores.sqlite.checksums import build_commit_count
from engrain.stores.sqlite.connection import CLOSED, Connection
from engrain.stores.sqlite.dialect import SqliteDialect
from engrain.stores.sqlite.erasure import SqliteErasures
from engrain.stores.sqlite.health import Health
from engrain.stores.sqlite.index.view import IndexCache, IndexedReads
from engrain.stores.sqlite.lock import FileLock
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
from engrain.stores.sqlite.schema import (
    LIST_OBJECTS,
    LOCK_SECONDS,
    ReadPermission,
    check_schema,
    create_file,
    read_version,
    upgrade,
)
from engrain.stores.sqlite.syntax import load_sql
from engrain.stores.sqlite.wal import Checkpointer, check_log, start_log
from engrain.stores.sqlite.writer import WriteQueue

_SQL = load_sql()
INDEX_BYTES = 1_000_000_000
_opened: weakref.WeakSet[SqliteStore] = weakref.WeakSet()


class SqliteStore(Health, Backups, IndexedReads, ItemWrites, Requests, Sessions, Dump, Restore):
    """One file, many threads and processes. ":memory:" is a store that ends with its object."""

    dialect: SqliteDialect

    def __init__(
        self,
        location: str | os.PathLike[str],
        *,
        clock: Clock = system_clock,
        ids: IdSource | None = None,
        key: str | None = None,
        read_only: bool = False,
        cache_bytes: int = INDEX_BYTES,
    ) -> None:
        self._clock = clock
        self.ids: IdSource = ids or SortableIds()
        self._file = check_log(ensure_readable(inspect_path(location, read_only, key)))
        # A read-only store never takes the lock, but counts as a user of the file.
        self._lock = FileLock(self._file.sibling("-lock")) if self._file.path else None
        self._name = str(self._file.path)
        self._identity: FileIdentity | None = None
        self._log_identity: FileIdentity | None = None
        self._commits = 0  # the number of the commit in progress
        self._writer = WriteQueue(self._open_writer, self._lock, self)
        self._pool = Pool(self._open_reader, ReadPermission())
        self._checkpointer = Checkpointer(self._pool, self._lock)
        self._purge = Purge(self._writer, self._pool, self._file, self._lock)
        self.dialect = SqliteDialect(self._writer, self._pool, self._file, self._purge.expect, clock)
        # The methods of these parts are the store's own: bound here, so that no method only forwards.
        self.snapshot, self.transaction = self.dialect.snapshot, self.dialect.transaction
        self.in_transaction, self.on_snapshot = self.dialect.in_transaction, self.dialect.on_snapshot
        self.pin_snapshot = self.dialect.pin_snapshot
        # Nothing of an encrypted file is written elsewhere.
        may_map = self._file.path and not self._file.read_only and key is None
        folder = str(self._file.path.parent) if self._file.path and may_map else None
        self.index = IndexCache(self.snapshot, self.dialect.find_time, cache_bytes, folder)
        self.nearest, self.cosines = self.index.nearest, self.index.cosines
        self.best, self.counts, self.speakers = self.index.best, self.index.counts, self.index.speakers
        self.collect = self.index.collect
        self.usage = UsageCounts(self.dialect, self._file.read_only)
        self.journal = Tasks(self.dialect)
        self.episodes = Episodes(self.dialect)
        self.outcomes = Outcomes(self.dialect)
        self.records = Records(self.dialect)
        self.audit = Audit(self.dialect)
        self.erasing = SqliteErasures(self.dialect, self.audit, self._file, self._lock, self._pool)
        try:
            self._start()
        except BaseException:
            self.dialect.closed = True
            self._release()
            raise
        _opened.add(self)

    def _start(self) -> None:
        # In the caller's thread: nobody else has this store yet, and an interrupt ends the wait for another process.
        db = self._writer.connection()
        if self._file.path and not self._file.read_only:
            remove_killed_restore(self._file.path)
        upgrade(db, self._file, self._lock)
        # Before the file is read: another process may commit meanwhile.
        noted = self._lock.queue.read_note() if self._lock else (b"", 0)
        key, commits = db.rows(_SQL["find_meta"], {"name": "key"}), db.rows(_SQL["find_commits"])
        if not key or not commits:
            raise StoreCorrupt(f"{self._name} is damaged: it has lost its key or its counter. Restore a backup.")
        self.dialect.key = self._read_key(key[0][0])
        self.lost_commits = self._find_lost_commits(commits[0][0], *noted)
        pending = db.rows(_SQL["find_meta"], {"name": "purge"})
        if pending and not self._file.read_only:
            # A reader kept forgotten bytes when the store was last open.
            self._purge.pending = True
            with contextlib.suppress(EngrainError):
                self._purge.run()
        if self._lock and self._file.journal == "wal" and not self._file.read_only and not self._file.log_size():
            # All processes had closed it: the log starts now, and not with the first write.
            try:
                with self._lock.hold(1.0):
                    start_log(self._writer.connection())
            except EngrainError:
                self._writer.clear()

    def _read_key(self, stored: str) -> bytes:
        try:
            key = bytes.fromhex(stored)
            hash_keyed(key, "")
        except (TypeError, ValueError) as exc:
            raise StoreCorrupt(f"{self._name} is damaged: what stands for its key is none. Restore a backup.") from exc
        return key

    def _find_lost_commits(self, commits: int, store: bytes, noted: int) -> int:
        if store != self.dialect.key[:8] or noted <= commits:
            return 0
        warnings.warn(
            f"engrain: the last {noted - commits:,} commits are missing from {self._name}. Its write-ahead log was "
            "lost or cut, or an older copy was put in its place. Restore a backup if it has more.",
            stacklevel=6,
        )
        return noted - commits

    def _open_reader(self) -> Connection:
        self._check_file()
        db = open_connection(self._file)
        try:
            self._check_file()
        except BaseException:
            db.close()
            raise
        return db

    def _open_writer(self) -> Connection:
        # Only the first connection may create the file: an empty one would hide that the store was removed.
        if self._identity is None and not self._file.read_only:
            create_file(self._file)
        db = self._open_reader() if self._identity else open_connection(self._file, create=True)
        self._identity = self._identity or (identify_file(self._name, self._file.remote) if self._file.path else None)
        try:
            self._check_schema(db)  # before any change: the file may belong to another program
            journal = self._choose_journal(db)
        except BaseException:
            db.close()
            raise
        self._log_identity = self._identify_log() if journal == "wal" else None
        if journal != self._file.journal:
            self._file = replace(
                self._file, journal=journal, no_wal=self._file.no_wal or "another process uses a rollback journal."
            )
        return db

    def _check_schema(self, db: Connection) -> None:
        if version := read_version(db, self._file):
            check_schema(db.rows(LIST_OBJECTS), self._file, version)

    def _choose_journal(self, db: Connection) -> Journal:
        # Only a change to or from a write-ahead log changes the file; other journals belong to a connection.
        settled = (db.rows("pragma journal_mode")[0][0] == "wal") == (self._file.journal == "wal")
        if self._lock is None or self._file.read_only or settled:
            return set_journal(db, self._file)
        with self._lock.hold(LOCK_SECONDS):
            try:
                return set_journal(db, self._file)
            except StoreBusy:
                return "truncate"

    def _check_file(self) -> None:
        if self._identity and identify_file(self._name, self._file.remote) != self._identity:
            raise StoreError(
                f"{self._name} was removed or replaced while open; what was written since cannot be found again. "
                "Close the store and open it anew."
            )

    def _identify_log(self) -> FileIdentity | None:
        return identify_file(f"{self._name}-wal", self._file.remote)

    # The hooks of the writer

    def before_commit(self, db: Connection) -> None:
        self._commits = db.count_commit(build_commit_count())

    def confirm_commit(self) -> None:
        # After the commit: a caller with an answer must be able to find its write.
        self._check_file()
        if self._log_identity and self._identify_log() != self._log_identity:
            raise OutcomeUnknown(
                f"{self._name}-wal was removed or replaced while open, with writes that are nowhere else. Close the "
                "store at once: that saves them into the file, if it can be. Then repeat this one with its request_id."
            )
        if self._lock and self._commits:
            self._lock.queue.write_note(self.dialect.key[:8], self._commits)
            self._commits = 0

    def after_commit(self, db: Connection) -> None:
        self._checkpointer.after_commit(db, self._file.journal)
        self._purge.after_commit(db)

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
            # A failure here loses nothing that was promised: counts of use are none, and a pending purge is recorded.
            with contextlib.suppress(EngrainError):
                self.usage.write_all()
                if self._purge.pending:
                    self._purge.run()
        finally:
            self.dialect.closed = True
            self._release()

    def _release(self) -> None:
        _opened.discard(self)
        self.index.clear()
        self._pool.close()
        self._writer.close()
        if self._lock:
            self._lock.close()

    def _before_fork(self) -> None:
        """Close all connections: a child that inherits one believes it holds locks that only its parent holds."""
        # Readers first: one that waits for the writer must be able to return its connection.
        self._pool.freeze()
        self._writer.freeze(drop=self._file.path is not None)

    def _after_fork(self, child: bool) -> None:
        if child:
            self.index.reset()
            self._writer.reset()
            self._pool.reset()
            self._checkpointer.reset()
        else:
            self._writer.thaw()
            self._pool.thaw()


_frozen: list[SqliteStore] = []


def _freeze_all() -> None:
    _frozen.extend(_opened)
    for store in _frozen:
        store._before_fork()


def _resume_all(child: bool) -> None:
    while _frozen:
        _frozen.pop()._after_fork(child)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_freeze_all,
        after_in_parent=lambda: _resume_all(child=False),
        after_in_child=lambda: _resume_all(child=True),
    )
