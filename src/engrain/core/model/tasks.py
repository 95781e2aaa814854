"""The values of a durable task: claims, leases, steps and their outcomes."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from engrain.core.identity import Scope

TaskStatus = Literal["running", "waiting", "done", "failed", "parked", "cancelled", "expired"]
StepStatus = Literal["intent", "done", "failed", "ambiguous", "skipped"]
StepKind = Literal["step", "memory", "effect", "sleep", "event", "checkpoint"]
# The version of a task that is nothing but a checkpoint.
CHECKPOINT_VERSION = "checkpoint"
ENDED_STATUSES: tuple[TaskStatus, ...] = ("done", "failed", "cancelled", "expired")


@dataclass(frozen=True, slots=True)
class Claim:
    """A wish to run a task. `seconds` is how long the lease lasts without a sign of life; `deadline`, kept from the
    first claim, is when an unfinished task becomes "expired"; `dead` names a worker whose process is known to have
    ended, so that its lease need not run out first."""

    scope: Scope
    task: str
    worker: str
    seconds: float = 30.0
    goal: str = ""
    version: str = ""
    deadline: datetime | None = None
    dead: str = ""


@dataclass(frozen=True, slots=True)
class Lease:
    scope: Scope
    task: str
    worker: str
    epoch: int
    until: datetime
    status: TaskStatus = "running"


@dataclass(frozen=True, slots=True)
class StepStart:
    """A step is named by (name, occurrence); `input` fingerprints its explicit arguments."""

    name: str
    occurrence: int = 0
    kind: StepKind = "step"
    input: str = ""
    key: str = ""  # the idempotency key handed to the receiver of an effect
    version: str = ""
    attempt: int = 1


@dataclass(frozen=True, slots=True)
class StepEnd:
    """`result` is a JSON text in a versioned envelope; `took` the seconds that the step ran, where its beginning was
    not recorded; `snapshot` what is kept with the task from now on, if that has changed."""

    name: str
    occurrence: int = 0
    status: StepStatus = "done"
    result: str | None = None
    error: str | None = None
    took: float = 0.0
    snapshot: str | None = None


@dataclass(frozen=True, slots=True)
class StepWrite:
    """A step recorded together with the memory writes that it made."""

    lease: Lease
    start: StepStart
    end: StepEnd


@dataclass(frozen=True, slots=True)
class StepRecord:
    name: str
    occurrence: int
    kind: StepKind
    status: StepStatus
    attempt: int
    epoch: int
    input: str
    key: str
    version: str
    began_at: datetime
    ended_at: datetime | None = None
    result: str | None = None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class TaskEnd:
    status: TaskStatus
    outcome: str = ""


@dataclass(frozen=True, slots=True)
class TaskRecord:
    scope: Scope
    task: str
    goal: str
    version: str
    status: TaskStatus
    epoch: int
    worker: str | None
    until: datetime | None
    started_at: datetime
    ended_at: datetime | None = None
    outcome: str = ""
    deadline: datetime | None = None
    snapshot: str | None = None


@dataclass(frozen=True, slots=True)
class TaskQuery:
    """`scope=None` looks through all scopes, for recovery; `stale` keeps only those whose lease has run out."""

    scope: Scope | None = None
    status: tuple[TaskStatus, ...] = ()
    stale: bool = False
    limit: int = 100
