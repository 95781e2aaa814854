"""The rules of a durable task's journal, on a state."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from datetime import datetime, timedelta

from engrain.core.errors import Conflict, LeaseLost, NotFound, TaskClaimed
from engrain.core.identity import Scope
from engrain.core.model.tasks import ENDED_STATUSES, Claim, Lease, StepEnd, StepRecord, StepStart, TaskEnd, TaskRecord
from engrain_conformance.reference.state import State

UNSETTLED = ("intent", "ambiguous")
FINAL = ("done", "skipped")


def claim(state: State, wish: Claim, now: datetime) -> Lease:
    task = state.tasks.get((wish.scope, wish.task)) or TaskRecord(
        wish.scope, wish.task, wish.goal, wish.version, "running", 0, None, None, now, deadline=wish.deadline
    )
    if task.status in ENDED_STATUSES:
        return Lease(wish.scope, wish.task, wish.worker, task.epoch, task.ended_at or now, task.status)
    if task.worker not in (None, wish.dead or None) and task.until is not None and task.until > now:
        raise TaskClaimed(f"the task {task.task!r} is run by {task.worker}, until {task.until} at least.")
    until = now + timedelta(seconds=wish.seconds)
    return lease_of(
        keep(state, replace(task, status="running", epoch=task.epoch + 1, worker=wish.worker, until=until), now)
    )


def held(state: State, lease: Lease) -> TaskRecord:
    """The task, if the lease may still write to it."""
    task = state.tasks.get((lease.scope, lease.task))
    if task is None or (task.worker, task.epoch) != (lease.worker, lease.epoch):
        raise LeaseLost(f"the lease of {lease.worker} on task {lease.task!r} is over.")
    return task


def lease_of(task: TaskRecord) -> Lease:
    return Lease(task.scope, task.task, task.worker or "", task.epoch, task.until or task.started_at, task.status)


def keep(state: State, task: TaskRecord, now: datetime) -> TaskRecord:
    state.tasks[task.scope, task.task] = task
    state.newest = now
    return task


def ended(task: TaskRecord, end: TaskEnd, now: datetime) -> TaskRecord:
    """With this status, and held by nobody."""
    when = now if end.status in ENDED_STATUSES else None
    return replace(task, status=end.status, outcome=end.outcome, ended_at=when, worker=None, until=None)


def begin(state: State, lease: Lease, start: StepStart, now: datetime, took: float = 0.0) -> StepRecord:
    held(state, lease)
    key = (lease.scope, lease.task, start.name, start.occurrence)
    there = state.steps.get(key)
    if there and (there.status in FINAL or start.attempt != there.attempt + 1):
        return there
    state.newest = now
    state.steps[key] = StepRecord(
        name=start.name,
        occurrence=start.occurrence,
        kind=start.kind,
        status="intent",
        attempt=start.attempt,
        epoch=lease.epoch,
        input=start.input,
        key=start.key,
        version=start.version,
        began_at=now - timedelta(seconds=took),
    )
    return state.steps[key]


def finish(state: State, lease: Lease, end: StepEnd, now: datetime) -> StepRecord:
    held(state, lease)
    there = step(state, lease.scope, lease.task, end)
    if there.status not in UNSETTLED and (there.status, there.result, there.error) == (
        end.status,
        end.result,
        end.error,
    ):
        return there
    return settle(state, (lease.scope, lease.task), end, now)


def settle(state: State, task: tuple[Scope, str], end: StepEnd, now: datetime) -> StepRecord:
    there = step(state, *task, end)
    if there.status not in UNSETTLED:
        raise Conflict(f"the step {end.name!r} of task {task[1]!r} is settled already: {there.status}.")
    state.newest = now
    if end.snapshot is not None:
        state.tasks[task] = replace(state.tasks[task], snapshot=end.snapshot)
    settled = replace(there, status=end.status, ended_at=now, result=end.result, error=end.error)
    state.steps[(*task, end.name, end.occurrence)] = settled
    return settled


def step(state: State, scope: Scope, task: str, end: StepEnd) -> StepRecord:
    there = state.steps.get((scope, task, end.name, end.occurrence))
    if there is None:
        raise NotFound(f"the step {end.name!r} ({end.occurrence}) of task {task!r} was not begun.")
    return there


def drop(state: State, old: Collection[tuple[Scope, str]]) -> None:
    state.tasks = {key: task for key, task in state.tasks.items() if key not in old}
    state.steps = {key: step for key, step in state.steps.items() if key[:2] not in old}
    state.events = {key: payload for key, payload in state.events.items() if key[:2] not in old}
