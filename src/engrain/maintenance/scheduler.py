"""Care for a store from time to time while a memory of it stays open, in one process at a time."""

from __future__ import annotations

import logging
import os
import socket
import threading
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Self

from engrain.core.errors import EngrainError, LeaseLost, StoreClosed, TaskClaimed
from engrain.core.identity import SortableIds
from engrain.core.model.results import MaintenanceReport
from engrain.core.model.tasks import Claim, Lease, TaskEnd
from engrain.maintenance.clock_guard import PLACE
from engrain.ports import Services

__all__ = ["CARE", "PLACE", "MaintenanceScheduler"]

LEASE = 120.0  # seconds without a sign of life
LEAVE = 10.0  # seconds that closing waits for a round that is under way
SOON = 60.0  # seconds from opening to the first look, so that a short program never pays for it

CARE = "maintain"  # under which name it is recorded at PLACE

_log = logging.getLogger("engrain")

# A round of care. What it is given is called before each pass: LeaseLost, if another process does it by now.
Care = Callable[[Callable[[], None]], MaintenanceReport]


class MaintenanceScheduler:
    """One thread that waits. A lease in the task journal keeps two from caring for one store at once, be they memories
    of one process or of several; its record says when it was last done, so that many do it no more often than one."""

    def __init__(self, services: Services, enabled: bool, care: Care, own: Callable[[], None] = lambda: None) -> None:
        """`own` is what each memory does for itself at every look, whoever cares for the store."""
        self._services = services
        self._own = own
        self._every = timedelta(minutes=services.policies.every_minutes)
        self._care = care
        self._enabled = enabled and bool(self._every) and services.journal is not None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._worker = f"{socket.gethostname()}:{os.getpid()}:{SortableIds()(services.clock())}"
        self._ours: datetime | None = None  # when this one did it last
        self._rounds = 0
        self._error: str | None = None

    def start(self) -> None:
        if self._enabled:
            self._thread = threading.Thread(target=self._work, name="engrain-keeper", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join(LEAVE)

    def state(self) -> dict[str, Any]:
        """Who did it last, in whatever process, and when."""
        if not self._every:
            return {"every_minutes": 0}
        minutes = self._every / timedelta(minutes=1)
        return {"every_minutes": minutes, "rounds": self._rounds, "last": self._last(), "error": self._error}

    def once(self) -> MaintenanceReport | None:
        """A round if it is due and nobody else is at it; what it did."""
        lease = self._claimed()
        if lease is None:
            return None
        try:
            with _Alive(self._services, lease) as alive:
                done = self._care(alive.check)
        except LeaseLost:
            _log.info("another process took over the care for a memory: this one was stopped for too long.")
            return None
        except Exception as exc:
            self._ours = None
            self._end(lease, f"failed: {type(exc).__name__}")
            raise
        self._ours = self._services.clock()
        self._end(lease, self._ours.isoformat())
        self._rounds += 1  # after its end is recorded, so that whoever counts rounds finds when the last one was
        return done

    def _work(self) -> None:
        pause = min(SOON, self._every.total_seconds())
        while not self._stop.wait(pause):
            pause = min(self._every.total_seconds(), 10 * SOON)
            try:
                done = self.once()
                if done is not None:
                    self._error = "; ".join(done.trouble) or None
                elif self._last() != self._ours:
                    self._error = None  # another did it since, and says itself what went wrong
                self._own()
            except StoreClosed:
                return
            except Exception as exc:  # noqa: BLE001  # whatever it is, the memory is to be cared for another time
                # `status` says so; the next round tries again.
                self._error = str(exc) if isinstance(exc, EngrainError) else f"{type(exc).__name__}: {exc}"
                _log.warning("care for the memory was not finished: %s", exc)

    def _claimed(self) -> Lease | None:
        assert self._services.journal is not None
        last = self._last()
        # After a clock was set back a little, a round in the future is as good as one of now; far ahead it was wrong.
        if last is not None and -self._every <= self._services.clock() - last < self._every:
            return None
        try:
            return self._services.journal.claim(Claim(PLACE, CARE, self._worker, LEASE, "care for the memories"))
        except TaskClaimed:
            return None

    def _end(self, lease: Lease, outcome: str) -> None:
        assert self._services.journal is not None
        try:
            # Not an end: the same task is claimed again, and nothing picks it up meanwhile.
            self._services.journal.end(lease, TaskEnd("parked", outcome))
        except LeaseLost:
            _log.info("another process took over the care for a memory: this one was stopped for too long.")

    def _last(self) -> datetime | None:
        found = self._services.journal.task(PLACE, CARE) if self._services.journal else None
        try:
            return datetime.fromisoformat(found.outcome) if found else None
        except ValueError:
            return None


class _Alive:
    """Extends a lease while the block goes on."""

    def __init__(self, services: Services, lease: Lease) -> None:
        self._services, self._lease = services, lease
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._beat, name="engrain-keeper-lease", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def check(self) -> None:
        """By the journal: a process that was stopped for long wakes up believing that no time has passed."""
        assert self._services.journal is not None
        self._services.journal.extend(self._lease, LEASE)

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def _beat(self) -> None:
        while not self._over.wait(LEASE / 3):
            try:
                assert self._services.journal is not None
                self._services.journal.extend(self._lease, LEASE)
            except LeaseLost:
                return
            except EngrainError as exc:
                _log.info("the lease on a memory's care could not be extended: %s", exc)
