"""Durable tasks in Redis: claims, leases, steps, snapshots and events."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from engrain.core.clock import Clock, from_micros, system_clock, to_micros
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
from engrain.stores.composite import Door
from engrain.stores.redis.connection import Link, Registry, load, new_call

# The first word says what it is.
Reply = Sequence[Any]


def checked(reply: Reply, what: str, lease: Lease | None = None) -> Reply:
    """The reply, unless it says that nothing was done."""
    if reply[0] == "lost" and lease is not None:
        raise LeaseLost(f"{lease.worker} may no longer write to {what}: {_why_lost(*reply[1:])}.")
    if reply[0] == "missing":
        raise NotFound(f"there is no {what.removeprefix('the ')} in this scope.")
    if reply[0] == "settled":
        raise Conflict(f"{what} is settled already: {reply[1]}.")
    if reply[0] == "open":
        raise Conflict(f"{what} has not ended: it is {reply[1]}.")
    if reply[0] == "claimed":
        raise TaskClaimed(f"{what} is run by {reply[1]}, until {_moment(reply[2])} at least.")
    return reply


def _why_lost(status: str, worker: str) -> str:
    if not status:
        return "it is no longer there"
    return "another worker took it over" if worker else f"it is {status}"


def claimed(reply: Reply, claim: Claim) -> Lease:
    if checked(reply, f"the task {claim.task!r}")[0] == "over":
        status, epoch, ended = reply[1:]
        return Lease(claim.scope, claim.task, claim.worker, int(epoch), _moment(ended), status)
    epoch, until = reply[1:]
    return Lease(claim.scope, claim.task, claim.worker, int(epoch), _moment(until))


def extended(reply: Reply, lease: Lease) -> Lease:
    return replace(lease, until=_moment(reply[2]), status="running")


def task_of(scope: Scope, reply: Reply) -> TaskRecord:
    _, task, flat = reply
    return stands(scope, task, dict(zip(flat[::2], flat[1::2], strict=True)))


def stands(scope: Scope, task: str, fields: Mapping[str, str]) -> TaskRecord:
    return TaskRecord(
        scope=scope,
        task=task,
        goal=fields["goal"],
        version=fields["version"],
        status=fields["status"],  # type: ignore[arg-type]
        epoch=int(fields["epoch"]),
        worker=fields.get("worker"),
        until=_maybe(fields.get("until")),
        started_at=_moment(fields["started"]),
        ended_at=_maybe(fields.get("ended")),
        outcome=fields["outcome"],
        deadline=_maybe(fields.get("deadline")),
        snapshot=fields.get("snapshot"),
    )


def step_of(of: StepStart | StepEnd, reply: Reply) -> StepRecord:
    """A fresh one has just got the outcome that it was given, which is not sent back."""
    if reply[0] == "fresh" and isinstance(of, StepEnd):
        return _step(of.name, of.occurrence, reply[1], of.result, of.error)
    return _step(of.name, of.occurrence, *reply[1:])


def steps_of(fields: Mapping[str, str]) -> list[StepRecord]:
    """In the order they first began."""
    names = sorted((int(json.loads(value)[0]), name[1:]) for name, value in fields.items() if name[0] == "m")
    found = []
    for _, name in names:
        occurrence, _, own = name.partition(":")
        values = (fields.get(f"{part}{name}") for part in "re")
        found.append(_step(own, int(occurrence), fields[f"m{name}"], *values))
    return found


def own_name(name: str, occurrence: int) -> str:
    """A step's name among the fields of its task."""
    return f"{occurrence}:{name}"


def optional(value: str | None) -> str:
    return "" if value is None else f"={value}"


def _step(name: str, occurrence: int, told: str, result: str | None, error: str | None) -> StepRecord:
    _, kind, status, attempt, epoch, given, key, version, began, ended = json.loads(told)
    return StepRecord(
        name, occurrence, kind, status, int(attempt), int(epoch), given, key, version, _moment(began), _maybe(ended),
        result, error,
    )  # fmt: skip


def _moment(micros: str) -> datetime:
    return from_micros(int(micros))


def _maybe(micros: str | None) -> datetime | None:
    return _moment(micros) if micros else None


_LUA = load("journal.lua")
_PAGE = 100


class RedisJournal:
    """A view of the store. Leases are judged by the server's clock; with a clock that was handed in, by that one.

    Of a scope that is shut nothing is shown and no task begins; a worker that is at one loses it within a second."""

    def __init__(self, link: Link, clock: Clock, door: Door) -> None:
        self._link = link
        self._door = door
        self._clock = None if clock is system_clock else clock
        self._scopes = Registry(link, "tasks")

    # Tasks

    def claim(self, claim: Claim) -> Lease:
        self._prove_open(claim.scope)
        self._scopes.note(claim.scope, again=True)
        deadline = "" if claim.deadline is None else to_micros(claim.deadline)
        wish = (claim.worker, _micros(claim.seconds), claim.goal, claim.version, deadline, claim.dead)
        return claimed(self._run("claim", claim.scope, claim.task, *wish), claim)

    def extend(self, lease: Lease, seconds: float) -> Lease:
        return extended(self._held("extend", lease, _micros(seconds)), lease)

    def end(self, lease: Lease, end: TaskEnd) -> TaskRecord:
        return task_of(lease.scope, self._held("finish_task", lease, end.status, end.outcome))

    def overrule(self, scope: Scope, task: str, end: TaskEnd) -> TaskRecord:
        self._prove_open(scope)
        reply = self._run("overrule", scope, task, end.status, end.outcome)
        return task_of(scope, checked(reply, f"the task {task!r}"))

    def task(self, scope: Scope, task: str) -> TaskRecord | None:
        fields = None if self._door.shut(scope) else self._link.command("HGETALL", f"{base(scope)}task:{task}")
        return stands(scope, task, fields) if fields else None

    def tasks(self, query: TaskQuery) -> list[TaskRecord]:
        if query.scope is not None:
            return self._tasks(query.scope, query)
        scopes = [one.scope for page in self._scopes.pages() for one in page]
        found = [task for scope in dict.fromkeys(scopes) for task in self._tasks(scope, query)]
        return sorted(found, key=lambda task: task.started_at, reverse=True)[: query.limit]

    def expire(self, now: datetime) -> list[TaskRecord]:
        late = to_micros(now)
        return [
            task_of(scope, reply)
            for scope in self._scopes_with("due", str(late))
            for reply in self._until_none("expire", scope, late)
        ]

    def prune(self, before: datetime) -> int:
        old = to_micros(before)
        scopes = [scope for scope in self._scopes_with("ended", f"({old}") if not self._door.held(scope)]
        return sum(int(gone) for scope in scopes for gone in self._until_none("prune", scope, old))

    def remove(self, scope: Scope, task: str) -> None:
        self._door.check_held(scope)
        checked(self._run("remove", scope, task), f"the task {task!r}")

    # Steps

    def begin(self, lease: Lease, start: StepStart) -> StepRecord:
        name = own_name(start.name, start.occurrence)
        return step_of(start, self._held("begin", lease, name, *_start(start)))

    def finish(self, lease: Lease, end: StepEnd) -> StepRecord:
        reply = self._held("finish", lease, own_name(end.name, end.occurrence), *_end(end), optional(end.snapshot))
        return step_of(end, checked(reply, f"the step {end.name!r} ({end.occurrence})"))

    def record(self, lease: Lease, start: StepStart, end: StepEnd) -> StepRecord:
        name = own_name(start.name, start.occurrence)
        more = (optional(end.snapshot), _micros(end.took))
        return step_of(end, self._held("record", lease, name, *_start(start), *_end(end), *more))

    def resolve(self, scope: Scope, task: str, end: StepEnd) -> StepRecord:
        self._prove_open(scope)
        reply = self._run("resolve", scope, task, own_name(end.name, end.occurrence), *_end(end))
        return step_of(end, checked(reply, f"the step {end.name!r} ({end.occurrence}) of task {task!r}"))

    def steps(self, scope: Scope, task: str) -> list[StepRecord]:
        if self._door.shut(scope):
            return []
        return steps_of(self._link.command("HGETALL", f"{base(scope)}steps:{task}"))

    def unsettled(self, scope: Scope, task: str) -> list[StepRecord]:
        if self._door.shut(scope):
            return []
        flat = self._link.ask(_LUA["unsettled"], base(scope), [self._given(), "", task])
        return steps_of(dict(zip(flat[::2], flat[1::2], strict=True)))

    # Snapshots and events

    def keep(self, lease: Lease, snapshot: str) -> None:
        self._held("keep", lease, snapshot)

    def signal(self, scope: Scope, task: str, event: str, payload: str) -> bool:
        self._prove_open(scope)
        self._scopes.note(scope, again=True)
        return bool(self._run("signal", scope, task, event, payload)[1])

    def event(self, scope: Scope, task: str, event: str) -> str | None:
        if self._door.shut(scope):
            return None
        payload: str | None = self._link.command("HGET", f"{base(scope)}events:{task}", event)
        return payload

    # How scripts are asked

    def _run(self, name: str, scope: Scope, *args: str | int) -> Reply:
        reply: Reply = self._link.run(_LUA[name], base(scope), [self._given(), new_call(), *args])
        return reply

    def _held(self, name: str, lease: Lease, *args: str | int) -> Reply:
        if shut := self._door.lately_shut(lease.scope):
            raise LeaseLost(f"{lease.worker} may no longer write to task {lease.task!r}: {shut}")
        reply = self._run(name, lease.scope, lease.task, lease.worker, lease.epoch, *args)
        return checked(reply, f"task {lease.task!r}", lease)

    def _prove_open(self, scope: Scope) -> None:
        if shut := self._door.shut(scope):
            raise shut

    def _given(self) -> str:
        return "" if self._clock is None else str(to_micros(self._clock()))

    def _tasks(self, scope: Scope, query: TaskQuery) -> list[TaskRecord]:
        if self._door.shut(scope):
            return []
        # What has ended is kept for days: whoever looks for what is open does not go through it.
        open_only = query.stale or (query.status and not set(query.status) & set(ENDED_STATUSES))
        index, states, stale = "open" if open_only else "tasks", ",".join(query.status), "1" if query.stale else ""
        found: list[TaskRecord] = []
        below = "+inf"
        while below and len(found) < query.limit:
            wanted: list[str | int] = [self._given(), "", index, states, stale, below, _PAGE]
            last, page = self._link.ask(_LUA["tasks"], base(scope), wanted)
            found += [task_of(scope, reply) for reply in page]
            below = last and f"({last}"
        return found[: query.limit]

    def _scopes_with(self, index: str, until: str) -> Iterator[Scope]:
        """Those that have something up to a time; whoever has no tasks at all any more is let go of."""
        for page in self._scopes.pages():
            bases = [base(one.scope) for one in page]
            counts = self._link.commands([("ZCOUNT", f"{start}{index}", "-inf", until) for start in bases])
            yield from (one.scope for one, count in zip(page, counts, strict=True) if count)
            left = self._link.commands([("EXISTS", f"{start}tasks") for start in bases])
            self._scopes.forget([one for one, there in zip(page, left, strict=True) if not there])

    def _until_none(self, name: str, scope: Scope, until: int) -> Iterator[Any]:
        """Batch after batch: others come in between."""
        while found := self._run(name, scope, until, _PAGE):
            yield from found if isinstance(found, list) else [found]


def base(scope: Scope) -> str:
    return f"engrain:{{{scope.id}}}:tasks:"


def _start(start: StepStart) -> tuple[str | int, ...]:
    return (start.kind, start.input, start.key, start.version, start.attempt)


def _end(end: StepEnd) -> tuple[str, ...]:
    return (end.status, optional(end.result), optional(end.error))


def _micros(seconds: float) -> int:
    return timedelta(seconds=seconds) // timedelta(microseconds=1)
