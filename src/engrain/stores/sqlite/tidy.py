"""Bring the write-ahead log back into the file, after the writes are acknowledged and beside them."""

from __future__ import annotations

import contextlib
import logging
import threading
from queue import SimpleQueue

from engrain.core.errors import EngrainError
from engrain.stores.sqlite.connection import Connection
from engrain.stores.sqlite.lock import FileLock
from engrain.stores.sqlite.pool import Pool
from engrain.stores.sqlite.writer import LOCK_SECONDS

FRAMES = 1000
_EVERY = 16
_log = logging.getLogger("engrain")


class Tidy:
    """A thread that is started when first needed and sleeps otherwise: to start one each time costs a commit's time.

    It queues on the file lock like the writers of every process, this one's among them.
    """

    def __init__(self, pool: Pool, lock: FileLock | None) -> None:
        self._pool = pool
        self._lock = lock.claim_again() if lock else None
        self.renew()

    def renew(self) -> None:
        """As if never used: in a forked child, whose threads are gone."""
        self._commits = 0
        self._asked = False
        self._requests: SimpleQueue[None] = SimpleQueue()
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
        self._requests.put(None)

    def _work(self) -> None:
        while self._requests.get() is None and not self._ended:
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
        def restart_log(held: Connection, db: Connection) -> None:
            held.rows("select change from counter")
            db.rows("pragma wal_checkpoint(passive)")
            with self._lock.hold(LOCK_SECONDS) if self._lock else contextlib.nullcontext():
                held.run("commit")
                db.rows("pragma wal_checkpoint(passive)")
                begin_log(db)

        self._pool.snapshot(lambda held: self._pool.bare(lambda db: restart_log(held, db)))

    def stop(self) -> None:
        self._ended = True
        if self._thread:
            self._requests.put(None)
            self._thread.join()


def begin_log(db: Connection) -> None:
    """A commit that changes nothing else, so that no caller's write is the first in a new log."""
    db.run("begin immediate")
    db.run("update counter set logs = logs + 1 where n = 1")
    db.commit()
