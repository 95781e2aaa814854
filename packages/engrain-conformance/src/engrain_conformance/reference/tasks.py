"""Durable tasks in memory: the oracle of the TaskJournal port."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

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
from engrain_conformance.reference import journal
from engrain_conformance.reference.state import Holder, check_held, held


class Tasks:
    """A view of the store: its `expire` is not that of the episodes."""

    def __init__(self, holder: Holder) -> None:
        self._holder = holder

    def claim(self, claim: Claim) -> Lease:
        with self._holder.writing() as state:
            state.refuse(claim.scope)
            return journal.claim(state, claim, self._holder.now())

    def extend(self, lease: Lease, seconds: float) -> Lease:
        with self._holder.writing() as state:
            now = self._holder.now()
            task = replace(journal.held(state, lease), until=now + timedelta(seconds=seconds))
            return journal.lease_of(journal.keep(state, task, now))

    def begin(self, lease: Lease, start: StepStart) -> StepRecord:
        with self._holder.writing() as state:
            return journal.begin(state, lease, start, self._holder.now())

    def finish(self, lease: Lease, end: StepEnd) -> StepRecord:
        with self._holder.writing() as state:
            return journal.finish(state, lease, end, self._holder.now())

    def record(self, lease: Lease, start: StepStart, end: StepEnd) -> StepRecord:
        with self._holder.writing() as state:
            now = self._holder.now()
            begun = journal.begin(state, lease, start, now, end.took)
            return journal.finish(state, lease, end, now) if begun.status in journal.UNSETTLED else begun

    def end(self, lease: Lease, end: TaskEnd) -> TaskRecord:
        with self._holder.writing() as state:
            now = self._holder.now()
            return journal.keep(state, journal.ended(journal.held(state, lease), end, now), now)

    def steps(self, scope: Scope, task: str) -> list[StepRecord]:
        with self._holder.reading() as state:
            return [step for key, step in state.steps.items() if key[:2] == (scope, task)]

    def unsettled(self, scope: Scope, task: str) -> list[StepRecord]:
        return [step for step in self.steps(scope, task) if step.status in journal.UNSETTLED]

    def task(self, scope: Scope, task: str) -> TaskRecord | None:
        with self._holder.reading() as state:
            return state.tasks.get((scope, task))

    def tasks(self, query: TaskQuery) -> list[TaskRecord]:
        with self._holder.reading() as state:
            now = self._holder.now()
            found = [
                task
                for task in reversed(state.tasks.values())
                if query.scope in (None, task.scope)
                and (not query.status or task.status in query.status)
                and (not query.stale or (task.until is not None and task.until <= now))
            ]
            return sorted(found, key=lambda task: task.started_at, reverse=True)[: query.limit]

    def resolve(self, scope: Scope, task: str, end: StepEnd) -> StepRecord:
        with self._holder.writing() as state:
            now = self._holder.now()
            there, held = journal.step(state, scope, task, end), state.tasks[scope, task]
            if there.status == "intent" and held.until is not None and held.until > now:
                raise TaskClaimed(f"{end.name!r} is under way, run by {held.worker}, until {held.until} at least.")
            return journal.settle(state, (scope, task), end, now)

    def keep(self, lease: Lease, snapshot: str) -> None:
        with self._holder.writing() as state:
            journal.keep(state, replace(journal.held(state, lease), snapshot=snapshot), self._holder.now())

    def signal(self, scope: Scope, task: str, event: str, payload: str) -> bool:
        with self._holder.writing() as state:
            first = (scope, task, event) not in state.events
            state.events.setdefault((scope, task, event), payload)
            return first

    def event(self, scope: Scope, task: str, event: str) -> str | None:
        with self._holder.reading() as state:
            return state.events.get((scope, task, event))

    def overrule(self, scope: Scope, task: str, end: TaskEnd) -> TaskRecord:
        with self._holder.writing() as state:
            there = state.tasks.get((scope, task))
            if there is None:
                raise NotFound(f"there is no task {task!r} in this scope.")
            if there.status in ENDED_STATUSES:
                raise Conflict(f"the task {task!r} has ended already: {there.status}.")
            now = self._holder.now()
            return journal.keep(state, journal.ended(replace(there, epoch=there.epoch + 1), end, now), now)

    def expire(self, now: datetime) -> list[TaskRecord]:
        with self._holder.writing() as state:
            moment = self._holder.now()
            over = [
                task
                for task in state.open().tasks.values()
                if task.status not in ENDED_STATUSES and task.deadline is not None and task.deadline <= now
            ]
            return [
                journal.keep(state, journal.ended(one, TaskEnd("expired", one.outcome), moment), moment) for one in over
            ]

    def prune(self, before: datetime) -> int:
        with self._holder.writing() as state:
            old = {key for key, task in state.tasks.items() if task.ended_at is not None and task.ended_at < before}
            old = {key for key in old if not held(state, self._holder._key, key[0])}
            journal.drop(state, old)
            return len(old)

    def remove(self, scope: Scope, task: str) -> None:
        with self._holder.writing() as state:
            there = state.tasks.get((scope, task))
            if there is None:
                raise NotFound(f"there is no task {task!r} in this scope.")
            if there.status not in ENDED_STATUSES:
                raise Conflict(f"the task {task!r} has not ended: it is {there.status}.")
            check_held(state, self._holder._key, scope)
            journal.drop(state, {(scope, task)})
