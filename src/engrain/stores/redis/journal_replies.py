"""What the journal's scripts answer, as values and errors of the core."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from engrain.core.clock import from_micros
from engrain.core.errors import Conflict, LeaseLost, NotFound, TaskClaimed
from engrain.core.journal import Claim, Lease, StepEnd, StepRecord, StepStart, TaskRecord
from engrain.core.scope import Scope

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
