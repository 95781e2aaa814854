"""Durable tasks: claims, leases, steps, snapshots and events."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple, TypeVar

from engrain.core.clock import ClockReading, add_time, from_micros, has_passed, is_lease_over, to_micros
from engrain.core.errors import Conflict, LeaseLost, NotFound, TaskClaimed
from engrain.core.identity import Scope
from engrain.core.model.tasks import (
    ENDED_STATUSES,
    Claim,
    Lease,
    StepEnd,
    StepRecord,
    StepStart,
    StepWrite,
    TaskEnd,
    TaskQuery,
    TaskRecord,
    TaskStatus,
)
from engrain.stores.relational.dialect import Deferred, Dialect, Pending, ScopeKey, Transaction
from engrain.stores.relational.rows import TASK_WIDTH, Row, decoding, read_time, write_time
from engrain.stores.relational.scopes import check_hold, load_scopes_on_hold

Answer = TypeVar("Answer")
_NO_LIMIT = 1 << 62
_LEASE_UNTIL = 9  # of a row of TASK_COLUMNS
_LARGE = 4096  # characters


class LockedTask(NamedTuple):
    """The state of a task that a write needs, and the times of its lock: see lock_task."""

    scope: ScopeKey
    n: int
    epoch: int
    worker: str | None
    status: TaskStatus
    ended_at: int | None
    lease_until: int | None
    lease_clock: ClockReading
    now: int
    wall_clock: int
    clock: ClockReading

    def is_over(self) -> bool:
        return self.lease_until is None or is_lease_over(self.lease_until, self.lease_clock, self.now, self.clock)


class Tasks:
    """The task journal of a store.

    Leases are judged by a clock that nobody sets: the machine's steady clock, or the server's own. With a clock that
    was handed in, that one judges them."""

    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect

    # Tasks

    def claim(self, claim: Claim) -> Lease:
        return self._dialect.write(claim.scope, lambda tx: self._claim(tx, claim))

    def _claim(self, tx: Transaction, claim: Claim) -> Lease:
        tx.add_scope()
        task = self._lock(tx, claim.task) or self._add(tx, claim)
        if task.status in ENDED_STATUSES:
            ended = from_micros(task.ended_at or task.now)
            return Lease(claim.scope, claim.task, claim.worker, task.epoch, ended, task.status)
        if task.worker not in (None, claim.dead or None) and not task.is_over():
            until = read_time(task.lease_until)
            raise TaskClaimed(f"the task {claim.task!r} is run by {task.worker}, until {until} at least.")
        lasts = timedelta(seconds=claim.seconds)
        until = from_micros(task.now) + lasts
        # As far ahead as the claimant's clock says: that clock may be behind the store's time.
        due = None if claim.deadline is None else claim.deadline - from_micros(task.wall_clock)
        lease = {"worker": claim.worker, "lease_until": to_micros(until), "lease_clock": add_time(task.clock, lasts)}
        deadline = None if due is None else add_time(task.clock, due)
        tx.run("claim_task", n=task.n, **lease, deadline_clock=deadline)
        return Lease(claim.scope, claim.task, claim.worker, task.epoch + 1, until)

    def extend(self, lease: Lease, seconds: float) -> Lease:
        def do(tx: Transaction) -> Lease:
            task = self._lock_leased(tx, lease)
            lasts = timedelta(seconds=seconds)
            until = from_micros(task.now) + lasts
            clock = add_time(task.clock, lasts)
            tx.run("extend_lease", n=task.n, lease_until=to_micros(until), lease_clock=clock)
            return Lease(lease.scope, lease.task, lease.worker, lease.epoch, until)

        return self._dialect.write(lease.scope, do)

    def end(self, lease: Lease, end: TaskEnd) -> TaskRecord:
        def do(tx: Transaction) -> TaskRecord | Deferred[TaskRecord]:
            task = self._lock_leased(tx, lease)
            _end_task(tx, end, n=task.n, now=task.now, clock=task.clock)
            return Deferred(tx.ask("load_task", task=lease.task), _read_first)

        return self._dialect.write(lease.scope, do)

    def overrule(self, scope: Scope, task: str, end: TaskEnd) -> TaskRecord:
        def do(tx: Transaction) -> TaskRecord | Deferred[TaskRecord]:
            found = self._lock_known(tx, task)
            if found.status in ENDED_STATUSES:
                raise Conflict(f"the task {task!r} has ended already: {found.status}.")
            _end_task(tx, end, n=found.n, now=found.now, clock=found.clock, epochs=1)
            return Deferred(tx.ask("load_task", task=task), _read_first)

        return self._dialect.write(scope, do)

    def task(self, scope: Scope, task: str) -> TaskRecord | None:
        rows = self._dialect.ask(scope, "load_task", task=task)
        return read_task(rows[0]) if rows else None

    def tasks(self, query: TaskQuery) -> list[TaskRecord]:
        which = {"all": query.scope is None, "any_status": not query.status, "statuses": query.status}
        limit = _NO_LIMIT if query.stale else query.limit
        rows = self._dialect.ask(query.scope, "list_tasks", **which, stale=query.stale, limit=limit)
        found = [read_task(row[:TASK_WIDTH]) for row in rows if not query.stale or _is_stale(row)]
        return found[: query.limit]

    def expire(self, now: datetime) -> list[TaskRecord]:
        def do(tx: Transaction) -> list[TaskRecord]:
            asked: list[Pending] = []
            for scope, n, task, due, at, clock in tx.rows("lock_overdue_tasks", at=to_micros(now)):
                # By the wall clock, and by the other one as far as that can tell.
                if has_passed(due, clock) is not False:
                    _end_task(tx, TaskEnd("expired"), n=n, now=at, clock=clock, scope=scope, outcome=None)
                    tx.store_time(at)
                    asked.append(tx.ask("load_task", scope=scope, task=task))
            return [_read_first(cursor.fetchall()) for cursor in asked]

        return self._dialect.write(None, do)

    def prune(self, before: datetime) -> int:
        def do(tx: Transaction) -> int:
            on_hold = load_scopes_on_hold(tx)
            old: dict[ScopeKey, dict[int, str]] = {}
            rows = tx.rows("load_ended_tasks", before=to_micros(before), on_hold=on_hold)
            for scope, n, task, ended, now, clock in rows:
                # The wall clock may have been set forward: tasks that the other clock calls younger stay.
                if has_passed(ended, clock, from_micros(now) - before) is not False:
                    old.setdefault(scope, {})[n] = task
            return _delete_tasks(tx, old)

        return self._dialect.write(None, do)

    def remove(self, scope: Scope, task: str) -> None:
        def do(tx: Transaction) -> None:
            tx.lock_holds(tx.owner)
            found = self._lock_known(tx, task)
            if found.status not in ENDED_STATUSES:
                raise Conflict(f"the task {task!r} has not ended: it is {found.status}.")
            check_hold(tx)
            _delete_tasks(tx, {found.scope: {found.n: task}})
            tx.mark_purge()

        self._dialect.write(scope, do)

    # Steps

    def begin(self, lease: Lease, start: StepStart) -> StepRecord:
        return self._write_steps(lease, lambda steps: steps.begin(start))

    def finish(self, lease: Lease, end: StepEnd) -> StepRecord:
        return self._write_steps(lease, lambda steps: steps.finish(end))

    def record(self, lease: Lease, start: StepStart, end: StepEnd) -> StepRecord:
        return self._write_steps(lease, lambda steps: steps.record(start, end))

    def resolve(self, scope: Scope, task: str, end: StepEnd) -> StepRecord:
        def do(tx: Transaction) -> StepRecord:
            found = self._lock_known(tx, task)
            steps = StepJournal(tx, self._dialect.key, found.n, found.epoch, found.now)
            if steps.load(end.name, end.occurrence)[0].status == "intent" and not found.is_over():
                until = read_time(found.lease_until)
                raise TaskClaimed(f"{end.name!r} is under way, run by {found.worker}, until {until} at least.")
            return steps.settle(end)

        return self._dialect.write(scope, do)

    def steps(self, scope: Scope, task: str) -> list[StepRecord]:
        return [read_step(row) for row in self._dialect.ask(scope, "load_steps", task=task)]

    def unsettled(self, scope: Scope, task: str) -> list[StepRecord]:
        return [read_step(row) for row in self._dialect.ask(scope, "load_unsettled_steps", task=task)]

    # Snapshots and events

    def keep(self, lease: Lease, snapshot: str) -> None:
        self._write_steps(lease, lambda steps: steps.store_snapshot(snapshot))

    def signal(self, scope: Scope, task: str, event: str, payload: str) -> bool:
        def do(tx: Transaction) -> bool | Deferred[bool]:
            tx.add_scope()
            return Deferred(tx.ask("add_event", task=task, event=event, payload=payload), bool)

        return self._dialect.write(scope, do)

    def event(self, scope: Scope, task: str, event: str) -> str | None:
        rows = self._dialect.ask(scope, "load_event", task=task, event=event)
        return rows[0][0] if rows else None

    # Inside a transaction

    def open_steps(self, tx: Transaction, lease: Lease) -> StepJournal:
        """The steps of the lease's task, to write to. LeaseLost if the lease may no longer write."""
        task = self._lock_leased(tx, lease)
        return StepJournal(tx, self._dialect.key, task.n, lease.epoch, task.now)

    def _write_steps(self, lease: Lease, do: Callable[[StepJournal], Answer]) -> Answer:
        return self._dialect.write(lease.scope, lambda tx: do(self.open_steps(tx, lease)))

    def _lock(self, tx: Transaction, task: str) -> LockedTask | None:
        rows = tx.rows("lock_task", task=task)
        if not rows:
            return None
        found = LockedTask(*rows[0])
        tx.store_time(found.now)  # no later step begins before this moment, whoever records it
        return found

    def _lock_known(self, tx: Transaction, task: str) -> LockedTask:
        found = self._lock(tx, task)
        if found is None:
            raise NotFound(f"there is no task {task!r} in this memory.")
        return found

    def _lock_leased(self, tx: Transaction, lease: Lease) -> LockedTask:
        found = self._lock(tx, lease.task)
        if found is None:
            raise LeaseLost(f"the task {lease.task!r} is no longer there.")
        # The worker as well: a task that was pruned and began anew counts its claims from 1 again.
        if found.epoch != lease.epoch or found.worker != lease.worker:
            why = f"it is {found.status}" if found.worker is None else "another worker took it over"
            raise LeaseLost(f"{lease.worker} may no longer write to task {lease.task!r}: {why}.")
        return found

    def _add(self, tx: Transaction, claim: Claim) -> LockedTask:
        """Add a task and lock it. If another has added it at the same time, wait for that one here."""
        values = {"task": claim.task, "goal": claim.goal, "version": claim.version}
        tx.run("add_task", **values, deadline=write_time(claim.deadline))
        return self._lock_known(tx, claim.task)


@dataclass(frozen=True, slots=True)
class StepJournal:
    """The steps of one task, inside a transaction that has locked the task."""

    tx: Transaction
    key: bytes
    task: int
    epoch: int
    now: int

    def begin(self, start: StepStart, took: float = 0.0) -> StepRecord:
        added = self._add(start, StepEnd(start.name, start.occurrence, "intent", took=took))
        if added:
            return added
        found, n = self.load(start.name, start.occurrence)
        if not found.restarts(start):
            return found
        started = self._subtract(took)
        self.tx.run("restart_step", n=n, epoch=self.epoch, started_at=started, **_write_start(start))
        return self.load(start.name, start.occurrence)[0]

    def record(self, start: StepStart, end: StepEnd) -> StepRecord:
        added = self._add(start, end)
        if added:
            return added
        found = self.begin(start, end.took)
        return found if found.settled else self.settle(end)

    def finish(self, end: StepEnd) -> StepRecord:
        settled = self._settle(end)
        if settled:
            return settled
        found, _ = self.load(end.name, end.occurrence)
        if not found.has_outcome(end):
            raise _make_conflict(found)
        return found

    def settle(self, end: StepEnd) -> StepRecord:
        settled = self._settle(end)
        if settled is None:
            raise _make_conflict(self.load(end.name, end.occurrence)[0])
        return settled

    def begin_memory(self, write: StepWrite) -> list[str | None] | None:
        """Begin a step that writes memory: the ids that it wrote if it is done already, else None."""
        found = self.begin(write.start)
        if found.status == "done":
            return found.list_written()
        if found.settled:
            raise _make_conflict(found)
        return None

    def finish_memory(self, write: StepWrite, ids: list[str | None]) -> None:
        self.settle(replace(write.end, result=json.dumps(ids)))

    def store_snapshot(self, body: str | None) -> None:
        if body is not None:
            self.tx.run("store_snapshot", task=self.task, body=body)

    def _add(self, start: StepStart, end: StepEnd) -> StepRecord | None:
        """None if it is there."""
        times = self._subtract(end.took), None if end.status == "intent" else self.now
        values = {"task": self.task, "epoch": self.epoch, "status": end.status, "error": end.error}
        values |= {"started_at": times[0], "ended_at": times[1], **self._store_result(end.result)}
        if not self.tx.rows("add_step", **values, **_write_start(start)):
            return None
        self.store_snapshot(end.snapshot)
        return StepRecord(
            start.name, start.occurrence, start.kind, end.status, start.attempt, self.epoch, start.input, start.key,
            start.version, from_micros(times[0]), read_time(times[1]), end.result, end.error,
        )  # fmt: skip

    def _settle(self, end: StepEnd) -> StepRecord | None:
        """None if it is settled already or was never begun."""
        values = {"name": end.name, "occurrence": end.occurrence, "status": end.status, "error": end.error}
        rows = self.tx.rows("settle_step", task=self.task, now=self.now, **values, **self._store_result(end.result))
        if not rows:
            return None
        self.store_snapshot(end.snapshot)
        return read_step((*rows[0], end.result, end.error))

    def load(self, name: str, occurrence: int) -> tuple[StepRecord, int]:
        """The step and its number."""
        rows = self.tx.rows("load_step", task=self.task, name=name, occurrence=occurrence)
        if not rows:
            raise NotFound(f"the step {name!r} ({occurrence}) of this task was not begun.")
        return read_step(rows[0][:-1]), rows[0][-1]

    def _store_result(self, result: str | None) -> dict[str, Any]:
        """A large result is stored once, by its hash, however many steps returned it."""
        if result is None or len(result) <= _LARGE:
            return {"result": result, "hash": None}
        digest = hashlib.blake2b(result.encode(), key=self.key, digest_size=16).digest()
        self.tx.run("add_large_result", hash=digest, body=result)
        return {"result": None, "hash": digest}

    def _subtract(self, seconds: float) -> int:
        return self.now - round(seconds * 1_000_000)


@decoding
def read_task(row: Row) -> TaskRecord:
    tenant, agent, user, task, goal, version, status, epoch, worker, until, started, ended, outcome, due, body = row
    return TaskRecord(
        Scope(tenant, agent, user), task, goal, version, status, epoch, worker, read_time(until), from_micros(started),
        read_time(ended), outcome, read_time(due), body,
    )  # fmt: skip


def _read_first(rows: list[Row]) -> TaskRecord:
    return read_task(rows[0])


def _is_stale(row: Row) -> bool:
    until, (lease_clock, now, clock) = row[_LEASE_UNTIL], row[TASK_WIDTH:]
    return until is not None and is_lease_over(until, lease_clock, now, clock)


def _end_task(
    tx: Transaction, end: TaskEnd, *, n: int, now: int, clock: ClockReading, epochs: int = 0, **other: Any
) -> None:
    over = end.status in ENDED_STATUSES
    values = {"status": end.status, "outcome": end.outcome, "epochs": epochs, **other}
    tx.run("end_task", n=n, ended_at=now if over else None, ended_clock=clock if over else None, **values)


def _delete_tasks(tx: Transaction, tasks: Mapping[ScopeKey, Mapping[int, str]]) -> int:
    """Delete tasks with their steps and events: numbers and names by scope. The answer counts those that were there."""
    locked = {scope: tx.ask("lock_large_results", scope=scope, tasks=list(some)) for scope, some in tasks.items()}
    deleted = []
    for scope, some in tasks.items():
        results = [n for (n,) in locked[scope].fetchall()]
        deleted.append(tx.ask("delete_tasks", scope=scope, numbers=list(some)))
        tx.run("delete_events", scope=scope, tasks=list(some.values()))
        if results:
            tx.run("delete_unused_results", scope=scope, numbers=results)
    return sum(len(cursor.fetchall()) for cursor in deleted)


def _write_start(start: StepStart) -> dict[str, Any]:
    return {
        "name": start.name, "occurrence": start.occurrence, "kind": start.kind, "attempt": start.attempt,
        "input": start.input, "key": start.key, "version": start.version,
    }  # fmt: skip


@decoding
def read_step(row: Row) -> StepRecord:
    name, occurrence, kind, status, attempt, epoch, input_, key, version, started, ended, result, error = row
    return StepRecord(
        name, occurrence, kind, status, attempt, epoch, input_, key, version, from_micros(started), read_time(ended),
        result, error,
    )  # fmt: skip


def _make_conflict(found: StepRecord) -> Conflict:
    return Conflict(f"the step {found.name!r} ({found.occurrence}) is settled already: {found.status}.")
