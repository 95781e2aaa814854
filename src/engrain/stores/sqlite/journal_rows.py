"""Rows of the task journal as values of the core, and the rules of a step inside a transaction."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, replace

from engrain.core.clock import from_micros, to_micros
from engrain.core.errors import Conflict, LeaseLost, NotFound
from engrain.core.identity import Scope
from engrain.core.model.tasks import Lease, StepEnd, StepRecord, StepStart, StepStatus, StepWrite, TaskRecord
from engrain.stores.relational.rows import read_time
from engrain.stores.sqlite.connection import Connection, Row
from engrain.stores.sqlite.sql import load

_SQL = load("journal.sql")
_ADD_STEP = _SQL["add_step"]
UNSETTLED = ("intent", "ambiguous")
FINAL = ("done", "skipped")
# A result over this size is kept once, by its hash; a smaller one in its step's own row.
LARGE = 4096


def task_of(row: Row) -> TaskRecord:
    _, tenant, agent, user, task, goal, version, status, epoch, worker, until, started, ended, outcome, due, kept = row[
        :16
    ]
    return TaskRecord(
        scope=Scope(tenant, agent, user),
        task=task,
        goal=goal,
        version=version,
        status=status,
        epoch=epoch,
        worker=worker,
        until=read_time(until),
        started_at=from_micros(started),
        ended_at=read_time(ended),
        outcome=outcome,
        deadline=read_time(due),
        snapshot=kept,
    )


def step_of(row: Row) -> StepRecord:
    name, occurrence, kind, status, attempt, epoch, input_, key, version, began, ended, result, error = row[:13]
    return StepRecord(
        name, occurrence, kind, status, attempt, epoch, input_, key, version, from_micros(began),
        None if ended is None else from_micros(ended), result, error,
    )  # fmt: skip


@dataclass(slots=True)
class Page:
    """One task's steps inside a write transaction. What a lease writes is fenced in the statement itself; its task is
    looked up only where that found nothing to do."""

    db: Connection
    scope: int
    task: int | None
    now: int
    key: bytes
    lease: Lease | None = None

    def number(self) -> int:
        """Of the task; LeaseLost if the lease may no longer write to it."""
        if self.task is None:
            assert self.lease is not None
            self.task = held(self.db, self.scope, self.lease)
        return self.task

    def begin(self, start: StepStart, took: float = 0.0) -> StepRecord:
        began = self._ago(took)
        fresh = self._added(start, StepEnd(start.name, start.occurrence, "intent"), began)
        if fresh:
            return fresh
        there, n = self._step(start.name, start.occurrence)
        if there.status in FINAL or start.attempt != there.attempt + 1:
            return there
        named = ("kind", "attempt", "input", "key", "version")
        values = {name: getattr(start, name) for name in named}
        assert self.lease is not None
        self.db.run(_SQL["begin_again"], {**values, "epoch": self.lease.epoch, "now": began, "n": n})
        return self._step(start.name, start.occurrence)[0]

    def record(self, start: StepStart, end: StepEnd) -> StepRecord:
        fresh = self._added(start, end, self._ago(end.took))
        if fresh:
            return fresh
        there = self.begin(start, end.took)
        return self.settle(end) if there.status in UNSETTLED else there

    def finish(self, end: StepEnd) -> StepRecord:
        lease = self.lease
        assert lease is not None
        fence = (self.scope, self.scope, lease.task, lease.epoch, lease.worker)
        values = (end.status, self.now, *self.stored(end.result), end.error, *fence, end.name, end.occurrence)
        rows = self.db.rows(_SQL["finish"], values)
        if rows:
            self.keep(end.snapshot)
            return step_of((*rows[0], end.result, end.error))
        there, n = self._step(end.name, end.occurrence)
        same = (there.status, there.result, there.error) == (end.status, end.result, end.error)
        return there if there.status not in UNSETTLED and same else self._settled(there, n, end)

    def status(self, of: StepEnd) -> StepStatus:
        return self._step(of.name, of.occurrence)[0].status

    def settle(self, end: StepEnd) -> StepRecord:
        return self._settled(*self._step(end.name, end.occurrence), end)

    def _settled(self, there: StepRecord, n: int, end: StepEnd) -> StepRecord:
        if there.status not in UNSETTLED:
            raise Conflict(f"the step {end.name!r} ({end.occurrence}) is settled already: {there.status}.")
        ended = max(from_micros(self.now), there.began_at)
        self.db.run(_SQL["settle"], (end.status, to_micros(ended), *self.stored(end.result), end.error, n))
        self.keep(end.snapshot)
        return replace(there, status=end.status, ended_at=ended, result=end.result, error=end.error)

    def begin_memory(self, write: StepWrite) -> list[str | None] | None:
        """The ids that the step wrote when it was done; None if it is still to do."""
        there = self.begin(write.start)
        if there.status == "done":
            return list(json.loads(there.result or "[]"))
        if there.status not in UNSETTLED:
            raise Conflict(f"the step {there.name!r} is settled already: {there.status}.")
        return None

    def finish_memory(self, write: StepWrite, ids: list[str | None]) -> None:
        self.settle(replace(write.end, result=json.dumps(ids)))

    def _ago(self, seconds: float) -> int:
        return self.now - round(seconds * 1_000_000)

    def _step(self, name: str, occurrence: int) -> tuple[StepRecord, int]:
        rows = self.db.rows(_SQL["step"], (self.scope, self.number(), name, occurrence))
        if not rows:
            raise NotFound(f"the step {name!r} ({occurrence}) of this task was not begun.")
        return step_of(rows[0]), rows[0][13]

    def _added(self, start: StepStart, end: StepEnd, began: int) -> StepRecord | None:
        lease = self.lease
        assert lease is not None
        what = (start.name, start.occurrence, start.kind, end.status, start.attempt)
        more = (start.input, start.key, start.version, began, None if end.status == "intent" else self.now)
        fence = (self.scope, lease.task, lease.epoch, lease.worker)
        if not self.db.run(_ADD_STEP, (*what, *more, *self.stored(end.result), end.error, *fence)):
            return None
        self.keep(end.snapshot)
        return step_of((*what, lease.epoch, *more, end.result, end.error))

    def keep(self, snapshot: str | None) -> None:
        if snapshot is not None:
            self.db.run(_SQL["keep"], (self.scope, self.number(), snapshot))

    def stored(self, result: str | None) -> tuple[str | None, int | None]:
        """What stands in the step's own row: the result itself, or where it is."""
        if result is None or len(result) <= LARGE:
            return result, None
        digest = hashlib.blake2b(result.encode(), key=self.key, digest_size=16).digest()
        there = self.db.rows(_SQL["result"], (self.scope, digest))
        if there:
            return None, there[0][0]
        self.db.run(_SQL["add_result"], (self.scope, digest, result))
        return None, self.db.last_row


def held(db: Connection, scope: int, lease: Lease) -> int:
    """The number of the lease's task, if it may still write to it."""
    rows = db.rows(_SQL["held"], (scope, lease.task))
    if not rows:
        raise LeaseLost(f"the task {lease.task!r} is no longer there.")
    n, epoch, worker, status = rows[0]
    # The worker as well: a task that was pruned and began anew counts its claims from 1 again.
    if epoch != lease.epoch or worker != lease.worker:
        why = f"it is {status}" if worker is None else "another worker took it over"
        raise LeaseLost(f"{lease.worker} may no longer write to task {lease.task!r}: {why}.")
    return int(n)
