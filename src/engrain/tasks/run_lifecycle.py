"""Run one task from its claim to its end, for threads and asyncio alike."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any, TypeVar

from engrain.core import errors
from engrain.core.clock import check_duration
from engrain.core.identity import Scope
from engrain.core.model.items import Citation, Note, Source, check_note, parse_note
from engrain.core.model.plans import Add, Applied, Plan, make_request
from engrain.core.model.tasks import ENDED_STATUSES, Claim, StepRecord, TaskEnd, TaskRecord
from engrain.core.validation import check_key, check_name, check_text
from engrain.ingest.write import build_drafts, redact_json
from engrain.ports import Services
from engrain.ports.tasks import TaskJournal
from engrain.tasks import step_kinds
from engrain.tasks.flow_requests import Flow, StoreCall
from engrain.tasks.lease import LeaseHolder, create_worker_name
from engrain.tasks.result_encoding import choose_task_end, encode, expire_tasks
from engrain.tasks.step_journal import WAIT_KINDS, StepJournal, StepRequest, StepSlot
from engrain.tasks.working_state import TaskState, WorkingStateBinding
from engrain.tiers.procedural import ProceduralMemory

T = TypeVar("T")
MAX_GOAL_CHARACTERS = 10_000
MIN_LEASE_SECONDS, MAX_LEASE_SECONDS = 0.05, 86_400.0
# A task is parked after this many workers in a row died without completing a step of it.
MAX_CRASHES = 5
MAX_STEP_CITES = 100
_log = logging.getLogger("engrain")


@dataclass(frozen=True, slots=True)
class TaskOptions:
    """The task to run, and how long its lease and the task itself last."""

    task: str
    goal: str = ""
    version: str = ""
    accepts: Sequence[str] = ()
    lease: float = 30.0
    max_age: timedelta | float | None = None

    def __post_init__(self) -> None:
        check_key(self.task, "task")
        check_name(self.version, "version")
        if self.goal != "":
            check_text(self.goal, "goal", MAX_GOAL_CHARACTERS)
        if isinstance(self.accepts, str) or not isinstance(self.accepts, Sequence):
            raise errors.InvalidInput('accepts is a list of versions: accepts=("1",).')
        for version in self.accepts:
            check_name(version, "accepts")
        if self.max_age is not None:
            check_duration(self.max_age, "max_age")
        if not isinstance(self.lease, (int, float)) or not MIN_LEASE_SECONDS <= self.lease <= MAX_LEASE_SECONDS:
            allowed = f"{MIN_LEASE_SECONDS} to {MAX_LEASE_SECONDS:,.0f} seconds"
            raise errors.InvalidInput(f"lease must be {allowed}, not {self.lease!r}.")


class TaskExecution:
    """One run of a task: open it, run its flows, close it. Its flows may run in parallel."""

    def __init__(
        self, services: Services, scope: Scope, options: TaskOptions, binding: WorkingStateBinding | None = None
    ) -> None:
        self._services = services
        self._binding = binding
        self._scope = scope
        self.options = options
        self.task = options.task
        self.outcome = ""
        self.cites: tuple[str, ...] = ()
        self.record: TaskRecord | None = None
        self._step_journal: StepJournal | None = None
        self._holder: LeaseHolder | None = None
        self._given_back = TaskEnd("waiting")
        self._is_closed = False
        self._keep_pending = False  # the program called keep() while steps were replayed

    # From claim to end

    def open(self, entered_by: object) -> None:
        """Claim the task and load its journal. `entered_by` is the thread or asyncio task of the program."""
        if self._step_journal is not None:
            raise errors.TaskError(f"this run of task {self.task!r} was entered before: call memory.task(…) again.")
        journal = require_journal(self._services)
        options, now = self.options, self._services.clock()
        before = journal.task(self._scope, self.task)
        if before is not None and before.deadline is not None and before.deadline <= now:
            expire_tasks(self._services)
            before = journal.task(self._scope, self.task)
        if before is not None:
            self._check_version(before)
        worker = create_worker_name()
        deadline = None if options.max_age is None else now + check_duration(options.max_age, "max_age")
        claim = Claim(self._scope, self.task, worker, options.lease, options.goal, options.version, deadline)
        parked = before if before is not None and before.status == "parked" else None
        self._given_back = TaskEnd("waiting") if parked is None else TaskEnd("parked", parked.outcome)
        self._holder = holder = LeaseHolder(journal, claim)
        try:
            holder.acquire()
            found = journal.task(self._scope, self.task)
            if found is None:
                raise errors.LeaseLost(f"task {self.task!r} was removed while it was claimed.")
            self._check_version(found)
            self._state = state = TaskState(found, self._binding)
            recorded = journal.steps(self._scope, self.task)
            step_journal = StepJournal(self._services, holder, state, recorded, entered_by, options.version)
            crashes = state.crashes
            if before is not None and step_journal.is_running:
                state.crashes = count_crashes(before, recorded, crashes)
            if state.begin() or state.crashes != crashes:
                step_journal.keep()
        except BaseException:
            self.abandon()
            raise
        self.record, self._step_journal = found, step_journal

    def abandon(self) -> None:
        """Give back the claim of a run that was interrupted while it was entered or left."""
        self._is_closed = True
        if self._holder is not None:
            self._holder.release(self._given_back)
        if self._binding:
            self._binding.leave()

    def _check_version(self, found: TaskRecord) -> None:
        wanted = self.options.version
        if found.version != wanted and found.version not in self.options.accepts:
            raise errors.VersionChanged(
                f"task {found.task!r} was started by version {found.version!r}, this is {wanted!r}. "
                f"If it may be continued: memory.task(…, version={wanted!r}, accepts=({found.version!r},))."
            )
        if found.status in ENDED_STATUSES and found.status != "done":
            raise errors.TaskEnded(
                f"task {found.task!r} is {found.status}: {found.outcome or 'nothing more is known'}."
            )

    def close(self, error: BaseException | None) -> None:
        """Record how the run ended. Raises only if the caller would otherwise believe that the task is done."""
        step_journal = self._step_journal
        if step_journal is None or self._is_closed or not step_journal.in_claiming_process:
            return
        self._is_closed = True
        if not step_journal.is_running:
            step_journal.holder.stop()
            return
        try:
            if error is None:
                self._finish(step_journal)
                return
            self._end_unfinished(step_journal.holder, error)
        finally:
            step_journal.holder.stop()
            if self._binding:
                self._binding.leave()

    def _finish(self, step_journal: StepJournal) -> None:
        """Record the task as done, unless a step still runs or the outcome of an effect is unknown."""
        holder = step_journal.holder
        if unfinished := self._find_unfinished(step_journal):
            holder.end(choose_task_end(unfinished))
            raise unfinished
        if missed := step_journal.find_unvisited_steps():
            _log.warning("task %r ended without reaching its recorded steps %s.", self.task, missed[:5])
        if self._keep_pending:
            step_journal.keep()
        if step_journal.has_unhandled_failure:
            step_journal.record_handled_failures()
        end = TaskEnd("done", redact_json(self.outcome, self._services.redact))
        if not self._state.has_outcome(self.outcome):
            holder.end(end)
            return
        holder.confirm()  # somebody may have cancelled the task meanwhile
        try:
            self._end_with_outcome(holder, end)
        except errors.NotFound as exc:  # an item that it cites was forgotten meanwhile, and the outcome with it
            _log.warning("the outcome of task %r was not remembered: %s", self.task, exc)
            holder.end(end)
        except errors.EngrainError as exc:
            errors.raise_interrupt(exc)
            self._end_unfinished(holder, exc)  # not done without its outcome: started again, it tries again
            raise

    def _end_unfinished(self, holder: LeaseHolder, error: BaseException) -> None:
        report = partial(_log.warning, "task %r: the end of its run could not be recorded: %s", self.task)
        with errors.tolerate(errors.EngrainError, errors.LeaseLost, report=report):
            holder.end(choose_task_end(error))

    def _end_with_outcome(self, holder: LeaseHolder, end: TaskEnd) -> None:
        """Count a success for the procedure, keep the outcome as knowledge and end the task, together if possible."""
        task, procedure, items = self._state.task, self._state.procedure, self._services.items
        if procedure:
            with suppress(errors.NotFound):  # it was forgotten meanwhile
                ProceduralMemory(self._services, self._scope).count_trial(procedure, task.task, True, self.outcome)
        plan = self._plan_outcome(task)
        journal = require_journal(self._services)
        if getattr(items, "journal", None) is not journal:
            items.apply(plan)  # first, or a crash in between would lose it: repeated, it changes nothing
            holder.end(end)
            return

        def finish() -> Applied:
            items.apply(replace(plan, request_id=None))
            journal.end(holder.lease, end)
            return Applied()

        holder.stop()
        request = make_request(plan.request_id, "outcome")
        try:
            items.once(self._scope, request, finish)
        except errors.OutcomeUnknown as unknown:
            unknown.raise_interrupt()
            items.once(self._scope, request, finish)

    def _plan_outcome(self, task: TaskRecord) -> Plan:
        request = f"task\x1f{task.task}\x1f{task.started_at.isoformat()}"
        if not self.outcome:
            return Plan(self._scope, (), request)
        text = f"Successfully completed: {task.goal or task.task}. Outcome: {self.outcome}"
        cites = (*map(Citation, self.cites), *self._cite_steps())
        note = Note(text, 0.7, source=Source(task.task, "agent", cites))
        began = self._services.items.current_time()
        (draft,) = build_drafts([check_note(note)], self._services)
        return Plan(self._scope, (Add(draft),), request, began=began)

    def _cite_steps(self) -> list[Citation]:
        """Cite the items that the steps wrote, least trusted first: the outcome is trusted no further than they are."""
        steps = require_journal(self._services).steps(self._scope, self.task)
        done = [step for step in steps if step.kind == "memory" and step.status == "done"]
        ids = dict.fromkeys(id for step in done for id in step.list_written() if id and id not in self.cites)
        items = self._services.items.get_many(self._scope, list(ids))
        if len(items) < len(ids):
            raise errors.NotFound("an item that one of its steps wrote was forgotten.")
        least = sorted(items, key=lambda item: item.trust)[:MAX_STEP_CITES]
        return [Citation(item.id, 0, 0) for item in least]

    def _find_unfinished(self, step_journal: StepJournal) -> errors.TaskError | None:
        names = step_journal.running_steps()
        if names:
            return errors.TaskError(
                f"task {self.task!r} was left while {', '.join(names)} ran on another thread or in another "
                "coroutine: wait for every step before the run ends. It is parked; start it again to go on."
            )
        unclear = step_journal.find_ambiguous_effects()
        if not unclear:
            return None
        first = unclear[0]
        slot = StepSlot(first.kind, first.name, first.occurrence, first.input)
        return step_kinds.ambiguous_error(self.task, slot, first.key, first.error or "its call was broken off")

    # Steps

    def step(self, request: StepRequest, work: step_kinds.StepWork) -> Flow[Any]:
        return self._run_in_slot(
            request, step_kinds.run_effect if request.kind == "effect" else step_kinds.run_step, work
        )

    def remember(self, name: str, what: object, key: str | None, fields: Mapping[str, Any]) -> Flow[Any]:
        many = isinstance(what, Sequence) and not isinstance(what, str)
        texts = what if many else [{"text": what, **fields} if isinstance(what, str) and fields else what]
        notes = [check_note(parse_note(text)) for text in texts]  # type: ignore[attr-defined]
        request = StepRequest("memory", name, key, tuple(_describe_note(note) for note in notes))
        ids = yield from self._run_in_slot(request, step_kinds.run_memory_step, self._services, notes)
        if len(ids) != len(notes):
            raise errors.StoreCorrupt(f"step {name!r} wrote {len(notes)} items, and {len(ids)} are recorded.")
        return ids if many else ids[0]

    def sleep(self, name: str, until: datetime | timedelta, key: str | None, block: bool) -> Flow[None]:
        due = self._services.clock() + until if isinstance(until, timedelta) else until
        return self._run_in_slot(StepRequest("sleep", name, key), step_kinds.run_sleep, due, block)

    def event(
        self, name: str, key: str | None, timeout: timedelta | float | None, block: bool, default: Any
    ) -> Flow[Any]:
        within = None if timeout is None else check_duration(timeout, "timeout")
        if within is None and default is not ...:
            raise errors.InvalidInput("default= replaces an event after its time-out: give timeout=, too.")
        wait = step_kinds.EventWait(within, block, None if default is ... else encode(default, "default"))
        return self._run_in_slot(StepRequest("event", name, key), step_kinds.wait_for_event, name, wait)

    def keep(self, snapshot: object) -> None:
        step_journal = self._require_open()
        self._state.value = snapshot
        self._keep_pending = step_journal.is_replaying  # an earlier run may have stored a newer one
        if step_journal.is_running and not self._keep_pending:
            step_journal.keep()

    @property
    def snapshot(self) -> Any:
        self._require_entered()
        return self._state.value

    @property
    def working(self) -> Any:
        self._require_entered()
        if self._binding is None:
            raise errors.TaskError(f"task {self.task!r} was entered with working=False, and has no working memory.")
        return self._binding.working

    @property
    def recorded(self) -> list[str]:
        """The names of recorded steps that this run has not reached, once for each occurrence."""
        return self._require_open().find_unvisited_steps()

    def _require_entered(self) -> StepJournal:
        if self._step_journal is None:
            raise errors.TaskError(f"enter the run first: with memory.task({self.task!r}) as run: …")
        return self._step_journal

    def _require_open(self) -> StepJournal:
        step_journal = self._require_entered()
        if self._is_closed:
            raise errors.TaskError(f"this run of task {self.task!r} is over: call memory.task(…) again.")
        return step_journal

    def _run_in_slot(self, request: StepRequest, body: Callable[..., Flow[T]], *args: Any) -> Flow[T]:
        step_journal = self._require_open()
        slot = step_journal.enter_slot(request)
        try:
            if slot.settled:
                if not step_journal.is_replaying:
                    self._state.restore_after_replay()
                value: T = step_journal.replay(slot)
                return value
            if step_journal.has_unhandled_failure and step_journal.on_entering_thread:
                yield StoreCall(step_journal.record_handled_failures)
            return (yield from body(step_journal, slot, *args))
        except Exception:
            step_journal.note_raised(slot)
            raise
        finally:
            step_journal.leave_slot(slot)


def require_journal(services: Services) -> TaskJournal:
    if services.journal is None:
        raise errors.ConfigError("this memory has no store for durable tasks.")
    return services.journal


def count_crashes(before: TaskRecord, steps: Sequence[StepRecord], earlier: int) -> int:
    """Count the workers in a row that died without progress, including the last one."""
    # Every run that ends sets another status. A task is still "running" only if its worker died.
    if before.status != "running" or any(step.epoch == before.epoch and step.status != "intent" for step in steps):
        return 0
    # A worker that only waited is no failure. One with a started effect is: the effect may cause the crash.
    started = {step.kind for step in steps if step.status == "intent"}
    return 0 if started.intersection(WAIT_KINDS) and "effect" not in started else earlier + 1


def _describe_note(note: Note) -> dict[str, Any]:
    """Return the fields that the fingerprint of a memory step covers."""
    as_text = ("source", "occurred_at", "position", "relation", "expires_at")
    return {
        "text": note.text,
        "importance": note.importance,
        "slot": note.slot,
        "metadata": dict(note.metadata or {}),
        **{field: str(getattr(note, field)) for field in as_text},
    }
