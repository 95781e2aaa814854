"""The contract of durable tasks."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from engrain.core.identity import Scope
from engrain.core.model.tasks import Claim, Lease, StepEnd, StepRecord, StepStart, TaskEnd, TaskQuery, TaskRecord


class TaskJournal(Protocol):
    """Tasks and their steps. If one store has all the ports, this one is its `journal`.

    The store's clock decides about leases. Every write carries the lease's epoch and worker, which are checked inside
    the transaction that writes. A stale lease raises LeaseLost and changes nothing; so does one that was given back, or
    whose task was pruned. An expired lease that nobody has taken over still writes.
    """

    def claim(self, claim: Claim) -> Lease:
        """Claim a new task, or one whose lease has expired or was released.

        It is `running`, and the epoch rises by one.

        Goal, version and deadline stay those of the first claim. A lease held by the worker that the claim calls `dead`
        has expired. TaskClaimed names the worker that holds the lease. A finished task is returned with a lease that
        cannot write, and whose `status` says so.
        """

    def extend(self, lease: Lease, seconds: float) -> Lease:
        """Let the lease last `seconds` from now."""

    def begin(self, lease: Lease, start: StepStart) -> StepRecord:
        """Record the intent of a step, under the lease's epoch.

        An existing step is returned unchanged, unless `start.attempt` is one more than its attempt: then it begins
        again, but never once it is done or skipped.
        """

    def finish(self, lease: Lease, end: StepEnd) -> StepRecord:
        """Record the outcome of a step that was begun; NotFound if it was not.

        A settled step (neither intent nor ambiguous) stays: the same outcome again changes nothing, another is a
        Conflict. A snapshot in `end` is stored in the same transaction, as by `keep`. The same holds for `record` and
        for a memory step.
        """

    def record(self, lease: Lease, start: StepStart, end: StepEnd) -> StepRecord:
        """Do begin and finish in one transaction, for a step whose beginning nobody needs to know.

        A settled step is returned unchanged. A step that begins with this call began `end.took` seconds ago.
        """

    def end(self, lease: Lease, end: TaskEnd) -> TaskRecord:
        """Set the task's status and outcome, and give the lease back. `ended_at` is set for a status in ENDED."""

    def steps(self, scope: Scope, task: str) -> list[StepRecord]:
        """Return the steps in the order they first began."""

    def unsettled(self, scope: Scope, task: str) -> list[StepRecord]:
        """Return the intended and ambiguous steps, without reading the others: a task may have done thousands."""

    def task(self, scope: Scope, task: str) -> TaskRecord | None:
        """Return the task; None if there is none, or if it was pruned."""

    def tasks(self, query: TaskQuery) -> list[TaskRecord]:
        """Return the tasks, newest start first."""

    def resolve(self, scope: Scope, task: str, end: StepEnd) -> StepRecord:
        """Settle an ambiguous or intended step without a lease, by the decision of a person or a probe.

        Conflict if it is settled already, NotFound if it was never begun. TaskClaimed if it is an intent and its task's
        lease has not expired: a worker may be doing it right now.
        """

    def keep(self, lease: Lease, snapshot: str) -> None:
        """Store the task's working memory, replacing the previous one."""

    def signal(self, scope: Scope, task: str, event: str, payload: str) -> bool:
        """Deliver an event to a task, which need not have begun. False if an event of that name exists already."""

    def event(self, scope: Scope, task: str, event: str) -> str | None:
        """Return the payload of a delivered event; None if it was not delivered."""

    def overrule(self, scope: Scope, task: str, end: TaskEnd) -> TaskRecord:
        """Park, cancel or end a task without a lease, by a person's decision.

        The epoch rises, so that a worker that still runs the task can no longer write. NotFound if there is no such
        task, Conflict if it has ended.
        """

    def expire(self, now: datetime) -> list[TaskRecord]:
        """Set unfinished tasks of any scope whose deadline is not after now to "expired", and return them.

        Their leases write no more, and their steps are kept.
        """

    def prune(self, before: datetime) -> int:
        """Remove tasks of any scope that ended before then, with their steps and events. Return how many.

        Never removes a task that has not ended.
        """

    def remove(self, scope: Scope, task: str) -> None:
        """Remove this task, with its steps and events. NotFound if there is no such task, Conflict if it has not ended.

        If the items are in the same store, `purge` removes the bytes.
        """
