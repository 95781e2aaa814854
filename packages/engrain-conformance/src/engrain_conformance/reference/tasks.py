"""Durable tasks in memory."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from engrain.core.errors import Conflict, LeaseLost, NotFound, TaskClaimed
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
from engrain_conformance.reference.state import State, StateView, check_not_held, is_held, reads, writes


class ReferenceTasks(StateView):
    @writes
    def claim(self, state: State, claim: Claim) -> Lease:
        state.check_writable(claim.scope)
        return claim_task(state, claim, self.holder.now())

    @writes
    def extend(self, state: State, lease: Lease, seconds: float) -> Lease:
        now = self.holder.now()
        task = replace(check_lease(state, lease), until=now + timedelta(seconds=seconds))
        return make_lease(store_task(state, task, now))

    @writes
    def begin(self, state: State, lease: Lease, start: StepStart) -> StepRecord:
        return begin_step(state, lease, start, self.holder.now())

    @writes
    def finish(self, state: State, lease: Lease, end: StepEnd) -> StepRecord:
        return finish_step(state, lease, end, self.holder.now())

    @writes
    def record(self, state: State, lease: Lease, start: StepStart, end: StepEnd) -> StepRecord:
        now = self.holder.now()
        begun = begin_step(state, lease, start, now, end.took)
        return begun if begun.settled else finish_step(state, lease, end, now)

    @writes
    def end(self, state: State, lease: Lease, end: TaskEnd) -> TaskRecord:
        now = self.holder.now()
        return store_task(state, end_task(check_lease(state, lease), end, now), now)

    @reads
    def steps(self, state: State, scope: Scope, task: str) -> list[StepRecord]:
        return [step for key, step in state.steps.items() if key[:2] == (scope, task)]

    def unsettled(self, scope: Scope, task: str) -> list[StepRecord]:
        return [step for step in self.steps(scope, task) if not step.settled]

    @reads
    def task(self, state: State, scope: Scope, task: str) -> TaskRecord | None:
        return state.tasks.get((scope, task))

    @reads
    def tasks(self, state: State, query: TaskQuery) -> list[TaskRecord]:
        now = self.holder.now()
        found = [
            task
            for task in reversed(state.tasks.values())
            if query.scope in (None, task.scope)
            and (not query.status or task.status in query.status)
            and (not query.stale or (task.until is not None and task.until <= now))
        ]
        return sorted(found, key=lambda task: task.started_at, reverse=True)[: query.limit]

    @writes
    def resolve(self, state: State, scope: Scope, task: str, end: StepEnd) -> StepRecord:
        now = self.holder.now()
        there, held = find_step(state, scope, task, end), state.tasks[scope, task]
        if there.status == "intent" and held.until is not None and held.until > now:
            raise TaskClaimed(f"{end.name!r} is under way, run by {held.worker}, until {held.until} at least.")
        return settle_step(state, (scope, task), end, now)

    @writes
    def keep(self, state: State, lease: Lease, snapshot: str) -> None:
        store_task(state, replace(check_lease(state, lease), snapshot=snapshot), self.holder.now())

    @writes
    def signal(self, state: State, scope: Scope, task: str, event: str, payload: str) -> bool:
        first = (scope, task, event) not in state.events
        state.events.setdefault((scope, task, event), payload)
        return first

    @reads
    def event(self, state: State, scope: Scope, task: str, event: str) -> str | None:
        return state.events.get((scope, task, event))

    @writes
    def overrule(self, state: State, scope: Scope, task: str, end: TaskEnd) -> TaskRecord:
        there = state.tasks.get((scope, task))
        if there is None:
            raise NotFound(f"there is no task {task!r} in this scope.")
        if there.status in ENDED_STATUSES:
            raise Conflict(f"the task {task!r} has ended already: {there.status}.")
        now = self.holder.now()
        return store_task(state, end_task(replace(there, epoch=there.epoch + 1), end, now), now)

    @writes
    def expire(self, state: State, now: datetime) -> list[TaskRecord]:
        moment = self.holder.now()
        over = [
            task
            for task in state.hide_blocked().tasks.values()
            if task.status not in ENDED_STATUSES and task.deadline is not None and task.deadline <= now
        ]
        return [store_task(state, end_task(task, TaskEnd("expired", task.outcome), moment), moment) for task in over]

    @writes
    def prune(self, state: State, before: datetime) -> int:
        old = {key for key, task in state.tasks.items() if task.ended_at is not None and task.ended_at < before}
        old = {key for key in old if not is_held(state, key[0])}
        drop_tasks(state, old)
        return len(old)

    @writes
    def remove(self, state: State, scope: Scope, task: str) -> None:
        there = state.tasks.get((scope, task))
        if there is None:
            raise NotFound(f"there is no task {task!r} in this scope.")
        if there.status not in ENDED_STATUSES:
            raise Conflict(f"the task {task!r} has not ended: it is {there.status}.")
        check_not_held(state, scope)
        drop_tasks(state, {(scope, task)})


def claim_task(state: State, claim: Claim, now: datetime) -> Lease:
    task = state.tasks.get((claim.scope, claim.task)) or TaskRecord(
        claim.scope, claim.task, claim.goal, claim.version, "running", 0, None, None, now, deadline=claim.deadline
    )
    if task.status in ENDED_STATUSES:
        return Lease(claim.scope, claim.task, claim.worker, task.epoch, task.ended_at or now, task.status)
    if task.worker not in (None, claim.dead or None) and task.until is not None and task.until > now:
        raise TaskClaimed(f"the task {task.task!r} is run by {task.worker}, until {task.until} at least.")
    until = now + timedelta(seconds=claim.seconds)
    return make_lease(
        store_task(state, replace(task, status="running", epoch=task.epoch + 1, worker=claim.worker, until=until), now)
    )


def check_lease(state: State, lease: Lease) -> TaskRecord:
    """Return the task. LeaseLost if the lease may no longer write to it."""
    task = state.tasks.get((lease.scope, lease.task))
    if task is None or (task.worker, task.epoch) != (lease.worker, lease.epoch):
        raise LeaseLost(f"the lease of {lease.worker} on task {lease.task!r} is over.")
    return task


def make_lease(task: TaskRecord) -> Lease:
    return Lease(task.scope, task.task, task.worker or "", task.epoch, task.until or task.started_at, task.status)


def store_task(state: State, task: TaskRecord, now: datetime) -> TaskRecord:
    state.tasks[task.scope, task.task] = task
    state.newest = now
    return task


def end_task(task: TaskRecord, end: TaskEnd, now: datetime) -> TaskRecord:
    """The task with its final status and without a worker."""
    when = now if end.status in ENDED_STATUSES else None
    return replace(task, status=end.status, outcome=end.outcome, ended_at=when, worker=None, until=None)


def begin_step(state: State, lease: Lease, start: StepStart, now: datetime, took: float = 0.0) -> StepRecord:
    check_lease(state, lease)
    key = (lease.scope, lease.task, start.name, start.occurrence)
    there = state.steps.get(key)
    if there and not there.restarts(start):
        return there
    state.newest = now
    names = ("name", "occurrence", "kind", "attempt", "input", "key", "version")
    given: dict[str, Any] = {name: getattr(start, name) for name in names}
    began = now - timedelta(seconds=took)
    state.steps[key] = StepRecord(status="intent", epoch=lease.epoch, began_at=began, **given)
    return state.steps[key]


def finish_step(state: State, lease: Lease, end: StepEnd, now: datetime) -> StepRecord:
    check_lease(state, lease)
    there = find_step(state, lease.scope, lease.task, end)
    if there.settled and there.has_outcome(end):
        return there
    return settle_step(state, (lease.scope, lease.task), end, now)


def settle_step(state: State, task: tuple[Scope, str], end: StepEnd, now: datetime) -> StepRecord:
    there = find_step(state, *task, end)
    if there.settled:
        raise Conflict(f"the step {end.name!r} of task {task[1]!r} is settled already: {there.status}.")
    state.newest = now
    if end.snapshot is not None:
        state.tasks[task] = replace(state.tasks[task], snapshot=end.snapshot)
    settled = replace(there, status=end.status, ended_at=now, result=end.result, error=end.error)
    state.steps[(*task, end.name, end.occurrence)] = settled
    return settled


def find_step(state: State, scope: Scope, task: str, end: StepEnd) -> StepRecord:
    there = state.steps.get((scope, task, end.name, end.occurrence))
    if there is None:
        raise NotFound(f"the step {end.name!r} ({end.occurrence}) of task {task!r} was not begun.")
    return there


def drop_tasks(state: State, old: Collection[tuple[Scope, str]]) -> None:
    state.tasks = {key: task for key, task in state.tasks.items() if key not in old}
    state.steps = {key: step for key, step in state.steps.items() if key[:2] not in old}
    state.events = {key: payload for key, payload in state.events.items() if key[:2] not in old}
