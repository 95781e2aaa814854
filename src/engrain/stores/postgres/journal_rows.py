"""Rows of the task journal as values of the core, and the rules of a step inside a transaction."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace

from engrain.core.clock import from_micros, to_micros
from engrain.core.errors import Conflict, LeaseLost, NotFound
from engrain.core.identity import Scope
from engrain.core.model.tasks import Lease, StepEnd, StepRecord, StepStart, StepStatus, StepWrite, TaskRecord
from engrain.stores.postgres.link import Db, Row
from engrain.stores.postgres.sql import load
from engrain.stores.relational.rows import read_time

_SQL = load("journal.sql")
UNSETTLED = ("intent", "ambiguous")
FINAL = ("done", "skipped")


def task_of(row: Row) -> TaskRecord:
    _, tenant, agent, user, task, goal, version, status, epoch, worker, until, started, ended, outcome, due, kept, _ = (
        row
    )
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
        name, occurrence, kind, status, attempt, epoch, input_, key, version, from_micros(began), read_time(ended),
        result, error,
    )  # fmt: skip


def held_by(rows: list[Row], lease: Lease) -> int:
    """The number of the lease's task, if it may still write to it."""
    if not rows:
        raise LeaseLost(f"the task {lease.task!r} is no longer there.")
    n, epoch, worker, status = rows[0]
    # The worker as well: a task that was pruned and began anew counts its claims from 1 again.
    if epoch != lease.epoch or worker != lease.worker:
        why = f"it is {status}" if worker is None else "another worker took it over"
        raise LeaseLost(f"{lease.worker} may no longer write to task {lease.task!r}: {why}.")
    return int(n)


@dataclass(slots=True)
class Page:
    """One task's steps inside a transaction that has locked the task."""

    db: Db
    owner: str
    task: int
    now: int
    clock: int | None = None  # the server's own time, where leases are judged by it

    def begin(self, lease: Lease, start: StepStart, took: float = 0.0) -> StepRecord:
        began = self._ago(took)
        fresh = self._added(lease, start, StepEnd(start.name, start.occurrence, "intent"), began)
        if fresh:
            return fresh
        there, n = self._step(start.name, start.occurrence)
        if there.status in FINAL or start.attempt != there.attempt + 1:
            return there
        values = {name: getattr(start, name) for name in ("kind", "attempt", "input", "key", "version")}
        self.db.run(_SQL["begin_again"], {**values, "epoch": lease.epoch, "now": began, "scope": self.owner, "n": n})
        return self._step(start.name, start.occurrence)[0]

    def record(self, lease: Lease, start: StepStart, end: StepEnd) -> StepRecord:
        fresh = self._added(lease, start, end, self._ago(end.took))
        if fresh:
            return fresh
        there = self.begin(lease, start, end.took)
        return self.settle(end) if there.status in UNSETTLED else there

    def finish(self, end: StepEnd) -> StepRecord:
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
        self.db.run(_SQL["settle"], (end.status, to_micros(ended), end.result, end.error, self.owner, n))
        self.keep(end.snapshot)
        return replace(there, status=end.status, ended_at=ended, result=end.result, error=end.error)

    def begin_memory(self, write: StepWrite) -> list[str | None] | None:
        """The ids that the step wrote when it was done; None if it is still to do."""
        there = self.begin(write.lease, write.start)
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
        rows = self.db.rows(_SQL["step"], (self.owner, self.task, name, occurrence))
        if not rows:
            raise NotFound(f"the step {name!r} ({occurrence}) of this task was not begun.")
        return step_of(rows[0]), rows[0][13]

    def _added(self, lease: Lease, start: StepStart, end: StepEnd, began: int) -> StepRecord | None:
        ended = None if end.status == "intent" else self.now
        row = (
            start.name, start.occurrence, start.kind, end.status, start.attempt, lease.epoch, start.input, start.key,
            start.version, began, ended, end.result, end.error,
        )  # fmt: skip
        if not self.db.rows(_SQL["add_step"], (self.owner, self.task, *row)):
            return None
        self.keep(end.snapshot)
        return step_of(row)

    def keep(self, snapshot: str | None) -> None:
        if snapshot is not None:
            self.db.run(_SQL["keep"], (self.owner, self.task, snapshot))
