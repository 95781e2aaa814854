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
    """A thread that is started when first needed and sleeps otherwise: to start one each time costs a commit's time."""

    def __init__(self, writer: Writer, pool: Pool) -> None:
        self._writer = writer
        self._pool = pool
        self.renew()

    def renew(self) -> None:
        """As if never used: in a forked child, whose threads are gone."""
        self._commits = 0
        self._asked = threading.Event()
        self._ended = False
        self._thread: threading.Thread | None = None

    def after_commit(self, db: Connection, journal: str) -> None:
        self._commits += 1
        if journal != "wal" or self._commits % _EVERY or self._asked.is_set():
            return
        with contextlib.suppress(EngrainError):
            ((_, frames, _),) = db.rows("pragma wal_checkpoint(noop)")
            if frames > FRAMES:
                self._ask()

    def _ask(self) -> None:
        self._asked.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="engrain-tidy", daemon=True)
            self._thread.start()

    def _work(self) -> None:
        while self._asked.wait() and not self._ended:
            # An error here costs no data: the log stays, and the next commits ask again.
            with contextlib.suppress(EngrainError):
                self._tidy()
            self._asked.clear()

    def _tidy(self) -> None:
        # The first commit into a log that is started anew syncs twice, and nobody's write should be that one: a read
        # that is held keeps the log going until it is our turn, and then a commit of our own starts it.
        with contextlib.ExitStack() as held:
            held.enter_context(self._pool.snapshot()).rows("select seq from counter")
            with self._pool.bare() as db:
                db.rows("pragma wal_checkpoint(passive)")
            with self._writer.exclusive() as db:
                held.close()
                db.rows("pragma wal_checkpoint(passive)")
                _begin_log(db)

    def begin_log(self) -> None:
        """For a store that was closed by all: the log begins now, and not with the first write."""
        with contextlib.suppress(EngrainError), self._writer.exclusive(seconds=1.0) as db:
            _begin_log(db)

    def stop(self) -> None:
        self._ended = True
        if self._thread:
            self._asked.set()
            self._thread.join()


def _begin_log(db: Connection) -> None:
    db.run("begin immediate")
    db.run("update counter set logs = logs + 1 where n = 1")
    db.commit()
