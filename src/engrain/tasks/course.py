"""One run of one task, from its claim to its end, whichever face it has."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, TypeVar

from engrain.core.clock import checked_time
from engrain.core.errors import (
    ConfigError,
    InvalidInput,
    LeaseLost,
    StepAmbiguous,
    TaskEnded,
    TaskError,
    TaskWaiting,
    VersionChanged,
)
from engrain.core.journal import ENDED, Claim, TaskEnd, TaskRecord, TaskStatus
from engrain.core.notes import Note, as_note, checked
from engrain.core.scope import Scope
from engrain.core.text import checked_key, checked_name
from engrain.ports import Kit, TaskJournal
from engrain.tasks import steps
from engrain.tasks.envelope import decode, encode
from engrain.tasks.flow import Flow
from engrain.tasks.lease import Tenure
from engrain.tasks.ledger import Ledger, Seat, Wish, shown, sure
from engrain.tasks.worker import worker_name

T = TypeVar("T")
MAX_GOAL = 10_000
SHORTEST_LEASE, LONGEST_LEASE = 0.05, 86_400.0
_log = logging.getLogger("engrain")


@dataclass(frozen=True, slots=True)
class Terms:
    """What a task is, and how it is held."""

    task: str
    goal: str = ""
    version: str = ""
    accepts: Sequence[str] = ()
    lease: float = 30.0
    max_age: timedelta | float | None = None

    def __post_init__(self) -> None:
        checked_key(self.task, "task")
        checked_name(self.version, "version")
        if not isinstance(self.goal, str) or len(self.goal) > MAX_GOAL:
            raise InvalidInput(f"goal must be a str of at most {MAX_GOAL:,} characters.")
        if isinstance(self.accepts, str):
            raise InvalidInput('accepts is a list of versions: accepts=("1",).')
        if not isinstance(self.lease, (int, float)) or not SHORTEST_LEASE <= self.lease <= LONGEST_LEASE:
            raise InvalidInput(f"lease must be {SHORTEST_LEASE} to {LONGEST_LEASE:,.0f} seconds, not {self.lease!r}.")

    def deadline(self, now: datetime) -> datetime | None:
        if self.max_age is None:
            return None
        age = self.max_age if isinstance(self.max_age, timedelta) else timedelta(seconds=self.max_age)
        return now + age


class Course:
    """Open it, take its flows, close it. Used by one run; its flows may run side by side."""

    def __init__(self, kit: Kit, scope: Scope, terms: Terms) -> None:
        self._kit = kit
        self._scope = scope
        self.terms = terms
        self.outcome = ""
        self.record: TaskRecord | None = None
        self._tenure: Tenure | None = None
        self._ledger: Ledger | None = None
        self._over = False

    # From claim to end

    def open(self) -> None:
        if self._ledger is not None:
            raise TaskError(f"this run of task {self.terms.task!r} was entered before: call memory.task(…) again.")
        journal = journal_of(self._kit)
        before = journal.task(self._scope, self.terms.task)
        if before is not None:
            self._prove(before)
        deadline = self.terms.deadline(self._kit.clock())
        claim = Claim(
            self._scope, self.terms.task, worker_name(), self.terms.lease, self.terms.goal, self.terms.version, deadline
        )
        tenure = Tenure(journal, claim)
        try:
            found = journal.task(self._scope, self.terms.task)
            if found is None:
                raise LeaseLost(f"task {self.terms.task!r} was removed while it was claimed.")
            self._prove(found)
            recorded = journal.steps(self._scope, self.terms.task)
        except BaseException:
            if tenure.lease.status == "running":
                tenure.end(TaskEnd("waiting"))
            raise
        self.record, self._tenure = found, tenure
        self._ledger = Ledger(self._kit, tenure, found, recorded, self.terms.version)

    def _prove(self, found: TaskRecord) -> None:
        if found.version != self.terms.version and found.version not in self.terms.accepts:
            raise VersionChanged(
                f"task {found.task!r} was started by version {found.version!r}, this is {self.terms.version!r}. "
                f"If it may be continued: memory.task(…, version={self.terms.version!r}, accepts=({found.version!r},))."
            )
        if found.status in ENDED and found.status != "done":
            raise TaskEnded(f"task {found.task!r} is {found.status}: {found.outcome or 'nothing more is known'}.")

    def close(self, error: BaseException | None) -> None:
        """Say how the run ended. Raises only where the caller would otherwise take the task for done."""
        tenure, ledger = self._tenure, self._ledger
        if tenure is None or ledger is None or self._over:
            return
        self._over = True
        if not ledger.open or isinstance(error, LeaseLost):
            tenure.stop()
            return
        unclear = ledger.unfinished() if error is None else []
        try:
            tenure.end(self._end(error, unclear, ledger))
        except LeaseLost:
            if error is None:
                raise
            _log.warning("task %r was taken over before this run could say how it ended.", self.terms.task)
        if unclear:
            one = unclear[0]
            seat = Seat(one.kind, one.name, one.occurrence, one.input, one)
            raise steps.ambiguous(self.terms.task, seat, one.key, "its call was broken off")

    def _end(self, error: BaseException | None, unclear: Sequence[object], ledger: Ledger) -> TaskEnd:
        status: TaskStatus
        if error is None and unclear:
            status, outcome = "parked", "the call of an effect was broken off"
        elif error is None:
            status, outcome = "done", self.outcome
            missed = ledger.passed_over()
            if missed:
                _log.warning("task %r ended without coming to its recorded steps %s.", self.terms.task, missed[:5])
        elif isinstance(error, TaskWaiting):
            status, outcome = "waiting", str(error)
        elif isinstance(error, StepAmbiguous):
            status, outcome = "parked", f"the effect {error.step!r} may or may not have happened"
        elif isinstance(error, (Exception, BaseExceptionGroup)):
            # Not "failed", which is the end: what stopped it can be mended, and then it goes on.
            status, outcome = "parked", shown(error)
        else:
            status, outcome = "waiting", f"broken off: {shown(error)}"
        return TaskEnd(status, outcome)

    def now(self) -> datetime:
        return self._kit.clock()

    # Steps

    def step(self, wish: Wish, work: steps.Work) -> Flow[Any]:
        kind: Callable[[Ledger, Seat, steps.Work], Flow[Any]] = steps.effect if wish.kind == "effect" else steps.step
        return self._seated(wish, lambda ledger, seat: kind(ledger, seat, work))

    def remember(self, name: str, what: object, key: str | None, fields: Mapping[str, Any]) -> Flow[Any]:
        many = isinstance(what, Sequence) and not isinstance(what, str)
        notes = [checked(_note(one, fields)) for one in (what if many else [what])]  # type: ignore[attr-defined]
        wish = Wish("memory", name, key, tuple(_told(note) for note in notes))
        flow = self._seated(wish, lambda ledger, seat: steps.remember(ledger, seat, self._kit, notes))
        return flow if many else _first(flow)

    def sleep(self, name: str, until: datetime | str, key: str | None, block: bool) -> Flow[None]:
        due = checked_time(until, "until")
        return self._seated(Wish("sleep", name, key), lambda ledger, seat: steps.sleep(ledger, seat, due, block))

    def event(self, name: str, timeout: float | None, key: str | None, block: bool) -> Flow[Any]:
        return self._seated(
            Wish("event", name, key), lambda ledger, seat: steps.event(ledger, seat, name, timeout, block)
        )

    def keep(self, snapshot: object) -> None:
        text = encode(snapshot, "the snapshot")
        ledger = self._entered()
        # While steps are replayed, what an earlier run kept after them is newer.
        if ledger.open and not ledger.replaying:
            sure(lambda: journal_of(self._kit).keep(ledger.lease, text))
        if self.record is not None:
            self.record = replace(self.record, snapshot=text)

    @property
    def snapshot(self) -> Any:
        self._entered()
        return decode(self.record.snapshot) if self.record else None

    def _entered(self) -> Ledger:
        if self._ledger is None:
            raise TaskError(f"enter the run first: with memory.task({self.terms.task!r}) as run: …")
        return self._ledger

    def _seated(self, wish: Wish, body: Callable[[Ledger, Seat], Flow[T]]) -> Flow[T]:
        ledger = self._entered()
        seat = ledger.enter(wish)
        try:
            if seat.settled:
                value: T = ledger.value(seat)
                return value
            return (yield from body(ledger, seat))
        finally:
            ledger.leave(seat)


def journal_of(kit: Kit) -> TaskJournal:
    if kit.journal is None:
        raise ConfigError("this memory has no store for durable tasks.")
    return kit.journal


def _note(what: object, fields: Mapping[str, Any]) -> Note:
    return as_note({"text": what, **fields} if isinstance(what, str) and fields else what)


def _told(note: Note) -> dict[str, Any]:
    """What the fingerprint of a memory step covers."""
    return {
        "text": note.text,
        "importance": note.importance,
        "slot": note.slot,
        "metadata": dict(note.metadata or {}),
        "source": str(note.source),
        "occurred_at": str(note.occurred_at),
        "place": str(note.place),
        "relation": str(note.relation),
    }


def _first(flow: Flow[Any]) -> Flow[Any]:
    return (yield from flow)[0]
