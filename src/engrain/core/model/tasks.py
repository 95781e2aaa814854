"""Values of durable tasks: claims, leases, steps and their outcomes."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime
from typing import Literal

from engrain.core.errors import StoreCorrupt
from engrain.core.identity import Scope

TaskStatus = Literal["running", "waiting", "done", "failed", "parked", "cancelled", "expired"]
StepStatus = Literal["intent", "done", "failed", "ambiguous", "skipped"]
StepKind = Literal["step", "memory", "effect", "sleep", "event", "checkpoint"]
# The version of a task that is only a checkpoint.
CHECKPOINT_VERSION = "checkpoint"
ENDED_STATUSES: tuple[TaskStatus, ...] = ("done", "failed", "cancelled", "expired")


@dataclass(frozen=True, slots=True)
class Claim:
    """A request to run a task.

    The lease lasts `seconds` unless it is extended. An unfinished task becomes "expired" at `deadline`, which the first
    claim sets. `dead` names a worker whose process has ended: its lease need not expire first.
    """

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
    """A step is identified by (name, occurrence). `input` is a fingerprint of its explicit arguments."""

    name: str
    occurrence: int = 0
    kind: StepKind = "step"
    input: str = ""
    key: str = ""  # the idempotency key for the receiver of an effect
    version: str = ""
    attempt: int = 1


@dataclass(frozen=True, slots=True)
class StepEnd:
    """`result` is JSON in a versioned envelope. `snapshot` is the task's new working memory, if it changed.

    `took` is the duration in seconds, if the beginning was not recorded.
    """

    name: str
    occurrence: int = 0
    status: StepStatus = "done"
    result: str | None = None
    error: str | None = None
    took: float = 0.0
    snapshot: str | None = None


@dataclass(frozen=True, slots=True)
class StepWrite:
    """A step that is recorded together with its memory writes."""

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

    @property
    def settled(self) -> bool:
        return self.status not in ("intent", "ambiguous")

    def list_written(self) -> list[str | None]:
        """Return the ids that a memory step wrote. The store records them with no envelope."""
        try:
            found = json.loads(self.result or "[]")
            if isinstance(found, list) and all(isinstance(id, str | None) for id in found):
                return found
        except (ValueError, RecursionError):
            pass
        raise StoreCorrupt(f"the ids that step {self.name!r} wrote cannot be read. Run: engrain doctor.")

    def restarts(self, start: StepStart) -> bool:
        """Tell if this start begins the step again: the next attempt of a step that is neither done nor skipped."""
        return self.status not in ("done", "skipped") and start.attempt == self.attempt + 1

    def has_outcome(self, end: StepEnd) -> bool:
        return (self.status, self.result, self.error) == (end.status, end.result, end.error)


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
    """`scope=None` means all scopes, for recovery. `stale` selects tasks whose lease has expired."""

    scope: Scope | None = None
    status: tuple[TaskStatus, ...] = ()
    stale: bool = False
    limit: int = 100
