"""Remove the bytes of what was forgotten from every file of the store."""

from __future__ import annotations

import contextlib
import threading
import time

from engrain.core.errors import EngrainError, StoreBusy
from engrain.stores.sqlite.engine import Connection
from engrain.stores.sqlite.opening import BUSY_MILLISECONDS, Site
from engrain.stores.sqlite.sql import load
from engrain.stores.sqlite.writer import Writer

_SQL = load("queries.sql")
_PATIENCE_MILLISECONDS = 250
_PAUSE = 1.0


class Purge:
    """A meta row says that something is pending, so that a crash does not forget it; it holds the number of the change."""

    def __init__(self, writer: Writer, site: Site) -> None:
        self._writer = writer
        self._site = site
        self._tried = 0.0
        self._thread: threading.Thread | None = None
        self.pending = False

    def mark(self, db: Connection, seq: int) -> None:
        """Inside the transaction that forgets."""
        db.run(_SQL["set_meta"], ("purge", seq))
        self._tried = time.monotonic()  # the caller's own purge comes first
        self.pending = True

    def after_commit(self) -> None:
        """Try again what a reader held up. On a thread of its own, because the commit's caller waits for nothing more."""
        if not self.pending or time.monotonic() - self._tried < _PAUSE or (self._thread and self._thread.is_alive()):
            return
        self._thread = threading.Thread(target=self._retry, name="engrain-purge", daemon=True)
        self._thread.start()

    def _retry(self) -> None:
        with contextlib.suppress(EngrainError):
            self.run()

    def stop(self) -> None:
        if self._thread:
            self._thread.join()

    def renew(self) -> None:
        self._thread = None

    def run(self, wait: bool = False) -> bool:
        if self._site.path is None or self._site.read_only:
            return True
        self._tried = time.monotonic()
        with self._writer.exclusive() as db:
            marked = db.rows(_SQL["meta"], ("purge",))
            if not _emptied(db, _PATIENCE_MILLISECONDS if wait else 0):
                return False
            for copy in self._site.backups():
                with contextlib.suppress(OSError):
                    copy.unlink()
            if self._site.backups():
                return False
            if marked:
                db.run(_SQL["drop_meta"], ("purge", marked[0][0]))
        self.pending = False
        return True


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
