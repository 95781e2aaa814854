"""Bring the write-ahead log back into the file, after the writes are acknowledged and beside them."""

from __future__ import annotations

import contextlib
import threading

from engrain.core.errors import EngrainError
from engrain.stores.sqlite.engine import Connection
from engrain.stores.sqlite.pool import Pool
from engrain.stores.sqlite.writer import Writer

FRAMES = 1000
_EVERY = 16


class Tidy:
    def __init__(self, writer: Writer, pool: Pool) -> None:
        self._writer = writer
        self._pool = pool
        self._commits = 0
        self._thread: threading.Thread | None = None

    def after_commit(self, db: Connection, journal: str) -> None:
        self._commits += 1
        if journal != "wal" or self._commits % _EVERY or (self._thread and self._thread.is_alive()):
            return
        with contextlib.suppress(EngrainError):
            ((_, frames, done),) = db.rows("pragma wal_checkpoint(noop)")
            if frames > FRAMES or done > FRAMES:
                self._thread = threading.Thread(target=self._run, name="engrain-tidy", daemon=True)
                self._thread.start()

    def _run(self) -> None:
        # An error here costs no data: the log stays, and the next commits try again.
        with contextlib.suppress(EngrainError):
            with self._pool.bare() as db:
                db.rows("pragma wal_checkpoint(passive)")
            # The rest, with no writer in between, and then a commit of its own that starts the log anew: the first
            # commit into a log syncs twice, and nobody's write should be that one.
            with self._writer.exclusive() as db:
                db.rows("pragma wal_checkpoint(passive)")
                db.run("begin immediate")
                db.run("update meta set value = value where name = 'seq'")
                db.commit()

    def stop(self) -> None:
        if self._thread:
            self._thread.join()

    def renew(self) -> None:
        self._thread = None
