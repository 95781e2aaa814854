"""The verbs of durable tasks."""

from __future__ import annotations

import builtins
from collections.abc import Callable, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from engrain.core.model.tasks import StepEnd
from engrain.memory.opened import Opened
from engrain.telemetry import traced

if TYPE_CHECKING:
    from engrain.core.model.tasks import StepRecord, TaskRecord, TaskStatus
    from engrain.tasks.admin import Settled, Timeline
    from engrain.tasks.run import Run


class DurableTasks(Opened):
    def task(
        self,
        id: str,
        *,
        goal: str = "",
        version: str = "",
        accepts: Sequence[str] = (),
        lease: float = 30.0,
        max_age: timedelta | float | None = None,
        procedure: str | None = None,
        working: bool = True,
    ) -> Run:
        """A task whose steps never run twice: with memory.task("order-42", goal="ship it") as run: …

        Entering claims it for this worker and replays its journal; TaskClaimed says who else runs it. `version` is that
        of your code, `accepts` the older ones whose tasks it may continue. The lease is `lease` seconds without a sign
        of life. After `max_age` (seconds) an unfinished task becomes "expired". While it runs it is the
        task at hand in working memory (`run.working`), which is stored with each of its steps; `run.outcome` becomes
        knowledge when it is done, which counts for the `procedure` it uses. working=False leaves working memory alone.
        docs/tasks.md has the promises.
        """
        from engrain.tasks.execution import TaskOptions
        from engrain.tasks.run import Run

        return Run(self._open.course(TaskOptions(id, goal, version, accepts, lease, max_age), procedure, working))

    @traced
    def tasks(self, *, status: TaskStatus | Sequence[TaskStatus] = (), limit: int = 100) -> builtins.list[TaskRecord]:
        """The tasks of this memory, newest first; tasks(status="parked") are those that need somebody."""
        return self._open.tasks.listed(status, limit)

    @traced
    def timeline(self, task: str) -> Timeline:
        """A task and its steps, in the order they began."""
        return self._open.tasks.timeline(task)

    @traced
    def resolve(
        self,
        task: str,
        step: str,
        outcome: Settled,
        *,
        occurrence: int = 0,
        result: Any = None,
        note: str = "",
    ) -> StepRecord:
        """Settle an ambiguous effect by your word: it is "done" (with this result), or it "failed" to happen and is to
        be done again, or it is "skipped". The word is recorded; the task goes on when it is next started."""
        return self._open.tasks.resolve(task, StepEnd(step, occurrence, outcome, error=note), result)

    @traced
    def signal(self, task: str, event: str, payload: Any = None) -> bool:
        """Deliver an event to a task, which need not have begun; False if it has one of that name already. TaskEnded if
        the task has ended."""
        return self._open.tasks.signal(task, event, payload)

    @traced
    def park(self, task: str, why: str = "") -> TaskRecord:
        """Stop a task; whoever runs it is fenced off. It goes on when it is next started."""
        return self._open.tasks.overrule(task, "parked", why)

    @traced
    def resume(self, task: str) -> TaskRecord:
        """Let a parked task go on: `recover` picks it up."""
        return self._open.tasks.resume(task)

    @traced
    def cancel(self, task: str, why: str = "") -> TaskRecord:
        """End a task for good; whoever runs it is fenced off. If it was parked, its procedure has failed once more."""
        return self._open.tasks.cancel(task, why)

    def recover(
        self,
        work: Callable[[Any], Any],
        *,
        version: str = "",
        accepts: Sequence[str] = (),
        lease: float = 30.0,
        limit: int = 100,
    ) -> builtins.list[TaskRecord]:
        """Continue what a dead worker left and what has waited long enough: work(run) for each, and how each ended."""
        from engrain.tasks.driver import drive
        from engrain.tasks.run import checked_function

        checked_function(work)

        def one(task: str) -> None:
            with self.task(task, version=version, accepts=accepts, lease=lease) as run:
                work(run)

        return drive(self._open.tasks.recover((version, *accepts), limit, one))

    @traced
    def prune_tasks(self, older_than: timedelta | float = timedelta(days=7)) -> int:
        """Remove tasks that ended so long ago, with their steps; never one that has not ended."""
        gone = self._open.tasks.prune(older_than)
        if gone:
            self._open.record("prune_tasks", {"tasks": gone})
        return gone

    @traced
    def remove_task(self, task: str) -> None:
        """Remove one task that has ended, with its steps, snapshot and events: in SQLite, every byte of them. A backup
        from before still has it, and brings it back."""
        self._open.tasks.remove(task)
        self._open.record("remove_task", {"tasks": 1})
        self._open.tasks.purge()

    @traced
    def checkpoint(self, id: str, state: Any, *, done: bool = False) -> None:
        """Keep plain JSON under a task's name, in place of what was kept before. `done` ends it: kept for 7 days."""
        self._open.tasks.checkpoint(id, state, done)

    @traced
    def restore(self, id: str) -> Any:
        """What `checkpoint` or `run.keep` stored last; None if nothing. Whoever restores takes over from others."""
        return self._open.tasks.restore(id)
