"""One run's view of its journal: which step comes next, whether it is replayed or done, and what is recorded of it."""

from __future__ import annotations

import hashlib
import json
import logging
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from functools import lru_cache
from typing import Any, NamedTuple, TypeVar

from engrain.core.clock import to_micros
from engrain.core.errors import (
    InputChanged,
    InvalidInput,
    OutcomeUnknown,
    StepConcurrent,
    StepNested,
    TaskEnded,
    TaskError,
)
from engrain.core.model.plans import Applied, Plan
from engrain.core.model.tasks import Lease, StepEnd, StepKind, StepRecord, StepStart, StepStatus, StepWrite
from engrain.core.validation import check_key
from engrain.ports import ItemStore, Services
from engrain.tasks import outcomes
from engrain.tasks.driver import INSIDE, line
from engrain.tasks.lease import Tenure
from engrain.tasks.outcomes import shown
from engrain.tasks.serialization import decode, fingerprint
from engrain.tasks.working_state import TaskState

T = TypeVar("T")
SETTLED = ("done", "skipped")
OPEN = ("intent", "ambiguous")
# Their input is the moment until which they wait: the one that was given first.
WAITS = ("sleep", "event")
_REPEATS = 3
_log = logging.getLogger("engrain")


class Wish(NamedTuple):
    """A step as the caller asks for it."""

    kind: StepKind
    name: str
    key: str | None = None
    args: tuple[Any, ...] = ()


class Seat(NamedTuple):
    """A step's place in the journal, and what is recorded there."""

    kind: StepKind
    name: str
    occurrence: int
    input: str
    record: StepRecord | None = None
    settled: bool = False
    attempt: int = 0  # the number of the last that is known of

    def __str__(self) -> str:
        return f"{self.kind} {self.name!r}" + (f" (#{self.occurrence})" if self.occurrence else "")


class Ledger:
    """Safe to use from several threads."""

    def __init__(
        self, services: Services, tenure: Tenure, kept: TaskState, steps: list[StepRecord], here: tuple[str, object]
    ) -> None:
        assert services.journal is not None  # whoever holds a lease has a journal
        self._journal = services.journal
        self._clock = services.clock
        self._tenure = tenure
        self._task = kept.task
        self._kept = kept
        self._keeping = threading.Lock()
        self._version, self._line = here
        # What is recorded and was not yet come to, and what is still open.
        self._records = {(step.name, step.occurrence): step for step in steps}
        self._ahead = sum(self._stands(step) for step in steps)
        # Failures on the line of the program are numbered: those up to `kept.caught` it went on from. One beside others
        # has no number, for nobody knows whether what came after it knew of it.
        self._failures = {
            (one.name, one.occurrence): outcomes.number_of(one) for one in steps if one.status == "failed"
        }
        self._newest = max(self._failures.values(), default=0)
        self._raised = 0
        self._counts: dict[str, int] = {}
        self._under_way: set[str] = set()
        self._lock = threading.Lock()
        self._process = os.getpid()

    @property
    def task(self) -> str:
        return self._task.task

    @property
    def lease(self) -> Lease:
        return self._tenure.lease

    @property
    def open(self) -> bool:
        return self._tenure.lease.status == "running"

    @property
    def here(self) -> bool:
        """Whether this is the process that claimed the task, and not a fork of it."""
        return self._process == os.getpid()

    @property
    def replaying(self) -> bool:
        """Whether steps that an earlier run settled are to come, and none that it did not know has come."""
        return self._ahead > 0

    def now(self) -> datetime:
        return self._clock()

    def check(self) -> None:
        """LeaseLost, if the task is known to be no longer ours."""
        self._tenure.check()

    def assure(self) -> None:
        """Right before an effect: the task is ours, and will be for a while."""
        self._tenure.assure()

    def event(self, name: str) -> str | None:
        return self._journal.event(self._task.scope, self._task.task, name)

    # Which step, and whether it goes

    def enter(self, wish: Wish) -> Seat:
        """The next place of this name. Whoever enters leaves."""
        try:
            name = full_name(wish.name, wish.key)
        except TypeError as exc:
            raise InvalidInput(f"a step's name and its key= are str, not {wish.name!r} and {wish.key!r}.") from exc
        input_ = fingerprint(wish.args, f"{wish.kind} {name!r}") if wish.args else ""
        if self._tenure.lost:
            self._tenure.check()
        if self in INSIDE.get() or self._process != os.getpid():
            raise self._misplaced(wish)
        with self._lock:
            if name in self._under_way:
                raise StepConcurrent(
                    f"{wish.kind} {name!r} of task {self.task!r} is under way: "
                    "steps that run side by side need a key= each."
                )
            occurrence = self._counts.get(name, 0)
            there = self._records.get((name, occurrence))
            if there is None:
                seat = Seat(wish.kind, name, occurrence, input_)
                self._ahead = 0
            else:
                seat = Seat(wish.kind, name, occurrence, input_, there, self._stands(there), there.attempt)
                self._prove(seat, there)
            if seat.settled:
                self._ahead -= 1
                del self._records[name, occurrence]  # it holds the result, which may be large
            elif self._tenure.lease.status != "running":
                raise TaskEnded(f"task {self.task!r} is {self._task.status}: {seat} cannot run any more.")
            self._counts[name] = occurrence + 1
            self._under_way.add(name)
            return seat

    def _misplaced(self, wish: Wish) -> TaskError:
        if self._process != os.getpid():
            return TaskError(f"task {self.task!r} is run by the process that entered it, not by a fork of it.")
        return StepNested(
            f"{wish.kind} {wish.name!r} is called inside another step of task {self.task!r}. Once that one is done, "
            "nobody comes here any more: call it before or after, or do its work without a step of its own."
        )

    def leave(self, seat: Seat) -> None:
        with self._lock:
            self._under_way.discard(seat.name)

    def _prove(self, seat: Seat, there: StepRecord) -> None:
        if there.status == "failed" and not seat.settled:
            return
        if there.kind != seat.kind:
            raise InputChanged(f"{seat} of task {self._task.task!r} was recorded as a step of kind {there.kind!r}.")
        if there.input != seat.input and seat.kind not in WAITS:
            raise InputChanged(
                f"{seat} of task {self._task.task!r} was recorded with other arguments. Finish the task with the "
                "arguments it began with, give the step another name, or start another task."
            )

    def value(self, seat: Seat) -> Any:
        """What a settled step returned; None for one that was left out. A failure that stands is raised."""
        if seat.record is not None and seat.record.status == "failed":
            raise outcomes.again(seat.record)
        if seat.record is None or seat.record.status != "done":
            return None
        # The store itself writes what a memory step returned: the ids, with no envelope.
        return json.loads(seat.record.result or "[]") if seat.kind == "memory" else decode(seat.record.result)

    # Failures that the program goes on from

    @property
    def in_line(self) -> bool:
        """Whether this is called by the thread or asyncio task that entered the run, which does one step at a time."""
        return self._line == line()

    @property
    def unnoted(self) -> bool:
        """Whether a failure was raised of which the journal does not know that the program has caught it."""
        return self._raised > self._kept.caught

    def failed(self, seat: Seat, error: Exception) -> StepEnd:
        if not self.in_line:
            self._failures.pop((seat.name, seat.occurrence), None)
            return ended(seat, "failed", error=error)
        self._newest = max(self._newest, self._kept.caught) + 1
        self._failures[seat.name, seat.occurrence] = self._newest
        return ended(seat, "failed", outcomes.noted(error, self._newest), error)

    def raised(self, seat: Seat) -> None:
        if self.in_line:
            self._raised = max(self._raised, self._failures.get((seat.name, seat.occurrence), 0))

    def go_on(self) -> None:
        """Before anything else begins: what was raised is not tried again, or both would happen in the end."""
        with self._keeping:
            self._kept.caught = self._raised
            sure(self._journal.keep, self.lease, self._kept.body())

    def _stands(self, there: StepRecord) -> bool:
        return there.status in SETTLED or 0 < outcomes.number_of(there) <= self._kept.caught

    # What is recorded

    def begin(self, seat: Seat, attempt: int, key: str = "") -> StepRecord:
        return self._written(self._journal.begin, self.start(seat, attempt, key))

    def finish(self, end: StepEnd) -> StepRecord:
        return self._ended(end, lambda end: self._written(self._journal.finish, end))

    def record(self, seat: Seat, attempt: int, end: StepEnd) -> StepRecord:
        start = self.start(seat, attempt)
        return self._ended(end, lambda end: self._written(self._journal.record, start, end))

    def apply(self, items: ItemStore, plan: Plan, seat: Seat, attempt: int) -> Applied:
        """A memory step, with its record in one transaction."""
        lease, start = self.lease, self.start(seat, attempt)
        return self._ended(
            ended(seat, "done"), lambda end: sure(items.apply, replace(plan, record=StepWrite(lease, start, end)))
        )

    def keep(self) -> None:
        with self._keeping:
            sure(self._journal.keep, self.lease, self._kept.with_value())

    def _ended(self, end: StepEnd, write: Callable[[StepEnd], T]) -> T:
        """Write the end of a step, and with it working memory if that has changed."""
        if end.status not in SETTLED or not self._kept.changed():
            return write(end)
        with self._keeping:  # one at a time, or an older state could be stored over a newer one
            body, mark = self._kept.with_working()
            written = write(replace(end, snapshot=body))
            self._kept.stored(mark)
            return written

    def start(self, seat: Seat, attempt: int, key: str = "") -> StepStart:
        return StepStart(seat.name, seat.occurrence, seat.kind, seat.input, key, self._version, attempt)

    def unclear(self) -> list[StepRecord]:
        """Effects whose outcome nobody knows: the call was broken off, or the report of it was caught."""
        with self._lock:
            doubtful = any(one.kind == "effect" and one.status in OPEN for one in self._records.values())
        if not doubtful:
            return []
        # Somebody may have settled them meanwhile.
        return [one for one in self._journal.unsettled(self._task.scope, self._task.task) if one.kind == "effect"]

    def under_way(self) -> list[str]:
        with self._lock:
            return sorted(self._under_way)

    def names(self) -> list[str]:
        """Of the recorded steps that were not yet come to, once for each occurrence."""
        with self._lock:
            return [name for name, _ in self._records]

    def passed_over(self) -> list[str]:
        """Recorded steps that this run never came to: the code has changed under its version."""
        with self._lock:
            return [name for name, number in self._records if number >= self._counts.get(name, 0)]

    def stable_key(self, seat: Seat, round_: int = 0) -> str:
        """The same for every attempt of this step of this task, and for no other; a new round after a compensation."""
        started = to_micros(self._task.started_at)  # a task of the same name that comes later is another one
        parts = (self._task.scope.id, self._task.task, str(started), seat.name, str(seat.occurrence), str(round_))
        text = "".join(f"{len(part)}:{part}" for part in parts)
        return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()

    def _written(self, write: Callable[..., StepRecord], *what: object) -> StepRecord:
        try:
            record = write(self._tenure.lease, *what)
        except OutcomeUnknown as exc:
            record = repeated(exc, write, self._tenure.lease, *what)
        with self._lock:
            if record.status in OPEN:
                self._records[record.name, record.occurrence] = record
            else:
                self._records.pop((record.name, record.occurrence), None)
        return record


def sure(write: Callable[..., T], *what: object) -> T:
    try:
        return write(*what)
    except OutcomeUnknown as exc:
        return repeated(exc, write, *what)


def repeated(unknown: OutcomeUnknown, write: Callable[..., T], *what: object) -> T:
    """A write whose outcome is not known, once more: every write of the journal may be repeated."""
    for _ in range(_REPEATS - 1):
        _log.warning("a write to the journal is repeated: %s", unknown)
        try:
            return write(*what)
        except OutcomeUnknown as exc:
            unknown = exc
    return write(*what)


@lru_cache(4096)
def full_name(name: str, key: str | None) -> str:
    """name, or name[key]. A name has no brackets, so the two cannot be confused."""
    check_key(name, "step name")
    if "[" in name or "]" in name:
        raise InvalidInput(f"a step name has no brackets: {name!r}. Give what tells the steps apart as key=.")
    return name if key is None else f"{name}[{check_key(key, 'key')}]"


def ended(
    seat: Seat, status: StepStatus, result: str | None = None, error: BaseException | str | None = None
) -> StepEnd:
    return StepEnd(seat.name, seat.occurrence, status, result, None if error is None else shown(error))
