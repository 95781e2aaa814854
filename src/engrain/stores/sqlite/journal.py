"""Durable tasks in the store's file: claims, leases, steps, snapshots and events."""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import TYPE_CHECKING

from engrain.core.clock import from_micros, system_clock, to_micros
from engrain.core.errors import Conflict, NotFound, TaskClaimed
from engrain.core.identity import Scope
from engrain.core.model.tasks import (
    ENDED_STATUSES,
    Claim,
    Lease,
    StepEnd,
    StepRecord,
    StepStart,
    TaskEnd,
    TaskQuery,
    TaskRecord,
)
from engrain.stores.sqlite.connection import Connection, Row
from engrain.stores.sqlite.holding import check_held, held_scopes
from engrain.stores.sqlite.journal_rows import Page, step_of, task_of
from engrain.stores.sqlite.sql import load
from engrain.stores.sqlite.steady import Steady, machine_steady, mark, passed

if TYPE_CHECKING:
    from engrain.stores.sqlite.handle import Handle

_SQL = load("journal.sql")
_N, _UNTIL, _DEADLINE_MARK, _UNTIL_MARK = 0, 10, 16, 17


class SqliteJournal:
    """A view of the store. Leases are judged by the machine's steady clock, so that setting the wall clock neither ends
    nor prolongs one; with a clock that was handed in, by that one."""

    def __init__(self, store: Handle) -> None:
        self._store = store
        self._steady: Steady | None = machine_steady() if store._clock is system_clock else None
        self._floor = 0

    # Tasks

    def claim(self, claim: Claim) -> Lease:
        return self._store.transaction(lambda db: self._claim(db, claim))

    def _claim(self, db: Connection, claim: Claim) -> Lease:
        scope = self._store._scope_or_new(db, claim.scope)
        now = self._now(db)
        row = self._task_row(db, scope, claim, now)
        found = task_of(row)
        if found.status in ENDED_STATUSES:
            ended = found.ended_at or from_micros(now)
            return Lease(claim.scope, claim.task, claim.worker, found.epoch, ended, found.status)
        if found.worker not in (None, claim.dead or None) and not self._over(row, now):
            raise TaskClaimed(f"the task {found.task!r} is run by {found.worker}, until {found.until} at least.")
        lasts = timedelta(seconds=claim.seconds)
        until = from_micros(now) + lasts
        values = {"worker": claim.worker, "until": to_micros(until), "mark": mark(self._steady, lasts)}
        db.run(_SQL["claim"], {**values, "n": row[_N]})
        db.run(_SQL["set_now"], (now,))
        return Lease(claim.scope, claim.task, claim.worker, found.epoch + 1, until)

    def extend(self, lease: Lease, seconds: float) -> Lease:
        def write(db: Connection) -> Lease:
            page = self._held_page(db, lease)
            lasts = timedelta(seconds=seconds)
            until = from_micros(page.now) + lasts
            db.run(_SQL["extend"], (to_micros(until), mark(self._steady, lasts), page.number()))
            return Lease(lease.scope, lease.task, lease.worker, lease.epoch, until)

        return self._store.transaction(write)

    def end(self, lease: Lease, end: TaskEnd) -> TaskRecord:
        return self._store.transaction(lambda db: self._ended(db, self._held_page(db, lease).scope, lease.task, end))

    def overrule(self, scope: Scope, task: str, end: TaskEnd) -> TaskRecord:
        def write(db: Connection) -> TaskRecord:
            number, row = self._known(db, scope, task)
            found = task_of(row)
            if found.status in ENDED_STATUSES:
                raise Conflict(f"the task {task!r} has ended already: {found.status}.")
            return self._ended(db, number, task, end, more=1)

        return self._store.transaction(write)

    def task(self, scope: Scope, task: str) -> TaskRecord | None:
        rows = self._store.snapshot(lambda db: db.rows(_SQL["task"], (self._store._scope(db, scope), task)))
        return task_of(rows[0]) if rows else None

    def tasks(self, query: TaskQuery) -> list[TaskRecord]:
        def load(db: Connection) -> tuple[list[Row], int]:
            values = {
                "all": query.scope is None,
                "scope": None if query.scope is None else self._store._scope(db, query.scope),
                "status": json.dumps(query.status) if query.status else None,
                "held": query.stale,
                "limit": -1 if query.stale else query.limit,
            }
            return db.rows(_SQL["tasks"], values), self._now(db)

        rows, now = self._store.snapshot(load)
        found = [task_of(row) for row in rows if not query.stale or self._over(row, now)]
        return found[: query.limit]

    def expire(self, now: datetime) -> list[TaskRecord]:
        def write(db: Connection) -> list[TaskRecord]:
            # By the wall clock, and by the steady one as far as that can tell.
            overdue = db.rows(_SQL["overdue"], (to_micros(now),))
            late = [row for row in overdue if passed(self._steady, row[_DEADLINE_MARK]) is not False]
            found = []
            for row in late:
                task = task_of(row)
                scope = self._store._scope(db, task.scope)
                found.append(self._ended(db, scope, task.task, TaskEnd("expired", task.outcome)))
            return found

        return self._store.transaction(write)

    def prune(self, before: datetime) -> int:
        def drop(db: Connection) -> int:
            # The wall clock may have been set forward: what the steady clock calls younger than asked for stays.
            asked = from_micros(self._now(db)) - before
            on_hold = held_scopes(db)
            old = [
                row
                for row in db.rows(_SQL["ended"], (to_micros(before),))
                if row[1] not in on_hold and passed(self._steady, row[4], asked) is not False
            ]
            for n, scope, task, _, _ in old:
                _drop(db, n, scope, task)
            return len(old)

        return self._store.transaction(drop)

    def remove(self, scope: Scope, task: str) -> None:
        def drop(db: Connection) -> None:
            number, row = self._known(db, scope, task)
            found = task_of(row)
            if found.status not in ENDED_STATUSES:
                raise Conflict(f"the task {task!r} has not ended: it is {found.status}.")
            check_held(db, number)
            _drop(db, row[_N], number, task)
            self._store._purge.mark(db)  # whoever names one task wants its bytes gone, too

        self._store.transaction(drop)

    # Steps

    def begin(self, lease: Lease, start: StepStart) -> StepRecord:
        return self._store.transaction(lambda db: self.page(db, lease).begin(start))

    def finish(self, lease: Lease, end: StepEnd) -> StepRecord:
        return self._store.transaction(lambda db: self.page(db, lease).finish(end))

    def record(self, lease: Lease, start: StepStart, end: StepEnd) -> StepRecord:
        return self._store.transaction(lambda db: self.page(db, lease).record(start, end))

    def resolve(self, scope: Scope, task: str, end: StepEnd) -> StepRecord:
        def write(db: Connection) -> StepRecord:
            number, row = self._known(db, scope, task)
            page = Page(db, number, row[_N], self._now(db), self._store._key)
            if page.status(end) == "intent" and row[_UNTIL] is not None and not self._over(row, page.now):
                held = task_of(row)
                raise TaskClaimed(f"{end.name!r} is under way, run by {held.worker}, until {held.until} at least.")
            return page.settle(end)

        return self._store.transaction(write)

    def steps(self, scope: Scope, task: str) -> list[StepRecord]:
        def load(db: Connection) -> list[Row]:
            number = self._store._scope(db, scope)
            rows = db.rows(_SQL["held"], (number, task))
            return db.rows(_SQL["steps"], (number, rows[0][0])) if rows else []

        return [step_of(row) for row in self._store.snapshot(load)]

    def unsettled(self, scope: Scope, task: str) -> list[StepRecord]:
        rows = self._store.snapshot(lambda db: db.rows(_SQL["unsettled"], (self._store._scope(db, scope), task)))
        return [step_of(row) for row in rows]

    # Snapshots and events

    def keep(self, lease: Lease, snapshot: str) -> None:
        self._store.transaction(lambda db: self._held_page(db, lease).keep(snapshot))

    def signal(self, scope: Scope, task: str, event: str, payload: str) -> bool:
        def write(db: Connection) -> bool:
            number = self._store._scope_or_new(db, scope)
            return bool(db.run(_SQL["add_event"], (number, task, event, self._now(db), payload)))

        return self._store.transaction(write)

    def event(self, scope: Scope, task: str, event: str) -> str | None:
        rows = self._store.snapshot(lambda db: db.rows(_SQL["event"], (self._store._scope(db, scope), task, event)))
        return rows[0][0] if rows else None

    # Inside a transaction

    def page(self, db: Connection, lease: Lease) -> Page:
        """The lease's task, to write steps to. Every write raises LeaseLost if it may no longer."""
        # Whoever claimed the task has asked for the store's own time and the task's newest: this is not before them.
        self._floor = max(self._floor, to_micros(self._store._clock()))
        return Page(db, self._store._scope(db, lease.scope) or 0, None, self._floor, self._store._key, lease)

    def _held_page(self, db: Connection, lease: Lease) -> Page:
        """The same, for a lease that is looked up now."""
        page = self.page(db, lease)
        page.number()
        return page

    def _now(self, db: Connection) -> int:
        """The store's time, and never before what this process has written into the journal."""
        self._floor = max(self._floor, self._store._micros(db))
        return self._floor

    def _task_row(self, db: Connection, scope: int, claim: Claim, now: int) -> Row:
        rows = db.rows(_SQL["task"], (scope, claim.task))
        if rows:
            # A worker whose clock is behind must not put its steps before those that are there.
            last = db.rows(_SQL["last_time"], (scope, rows[0][_N]))
            self._floor = max(self._floor, last[0][0] if last else 0)
            return rows[0]
        values = {"scope": scope, "task": claim.task, "goal": claim.goal, "version": claim.version}
        due = None if claim.deadline is None else to_micros(claim.deadline)
        # As far ahead as the claimant's clock says; that clock may be behind the store's time.
        late = None if claim.deadline is None else mark(self._steady, claim.deadline - self._store._clock())
        db.run(_SQL["add_task"], {**values, "now": now, "deadline": due, "mark": late})
        return db.rows(_SQL["task"], (scope, claim.task))[0]

    def _over(self, row: Row, now: int) -> bool:
        """Whether a held task's lease has run out."""
        steadily = passed(self._steady, row[_UNTIL_MARK])
        # A mark of another boot: whoever held the lease ended with that boot.
        if self._steady and row[_UNTIL_MARK] and steadily is None:
            return True
        return bool(row[_UNTIL] <= now) if steadily is None else steadily

    def _known(self, db: Connection, scope: Scope, task: str) -> tuple[int, Row]:
        number = self._store._scope(db, scope)
        rows = db.rows(_SQL["task"], (number, task))
        if number is None or not rows:
            raise NotFound(f"there is no task {task!r} in this memory.")
        return number, rows[0]

    def _ended(self, db: Connection, scope: int | None, task: str, end: TaskEnd, more: int = 0) -> TaskRecord:
        now = self._now(db)
        over = end.status in ENDED_STATUSES
        ((n, *_),) = db.rows(_SQL["held"], (scope, task))
        values = {"status": end.status, "outcome": end.outcome, "ended": now if over else None, "more": more, "n": n}
        db.run(_SQL["end"], {**values, "mark": mark(self._steady) if over else None})
        db.run(_SQL["set_now"], (now,))
        return task_of(db.rows(_SQL["task"], (scope, task))[0])


def _drop(db: Connection, n: int, scope: int, task: str) -> None:
    results = db.rows(_SQL["task_results"], (scope, n))
    db.run(_SQL["drop_task"], (n,))
    db.run(_SQL["drop_events"], (scope, task))
    for (result,) in results:
        db.run(_SQL["drop_result"], {"n": result})
