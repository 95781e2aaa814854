"""The tasks of one scope seen from outside: list them, settle them, pick up what was left, clear away what is over."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, Literal, get_args

from engrain.core.clock import check_duration, check_time
from engrain.core.errors import Conflict, InvalidInput, LeaseLost, NotFound, TaskClaimed, TaskEnded
from engrain.core.identity import Scope
from engrain.core.model.tasks import (
    CHECKPOINT_VERSION,
    ENDED_STATUSES,
    Claim,
    Lease,
    StepEnd,
    StepRecord,
    TaskEnd,
    TaskQuery,
    TaskRecord,
    TaskStatus,
)
from engrain.core.validation import check_count, check_key, check_name
from engrain.ports import Services
from engrain.tasks.driver import Ask, Call, Flow
from engrain.tasks.execution import MAX_DEATHS, TaskExecution, TaskOptions, deaths, journal_of
from engrain.tasks.journal import WAITS
from engrain.tasks.lease import is_dead, worker_name
from engrain.tasks.outcomes import count_failure, expire
from engrain.tasks.serialization import decode, encode, opened
from engrain.tasks.working_state import Desk

Settled = Literal["done", "failed", "skipped"]
MAX_TASKS = 100_000
_log = logging.getLogger("engrain")


@dataclass(frozen=True, slots=True)
class Timeline:
    """A task and its steps, in the order they began."""

    task: TaskRecord
    steps: tuple[StepRecord, ...]

    @property
    def waits_for(self) -> tuple[StepRecord, ...]:
        """The sleeps and events that it has come to; one, unless it waits side by side."""
        return tuple(one for one in self.steps if one.status == "intent" and one.kind in WAITS)


class Tasks:
    """The durable tasks of one scope."""

    def __init__(self, services: Services, scope: Scope) -> None:
        self._services = services
        self._scope = scope
        self._checkpoints: dict[str, Lease] = {}
        self._lock = threading.Lock()
        self._tidied = False

    def course(self, terms: TaskOptions, desk: Desk | None = None) -> TaskExecution:
        if terms.version == CHECKPOINT_VERSION:
            raise InvalidInput(f"the version {CHECKPOINT_VERSION!r} is that of checkpoints: give the task another.")
        if not self._tidied:
            self._tidied = True
            self.prune(timedelta(days=self._services.policies.task_days))
        return TaskExecution(self._services, self._scope, terms, desk)

    # Looking

    def listed(self, status: TaskStatus | Sequence[TaskStatus], limit: int) -> list[TaskRecord]:
        wanted = tuple(status) if isinstance(status, Sequence) and not isinstance(status, str) else (status,)
        for one in wanted:
            if one not in get_args(TaskStatus):
                raise InvalidInput(f"unknown status {one!r}. Known: {', '.join(get_args(TaskStatus))}.")
        check_count(limit, "limit", 1, MAX_TASKS)
        return journal_of(self._services).tasks(TaskQuery(self._scope, wanted, limit=limit))

    def timeline(self, task: str) -> Timeline:
        journal = journal_of(self._services)
        found = journal.task(self._scope, check_key(task, "task"))
        if found is None:
            raise NotFound(f"there is no task {task!r} in this memory ({self._scope}).")
        return Timeline(found, tuple(journal.steps(self._scope, task)))

    # A person's word

    def resolve(self, task: str, end: StepEnd, result: object) -> StepRecord:
        if end.status not in get_args(Settled):
            raise InvalidInput(f"an outcome is one of {', '.join(get_args(Settled))}, not {end.status!r}.")
        if result is not None and end.status != "done":
            raise InvalidInput(f'only an effect that is "done" has a result, not one that is {end.status!r}.')
        check_count(end.occurrence, "occurrence", 0, MAX_TASKS * 100)
        text = encode(result, "the result") if end.status == "done" else None
        note = f"resolved by hand: {check_name(end.error, 'note')}" if end.error else "resolved by hand"
        word = StepEnd(check_key(end.name, "step"), end.occurrence, end.status, text, note)
        journal = journal_of(self._services)
        for one in journal.unsettled(self._scope, check_key(task, "task")):
            if one.kind == "memory" and (one.name, one.occurrence) == (word.name, word.occurrence):
                raise InvalidInput(f"{one.name!r} is a memory step, which is never ambiguous: start the task again.")
        try:
            return journal.resolve(self._scope, task, word)
        except TaskClaimed:
            found = journal.task(self._scope, task)
            if found is None or found.worker is None or not is_dead(found.worker):
                raise
            journal.overrule(self._scope, task, TaskEnd("waiting", "its worker died"))
            return journal.resolve(self._scope, task, word)

    def signal(self, task: str, event: str, payload: object) -> bool:
        journal, text = journal_of(self._services), encode(payload, "the payload")
        found = journal.task(self._scope, check_key(task, "task"))
        if found is not None and found.status in ENDED_STATUSES:
            if journal.event(self._scope, task, check_key(event, "event")) is not None:
                return False  # told once more, as whoever is not sure does
            raise TaskEnded(f"task {task!r} is {found.status}: nobody waits for the event {event!r} any more.")
        return journal.signal(self._scope, task, check_key(event, "event"), text)

    def overrule(self, task: str, status: TaskStatus, why: str) -> TaskRecord:
        end = TaskEnd(status, check_name(why, "why"))
        return journal_of(self._services).overrule(self._scope, check_key(task, "task"), end)

    def cancel(self, task: str, why: str) -> TaskRecord:
        """One that an error or a person had parked has failed; one that was under way was merely not wanted."""
        before = journal_of(self._services).task(self._scope, check_key(task, "task"))
        ended = self.overrule(task, "cancelled", why)
        if before is not None and before.status == "parked":
            count_failure(self._services, ended, before.outcome)
        return ended

    def resume(self, task: str) -> TaskRecord:
        found = self.timeline(task).task
        if found.status == "running" and found.worker is not None and not is_dead(found.worker):
            raise Conflict(f"task {task!r} is running already; to take it from its worker, park it first.")
        return self.overrule(task, "waiting", "")

    # Checkpoints: a task that is nothing but its snapshot

    def checkpoint(self, task: str, state: object, done: bool) -> None:
        journal = journal_of(self._services)
        text = encode(state, "the state")
        check_key(task, "task")
        with self._lock:
            lease = self._checkpoints.get(task) or self._claimed(task)
            journal.keep(lease, text)
            self._checkpoints[task] = lease
            if done:
                journal.end(lease, TaskEnd("done"))
                del self._checkpoints[task]

    def restore(self, task: str) -> Any:
        """Whoever restores takes over: a worker that still checkpoints the same task is fenced off by the next one."""
        check_key(task, "task")
        with self._lock:
            self._checkpoints.pop(task, None)
        found = journal_of(self._services).task(self._scope, task)
        return None if found is None else decode(found.snapshot)

    def _claimed(self, task: str) -> Lease:
        journal = journal_of(self._services)
        before = journal.task(self._scope, task)
        if before is not None and before.version != CHECKPOINT_VERSION:
            raise InvalidInput(f"{task!r} is a task with steps: store its state with run.keep(…).")
        # It lasts no time at all: whoever restores after a crash need not wait, and the epoch fences the other off.
        lease = journal.claim(Claim(self._scope, task, worker_name(), 0.0, version=CHECKPOINT_VERSION))
        if lease.status != "running":
            raise TaskEnded(f"the checkpoint {task!r} is {lease.status}: it was ended, and is kept as it was.")
        return lease

    # What was left, and what is over

    def expire(self) -> list[TaskRecord]:
        journal_of(self._services)
        return expire(self._services)

    def prune(self, older_than: timedelta | float) -> int:
        return journal_of(self._services).prune(self._services.clock() - check_duration(older_than, "older_than"))

    def remove(self, task: str) -> None:
        journal_of(self._services).remove(self._scope, check_key(task, "task"))

    def purge(self) -> None:
        """The bytes of what was removed go from the files, too, where the journal is in the store of the items."""
        if getattr(self._services.items, "journal", None) is self._services.journal:
            self._services.items.purge()

    def left(self, accepts: Sequence[str], limit: int) -> list[TaskRecord]:
        """Tasks that a dead worker left and tasks whose waiting is over, oldest first."""
        check_count(limit, "limit", 1, MAX_TASKS)
        journal = journal_of(self._services)
        late = {one.task for one in journal.tasks(TaskQuery(self._scope, ("running",), stale=True, limit=MAX_TASKS))}
        found = journal.tasks(TaskQuery(self._scope, ("running", "waiting"), limit=MAX_TASKS))
        ready = [one for one in reversed(found) if one.version in accepts and self._ready(one, one.task in late)]
        return [one for one in ready[:limit] if not self._hopeless(one)]

    def _ready(self, task: TaskRecord, late: bool) -> bool:
        if task.status == "running":
            return late or task.worker is None or is_dead(task.worker)
        found = journal_of(self._services).unsettled(self._scope, task.task)
        waits = Timeline(task, tuple(found)).waits_for
        return not waits or any(self._over(task.task, one) for one in waits)

    def _over(self, task: str, wait: StepRecord) -> bool:
        """Whether there is something to go on with: the event, or the moment until which it waits."""
        if wait.input and check_time(wait.input, "the end of a wait") <= self._services.clock():
            return True
        event = wait.name.partition("[")[0]
        return wait.kind == "event" and journal_of(self._services).event(self._scope, task, event) is not None

    def _hopeless(self, task: TaskRecord) -> bool:
        before = opened(task.snapshot).get("deaths", 0)
        if before + 1 < MAX_DEATHS:
            return False
        died = deaths(task, journal_of(self._services).steps(self._scope, task.task), before)
        if died < MAX_DEATHS:
            return False
        self.overrule(task.task, "parked", f"{died} workers in a row ended with no step done: it kills its worker")
        return True

    def recover(self, accepts: Sequence[str], limit: int, work: Callable[[str], Any]) -> Flow[list[TaskRecord]]:
        """Continue each, one after the other; how each stands afterwards. One that fails is parked and does not stop
        the others."""
        yield Ask(self.expire)
        found: list[TaskRecord] = []
        for task in (yield Ask(lambda: self.left(accepts, limit))):
            now = yield Ask(partial(journal_of(self._services).task, self._scope, task.task))
            # The list may be old by now: what somebody parked or took over since is left to them.
            if now is None or (now.status, now.epoch) != (task.status, task.epoch):
                continue
            try:
                yield Call(work, (task.task,))
            except TaskClaimed:
                continue
            except LeaseLost as exc:
                _log.warning("task %r was taken over while it was recovered: %s", task.task, exc)
            except Exception as exc:  # noqa: BLE001  # a worker's loop: the task is parked with its error
                _log.warning("task %r was recovered and stopped again: %s", task.task, exc)
            after = yield Ask(partial(journal_of(self._services).task, self._scope, task.task))
            found += [after] if after is not None else []
        return found
