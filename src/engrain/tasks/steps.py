"""The classes of steps as flows: a step, an effect, a memory step, a sleep and the wait for an event."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from engrain.core.clock import check_time
from engrain.core.errors import EffectNotPerformed, InvalidInput, StepAmbiguous, TaskWaiting
from engrain.core.model.items import Note
from engrain.core.model.plans import Add, Plan
from engrain.core.model.tasks import StepEnd, StepRecord
from engrain.ingest import write
from engrain.ports import Services
from engrain.tasks.driver import Ask, Call, Flow, Pause
from engrain.tasks.journal import SETTLED, Ledger, Seat, ended, sure
from engrain.tasks.outcomes import shown
from engrain.tasks.policies import Compensate, OnAmbiguous, Retry, happened
from engrain.tasks.serialization import as_replayed, decode, encode

# A sleep looks at the clock this often, because somebody may set it; an event is asked for with a growing pause.
_LONGEST_NAP = 1.0
_FIRST_LOOK, _LAST_LOOK = 0.05, 1.0


class Work(NamedTuple):
    """What a step calls, and what happens when that fails."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    retry: Retry
    on_ambiguous: OnAmbiguous = "halt"
    key_as: str | None = None

    def call(self, function: Callable[..., Any], key: str, ledger: Ledger) -> Call:
        named: Mapping[str, Any] = {} if self.key_as is None else {self.key_as: key}
        return Call(function, self.args, named, ledger)


def step(ledger: Ledger, seat: Seat, work: Work) -> Flow[Any]:
    """One commit, at its end. From the second attempt on each is noted, so that a crash does not reset the count."""
    attempt = seat.attempt + 1
    # What a crash broke off counts; what failed for good was continued by somebody's decision and starts afresh.
    used = seat.attempt if seat.record is not None and seat.record.status == "intent" else 0
    last = attempt + max(0, work.retry.times - used)
    while True:
        began = time.monotonic()
        try:
            value = yield Call(work.function, work.args, run=ledger)
            result = encode(value, seat)
        except Exception as exc:
            if attempt >= last or isinstance(exc, InvalidInput):
                failed = replace(ledger.failed(seat, exc), took=time.monotonic() - began)
                yield Ask(ledger.record, (seat, attempt, failed))
                exc.add_note(f"engrain: {seat} failed in attempt {attempt}, and no attempt is left.")
                raise
            attempt += 1
            yield Ask(ledger.begin, (seat, attempt))
            yield Pause(work.retry.pause(attempt - 1))
            continue
        end = StepEnd(seat.name, seat.occurrence, "done", result, None, time.monotonic() - began)
        yield Ask(ledger.record, (seat, attempt, end))
        return value if type(value) is str else as_replayed(value, result)


def effect(ledger: Ledger, seat: Seat, work: Work) -> Flow[Any]:
    """Two commits around the call. Whatever is not known to have happened, or not, goes by the caller's policy."""
    state = _Effect(ledger, seat, work)
    there = seat.record
    if there is not None and there.status in ("intent", "ambiguous"):
        settled = yield from state.settle(there.error or "the process ended while it was under way")
        if settled:
            return state.value
    while True:
        begun = yield Ask(ledger.begin, (seat, state.next_attempt(), state.key))
        if begun.status in SETTLED:  # by somebody's word, while we probed or undid
            return ledger.value(seat._replace(record=begun))
        yield Ask(ledger.assure)
        call = work.call(work.function, state.key, ledger)
        try:
            value = yield call
        except EffectNotPerformed as exc:
            yield Ask(ledger.finish, (ledger.failed(seat, exc),))
            if state.failures >= work.retry.times:
                raise
            yield from state.pause()
            continue
        except Exception as exc:  # whatever it was, it does not tell whether the effect happened
            if isinstance(exc, TypeError) and not call.fits():
                yield Ask(ledger.finish, (ledger.failed(seat, exc),))
                raise
            settled = yield from state.settle(exc)
            if settled:
                return state.value
            yield from state.pause()
            continue
        return (yield from state.happened(value))


class _Effect:
    """One effect between its attempts. Each method is a flow that says whether the effect is settled."""

    def __init__(self, ledger: Ledger, seat: Seat, work: Work) -> None:
        self._ledger, self._seat, self._work = ledger, seat, work
        self._attempt = seat.attempt
        self.key = self._known_key() or ledger.stable_key(seat)
        self.failures = 0
        self.value: Any = None

    def _known_key(self) -> str:
        """Of an earlier attempt. One that did not happen and had other arguments was another request; one that was
        undone the receiver may remember as done."""
        there = self._seat.record
        if there is None:
            return ""
        undone = there.status == "failed" and isinstance(self._work.on_ambiguous, Compensate)
        if there.input == self._seat.input and not undone:
            return there.key
        return self._ledger.stable_key(self._seat, self._attempt)

    def next_attempt(self) -> int:
        self._attempt += 1
        return self._attempt

    def pause(self) -> Flow[None]:
        self.failures += 1
        yield Pause(self._work.retry.pause(self.failures))

    def happened(self, value: object) -> Flow[Any]:
        try:
            result = encode(value, self._seat)
        except InvalidInput as exc:
            why = f"it happened, but its result could not be recorded: {exc}"
            yield Ask(self._ledger.finish, (ended(self._seat, "ambiguous", error=why),))
            raise
        yield Ask(self._ledger.finish, (ended(self._seat, "done", result),))
        self.value = as_replayed(value, result)
        return self.value

    def settle(self, why: Exception | str) -> Flow[bool]:
        """It may have happened: halt, or find out, or undo it, or leave it to the receiver to notice a repetition."""
        policy = self._work.on_ambiguous
        if policy == "halt":
            yield from self._halt(why)
        if policy == "retry":
            if self._spent(why):
                yield from self._halt(why)
            return False
        if isinstance(policy, Compensate):
            return (yield from self._undo(policy, why))
        return (yield from self._probe(policy, why))  # type: ignore[arg-type]

    def _spent(self, why: Exception | str) -> bool:
        """Failures of this run count; what an earlier one left behind gets a try of its own."""
        return not isinstance(why, str) and self.failures >= self._work.retry.times

    def _probe(self, probe: Callable[..., Any], why: Exception | str) -> Flow[bool]:
        try:
            answer = yield self._work.call(probe, self.key, self._ledger)
        except Exception as exc:  # noqa: BLE001
            yield from self._halt(exc)
        if happened(answer):
            yield from self.happened(answer)
            return True
        yield from self._give_up_if_spent(why)
        return False

    def _undo(self, policy: Compensate, why: Exception | str) -> Flow[bool]:
        yield Ask(self._ledger.assure)  # whoever took over would have its own effect undone
        try:
            yield self._work.call(policy.undo, self.key, self._ledger)
        except Exception as exc:  # noqa: BLE001
            yield from self._halt(exc)
        if policy.then == "skip":
            yield Ask(self._ledger.finish, (ended(self._seat, "skipped", error=f"undone: {shown(why)}"),))
            return True
        yield from self._give_up_if_spent(why)
        # The receiver may remember the old key as done: what is done afresh needs another.
        self.key = self._ledger.stable_key(self._seat, self._attempt)
        return False

    def _give_up_if_spent(self, why: Exception | str) -> Flow[None]:
        """It is certain by now that it did not happen."""
        if self._spent(why) and isinstance(why, Exception):
            yield Ask(self._ledger.finish, (self._ledger.failed(self._seat, why),))
            raise why

    def _halt(self, why: Exception | str) -> Flow[None]:
        there = self._seat.record
        if not (isinstance(why, str) and there is not None and there.status == "ambiguous"):
            yield Ask(self._ledger.finish, (ended(self._seat, "ambiguous", error=why),))
        raise ambiguous(self._ledger.task, self._seat, self.key, why) from (None if isinstance(why, str) else why)


def ambiguous(task: str, seat: Seat, key: str, why: Exception | str) -> StepAmbiguous:
    name, number = seat.name, f", occurrence={seat.occurrence}" if seat.occurrence else ""
    return StepAmbiguous(
        f"{seat} of task {task!r} may or may not have happened ({shown(why)}). Look for its "
        f'key {key}, then say so: memory.resolve({task!r}, {name!r}, "done"{number}), or "failed" to have it done '
        'again, or "skipped".',
        task, name, seat.occurrence, key,
    )  # fmt: skip


class Wait(NamedTuple):
    """How long for an event, whether here, and what is recorded in its place when the time is up."""

    within: timedelta | None
    block: bool
    instead: str | None  # in its envelope; None for a TimeoutError


def sleep(ledger: Ledger, seat: Seat, until: datetime, block: bool) -> Flow[None]:
    """The first time that was given stands, however often the task is continued."""
    there = _waited(seat)
    due = until if there is None else check_time(there.input, "the recorded end of a sleep")
    if there is None or there.status != "intent":
        yield Ask(ledger.begin, (seat._replace(input=due.isoformat()), seat.attempt + 1))
    while (left := (due - ledger.now()).total_seconds()) > 0:
        if not block:
            raise TaskWaiting(f"task {ledger.task!r} sleeps until {due.isoformat()}.")
        yield Pause(min(left, _LONGEST_NAP))
        ledger.check()
    yield Ask(ledger.finish, (ended(seat, "done", encode(None, "")),))


def event(ledger: Ledger, seat: Seat, name: str, wait: Wait) -> Flow[Any]:
    """The payload, once it is there; after the time-out, which counts from the first wait, what stands in for it."""
    there = _waited(seat)
    begun = there is not None and there.status == "intent"
    attempt = seat.attempt if begun else seat.attempt + 1
    due = _due(there, wait, ledger.now())
    pause = _FIRST_LOOK
    while (payload := (yield Ask(ledger.event, (name,)))) is None:
        over = due is not None and ledger.now() >= due
        if over and wait.instead is not None:
            payload = wait.instead
            break
        if not begun and not (over and there is not None):  # that it timed out is recorded already
            input_ = "" if due is None else due.isoformat()
            yield Ask(ledger.begin, (seat._replace(input=input_), attempt))
            begun = True
        if over:
            late = TimeoutError(f"the event {name!r} did not come to task {ledger.task!r} within {wait.within}.")
            if begun:
                yield Ask(ledger.finish, (replace(ledger.failed(seat, late), error="timed out"),))
            raise late
        if not wait.block:
            raise TaskWaiting(f"task {ledger.task!r} waits for the event {name!r}.")
        yield Pause(pause)
        pause = min(pause * 1.5, _LAST_LOOK)
        ledger.check()
    yield Ask(ledger.record, (seat, attempt, ended(seat, "done", payload)))
    return decode(payload)


def _waited(seat: Seat) -> StepRecord | None:
    """What is recorded of this wait. A step of another kind that failed here may have been one."""
    return seat.record if seat.record is not None and seat.record.kind == seat.kind else None


def _due(there: StepRecord | None, wait: Wait, now: datetime) -> datetime | None:
    """The end of the first wait, also of one that has timed out: whoever went on from there does not wait again."""
    if there is not None and there.input:
        return check_time(there.input, "the recorded end of a wait")
    if wait.within is None:
        return None
    return (there.began_at if there is not None and there.status == "intent" else now) + wait.within


def remember(ledger: Ledger, seat: Seat, services: Services, notes: Sequence[Note]) -> Flow[list[str]]:
    """Items and record in one transaction; where they live apart, the step's key makes a repeated write harmless, and
    the fence is where the journal is: whoever may no longer begin the step writes no items."""
    started = seat.record is not None and seat.record.status == "intent"
    attempt = seat.attempt if started else seat.attempt + 1
    scope = ledger.lease.scope
    together = getattr(services.items, "journal", None) is services.journal
    began = None if together else (yield Ask(services.items.moment))
    adds = tuple(Add(draft) for draft in (yield Ask(write.build_drafts, (notes, services))))
    if together:  # the lease of a task that was erased is lost
        applied = yield Ask(ledger.apply, (services.items, Plan(scope, adds), seat, attempt))
        return [one.id for one in applied.outcomes]
    yield Ask(ledger.begin, (seat, attempt))
    key = ledger.stable_key(seat)
    applied = yield Ask(sure, (services.items.apply, Plan(scope, adds, request_id=f"task:{key}", began=began)))
    ids = [one.id for one in applied.outcomes]
    yield Ask(ledger.record, (seat, attempt, ended(seat, "done", json.dumps(ids))))
    return ids
