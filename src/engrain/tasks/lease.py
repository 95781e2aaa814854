"""Hold a task: claim it, show signs of life, and know before an effect that it is still ours."""

from __future__ import annotations

import logging
import os
import secrets
import socket
import threading
import time
from dataclasses import replace
from functools import cache
from pathlib import Path

from engrain.core.errors import EngrainError, LeaseLost, OutcomeUnknown, StoreClosed, TaskClaimed
from engrain.core.model.tasks import Claim, Lease, TaskEnd
from engrain.ports import TaskJournal

_PROC = Path("/proc")


def worker_name() -> str:
    """New for every run: host, process and a random part; where the system tells, which boot, which pid space and when
    the process began, so that another worker can be sure of its death."""
    pid = os.getpid()
    return "/".join([_host(), _space(), str(pid), _began(pid) or "", secrets.token_hex(4)])


def is_dead(worker: str) -> bool:
    """Whether its process has certainly ended. A worker of another machine or container may always be alive."""
    host, _, rest = worker.rpartition("/")[0].partition("/")
    space, _, process = rest.partition("/")
    pid, _, began = process.partition("/")
    if not space or not began or not pid.isdigit() or (host, space) != (_host(), _space()):
        return False
    return _began(int(pid)) != began


@cache
def _host() -> str:
    return socket.gethostname().replace("/", "-")


@cache
def _space() -> str:
    """The boot and the pid namespace: a pid means something only there. "" where the system has no such thing."""
    try:
        boot = (_PROC / "sys/kernel/random/boot_id").read_text().strip()
        return f"{boot[:8]}.{os.readlink(_PROC / 'self/ns/pid').strip('pid:[]')}"
    except OSError:
        return ""


def _began(pid: int) -> str | None:
    """When the process began, in ticks since the boot; None if there is none, or only its unclaimed remains."""
    try:
        fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else fields[19]


_log = logging.getLogger("engrain")
_REPEATS = 3
# A share of the lease: the pause between signs of life, and what must be left of it before an effect is called.
_BEAT, _LEFT = 1 / 3, 1 / 3


class Tenure:
    """One claim of one task. `lease` cannot write if the task had ended already."""

    def __init__(self, journal: TaskJournal, claim: Claim) -> None:
        self._journal = journal
        self._claim = claim
        self._stop = threading.Event()
        self.lost: str | None = None
        self._until = steady() + claim.seconds
        self.lease = self._claimed()
        if self.lease.status == "running":
            self._thread = threading.Thread(target=self._beat, name="engrain-lease", daemon=True)
            self._thread.start()

    def check(self) -> None:
        """LeaseLost, if a sign of life has found that the task is no longer ours."""
        if self.lost is not None:
            raise LeaseLost(self.lost)

    def assure(self) -> None:
        """Right before an effect. By this machine's own clock: after a long stop the process wakes up believing that no
        time has passed, and must ask before it acts."""
        self.check()
        if steady() > self._until - self._claim.seconds * _LEFT:
            self._extend()

    def confirm(self) -> None:
        """LeaseLost, unless the journal says at this moment that the task is ours."""
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
        self._stop.set()

    def _claimed(self) -> Lease:
        try:
            return self._journal.claim(self._claim)
        except OutcomeUnknown as unknown:
            unknown.raise_interrupt()
            return self._ours() or self._journal.claim(self._claim)
        except TaskClaimed:
            # Whose process is gone cannot write any more: no need to wait until its lease has run out.
            task = self._journal.task(self._claim.scope, self._claim.task)
            if task is None or task.worker is None or not is_dead(task.worker):
                raise
            return self._journal.claim(replace(self._claim, dead=task.worker))

    def _ours(self) -> Lease | None:
        task = self._journal.task(self._claim.scope, self._claim.task)
        if task is None or task.worker != self._claim.worker or task.until is None:
            return None
        return Lease(task.scope, task.task, task.worker, task.epoch, task.until)

    def _beat(self) -> None:
        pause = self._claim.seconds * _BEAT
        while not self._stop.wait(pause):
            try:
                self._extend()
            except LeaseLost:
                return
            except StoreClosed:
                return
            except EngrainError as exc:
                _log.warning("task %r: a sign of life failed and will be repeated: %s", self._claim.task, exc)

    def _extend(self) -> None:
        # Read before the call: the lease lasts at least that long, however slow the answer is.
        began = steady()
        try:
            self._journal.extend(self.lease, self._claim.seconds)
        except LeaseLost as exc:
            if not self._stop.is_set():
                self.lost = str(exc)
            raise
        self._until = began + self._claim.seconds


def steady() -> float:
    """Seconds that pass while the machine sleeps, too, where it can tell: a lease on a server runs out meanwhile."""
    clock = getattr(time, "CLOCK_BOOTTIME", None)
    return time.monotonic() if clock is None else time.clock_gettime(clock)
