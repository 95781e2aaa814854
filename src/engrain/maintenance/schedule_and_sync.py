"""The threads of a store: maintenance on a schedule, and the sync of vectors to their server."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from engrain.core.errors import EngrainError, LeaseLost, StoreClosed, TaskClaimed, raise_interrupt, tolerate
from engrain.core.identity import Scope
from engrain.core.model.results import MaintenanceReport
from engrain.core.model.tasks import Claim, TaskEnd
from engrain.maintenance.passes import MAINTENANCE_SCOPE
from engrain.ports import Services
from engrain.ports.search import Feed
from engrain.tasks.lease import LeaseHolder, create_worker_name

LEASE_SECONDS = 120.0
STOP_TIMEOUT_SECONDS = 10.0  # closing waits this long for a running round
FIRST_CHECK_SECONDS = 60.0  # after opening, so that a short program never pays for it
MAINTENANCE_TASK = "maintain"

_log = logging.getLogger("engrain")

# One round. Its argument is called before each pass and raises LeaseLost if another process has taken over.
RunMaintenance = Callable[[Callable[[], None]], MaintenanceReport]


class MaintenanceScheduler:
    """One thread that waits.

    A lease in the task journal keeps two processes from maintaining one store at once. Its record says when the last
    round was, so that many processes do no more rounds than one.
    """

    def __init__(
        self,
        services: Services,
        enabled: bool,
        run_maintenance: RunMaintenance,
        after_check: Callable[[], None] = lambda: None,
    ) -> None:
        """`after_check` is called after every check, whichever process maintains the store."""
        self._services = services
        self._run_maintenance = run_maintenance
        self._after_check = after_check
        self._every = timedelta(minutes=services.policies.every_minutes)
        self._enabled = enabled and bool(self._every) and services.journal is not None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._own_last: datetime | None = None  # the last round of this process
        self._rounds = 0
        self._error: str | None = None

    def start(self) -> None:
        if self._enabled:
            self._thread = threading.Thread(target=self._work, name="engrain-maintain", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(STOP_TIMEOUT_SECONDS)

    def state(self) -> dict[str, Any]:
        """Return how often rounds are due, and when the last one was, in any process."""
        if not self._every:
            return {"every_minutes": 0}
        minutes = self._every / timedelta(minutes=1)
        return {"every_minutes": minutes, "rounds": self._rounds, "last": self._read_last(), "error": self._error}

    def once(self) -> MaintenanceReport | None:
        """Do a round if it is due and no other process does it. Return its report, or None."""
        holder = self._claim_round()
        if holder is None:
            return None
        try:
            report = self._run_maintenance(holder.confirm)
        except LeaseLost:
            holder.stop()
            _log.info("another process took over the maintenance: this one was stopped for too long.")
            return None
        except BaseException as exc:
            self._own_last = None
            self._end_round(holder, f"failed: {type(exc).__name__}")
            raise
        self._own_last = self._services.clock()
        self._end_round(holder, self._own_last.isoformat())
        self._rounds += 1  # after the end is recorded: a reader of the count then finds the time of the last round
        return report

    def _work(self) -> None:
        pause = min(FIRST_CHECK_SECONDS, self._every.total_seconds())
        while not self._stop.wait(pause):
            pause = min(self._every.total_seconds(), 10 * FIRST_CHECK_SECONDS)
            try:
                report = self.once()
                if report is not None:
                    self._error = "; ".join(report.problems) or None
                elif self._read_last() != self._own_last:
                    self._error = None  # another process did a round since, and reports its own errors
                self._after_check()
            except StoreClosed:
                return
            except Exception as exc:  # noqa: BLE001  # `status` reports it, and the next round tries again
                self._error = str(exc) if isinstance(exc, EngrainError) else f"{type(exc).__name__}: {exc}"
                _log.warning("maintenance was not finished: %s", exc)

    def _claim_round(self) -> LeaseHolder | None:
        assert self._services.journal is not None
        last = self._read_last()
        # A round in the near future counts: the clock was set back a little. Far ahead, the clock was wrong.
        if last is not None and -self._every <= self._services.clock() - last < self._every:
            return None
        worker = create_worker_name()
        claim = Claim(MAINTENANCE_SCOPE, MAINTENANCE_TASK, worker, LEASE_SECONDS, "maintain the store")
        try:
            return LeaseHolder(self._services.journal, claim).acquire()
        except TaskClaimed:
            return None

    def _end_round(self, holder: LeaseHolder, outcome: str) -> None:
        try:
            # "parked" is no end: the same task is claimed again, and nobody recovers it meanwhile.
            holder.end(TaskEnd("parked", outcome))
        except LeaseLost:
            _log.info("another process took over the maintenance: this one was stopped for too long.")

    def _read_last(self) -> datetime | None:
        journal = self._services.journal
        found = journal.task(MAINTENANCE_SCOPE, MAINTENANCE_TASK) if journal else None
        try:
            return datetime.fromisoformat(found.outcome) if found else None
        except ValueError:
            return None


BATCH_SIZE = 256
POLL_SECONDS = 0.5  # between two reads of the outbox
FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.5, 30.0
DRAIN_SECONDS = 2.0  # closing gives this long to the rest of the outbox


def push_changes(feed: Feed | None, scope: Scope, items: Collection[str]) -> bool:
    """Send everything to the vector server now. False if these items are still to come.

    The server may be unavailable or far behind, or the store's role may not read all scopes.
    """
    try:
        return feed is None or (_send_all(feed) and not feed.lacks(scope, items))
    except EngrainError as exc:
        raise_interrupt(exc)
        _log.warning("the vector server still has removed items, until it answers: %s", exc)
        return False


def _send_all(feed: Feed) -> bool:
    """Send the outbox; False if the time is up before it is empty."""
    ends = time.monotonic() + DRAIN_SECONDS
    while time.monotonic() < ends:
        if not feed.feed(BATCH_SIZE):
            return True
    return False


class VectorSync:
    """One thread. It can be stopped at any time: the item store records what the server has."""

    def __init__(self, feed: Feed | None, enabled: bool) -> None:
        self._feed = feed
        self._enabled = enabled and feed is not None
        self._stop = threading.Event()
        self._sent = 0
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        if self._enabled:
            self._thread = threading.Thread(target=self._work, name="engrain-feed", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Stop the thread and send the rest: a short program may end before the first poll."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        with tolerate(EngrainError, report=partial(_log.info, "the rest goes to the vector server another time: %s")):
            if self._feed is not None:
                _send_all(self._feed)

    def state(self) -> dict[str, Any]:
        return {} if self._feed is None else {**self._feed.state(), "fed": self._sent}

    def _work(self) -> None:
        pause = FIRST_PAUSE_SECONDS
        while self._feed is not None and not self._stop.is_set():
            try:
                sent = self._feed.feed(BATCH_SIZE)
            except StoreClosed:
                return
            except EngrainError as exc:
                # `status` reports the error, and how far behind the server is.
                _log.info("the vector server is tried again later: %s", exc)
                self._stop.wait(pause)
                pause = min(2 * pause, MAX_PAUSE_SECONDS)
                continue
            self._sent += sent
            pause = FIRST_PAUSE_SECONDS
            if not sent:
                self._stop.wait(POLL_SECONDS)
