"""Manage the tasks of one scope: list them, decide about them, recover and prune them."""

from __future__ import annotations

import builtins
import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from functools import cache
from typing import Any, Literal, TypeVar, cast, get_args
from weakref import WeakSet

from engrain.core.clock import check_duration, check_time
from engrain.core.errors import Conflict, InvalidInput, LeaseLost, NotFound, TaskClaimed, TaskEnded
from engrain.core.identity import Scope
from engrain.core.model.plans import Applied, Request, make_request
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
from engrain.ports.tasks import TaskJournal
from engrain.privacy.audit import record
from engrain.tasks.flow_requests import Flow, StoreCall, UserCall
from engrain.tasks.lease import create_worker_name, is_worker_dead
from engrain.tasks.result_encoding import decode, decode_envelope, encode, expire_tasks, record_procedure_failure
from engrain.tasks.run import Run, check_callable, run_flow
from engrain.tasks.run_lifecycle import MAX_CRASHES, TaskExecution, TaskOptions, count_crashes, require_journal
from engrain.tasks.step_journal import WAIT_KINDS
from engrain.tasks.working_state import WorkingStateBinding
from engrain.tiers.scoped_working import ScopedWorkingMemory

Answer = TypeVar("Answer")
Verdict = Literal["done", "failed", "skipped"]
MAX_TASKS = 100_000
_PRUNED: WeakSet[TaskJournal] = WeakSet()  # the journals that this process has pruned
_log = logging.getLogger("engrain")


@dataclass(frozen=True, slots=True)
class Timeline:
    """A task and its steps, in the order they began."""

    task: TaskRecord
    steps: tuple[StepRecord, ...]

    @property
    def waits_for(self) -> tuple[StepRecord, ...]:
        """The sleeps and events that the task waits for now."""
        return tuple(step for step in self.steps if step.status == "intent" and step.kind in WAIT_KINDS)


class Tasks:
    """The durable tasks of one scope."""

    def __init__(
        self, services: Services, scope: Scope, working: Callable[[], ScopedWorkingMemory] | None = None
    ) -> None:
        """`working` returns the working memory of the runs."""
        self._services = services
        self._scope = scope
        self._working = working or cache(lambda: ScopedWorkingMemory(services, scope))
        self._checkpoints: dict[str, Lease] = {}
        self._lock = threading.Lock()

    @property
    def _journal(self) -> TaskJournal:
        return require_journal(self._services)

    def execution(self, options: TaskOptions, procedure: str | None = None, working: bool = True) -> TaskExecution:
        """Internal: prepare one run for `memory.task`, with working memory unless working=False."""
        if options.version == CHECKPOINT_VERSION:
            raise InvalidInput(f"the version {CHECKPOINT_VERSION!r} is that of checkpoints: give the task another.")
        if procedure is not None and not working:
            raise InvalidInput("a procedure is noted in working memory: leave working=False out.")
        self._prune_once()
        binding = None
        if working:
            view = self._working()
            view.clear_erased()
            binding = WorkingStateBinding(self._services, view, procedure)
        return TaskExecution(self._services, self._scope, options, binding)

    # Reading

    def list(self, *, status: TaskStatus | Sequence[TaskStatus] = (), limit: int = 100) -> builtins.list[TaskRecord]:
        """Return the tasks of this memory, newest first; list(status="parked") returns those that need a decision."""
        wanted = tuple(status) if isinstance(status, Sequence) and not isinstance(status, str) else (status,)
        for name in wanted:
            if name not in get_args(TaskStatus):
                raise InvalidInput(f"unknown status {name!r}. Known: {', '.join(get_args(TaskStatus))}.")
        check_count(limit, "limit", 1, MAX_TASKS)
        return self._journal.tasks(TaskQuery(self._scope, wanted, limit=limit))

    def get(self, task: str) -> TaskRecord | None:
        """Return one task; None if there is none of this id."""
        return self._journal.task(self._scope, check_key(task, "task"))

    def timeline(self, task: str) -> Timeline:
        """Return a task and its steps, in the order they began."""
        return Timeline(self._require(task), tuple(self._journal.steps(self._scope, task)))

    def _require(self, task: str) -> TaskRecord:
        found = self.get(task)
        if found is None:
            raise NotFound(f"there is no task {task!r} in this memory. `engrain tasks` lists them.")
        return found

    # Decisions of a person

    def resolve(
        self,
        task: str,
        step: str,
        outcome: Verdict,
        *,
        occurrence: int = 0,
        result: Any = None,
        note: str = "",
        request_id: str | None = None,
    ) -> StepRecord:
        """Settle an ambiguous effect, as you found out about it.

        "done" records this result, "failed" has the effect done again, "skipped" leaves it out. The task continues
        when it is next started.
        """
        if outcome not in get_args(Verdict):
            raise InvalidInput(f"an outcome is one of {', '.join(get_args(Verdict))}, not {outcome!r}.")
        if result is not None and outcome != "done":
            raise InvalidInput(f'only an effect that is "done" has a result, not one that is {outcome!r}.')
        check_count(occurrence, "occurrence", 0, MAX_TASKS * 100)
        text = encode(result, "the result") if outcome == "done" else None
        noted = f"resolved by hand: {check_name(note, 'note')}" if note else "resolved by hand"
        end = StepEnd(check_key(step, "step"), occurrence, outcome, text, noted)
        request = make_request(request_id, "resolve", check_key(task, "task"), end)
        return self._decide(request, lambda: self._settle(task, end), lambda: self._find_step(task, end))

    def _find_step(self, task: str, end: StepEnd) -> StepRecord:
        steps = self.timeline(task).steps
        return next(record for record in steps if (record.name, record.occurrence) == (end.name, end.occurrence))

    def _settle(self, task: str, end: StepEnd) -> StepRecord:
        journal = self._journal
        for open_step in journal.unsettled(self._scope, task):
            if open_step.kind == "memory" and (open_step.name, open_step.occurrence) == (end.name, end.occurrence):
                raise InvalidInput(f"{end.name!r} is a memory step, which is never ambiguous: start the task again.")
        try:
            return journal.resolve(self._scope, task, end)
        except TaskClaimed:
            found = journal.task(self._scope, task)
            if found is None or found.worker is None or not is_worker_dead(found.worker):
                raise
            journal.overrule(self._scope, task, TaskEnd("waiting", "its worker died"))
            return journal.resolve(self._scope, task, end)

    def signal(self, task: str, event: str, payload: Any = None, *, request_id: str | None = None) -> bool:
        """Deliver an event to a task, which need not have begun.

        False if the task has an event of that name already. TaskEnded if the task has ended.
        """
        text = encode(payload, "the payload")
        request = make_request(request_id, "signal", task, event, text)
        look = lambda: self._journal.event(self._scope, task, event) == text  # noqa: E731
        return self._decide(request, lambda: self._deliver(task, event, text), look)

    def _deliver(self, task: str, event: str, text: str) -> bool:
        journal, found = self._journal, self.get(task)
        if found is not None and found.status in ENDED_STATUSES:
            if journal.event(self._scope, task, check_key(event, "event")) is not None:
                return False  # a repeated delivery
            raise TaskEnded(f"task {task!r} is {found.status}: nobody waits for the event {event!r} any more.")
        return journal.signal(self._scope, task, check_key(event, "event"), text)

    def park(self, task: str, why: str = "", *, request_id: str | None = None) -> TaskRecord:
        """Stop a task. Its worker can write no more. The task continues when it is next started."""
        end, request = TaskEnd("parked", check_name(why, "why")), make_request(request_id, "park", task, why)
        return self._decide(request, lambda: self._overrule(task, end), lambda: self._require(task))

    def _overrule(self, task: str, end: TaskEnd) -> TaskRecord:
        return self._journal.overrule(self._scope, check_key(task, "task"), end)

    def cancel(self, task: str, why: str = "", *, request_id: str | None = None) -> TaskRecord:
        """End a task for good. Its worker can write no more. A parked task counts as a failure of its procedure."""
        request = make_request(request_id, "cancel", task, check_name(why, "why"))
        return self._decide(request, lambda: self._cancel(task, why), lambda: self._require(task))

    def _cancel(self, task: str, why: str) -> TaskRecord:
        # Cancelling a running task says nothing about its procedure.
        before = self.get(task)
        ended = self._overrule(task, TaskEnd("cancelled", why))
        if before is not None and before.status == "parked":
            record_procedure_failure(self._services, ended, before.outcome)
        return ended

    def resume(self, task: str, *, request_id: str | None = None) -> TaskRecord:
        """Let a parked task continue: `recover` picks it up."""
        request = make_request(request_id, "resume", task)
        return self._decide(request, lambda: self._resume(task), lambda: self._require(task))

    def _resume(self, task: str) -> TaskRecord:
        found = self._require(task)
        if found.status == "running" and found.worker is not None and not is_worker_dead(found.worker):
            raise Conflict(f"task {task!r} is running already; to take it from its worker, park it first.")
        return self._overrule(task, TaskEnd("waiting"))

    def _decide(self, request: Request | None, do: Callable[[], Answer], look: Callable[[], Answer]) -> Answer:
        """Carry out a decision once. A repeated request returns how things stand now, by `look`."""
        items, made = self._services.items, builtins.list[Answer]()

        def decide() -> Applied:
            made.append(do())
            return Applied(value=made[-1] if isinstance(made[-1], bool) else None)

        if request is None or self._in_store:
            done = items.once(self._scope, request, decide)
        elif (first := items.answer(self._scope, request)) is not None:
            done = first
        else:
            # The journal is written before the answer: a request that was begun may have been carried out.
            begun = items.once(self._scope, Request(f"{request.id}\x1fbegun", request.asked), Applied).repeated
            try:
                done = decide()
            except (Conflict, NotFound):
                if not begun:
                    raise
                done = Applied()
            if begun and not done.value:
                made.append(look())
            items.once(self._scope, request, lambda: done)
        if made:
            return made[-1]
        return look() if done.value is None else cast("Answer", done.value)

    @property
    def _in_store(self) -> bool:
        return getattr(self._services.items, "journal", None) is self._services.journal

    # Checkpoints: tasks that consist of a snapshot only

    def checkpoint(self, task: str, state: Any, *, done: bool = False, request_id: str | None = None) -> None:
        """Store plain JSON under a task's name, replacing the previous one. `done` ends it: kept for 7 days."""
        text = encode(state, "the state")
        request = make_request(request_id, "checkpoint", check_key(task, "task"), text, done)
        with self._lock:
            before = self._checkpoints.get(task)
            try:
                self._decide(request, lambda: self._store_checkpoint(task, text, done), lambda: None)
            except BaseException:
                self._checkpoints.pop(task, None)  # a claim of this call may be undone
                self._checkpoints |= {task: before} if before else {}
                raise

    def _store_checkpoint(self, task: str, text: str, done: bool) -> None:
        journal, lease = self._journal, self._checkpoints.get(task) or self._claim_checkpoint(task)
        journal.keep(lease, text)
        self._checkpoints[task] = lease
        if done:
            journal.end(lease, TaskEnd("done"))
            del self._checkpoints[task]

    def load_checkpoint(self, task: str) -> Any:
        """Return the value that `checkpoint` or `run.keep` stored last; None if nothing. The loader takes it over."""
        with self._lock:
            self._checkpoints.pop(check_key(task, "task"), None)
        found = self.get(task)
        return None if found is None else decode(found.snapshot)

    def _claim_checkpoint(self, task: str) -> Lease:
        before = self.get(task)
        if before is not None and before.version != CHECKPOINT_VERSION:
            raise InvalidInput(f"{task!r} is a task with steps: store its state with run.keep(…).")
        # A lease of 0 seconds: nobody waits for it after a crash, and the epoch stops the previous writer.
        lease = self._journal.claim(Claim(self._scope, task, create_worker_name(), 0.0, version=CHECKPOINT_VERSION))
        if lease.status != "running":
            raise TaskEnded(f"the checkpoint {task!r} is {lease.status}: it has ended and cannot change any more.")
        return lease

    # Pruning and recovery

    def prune(self, older_than: timedelta | float = timedelta(days=7)) -> int:
        """Remove tasks that ended this long ago, with their steps. Never removes a task that has not ended."""
        if removed := self._prune(older_than):
            record(self._services, "prune_tasks", {"tasks": removed}, self._scope)
        return removed

    def _prune_once(self) -> None:
        """Prune with the first run of a process, however many views it has."""
        journal = self._journal
        if journal not in _PRUNED:
            _PRUNED.add(journal)
            self._prune(timedelta(days=self._services.policies.task_days))

    def _prune(self, older_than: timedelta | float) -> int:
        return self._journal.prune(self._services.clock() - check_duration(older_than, "older_than"))

    def remove(self, task: str, *, request_id: str | None = None) -> None:
        """Remove one task that has ended, with its steps, snapshot and events; in SQLite every byte of them.

        An older backup still has the task, and restores it.
        """
        request = make_request(request_id, "remove", check_key(task, "task"))
        self._decide(request, lambda: self._remove(task), lambda: None)
        if self._in_store:
            self._services.items.purge()

    def _remove(self, task: str) -> None:
        self._journal.remove(self._scope, task)
        record(self._services, "remove_task", {"tasks": 1}, self._scope)

    def recover(
        self,
        work: Callable[[Any], Any],
        *,
        version: str = "",
        accepts: Sequence[str] = (),
        lease: float = 30.0,
        limit: int = 100,
    ) -> builtins.list[TaskRecord]:
        """Call work(run) for each task whose worker died or whose wait is over. Return how each stands afterwards."""
        check_callable(work)

        def run_task(task: str) -> None:
            with Run(self.execution(TaskOptions(task, "", version, accepts, lease))) as run:
                work(run)

        return run_flow(self.recover_flow((version, *accepts), limit, run_task))

    def _find_recoverable(self, accepts: Sequence[str], limit: int) -> builtins.list[TaskRecord]:
        """Find tasks whose worker died and tasks whose wait is over, oldest first."""
        check_count(limit, "limit", 1, MAX_TASKS)
        journal = self._journal
        query = TaskQuery(self._scope, ("running", "waiting"), limit=MAX_TASKS)
        stale = {task.task for task in journal.tasks(replace(query, status=("running",), stale=True))}
        found = [task for task in reversed(journal.tasks(query)) if task.version in accepts]
        ready = [task for task in found if self._is_ready(task, task.task in stale)]
        return [task for task in ready[:limit] if not self._park_if_crashing(task)]

    def _is_ready(self, task: TaskRecord, is_stale: bool) -> bool:
        if task.status == "running":
            return is_stale or task.worker is None or is_worker_dead(task.worker)
        waits = Timeline(task, tuple(self._journal.unsettled(self._scope, task.task))).waits_for
        return not waits or any(self._wait_is_over(task.task, wait) for wait in waits)

    def _wait_is_over(self, task: str, wait: StepRecord) -> bool:
        """True if its event has come or its time has passed."""
        if wait.input and check_time(wait.input, "the end of a wait") <= self._services.clock():
            return True
        event = wait.name.partition("[")[0]
        return wait.kind == "event" and self._journal.event(self._scope, task, event) is not None

    def _park_if_crashing(self, task: TaskRecord) -> bool:
        crashes = decode_envelope(task.snapshot).get("crashes", 0) + 1
        if crashes >= MAX_CRASHES:
            crashes = count_crashes(task, self._journal.steps(self._scope, task.task), crashes - 1)
        if crashes < MAX_CRASHES:
            return False
        why = f"{crashes} workers in a row ended with no step done: it kills its worker"
        self._overrule(task.task, TaskEnd("parked", why))
        return True

    def recover_flow(
        self, accepts: Sequence[str], limit: int, work: Callable[[str], Any]
    ) -> Flow[builtins.list[TaskRecord]]:
        """Continue the recoverable tasks one after the other. A task that fails is parked, and the others continue."""
        yield StoreCall(expire_tasks, (self._services,))
        recovered: builtins.list[TaskRecord] = []
        for task in (yield StoreCall(self._find_recoverable, (accepts, limit))):
            now = yield StoreCall(self.get, (task.task,))
            # The list may be old by now: skip a task that somebody parked or took over.
            if now is None or (now.status, now.epoch) != (task.status, task.epoch):
                continue
            try:
                yield UserCall(work, (task.task,))
            except TaskClaimed:
                continue
            except LeaseLost as exc:
                _log.warning("task %r was taken over while it was recovered: %s", task.task, exc)
            except Exception as exc:  # noqa: BLE001  # a worker's loop: the task is parked with its error
                _log.warning("task %r was recovered and stopped again: %s", task.task, exc)
            after = yield StoreCall(self.get, (task.task,))
            recovered += [after] if after is not None else []
        return recovered
