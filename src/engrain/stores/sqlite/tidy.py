"""Bring the write-ahead log back into the file, after the writes are acknowledged and beside them."""

from __future__ import annotations

import contextlib
import logging
import threading

from engrain.core.errors import EngrainError
from engrain.stores.sqlite.engine import Connection
from engrain.stores.sqlite.pool import Pool
from engrain.stores.sqlite.writer import Writer

FRAMES = 1000
_EVERY = 16
_log = logging.getLogger("engrain")


class Tidy:
    """A thread that is started when first needed and sleeps otherwise: to start one each time costs a commit's time."""

    def __init__(self, writer: Writer, pool: Pool) -> None:
        self._writer = writer
        self._pool = pool
        self.renew()

    def renew(self) -> None:
        """As if never used: in a forked child, whose threads are gone."""
        self._commits = 0
        self._asked = False
        # Free while there is work. Not an Event: its own lock is lost if a signal interrupts who sets it.
        self._bell = threading.Lock()
        self._bell.acquire()
        self._ended = False
        self._thread: threading.Thread | None = None

    def after_commit(self, db: Connection, journal: str) -> None:
        self._commits += 1
        if journal != "wal" or self._commits % _EVERY or self._asked:
            return
        with contextlib.suppress(EngrainError):
            ((_, frames, _),) = db.rows("pragma wal_checkpoint(noop)")
            if frames > FRAMES:
                self.ask()

    def ask(self) -> None:
        if self._ended:
            return
        self._asked = True
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="engrain-tidy", daemon=True)
            self._thread.start()
        self._ring()

    def _ring(self) -> None:
        with contextlib.suppress(RuntimeError):  # it rings already
            self._bell.release()

    def _work(self) -> None:
        # Who stops us says so first and rings then, so a bell that is heard late is not missed.
        while self._bell.acquire() and not self._ended:
            try:
                self._tidy()
            except EngrainError:
                pass  # costs no data: the log stays, and the next commits ask again
            except Exception:  # noqa: BLE001  (the loop must live)
                _log.exception("the write-ahead log could not be brought into the file; the next commits try again")
            self._asked = False

    def _tidy(self) -> None:
        # The first commit into a log that is started anew syncs twice, and nobody's write should be that one: a read
        # that is held keeps the log going until it is our turn, and then a commit of our own starts it.
        with self._pool.snapshot() as held:
            held.rows("select change from counter")
            with self._pool.bare() as db:
                db.rows("pragma wal_checkpoint(passive)")
            with self._writer.exclusive() as db:
                held.run("commit")
                db.rows("pragma wal_checkpoint(passive)")
                _begin_log(db)

    def begin_log(self) -> None:
        """For a store that was closed by all: the log begins now, and not with the first write."""
        with contextlib.suppress(EngrainError), self._writer.exclusive(seconds=1.0) as db:
            _begin_log(db)

    def stop(self) -> None:
        self._ended = True
        if self._thread:
            self._ring()
            self._thread.join()


def _begin_log(db: Connection) -> None:
    db.run("begin immediate")
    db.run("update counter set logs = logs + 1 where n = 1")
    db.commit()
