"""Remove the bytes of what was forgotten from every file of the store."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

from engrain.core.errors import EngrainError, StoreBusy, StoreError
from engrain.stores.sqlite.connection import Connection
from engrain.stores.sqlite.lock import FileLock
from engrain.stores.sqlite.opening import BUSY_MILLISECONDS, StoreFile
from engrain.stores.sqlite.pool import Pool
from engrain.stores.sqlite.scrub import scrub
from engrain.stores.sqlite.sql import load
from engrain.stores.sqlite.writer import LOCK_SECONDS, WriteQueue

_SQL = load("queries.sql")
_PATIENCE_MILLISECONDS = 250
_PAUSE = 1.0
# How long the pages are cleaned before other writers have their turn, and how long a caller waits for the last page.
_SLICE = 0.5
_WAIT = 10.0


class Purge:
    """A meta row says that something is pending, so that a crash does not forget it; no two marks are the same."""

    def __init__(self, writer: WriteQueue, pool: Pool, site: StoreFile, lock: FileLock | None) -> None:
        self._writer = writer
        self._pool = pool
        self._site = site
        self._lock = lock
        self._tried = 0.0
        self._cleaned_to: tuple[int, int] = (0, 0)  # of which mark, and the page to go on from
        self.pending = False

    def mark(self, db: Connection) -> None:
        """Inside the transaction that forgets."""
        db.run(_SQL["set_meta"], ("purge", time.time_ns()))
        self._tried = time.monotonic()  # the caller's own purge comes first
        self.pending = True

    def after_commit(self, db: Connection) -> None:
        """Try again what a reader held up: the callers of this commit have their answers."""
        if not self.pending or time.monotonic() - self._tried < _PAUSE:
            return
        self._tried = time.monotonic()
        with contextlib.suppress(EngrainError):  # it is still pending, and the next commits try again
            self._step(db, wait=False)

    def run(self, wait: bool = False) -> bool:
        if self._site.read_only:
            return True
        self._tried = time.monotonic()
        self._pool.reclaim()
        ends = time.monotonic() + (_WAIT if wait else 0)
        while (done := self._writer.run_alone(lambda db: self._step(db, wait))) is None:
            if time.monotonic() >= ends:
                return False
        return done

    def _step(self, db: Connection, wait: bool) -> bool | None:
        """None if there are more pages to clean. In the thread that writes, outside any transaction."""
        with self._lock.hold(LOCK_SECONDS) if self._lock else contextlib.nullcontext():
            marked = db.rows(_SQL["meta"], ("purge",))
            if not _emptied(db, _PATIENCE_MILLISECONDS if wait else 0):
                return False
            if marked:
                try:
                    done = self._clean(int(marked[0][0]))
                except OSError as exc:
                    raise StoreError(f"{self._site.path} could not be cleaned: {exc.strerror}. Try again.") from exc
                if not done:
                    return done
            self.pending = False  # here, where nobody can set another mark meanwhile
            return True

    def _clean(self, mark: int) -> bool | None:
        """Copies made before an upgrade go, and the unused bytes of every page."""
        if not _removed(self._site.own_copies()):
            return False
        if self._site.key is not None:
            return self._rewritten(mark)
        # A new connection, because the old one remembers pages as they were and would write them back. That this one
        # commits makes every other connection read its pages again.
        db = self._writer.reopen()
        db.run("begin immediate")
        left = None
        if self._site.path and self._lock:
            if self._site.log_size():
                return False
            # What is written between two slices cannot bring back what was forgotten before the first.
            of, first = self._cleaned_to
            left = scrub(self._lock.database(self._site.path), first if of == mark else 0, _SLICE)
        if left is None:
            db.run(_SQL["drop_meta"], ("purge", mark))
        else:
            db.run(_SQL["set_meta"], ("purge", mark))
        self._cleaned_to = mark, left or 0
        db.commit()
        return True if left is None else None

    def _rewritten(self, mark: int) -> bool:
        """An encrypted page cannot be cleaned from outside: every page is written anew."""
        db = self._writer.reopen()
        db.run("vacuum")
        if not _emptied(db, _PATIENCE_MILLISECONDS):
            return False
        db.run("begin immediate")
        db.run(_SQL["drop_meta"], ("purge", mark))
        db.commit()
        return True


def _removed(copies: list[Path]) -> bool:
    for copy in copies:
        with contextlib.suppress(OSError):
            copy.unlink()
    return not any(copy.exists() for copy in copies)


def _emptied(db: Connection, patience: int) -> bool:
    """Everything is in the file and the log has no bytes; at once so with a rollback journal."""
    db.rows(f"pragma busy_timeout = {patience}")
    try:
        ((busy, _, _),) = db.rows("pragma wal_checkpoint(truncate)")
        return not busy
    except StoreBusy:
        return False
    finally:
        with contextlib.suppress(EngrainError):
            db.rows(f"pragma busy_timeout = {BUSY_MILLISECONDS}")
