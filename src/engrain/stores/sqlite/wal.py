"""The write-ahead log: write it back into the file in the background, and refuse one of another store."""

from __future__ import annotations

import contextlib
import logging
import threading
from dataclasses import replace
from queue import SimpleQueue
from typing import NamedTuple

from engrain.core.errors import EngrainError, NotADatabase, StoreCorrupt
from engrain.stores.sqlite.connection import Connection
from engrain.stores.sqlite.lock import FileLock
from engrain.stores.sqlite.opening import NEXT_LOG, StoreFile, as_immutable, find_open_files, identify_file
from engrain.stores.sqlite.pool import Pool
from engrain.stores.sqlite.schema import open_outside
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


_HEADER_BYTES = 32
_MAX_LOGS = 1_000_000  # that begin while none is played into the file: a reader of days holds them up
_TRIES = 3


class Counter(NamedTuple):
    logs: int
    commits: int

    def may_precede(self, log: Counter) -> bool:
        """Tell if a log with this end belongs to a file in this state. The file is never ahead of its log."""
        return 0 <= log.logs - self.logs <= _MAX_LOGS and self.commits <= log.commits


def check_log(file: StoreFile) -> StoreFile:
    """NotADatabase for a log of another store, or of another time of this one. Nothing is changed.

    Each commit writes the counter, so that every log has it. It is compared with that in the file alone, which is read
    first: another process may write meanwhile. The file may be torn while that process plays the log into it: only
    three comparisons with the same result count. A file that cannot be read without its log says nothing.
    """
    if file.path is None or file.immutable or file.log_size() <= _HEADER_BYTES:
        return file
    if identify_file(str(file.path), remote=False) in find_open_files():
        return file  # a store that is open here was looked at before
    failed: StoreCorrupt | None = None
    for _ in range(_TRIES):
        try:
            alone = _read_counter(as_immutable(file))
        except EngrainError:
            return file
        try:
            if alone.may_precede(_read_counter(replace(file, read_only=True))):
                return file
        except StoreCorrupt as exc:
            failed = exc
        except EngrainError:
            return file  # it cannot be opened, for a reason that opening it tells
    raise (StoreCorrupt if failed else NotADatabase)(
        f"{file.sibling('-wal')} is not of this store, or not of its present state: {file.path} was replaced, or the "
        "log was. Move it away to open the file as it is."
    ) from failed


def _read_counter(file: StoreFile) -> Counter:
    with open_outside(file) as (db, _):
        ((logs, commits),) = db.rows("select logs, commits from counter where n = 0")
        return Counter(logs, commits)
