"""Write the write-ahead log back into the file, in the background of acknowledged writes."""

from __future__ import annotations

import contextlib
import logging
import threading
from queue import SimpleQueue

from engrain.core.errors import EngrainError
from engrain.stores.sqlite.connection import Connection
from engrain.stores.sqlite.journals import NEXT_LOG
from engrain.stores.sqlite.lock import FileLock
from engrain.stores.sqlite.pool import Pool
from engrain.stores.sqlite.writer import LOCK_SECONDS

MAX_LOG_FRAMES = 1000
_COMMITS_BETWEEN_LOOKS = 16
_log = logging.getLogger("engrain")


class Checkpointer:
    """A thread that starts when first needed and sleeps otherwise: starting one each time costs a commit's time.

    It queues on the file lock like the writers of every process, this one's among them.
    """

    def __init__(self, pool: Pool, lock: FileLock | None) -> None:
        self._pool = pool
        self._lock = lock.claim_again() if lock else None
        self.reset()

    def reset(self) -> None:
        """Return to the unused state, in a forked child that has none of the threads."""
        self._commits = 0
        self._requested = False
        self._requests: SimpleQueue[None] = SimpleQueue()
        self._stopped = False
        self._start = threading.Lock()
        self._thread: threading.Thread | None = None

    def after_commit(self, db: Connection, journal: str) -> None:
        self._commits += 1
        if journal != "wal" or self._commits % _COMMITS_BETWEEN_LOOKS or self._requested:
            return
        with contextlib.suppress(EngrainError):
            ((_, frames, _),) = db.rows("pragma wal_checkpoint(noop)")
            if frames > MAX_LOG_FRAMES:
                self.request()

    def request(self) -> None:
        with self._start:
            if self._stopped:
                return
            self._requested = True
            if self._thread is None:
                thread = threading.Thread(target=self._serve, name="engrain-checkpoint", daemon=True)
                thread.start()
                self._thread = thread
        self._requests.put(None)

    def stop(self) -> None:
        with self._start:
            self._stopped = True
        if self._thread:
            self._requests.put(None)
            self._thread.join()

    def _serve(self) -> None:
        while self._requests.get() is None and not self._stopped:
            try:
                self._checkpoint()
            except EngrainError:
                pass  # costs no data: the log stays, and the next commits ask again
            except Exception:  # noqa: BLE001  (the loop must live)
                _log.exception("the write-ahead log could not be brought into the file; the next commits try again")
            self._requested = False

    def _checkpoint(self) -> None:
        # The first commit into a restarted log syncs twice, and no caller's write should be that one. A read that is
        # held keeps the log going until it is our turn; then a commit of our own restarts it.
        def restart_log(reader: Connection, db: Connection) -> None:
            reader.run("begin")
            reader.rows("select change from counter where n = 0")
            db.rows("pragma wal_checkpoint(passive)")
            with self._lock.hold(LOCK_SECONDS) if self._lock else contextlib.nullcontext():
                reader.run("commit")
                db.rows("pragma wal_checkpoint(passive)")
                start_log(db)

        self._pool.run_bare(lambda reader: self._pool.run_bare(lambda db: restart_log(reader, db)))


def start_log(db: Connection) -> None:
    """Commit a change of no other effect, so that no caller's write is the first in a new log."""
    db.run("begin immediate")
    db.run(NEXT_LOG)
    db.commit()
