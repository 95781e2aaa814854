"""One run of one task, from its claim to its end, whichever face it has."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any, TypeVar

from engrain.core.clock import checked_span, checked_time
from engrain.core.errors import (
    ConfigError,
    EngrainError,
    InvalidInput,
    LeaseLost,
    StepAmbiguous,
    TaskEnded,
    TaskError,
    VersionChanged,
)
from engrain.core.identity import Scope
from engrain.core.model.items import Note, as_note, checked
from engrain.core.model.tasks import ENDED, Claim, StepRecord, TaskEnd, TaskRecord
from engrain.core.validation import checked_key, checked_name, checked_text
from engrain.ingest.write import clean
from engrain.ports import Services, TaskJournal
from engrain.tasks import steps
from engrain.tasks.driver import Ask, Flow
from engrain.tasks.journal import WAITS, Ledger, Seat, Wish
from engrain.tasks.lease import Tenure, worker_name
from engrain.tasks.outcomes import end_of, expire
from engrain.tasks.serialization import encode
from engrain.tasks.working_state import Outcome, TaskState, WorkingStateBinding

# So many workers in a row that ended with no step to show for it, and a task is parked.
MAX_DEATHS = 5


def deaths(left: TaskRecord, steps: Sequence[StepRecord], before: int) -> int:
    """How many in a row, with the one that left the task like this, given how many there were before it."""
    # A run that is left, parked or resumed by whomever gives the task back: it is running only if its worker is gone.
    if left.status != "running" or _showed(steps, left.epoch):
        return 0
    return before + 1


def _showed(steps: Sequence[StepRecord], epoch: int) -> bool:
    """An effect that was begun is not to show for it: it may be what kills. To wait for hours is no offence."""
    opened = [one for one in steps if one.status == "intent"]
    if any(one.kind in WAITS for one in opened) and not any(one.kind == "effect" for one in opened):
        return True
    return any(one.epoch == epoch and one.status != "intent" for one in steps)


T = TypeVar("T")
MAX_GOAL = 10_000
SHORTEST_LEASE, LONGEST_LEASE = 0.05, 86_400.0
_log = logging.getLogger("engrain")


@dataclass(frozen=True, slots=True)
class TaskOptions:
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
        if self.goal != "":
            checked_text(self.goal, "goal", MAX_GOAL)
        if isinstance(self.accepts, str) or not isinstance(self.accepts, Sequence):
            raise InvalidInput('accepts is a list of versions: accepts=("1",).')
        for one in self.accepts:
            checked_name(one, "accepts")
        if self.max_age is not None:
            checked_span(self.max_age, "max_age")
        if not isinstance(self.lease, (int, float)) or not SHORTEST_LEASE <= self.lease <= LONGEST_LEASE:
            raise InvalidInput(f"lease must be {SHORTEST_LEASE} to {LONGEST_LEASE:,.0f} seconds, not {self.lease!r}.")

    def deadline(self, now: datetime) -> datetime | None:
        return None if self.max_age is None else now + checked_span(self.max_age, "max_age")


class TaskExecution:
    """Open it, take its flows, close it. Used by one run; its flows may run side by side."""

    def __init__(
        self, services: Services, scope: Scope, terms: TaskOptions, binding: WorkingStateBinding | None = None
    ) -> None:
        self._services = services
        self._binding = binding
        self._scope = scope
        self.terms = terms
        self.outcome = Outcome()
        self.record: TaskRecord | None = None
        self._tenure: Tenure | None = None
        self._ledger: Ledger | None = None
        self._over = False
        self._held_back = False  # what the program kept while steps were replayed

    # From claim to end

    def open(self, line: object) -> None:
        """`line` is the thread or the asyncio task that the program of this run is."""
        if self._ledger is not None:
            raise TaskError(f"this run of task {self.terms.task!r} was entered before: call memory.task(…) again.")
        journal = journal_of(self._services)
        now = self._services.clock()
        before = journal.task(self._scope, self.terms.task)
        if before is not None and before.deadline is not None and before.deadline <= now:
            expire(self._services)
            before = journal.task(self._scope, self.terms.task)
        if before is not None:
            self._prove(before)
        deadline = self.terms.deadline(now)
        claim = Claim(
            self._scope, self.terms.task, worker_name(), self.terms.lease, self.terms.goal, self.terms.version, deadline
        )
        tenure = Tenure(journal, claim)
        try:
            found = journal.task(self._scope, self.terms.task)
            if found is None:
                raise LeaseLost(f"task {self.terms.task!r} was removed while it was claimed.")
            self._prove(found)
            self._kept = TaskState(found, self._binding)
            recorded = journal.steps(self._scope, self.terms.task)
            ledger = Ledger(self._services, tenure, self._kept, recorded, (self.terms.version, line))
            recounted = self._recounted(before, recorded, ledger)
            if self._kept.begin() or recounted:
                ledger.keep()
        except BaseException:
            if self._binding:
                self._binding.leave()
            if tenure.lease.status == "running":
                parked = before if before is not None and before.status == "parked" else None
                tenure.end(TaskEnd("waiting") if parked is None else TaskEnd("parked", parked.outcome))
            raise
        self.record, self._tenure, self._ledger = found, tenure, ledger

    def _recounted(self, before: TaskRecord | None, recorded: Sequence[StepRecord], ledger: Ledger) -> bool:
        """Whether the count of workers that died in it is another now."""
        if before is None or not ledger.open:
            return False
        counted, self._kept.deaths = self._kept.deaths, deaths(before, recorded, self._kept.deaths)
        return self._kept.deaths != counted

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
        if tenure is None or ledger is None or self._over or not ledger.here:
            return
        self._over = True
        if not ledger.open:
            tenure.stop()
            return
        try:
            if error is None:
                self._finish(tenure, ledger)
            else:
                self._leave(tenure, error)
        finally:
            tenure.stop()  # whatever could not be written: nobody works at it here any more
            if self._binding:
                self._binding.leave()

    def _leave(self, tenure: Tenure, error: BaseException) -> None:
        try:
            tenure.end(end_of(error))
        except (EngrainError, LeaseLost) as exc:
            _log.warning("task %r could not be told how its run ended: %s", self.terms.task, exc)

    def _finish(self, tenure: Tenure, ledger: Ledger) -> None:
        """Done, unless a step is not, or nobody knows the outcome of an effect."""
        halted = self._unfinished(ledger)
        if halted is not None:
            tenure.end(end_of(halted))
            raise halted
        missed = ledger.passed_over()
        if missed:
            _log.warning("task %r ended without coming to its recorded steps %s.", self.terms.task, missed[:5])
        if self._held_back:
            ledger.keep()
        if ledger.unnoted:
            ledger.go_on()
        # Before the end is recorded, or a crash in between would lose it; to tell it twice changes nothing.
        if self._kept.tells(self.outcome):
            tenure.confirm()  # a task that somebody cancelled meanwhile has come to nothing
            self._tell()
        tenure.end(TaskEnd("done", clean(self.outcome.text, self._services.redact)))

    def _tell(self) -> None:
        try:
            self._kept.done(self.outcome)
        except EngrainError as exc:
            _log.warning("the outcome of task %r was not kept: %s", self.terms.task, exc)

    def _unfinished(self, ledger: Ledger) -> TaskError | None:
        names = ledger.under_way()
        if names:
            return TaskError(
                f"task {self.terms.task!r} was left while {', '.join(names)} ran on another thread or in another "
                "coroutine: wait for every step before the run ends. It is parked; start it again to go on."
            )
        unclear = ledger.unclear()
        return _halted(self.terms.task, unclear[0]) if unclear else None

    def now(self) -> datetime:
        return self._services.clock()

    # Steps

    def step(self, wish: Wish, work: steps.Work) -> Flow[Any]:
        return self._seated(wish, steps.effect if wish.kind == "effect" else steps.step, work)

    def remember(self, name: str, what: object, key: str | None, fields: Mapping[str, Any]) -> Flow[Any]:
        many = isinstance(what, Sequence) and not isinstance(what, str)
        notes = [checked(_note(one, fields)) for one in (what if many else [what])]  # type: ignore[attr-defined]
        wish = Wish("memory", name, key, tuple(_told(note) for note in notes))
        flow = self._seated(wish, steps.remember, self._services, notes)
        return flow if many else _first(flow)

    def sleep(self, name: str, until: datetime | str, key: str | None, block: bool) -> Flow[None]:
        due = checked_time(until, "until")
        return self._seated(Wish("sleep", name, key), steps.sleep, due, block)

    def event(
        self, name: str, key: str | None, timeout: timedelta | float | None, block: bool, default: Any
    ) -> Flow[Any]:
        within = None if timeout is None else checked_span(timeout, "timeout")
        if within is None and default is not ...:
            raise InvalidInput("default= is what stands in for an event after its time-out: give timeout=, too.")
        instead = None if default is ... else encode(default, "default")
        return self._seated(Wish("event", name, key), steps.event, name, steps.Wait(within, block, instead))

    def keep(self, snapshot: object) -> None:
        ledger = self._entered()
        self._kept.value = snapshot
        self._held_back = ledger.replaying  # then what an earlier run kept after these steps is newer
        if ledger.open and not self._held_back:
            ledger.keep()

    @property
    def snapshot(self) -> Any:
        if self._ledger is None:
            raise not_entered(self.terms.task)
        return self._kept.value

    @property
    def working(self) -> Any:
        if self._ledger is None:
            raise not_entered(self.terms.task)
        if self._binding is None:
            raise TaskError(f"task {self.terms.task!r} was entered with working=False, and has no working memory.")
        return self._binding.working

    @property
    def recorded(self) -> list[str]:
        """The names of the steps that are recorded and were not yet come to, once for each occurrence."""
        return self._entered().names()

    def _entered(self) -> Ledger:
        if self._ledger is None:
            raise not_entered(self.terms.task)
        if self._over:
            raise TaskError(f"this run of task {self.terms.task!r} is over: call memory.task(…) again.")
        return self._ledger

    def _seated(self, wish: Wish, body: Callable[..., Flow[T]], *given: Any) -> Flow[T]:
        ledger = self._ledger
        if ledger is None or self._over:
            ledger = self._entered()
        seat = ledger.enter(wish)
        try:
            if seat.settled:
                if not ledger.replaying:
                    self._kept.caught_up()
                value: T = ledger.value(seat)
                return value
            if ledger.unnoted and ledger.in_line:
                yield Ask(ledger.go_on)
            return (yield from body(ledger, seat, *given))
        except Exception:
            ledger.raised(seat)
            raise
        finally:
            ledger.leave(seat)


def not_entered(task: str) -> TaskError:
    return TaskError(f"enter the run first: with memory.task({task!r}) as run: …")


def _halted(task: str, one: StepRecord) -> StepAmbiguous:
    seat = Seat(one.kind, one.name, one.occurrence, one.input)
    return steps.ambiguous(task, seat, one.key, one.error or "its call was broken off")


def journal_of(services: Services) -> TaskJournal:
    if services.journal is None:
        raise ConfigError("this memory has no store for durable tasks.")
    return services.journal


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
        **({"expires_at": str(note.expires_at)} if note.expires_at else {}),
    }


def _first(flow: Flow[Any]) -> Flow[Any]:
    return (yield from flow)[0]
