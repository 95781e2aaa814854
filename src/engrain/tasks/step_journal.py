"""Follow one run through its journal: find each step's slot, replay it or record it."""

from __future__ import annotations

import hashlib
import logging
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

from engrain.core import errors
from engrain.core.clock import to_micros
from engrain.core.model.plans import Applied, Plan
from engrain.core.model.tasks import Lease, StepEnd, StepKind, StepRecord, StepStart, StepStatus, StepWrite
from engrain.core.validation import check_key
from engrain.ports import Services
from engrain.ports.items import ItemStore
from engrain.tasks.flow_requests import ENCLOSING_JOURNALS, current_task_or_thread
from engrain.tasks.lease import LeaseHolder
from engrain.tasks.result_encoding import (
    decode,
    describe_error,
    encode_error,
    failure_number,
    fingerprint_arguments,
    rebuild_error,
)
from engrain.tasks.working_state import TaskState

T = TypeVar("T")
SETTLED_STATUSES = ("done", "skipped")
OPEN_STATUSES = ("intent", "ambiguous")
# The input of these is the time until which they wait, as given first.
WAIT_KINDS = ("sleep", "event")
_MAX_WRITE_ATTEMPTS = 3
_log = logging.getLogger("engrain")


class StepRequest(NamedTuple):
    """A step as the caller requests it."""

    kind: StepKind
    name: str
    key: str | None = None
    args: tuple[Any, ...] = ()


class StepSlot(NamedTuple):
    """A step's place in the journal, and its record there."""

    kind: StepKind
    name: str
    occurrence: int
    input: str
    record: StepRecord | None = None
    settled: bool = False

    @property
    def attempt(self) -> int:
        """The last recorded one."""
        return self.record.attempt if self.record else 0

    def __str__(self) -> str:
        return f"{self.kind} {self.name!r}" + (f" (#{self.occurrence})" if self.occurrence else "")


class StepJournal:
    """The journal of one run, entered by a thread or an asyncio task. Several threads may use it."""

    def __init__(
        self,
        services: Services,
        holder: LeaseHolder,
        state: TaskState,
        steps: list[StepRecord],
        entered_by: object,
        version: str,
    ) -> None:
        assert services.journal is not None  # the lease came from it
        self._journal = services.journal
        self.now = services.clock
        self.holder = holder
        self._task = state.task
        self._state = state
        self._state_lock = threading.Lock()
        self._version = version
        self._entered_by = entered_by
        # Recorded steps that this run has not reached yet, and open ones.
        self._records = {(step.name, step.occurrence): step for step in steps}
        self._settled_ahead = sum(self._is_settled(step) for step in steps)
        # Failures on the entering thread are numbered; the program caught those up to `state.handled_failures`.
        # A failure on another thread has no number: later steps may or may not have known of it.
        self._failures = {
            (step.name, step.occurrence): failure_number(step) for step in steps if step.status == "failed"
        }
        self._newest_failure = max(self._failures.values(), default=0)
        self._raised_failure = 0
        self._counts: dict[str, int] = {}
        self._under_way: set[str] = set()
        self._lock = threading.Lock()
        self._process = os.getpid()

    @property
    def task(self) -> str:
        return self._task.task

    @property
    def lease(self) -> Lease:
        return self.holder.lease

    @property
    def is_running(self) -> bool:
        return self.lease.status == "running"

    @property
    def in_claiming_process(self) -> bool:
        """False in a fork of the process that claimed the task."""
        return self._process == os.getpid()

    @property
    def is_replaying(self) -> bool:
        """True while settled steps of an earlier run are to come, and no new step has come."""
        return self._settled_ahead > 0

    def event(self, name: str) -> str | None:
        return self._journal.event(self._task.scope, self._task.task, name)

    # Find the slot of a step

    def enter_slot(self, request: StepRequest) -> StepSlot:
        """Return the next slot of this name. Call `leave_slot` afterwards."""
        try:
            name = build_step_name(request.name, request.key)
        except TypeError as exc:  # not hashable
            raise errors.InvalidInput(
                f"a step's name and key= are str, not {request.name!r} and {request.key!r}."
            ) from exc
        input_ = fingerprint_arguments(request.args, f"{request.kind} {name!r}") if request.args else ""
        self.holder.check()
        if self in ENCLOSING_JOURNALS.get() or self._process != os.getpid():
            raise self._build_misplaced_error(request)
        with self._lock:
            if name in self._under_way:
                running = f"{request.kind} {name!r} of task {self.task!r} is under way"
                raise errors.StepConcurrent(f"{running}: steps that run side by side need a key= each.")
            occurrence = self._counts.get(name, 0)
            record = self._records.get((name, occurrence))
            settled = record is not None and self._is_settled(record)
            slot = StepSlot(request.kind, name, occurrence, input_, record, settled)
            if record is None:
                self._settled_ahead = 0
            else:
                self._check_unchanged(slot, record)
            if slot.settled:
                self._settled_ahead -= 1
                del self._records[name, occurrence]  # its result may be large
            elif not self.is_running:
                raise errors.TaskEnded(f"task {self.task!r} is {self._task.status}: {slot} cannot run any more.")
            self._counts[name] = occurrence + 1
            self._under_way.add(name)
            return slot

    def _build_misplaced_error(self, request: StepRequest) -> errors.TaskError:
        if self._process != os.getpid():
            return errors.TaskError(f"task {self.task!r} is run by the process that entered it, not by a fork of it.")
        return errors.StepNested(
            f"{request.kind} {request.name!r} is called inside another step of task {self.task!r}. A replay of that "
            "step would not reach it: call it before or after, or do its work without a step of its own."
        )

    def leave_slot(self, slot: StepSlot) -> None:
        with self._lock:
            self._under_way.discard(slot.name)

    def _check_unchanged(self, slot: StepSlot, record: StepRecord) -> None:
        if record.status == "failed" and not slot.settled:
            return
        if record.kind != slot.kind:
            raise errors.InputChanged(f"{slot} of task {self.task!r} was recorded as a step of kind {record.kind!r}.")
        if record.input != slot.input and slot.kind not in WAIT_KINDS:
            raise errors.InputChanged(
                f"{slot} of task {self._task.task!r} was recorded with other arguments. Finish the task with the "
                "arguments it began with, give the step another name, or start another task."
            )

    def replay(self, slot: StepSlot) -> Any:
        """Return the result of a settled step; None for a skipped one. A failure that the program caught is raised."""
        if slot.record is not None and slot.record.status == "failed":
            raise rebuild_error(slot.record)
        if slot.record is None or slot.record.status != "done":
            return None
        return slot.record.list_written() if slot.kind == "memory" else decode(slot.record.result)

    # Failures that the program catches

    @property
    def on_entering_thread(self) -> bool:
        """True on the thread or asyncio task that entered the run, which does one step at a time."""
        return self._entered_by == current_task_or_thread()

    @property
    def has_unhandled_failure(self) -> bool:
        """True if a failure was raised that the journal does not know as caught."""
        return self._raised_failure > self._state.handled_failures

    def build_failure(self, slot: StepSlot, error: Exception) -> StepEnd:
        if not self.on_entering_thread:
            self._failures.pop((slot.name, slot.occurrence), None)
            return build_step_end(slot, "failed", error=error)
        self._newest_failure = max(self._newest_failure, self._state.handled_failures) + 1
        self._failures[slot.name, slot.occurrence] = self._newest_failure
        return build_step_end(slot, "failed", encode_error(error, self._newest_failure), error)

    def note_raised(self, slot: StepSlot) -> None:
        if self.on_entering_thread:
            number = self._failures.get((slot.name, slot.occurrence), 0)
            self._raised_failure = max(self._raised_failure, number)

    def record_handled_failures(self) -> None:
        """Record before the next step that the program caught the failures, or a replay would try them again."""
        with self._state_lock:
            self._state.handled_failures = self._raised_failure
            write_reliably(self._journal.keep, self.lease, self._state.encode())

    def _is_settled(self, record: StepRecord) -> bool:
        return record.status in SETTLED_STATUSES or 0 < failure_number(record) <= self._state.handled_failures

    # Write records

    def begin(self, slot: StepSlot, attempt: int, key: str = "") -> StepRecord:
        return self._write_step(self._journal.begin, self._build_start(slot, attempt, key))

    def finish(self, end: StepEnd) -> StepRecord:
        return self._write_end(end, lambda end: self._write_step(self._journal.finish, end))

    def record(self, slot: StepSlot, attempt: int, end: StepEnd) -> StepRecord:
        start = self._build_start(slot, attempt)
        return self._write_end(end, lambda end: self._write_step(self._journal.record, start, end))

    def apply(self, items: ItemStore, plan: Plan, slot: StepSlot, attempt: int) -> Applied:
        """Write a memory step's items and its record in one transaction."""
        lease, start = self.lease, self._build_start(slot, attempt)
        return self._write_end(
            build_step_end(slot, "done"),
            lambda end: write_reliably(items.apply, replace(plan, record=StepWrite(lease, start, end))),
        )

    def keep(self) -> None:
        with self._state_lock:
            write_reliably(self._journal.keep, self.lease, self._state.encode_with_value())

    def _write_end(self, end: StepEnd, write: Callable[[StepEnd], T]) -> T:
        """Write the end of a step, together with working memory if that has changed."""
        if end.status not in SETTLED_STATUSES or not self._state.working_changed():
            return write(end)
        with self._state_lock:  # or an older state could overwrite a newer one
            body, revision = self._state.encode_with_working()
            written = write(replace(end, snapshot=body))
            self._state.mark_stored(revision)
            return written

    def _build_start(self, slot: StepSlot, attempt: int, key: str = "") -> StepStart:
        return StepStart(slot.name, slot.occurrence, slot.kind, slot.input, key, self._version, attempt)

    def find_ambiguous_effects(self) -> list[StepRecord]:
        """Find effects with an unknown outcome: the call was broken off, or the program caught StepAmbiguous."""
        with self._lock:
            doubtful = any(
                record.kind == "effect" and record.status in OPEN_STATUSES for record in self._records.values()
            )
        if not doubtful:
            return []
        # Read again: somebody may have settled them meanwhile.
        return [step for step in self._journal.unsettled(self._task.scope, self._task.task) if step.kind == "effect"]

    def running_steps(self) -> list[str]:
        with self._lock:
            return sorted(self._under_way)

    def find_unvisited_steps(self) -> list[str]:
        """Return the names of recorded steps that this run has not reached, once for each occurrence."""
        with self._lock:
            return [name for name, number in self._records if number >= self._counts.get(name, 0)]

    def stable_key(self, slot: StepSlot, round_: int = 0) -> str:
        """Return one key for all attempts of this step of this task. A compensation starts a new round."""
        started = to_micros(self._task.started_at)  # a later task may have the same name
        parts = (self._task.scope.id, self._task.task, str(started), slot.name, str(slot.occurrence), str(round_))
        text = "".join(f"{len(part)}:{part}" for part in parts)
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    def _write_step(self, write: Callable[..., StepRecord], *what: object) -> StepRecord:
        record = write_reliably(write, self.holder.lease, *what)
        with self._lock:
            if record.status in OPEN_STATUSES:
                self._records[record.name, record.occurrence] = record
            else:
                self._records.pop((record.name, record.occurrence), None)
        return record


def write_reliably(write: Callable[..., T], *what: object) -> T:
    """Repeat a write with an unknown outcome. Every write of the journal may be repeated."""
    for _ in range(_MAX_WRITE_ATTEMPTS - 1):
        try:
            return write(*what)
        except errors.OutcomeUnknown as unknown:
            unknown.raise_interrupt()
            _log.warning("a write to the journal is repeated: %s", unknown)
    return write(*what)


@lru_cache(4096)
def build_step_name(name: str, key: str | None) -> str:
    """Return name or name[key]. A name has no brackets, so the two cannot be confused."""
    check_key(name, "step name")
    if "[" in name or "]" in name:
        raise errors.InvalidInput(f"a step name has no brackets: {name!r}. Distinguish the steps with key= instead.")
    return name if key is None else f"{name}[{check_key(key, 'key')}]"


def build_step_end(
    slot: StepSlot, status: StepStatus, result: str | None = None, error: BaseException | str | None = None
) -> StepEnd:
    return StepEnd(slot.name, slot.occurrence, status, result, None if error is None else describe_error(error))
