"""Durable tasks in the database: claims, leases, steps, snapshots and events."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from engrain.core.clock import from_micros, to_micros
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
from engrain.stores.postgres.journal_rows import Page, held_by, step_of, task_of
from engrain.stores.postgres.link import Db, Row
from engrain.stores.postgres.locks import scope_comes
from engrain.stores.postgres.sql import load
from engrain.stores.relational.rows import write_time

if TYPE_CHECKING:
    from engrain.stores.postgres.handle import Handle

Answer = TypeVar("Answer")

_SQL = load("journal.sql")
_N, _UNTIL, _MARK = 0, 10, 16


class PostgresJournal:
    """A view of the store. Leases are judged by the server's clock, which is one for all workers; with a clock that was
    handed in, by that one."""

    def __init__(self, store: Handle) -> None:
        self._store = store

    # Tasks

    def claim(self, claim: Claim) -> Lease:
        def do(db: Db) -> Lease:
            self._store._add_scope(db, claim.scope)
            held = db.ask(_SQL["held"], (claim.scope.id, claim.task))
            now, clock = self._times(db)
            if not held.fetchall():
                self._add(db, claim, now)
            row = db.rows(_SQL["task"], (claim.scope.id, claim.task))[0]
            found = task_of(row)
            if found.status in ENDED_STATUSES:
                ended = found.ended_at or from_micros(now)
                return Lease(claim.scope, claim.task, claim.worker, found.epoch, ended, found.status)
            if found.worker not in (None, claim.dead or None) and not _over(row, now, clock):
                raise TaskClaimed(f"the task {found.task!r} is run by {found.worker}, until {found.until} at least.")
            until, mark = _lasting(now, clock, claim.seconds)
            db.run(
                _SQL["claim"],
                {"worker": claim.worker, "until": until, "mark": mark, "scope": claim.scope.id, "n": row[_N]},
            )
            return Lease(claim.scope, claim.task, claim.worker, found.epoch + 1, from_micros(until))

        return self._store._writing(claim.scope, do)

    def _add(self, db: Db, claim: Claim, now: int) -> None:
        values = {"scope": claim.scope.id, "task": claim.task, "goal": claim.goal, "version": claim.version}
        db.run(_SQL["add_task"], {**values, "now": now, "deadline": write_time(claim.deadline)})
        # Another may have begun it a moment before: then we wait for them here.
        db.run(_SQL["held"], (claim.scope.id, claim.task))

    def extend(self, lease: Lease, seconds: float) -> Lease:
        def do(page: Page) -> Lease:
            until, mark = _lasting(page.now, page.clock, seconds)
            page.db.run(_SQL["extend"], (until, mark, page.owner, page.task))
            return Lease(lease.scope, lease.task, lease.worker, lease.epoch, from_micros(until))

        return self._on_page(lease, do)

    def end(self, lease: Lease, end: TaskEnd) -> TaskRecord:
        return self._on_page(lease, lambda page: _ended(page.db, [(page.owner, page.task)], end, page.now)[0])

    def overrule(self, scope: Scope, task: str, end: TaskEnd) -> TaskRecord:
        def do(db: Db) -> TaskRecord:
            held = db.ask(_SQL["held"], (scope.id, task))
            now, _ = self._times(db)
            n, _, _, status = _known(held.fetchall(), task)
            if status in ENDED_STATUSES:
                raise Conflict(f"the task {task!r} has ended already: {status}.")
            return _ended(db, [(scope.id, n)], end, now, more=1)[0]

        return self._store._writing(scope, do)

    def task(self, scope: Scope, task: str) -> TaskRecord | None:
        rows = self._store._asked(scope, _SQL["task"], (scope.id, task))
        return task_of(rows[0]) if rows else None

    def tasks(self, query: TaskQuery) -> list[TaskRecord]:
        def do(db: Db) -> list[Row]:
            now, clock = self._now(db)
            values = {"scope": query.scope and query.scope.id, "status": list(query.status) or None}
            limits = {"stale": query.stale, "limit": query.limit}
            return db.rows(_SQL["tasks"], {**values, **limits, "now": now, "clock": clock})

        return [task_of(row) for row in self._store._reading(query.scope, do)]

    def expire(self, now: datetime) -> list[TaskRecord]:
        def do(db: Db) -> list[TaskRecord]:
            late = [(str(owner), n) for owner, n in db.rows(_SQL["overdue"], (to_micros(now),))]
            return _ended(db, late, TaskEnd("expired"), self._times(db)[0], keep_outcome=True) if late else []

        return self._store._writing(None, do)

    def prune(self, before: datetime) -> int:
        def do(db: Db) -> list[Row]:
            return db.rows(_SQL["prune"], (to_micros(before), self._store.erasing.held_scopes(db)))

        ((count,),) = self._store._writing(None, do)
        return int(count)

    def remove(self, scope: Scope, task: str) -> None:
        def do(db: Db) -> None:
            self._store.erasing.hold_stays(db, scope)
            n, _, _, status = _known(db.rows(_SQL["held"], (scope.id, task)), task)
            if status not in ENDED_STATUSES:
                raise Conflict(f"the task {task!r} has not ended: it is {status}.")
            self._store.erasing.check_held(db, scope)
            db.run(_SQL["remove"], (scope.id, n))

        self._store._writing(scope, do)

    # Steps

    def begin(self, lease: Lease, start: StepStart) -> StepRecord:
        return self._on_page(lease, lambda page: page.begin(lease, start))

    def finish(self, lease: Lease, end: StepEnd) -> StepRecord:
        return self._on_page(lease, lambda page: page.finish(end))

    def record(self, lease: Lease, start: StepStart, end: StepEnd) -> StepRecord:
        return self._on_page(lease, lambda page: page.record(lease, start, end))

    def resolve(self, scope: Scope, task: str, end: StepEnd) -> StepRecord:
        def do(db: Db) -> StepRecord:
            held = db.ask(_SQL["held"], (scope.id, task))
            now, clock = self._times(db)
            page = Page(db, scope.id, _known(held.fetchall(), task)[_N], now, clock)
            row = db.rows(_SQL["task"], (scope.id, task))[0]
            if page.status(end) == "intent" and row[_UNTIL] is not None and not _over(row, now, clock):
                found = task_of(row)
                raise TaskClaimed(f"{end.name!r} is under way, run by {found.worker}, until {found.until} at least.")
            return page.settle(end)

        return self._store._writing(scope, do)

    def steps(self, scope: Scope, task: str) -> list[StepRecord]:
        rows = self._store._asked(scope, _SQL["steps"], (scope.id, task))
        return [step_of(row) for row in rows]

    def unsettled(self, scope: Scope, task: str) -> list[StepRecord]:
        rows = self._store._reading(scope, lambda db: db.rows(_SQL["unsettled"], (scope.id, task)))
        return [step_of(row) for row in rows]

    # Snapshots and events

    def keep(self, lease: Lease, snapshot: str) -> None:
        self._on_page(lease, lambda page: page.keep(snapshot))

    def signal(self, scope: Scope, task: str, event: str, payload: str) -> bool:
        def do(db: Db) -> bool:
            # Refused while the user is erased: whether that is so, no lock of a row tells.
            scope_comes(db, self._store.erasing.user_mark(scope))
            return bool(db.rows(_SQL["add_event"], (scope.id, task, event, self._now(db)[0], payload)))

        return self._store._writing(scope, do)

    def event(self, scope: Scope, task: str, event: str) -> str | None:
        rows = self._store._asked(scope, _SQL["event"], (scope.id, task, event))
        return rows[0][0] if rows else None

    # Inside a transaction

    def open_steps(self, tx: Any, lease: Lease) -> Page:
        return self.page(tx.db, lease)

    def page(self, db: Db, lease: Lease) -> Page:
        """The lease's task, to write steps to; LeaseLost if it may no longer."""
        held = db.ask(_SQL["held"], (lease.scope.id, lease.task))
        now, clock = self._times(db)
        return Page(db, lease.scope.id, held_by(held.fetchall(), lease), now, clock)

    def _on_page(self, lease: Lease, do: Callable[[Page], Answer]) -> Answer:
        return self._store._writing(lease.scope, lambda db: do(self.page(db, lease)))

    def _times(self, db: Db) -> tuple[int, int | None]:
        """The time to record, and the server's own if leases go by it. Asked for after the task is locked, so that no
        step is recorded before one that the last holder recorded."""
        own = self._store._clock_micros()
        ((now, clock),) = db.rows(_SQL["times"], (own,))
        return now, clock if own is None else None

    def _now(self, db: Db) -> tuple[int, int | None]:
        """The same, to look at and not to record."""
        now = self._store._micros(db)
        return now, None if self._store._clock_micros() is not None else now


def _over(row: Row, now: int, clock: int | None) -> bool:
    """Whether a held task's lease has run out."""
    mark = row[_MARK]
    return bool(mark <= clock if clock is not None and mark is not None else row[_UNTIL] <= now)


def _lasting(now: int, clock: int | None, seconds: float) -> tuple[int, int | None]:
    lasts = timedelta(seconds=seconds) // timedelta(microseconds=1)
    return now + lasts, None if clock is None else clock + lasts


def _known(rows: list[Row], task: str) -> Row:
    if not rows:
        raise NotFound(f"there is no task {task!r} in this memory.")
    return rows[0]


def _ended(
    db: Db, tasks: list[tuple[str, int]], end: TaskEnd, now: int, more: int = 0, keep_outcome: bool = False
) -> list[TaskRecord]:
    scopes, numbers = [scope for scope, _ in tasks], [n for _, n in tasks]
    values = {"status": end.status, "outcome": None if keep_outcome else end.outcome, "more": more}
    where = {"scopes": scopes, "n": numbers}
    db.run(_SQL["end"], {**values, **where, "ended": now if end.status in ENDED_STATUSES else None})
    return [task_of(row) for row in db.rows(_SQL["by_number"], (scopes, numbers))]
