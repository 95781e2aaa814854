"""Keep durable tasks in Redis: claims, leases, steps, snapshots and events."""

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
    TaskStatus,
)
from engrain.stores.composite import ErasureGuard
from engrain.stores.redis.connection import (
    RedisConnection,
    ScopeRegistry,
    load_scripts,
    new_call_id,
    pair_fields,
    parse_time,
)

# The first element names the kind of reply.
Reply = Sequence[Any]


def check_reply(reply: Reply, what: str, lease: Lease | None = None) -> Reply:
    """Return the reply, or raise the error that it stands for."""
    if reply[0] == "lost" and lease is not None:
        _, status, worker = reply
        why = ("another worker took it over" if worker else f"it is {status}") if status else "it is no longer there"
        raise LeaseLost(f"{lease.worker} may no longer write to {what}: {why}.")
    if reply[0] == "missing":
        raise NotFound(f"there is no {what.removeprefix('the ')} in this scope.")
    if reply[0] == "settled":
        raise Conflict(f"{what} is settled already: {reply[1]}.")
    if reply[0] == "open":
        raise Conflict(f"{what} has not ended: it is {reply[1]}.")
    if reply[0] == "claimed":
        raise TaskClaimed(f"{what} is run by {reply[1]}, until {parse_time(reply[2])} at least.")
    return reply


def parse_task_reply(scope: Scope, reply: Reply) -> TaskRecord:
    _, task, flat = reply
    return decode_task(scope, task, pair_fields(flat))


def decode_task(scope: Scope, task: str, fields: Mapping[str, str]) -> TaskRecord:
    return TaskRecord(
        scope=scope,
        task=task,
        goal=fields["goal"],
        version=fields["version"],
        status=fields["status"],  # type: ignore[arg-type]
        epoch=int(fields["epoch"]),
        worker=fields.get("worker"),
        until=parse_time(fields.get("until")),
        started_at=from_micros(int(fields["started"])),
        ended_at=parse_time(fields.get("ended")),
        outcome=fields["outcome"],
        deadline=parse_time(fields.get("deadline")),
        snapshot=fields.get("snapshot"),
    )


def parse_step_reply(of: StepStart | StepEnd, reply: Reply) -> StepRecord:
    """Decode a step. A fresh one has the outcome that was just sent, which the server does not send back."""
    if reply[0] == "fresh" and isinstance(of, StepEnd):
        return _decode_step(of.name, of.occurrence, reply[1], of.result, of.error)
    return _decode_step(of.name, of.occurrence, *reply[1:])


def decode_steps(fields: Mapping[str, str]) -> list[StepRecord]:
    """Decode the steps in the order they first began."""
    names = sorted((int(json.loads(value)[0]), name[1:]) for name, value in fields.items() if name[0] == "m")
    found = []
    for _, name in names:
        occurrence, _, own = name.partition(":")
        values = (fields.get(f"{part}{name}") for part in "re")
        found.append(_decode_step(own, int(occurrence), fields[f"m{name}"], *values))
    return found


def step_field(name: str, occurrence: int) -> str:
    """Return the name of a step's fields in the hash of its task."""
    return f"{occurrence}:{name}"


def encode_optional(value: str | None) -> str:
    return "" if value is None else f"={value}"


def _decode_step(name: str, occurrence: int, encoded: str, result: str | None, error: str | None) -> StepRecord:
    _, kind, status, attempt, epoch, input_, key, version, began, ended = json.loads(encoded)
    return StepRecord(
        name, occurrence, kind, status, int(attempt), int(epoch), input_, key, version, from_micros(int(began)),
        parse_time(ended), result, error,
    )  # fmt: skip


_LUA = load_scripts("journal.lua")
_PAGE_SIZE = 100


class RedisJournal:
    """The `journal` port of a RedisStore. The server's clock decides about leases, unless a clock was passed.

    A blocked scope shows nothing and starts no task. A worker of its task loses the lease within a second.
    """

    def __init__(self, link: RedisConnection, clock: Clock, guard: ErasureGuard) -> None:
        self._link = link
        self._guard = guard
        self._clock = None if clock is system_clock else clock
        self._scopes = ScopeRegistry(link, "tasks")

    # Tasks

    def claim(self, claim: Claim) -> Lease:
        self._check_open(claim.scope)
        self._scopes.note(claim.scope, again=True)
        deadline = "" if claim.deadline is None else to_micros(claim.deadline)
        wish = (claim.worker, _to_micros(claim.seconds), claim.goal, claim.version, deadline, claim.dead)
        reply = check_reply(self._run("claim", claim.scope, claim.task, *wish), f"the task {claim.task!r}")
        status: TaskStatus = reply[1] if reply[0] == "over" else "running"
        epoch, until = map(int, reply[-2:])
        return Lease(claim.scope, claim.task, claim.worker, epoch, from_micros(until), status)

    def extend(self, lease: Lease, seconds: float) -> Lease:
        reply = self._run_with_lease("extend", lease, _to_micros(seconds))
        return replace(lease, until=from_micros(int(reply[2])), status="running")

    def end(self, lease: Lease, end: TaskEnd) -> TaskRecord:
        return parse_task_reply(lease.scope, self._run_with_lease("finish_task", lease, end.status, end.outcome))

    def overrule(self, scope: Scope, task: str, end: TaskEnd) -> TaskRecord:
        self._check_open(scope)
        reply = self._run("overrule", scope, task, end.status, end.outcome)
        return parse_task_reply(scope, check_reply(reply, f"the task {task!r}"))

    def task(self, scope: Scope, task: str) -> TaskRecord | None:
        if self._guard.find_block(scope):
            return None
        fields = self._link.command("HGETALL", f"{task_prefix(scope)}task:{task}")
        return decode_task(scope, task, fields) if fields else None

    def tasks(self, query: TaskQuery) -> list[TaskRecord]:
        if query.scope is not None:
            return self._tasks(query.scope, query)
        scopes = [entry.scope for page in self._scopes.pages() for entry in page]
        found = [task for scope in dict.fromkeys(scopes) for task in self._tasks(scope, query)]
        return sorted(found, key=lambda task: task.started_at, reverse=True)[: query.limit]

    def expire(self, now: datetime) -> list[TaskRecord]:
        late = to_micros(now)
        return [
            parse_task_reply(scope, reply)
            for scope in self._scopes_with("due", str(late))
            for reply in self._until_none("expire", scope, late)
        ]

    def prune(self, before: datetime) -> int:
        old = to_micros(before)
        scopes = [scope for scope in self._scopes_with("ended", f"({old}") if not self._guard.has_hold(scope)]
        return sum(int(gone) for scope in scopes for gone in self._until_none("prune", scope, old))

    def remove(self, scope: Scope, task: str) -> None:
        self._guard.check_no_hold(scope)
        check_reply(self._run("remove", scope, task), f"the task {task!r}")

    # Steps

    def begin(self, lease: Lease, start: StepStart) -> StepRecord:
        return parse_step_reply(start, self._run_with_lease("begin", lease, *_start_arguments(start)))

    def finish(self, lease: Lease, end: StepEnd) -> StepRecord:
        name = step_field(end.name, end.occurrence)
        reply = self._run_with_lease("finish", lease, name, *_end_arguments(end), encode_optional(end.snapshot))
        return parse_step_reply(end, check_reply(reply, f"the step {end.name!r} ({end.occurrence})"))

    def record(self, lease: Lease, start: StepStart, end: StepEnd) -> StepRecord:
        more = (encode_optional(end.snapshot), _to_micros(end.took))
        reply = self._run_with_lease("record", lease, *_start_arguments(start), *_end_arguments(end), *more)
        return parse_step_reply(end, reply)

    def resolve(self, scope: Scope, task: str, end: StepEnd) -> StepRecord:
        self._check_open(scope)
        reply = self._run("resolve", scope, task, step_field(end.name, end.occurrence), *_end_arguments(end))
        return parse_step_reply(end, check_reply(reply, f"the step {end.name!r} ({end.occurrence}) of task {task!r}"))

    def steps(self, scope: Scope, task: str) -> list[StepRecord]:
        if self._guard.find_block(scope):
            return []
        return decode_steps(self._link.command("HGETALL", f"{task_prefix(scope)}steps:{task}"))

    def unsettled(self, scope: Scope, task: str) -> list[StepRecord]:
        if self._guard.find_block(scope):
            return []
        flat = self._link.ask(_LUA["unsettled"], task_prefix(scope), [self._time_argument(), "", task])
        return decode_steps(pair_fields(flat))

    # Snapshots and events

    def keep(self, lease: Lease, snapshot: str) -> None:
        self._run_with_lease("keep", lease, snapshot)

    def signal(self, scope: Scope, task: str, event: str, payload: str) -> bool:
        self._check_open(scope)
        self._scopes.note(scope, again=True)
        return bool(self._run("signal", scope, task, event, payload)[1])

    def event(self, scope: Scope, task: str, event: str) -> str | None:
        if self._guard.find_block(scope):
            return None
        payload: str | None = self._link.command("HGET", f"{task_prefix(scope)}events:{task}", event)
        return payload

    # Running scripts

    def _run(self, name: str, scope: Scope, *args: str | int) -> Reply:
        reply: Reply = self._link.run(_LUA[name], task_prefix(scope), [self._time_argument(), new_call_id(), *args])
        return reply

    def _run_with_lease(self, name: str, lease: Lease, *args: str | int) -> Reply:
        if shut := self._guard.find_block_cached(lease.scope):
            raise LeaseLost(f"{lease.worker} may no longer write to task {lease.task!r}: {shut}")
        reply = self._run(name, lease.scope, lease.task, lease.worker, lease.epoch, *args)
        return check_reply(reply, f"task {lease.task!r}", lease)

    def _check_open(self, scope: Scope) -> None:
        if shut := self._guard.find_block(scope):
            raise shut

    def _time_argument(self) -> str:
        return "" if self._clock is None else str(to_micros(self._clock()))

    def _tasks(self, scope: Scope, query: TaskQuery) -> list[TaskRecord]:
        if self._guard.find_block(scope):
            return []
        # Ended tasks are kept for days: a query for open ones does not read them.
        open_only = query.stale or (query.status and not set(query.status) & set(ENDED_STATUSES))
        index, states, stale = "open" if open_only else "tasks", ",".join(query.status), "1" if query.stale else ""
        found: list[TaskRecord] = []
        below = "+inf"
        while below and len(found) < query.limit:
            wanted: list[str | int] = [self._time_argument(), "", index, states, stale, below, _PAGE_SIZE]
            last, page = self._link.ask(_LUA["tasks"], task_prefix(scope), wanted)
            found += [parse_task_reply(scope, reply) for reply in page]
            below = last and f"({last}"
        return found[: query.limit]

    def _scopes_with(self, index: str, until: str) -> Iterator[Scope]:
        """Yield the scopes with entries up to a time, and unlist those without any tasks."""
        for page in self._scopes.pages():
            bases = [task_prefix(entry.scope) for entry in page]
            counts = self._link.commands([("ZCOUNT", f"{start}{index}", "-inf", until) for start in bases])
            yield from (entry.scope for entry, count in zip(page, counts, strict=True) if count)
            left = self._link.commands([("EXISTS", f"{start}tasks") for start in bases])
            self._scopes.forget([entry for entry, there in zip(page, left, strict=True) if not there])

    def _until_none(self, name: str, scope: Scope, until: int) -> Iterator[Any]:
        """Run a script batch by batch, so that other calls get their turn."""
        while found := self._run(name, scope, until, _PAGE_SIZE):
            yield from found if isinstance(found, list) else [found]


def task_prefix(scope: Scope) -> str:
    return f"engrain:{{{scope.id}}}:tasks:"


def _start_arguments(start: StepStart) -> tuple[str | int, ...]:
    name = step_field(start.name, start.occurrence)
    return (name, start.kind, start.input, start.key, start.version, start.attempt)


def _end_arguments(end: StepEnd) -> tuple[str, ...]:
    return (end.status, encode_optional(end.result), encode_optional(end.error))


def _to_micros(seconds: float) -> int:
    return timedelta(seconds=seconds) // timedelta(microseconds=1)
