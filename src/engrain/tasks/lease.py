"""Hold a task: claim it, extend its lease, and confirm before an effect that the lease still holds."""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from functools import cache, partial
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Literal, Self

from engrain.core.errors import EngrainError, LeaseLost, OutcomeUnknown, StoreClosed, TaskClaimed
from engrain.core.model.tasks import Claim, Lease, TaskEnd
from engrain.ports.tasks import TaskJournal

_PROC = Path("/proc")
_log = logging.getLogger("engrain")
# Shares of the lease: the pause between two extensions, and the rest that an effect needs.
_EXTEND_EVERY, _LEFT_FOR_EFFECT = 1 / 3, 1 / 3


class LeaseHolder:
    """One claim of one task, made by `acquire`. `lease` cannot write if the task had ended already.

    The thread that extends the lease does not keep its holder alive, and gives the task back if it is dropped: an
    interrupt may come before the first line of the code that ends a run.
    """

    def __init__(self, journal: TaskJournal, claim: Claim) -> None:
        self._journal = journal
        self._claim = claim
        self._process = os.getpid()
        self._notices: SimpleQueue[Literal["stop", "dropped"]] = SimpleQueue()
        self._stopped = False
        self.lost: str | None = None
        self._until = 0.0
        self._lease: Lease | None = None

    @property
    def lease(self) -> Lease:
        assert self._lease is not None, "acquire it first"
        return self._lease

    def acquire(self) -> Self:
        """Claim the task, and extend the lease from now on. After an error or an interrupt, `release` it."""
        self._until = read_boot_clock() + self._claim.seconds
        self._lease = self._acquire()
        if self._lease.status == "running":
            notices = self._notices
            # A queue, whose `put` may be called wherever garbage is collected.
            holder = weakref.ref(self, lambda _: notices.put("dropped"))
            give_back = partial(self._journal.end, self._lease, TaskEnd("waiting", "broken off"))
            values = (holder, notices, self._claim.seconds * _EXTEND_EVERY, give_back)
            threading.Thread(target=_extend_periodically, args=values, name="engrain-lease", daemon=True).start()
        return self

    def release(self, end: TaskEnd) -> None:
        """Give the task back, also if the claim was interrupted and nobody knows whether it was made."""
        self.stop()
        if self._process != os.getpid():
            return  # a fork: the claim is its parent's
        claim = self._claim
        if self._lease is None:
            with suppress(LeaseLost):
                # It can change nothing, but comes after a claim that is under way.
                self._journal.extend(Lease(claim.scope, claim.task, claim.worker, 0, datetime.now(UTC)), 0)
            self._lease = self._find_claimed()
        if self._lease is not None and self._lease.status == "running":
            with suppress(LeaseLost):  # given back already
                self.end(end)

    def _find_claimed(self) -> Lease | None:
        """Return the lease of a claim whose answer was lost; None if it was not made."""
        task = self._journal.task(self._claim.scope, self._claim.task)
        if task is None or task.worker != self._claim.worker or task.until is None:
            return None
        return Lease(task.scope, task.task, task.worker, task.epoch, task.until)

    def check(self) -> None:
        """Raise LeaseLost if an extension found that another worker has the task."""
        if self.lost is not None:
            raise LeaseLost(self.lost)

    def ensure_time_left(self) -> None:
        """Extend the lease before an effect if little is left of it.

        The machine's own clock decides. A process that was stopped for long believes that no time has passed.
        """
        self.check()
        if read_boot_clock() > self._until - self._claim.seconds * _LEFT_FOR_EFFECT:
            self._extend()

    def confirm(self) -> None:
        """Raise LeaseLost unless the journal says now that the lease holds."""
        try:
            self._extend()
        except OutcomeUnknown as unknown:
            unknown.raise_interrupt()
            self._extend()

    def end(self, end: TaskEnd) -> None:
        self.stop()
        try:
            self._journal.end(self.lease, end)
        except OutcomeUnknown as unknown:
            unknown.raise_interrupt()
            task = self._journal.task(self.lease.scope, self.lease.task)
            if task is None or task.epoch != self.lease.epoch or task.worker is not None:
                self._journal.end(self.lease, end)

    def stop(self) -> None:
        self._stopped = True
        self._notices.put("stop")

    def _acquire(self) -> Lease:
        try:
            return self._journal.claim(self._claim)
        except OutcomeUnknown as unknown:
            unknown.raise_interrupt()
            return self._find_claimed() or self._journal.claim(self._claim)
        except TaskClaimed:
            # A dead process cannot write any more: do not wait until its lease expires.
            task = self._journal.task(self._claim.scope, self._claim.task)
            if task is None or task.worker is None or not is_worker_dead(task.worker):
                raise
            return self._journal.claim(replace(self._claim, dead=task.worker))

    def try_to_extend(self) -> bool:
        """Internal: extend the lease. False if it is lost."""
        try:
            self._extend()
        except (LeaseLost, StoreClosed):
            return False
        except EngrainError as exc:
            _log.warning("task %r: extending its lease failed and will be repeated: %s", self._claim.task, exc)
        return True

    def _extend(self) -> None:
        # Read before the call: the lease lasts at least that long, however slow the answer is.
        started = read_boot_clock()
        try:
            self._journal.extend(self.lease, self._claim.seconds)
        except LeaseLost as exc:
            if not self._stopped:
                self.lost = str(exc)
            raise
        self._until = started + self._claim.seconds


def _extend_periodically(
    find_holder: Callable[[], LeaseHolder | None],
    notices: SimpleQueue[Literal["stop", "dropped"]],
    pause: float,
    give_back: Callable[[], object],
) -> None:
    while True:
        try:
            notice = notices.get(timeout=pause)
        except Empty:
            holder = find_holder()
            if holder is not None and not holder.try_to_extend():
                return
            del holder
            continue
        if notice == "dropped":
            with suppress(EngrainError, LeaseLost):  # then the lease runs out
                give_back()
        return


def create_worker_name() -> str:
    """Name a run: host, process and a random part.

    On Linux also the boot, the pid namespace and the start of the process, so that others can prove its death.
    """
    pid = os.getpid()
    started = _read_start_ticks(pid) or ""
    return "/".join([_read_host_name(), _read_pid_space(), str(pid), started, secrets.token_hex(4)])


def is_worker_dead(worker: str) -> bool:
    """True if its process has certainly ended. A worker of another machine or container may always be alive."""
    host, _, rest = worker.rpartition("/")[0].partition("/")
    space, _, process = rest.partition("/")
    pid, _, started = process.partition("/")
    if not space or not started or not pid.isdigit() or (host, space) != (_read_host_name(), _read_pid_space()):
        return False
    return _read_start_ticks(int(pid)) != started


@cache
def _read_host_name() -> str:
    return socket.gethostname().replace("/", "-")


@cache
def _read_pid_space() -> str:
    """Return the boot and the pid namespace, in which a pid is unique; "" on systems without /proc."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        return f"{boot[:8]}.{os.readlink(_PROC / 'self/ns/pid').strip('pid:[]')}"
    except OSError:
        return ""


def _read_start_ticks(pid: int) -> str | None:
    """Return when the process started, in ticks since the boot; None if it does not exist or is a zombie."""
    try:
        fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]


def read_boot_clock() -> float:
    """Return monotonic seconds that include suspend where possible: a lease on a server expires meanwhile."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)
