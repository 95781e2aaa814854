"""The contract of durable tasks."""

from __future__ import annotations

from datetime import datetime
from typing import Protocol

from engrain.core.identity import Scope
from engrain.core.model.tasks import Claim, Lease, StepEnd, StepRecord, StepStart, TaskEnd, TaskQuery, TaskRecord


class TaskJournal(Protocol):
    """Tasks and their steps. Leases are judged by the store's clock; every write carries the lease's epoch and worker,
    which are checked inside the transaction that writes: a stale one raises LeaseLost and changes nothing, and so does
    one that was given back, or whose task was pruned. A lease that ran out and that nobody has taken over since still
    writes. Where one store has all the ports, this one is its `journal`."""

    def claim(self, claim: Claim) -> Lease:
        """A new task, or one whose lease has run out or was released: it is `running`, the epoch rises by one; goal,
        version and deadline stay those of the first claim. A lease held by the worker that the claim calls `dead` has
        run out. TaskClaimed names the worker that holds it; a finished task is returned with a
        lease whose `status` says so and that cannot write."""

    def extend(self, lease: Lease, seconds: float) -> Lease:
        """The lease lasts so long from now."""

    def begin(self, lease: Lease, start: StepStart) -> StepRecord:
        """Records the intent, under the lease's epoch. A step that is already there is returned as it stands, with
        nothing changed, unless `start.attempt` is one more than its attempt: then it begins again, but never once it
        is done or skipped."""

    def finish(self, lease: Lease, end: StepEnd) -> StepRecord:
        """Records the outcome of a step that was begun; NotFound if it was not. One that is settled (neither intent nor
        ambiguous) stays: the same outcome again changes nothing, another is a Conflict. A snapshot that comes with it
        is stored in the same transaction, as by `keep`; so it is by `record` and by a memory step."""

    def record(self, lease: Lease, start: StepStart, end: StepEnd) -> StepRecord:
        """begin and finish in one transaction, for a step whose beginning nobody needs to know. One that is settled
        already is returned as it stands; one that begins with this began `end.took` seconds ago."""

    def end(self, lease: Lease, end: TaskEnd) -> TaskRecord:
        """Sets the task's status and outcome and gives the lease back. `ended_at` is set for a status in ENDED."""

    def steps(self, scope: Scope, task: str) -> list[StepRecord]:
        """In the order they first began."""

    def unsettled(self, scope: Scope, task: str) -> list[StepRecord]:
        """Those of them that are intents or ambiguous, without reading the others: a task may have done thousands."""

    def task(self, scope: Scope, task: str) -> TaskRecord | None:
        """None if there is none, or it was pruned."""

    def tasks(self, query: TaskQuery) -> list[TaskRecord]:
        """Newest start first."""

    def resolve(self, scope: Scope, task: str, end: StepEnd) -> StepRecord:
        """Settles an ambiguous or intended step by a person's or a probe's word, with no lease; Conflict if it is
        settled already, NotFound if it was never begun, TaskClaimed if it is an intent and a lease on its task has not
        run out: somebody may be doing it right now."""

    def keep(self, lease: Lease, snapshot: str) -> None:
        """Stores the task's working memory, in place of what was kept before."""

    def signal(self, scope: Scope, task: str, event: str, payload: str) -> bool:
        """Delivers an event to a task, which need not have begun; False if an event of that name is there already."""

    def event(self, scope: Scope, task: str, event: str) -> str | None:
        """The payload of an event that was delivered; None if it was not."""

    def overrule(self, scope: Scope, task: str, end: TaskEnd) -> TaskRecord:
        """Parks, cancels or ends a task by a person's word, with no lease: the epoch rises, so that a worker that
        still runs it is fenced off. NotFound if there is no such task, Conflict if it has ended."""

    def expire(self, now: datetime) -> list[TaskRecord]:
        """Unfinished tasks of any scope whose deadline is not after now become "expired": their leases write no more,
        their steps are kept; which ones."""

    def prune(self, before: datetime) -> int:
        """Remove tasks of any scope that ended before then, with their steps and events; how many. Never one that has
        not ended."""

    def remove(self, scope: Scope, task: str) -> None:
        """Remove this one, with its steps and events. NotFound if there is no such task, Conflict if it has not
        ended. Where the items are in the same store, `purge` takes the bytes."""
