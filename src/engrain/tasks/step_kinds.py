"""The kinds of steps: step, effect, memory step, sleep and the wait for an event, with their retry policies."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any, Literal, NamedTuple

from engrain.core.clock import check_time
from engrain.core.errors import EffectNotPerformed, InvalidInput, StepAmbiguous, TaskWaiting
from engrain.core.model.items import Note
from engrain.core.model.plans import Add, Plan
from engrain.core.model.tasks import StepEnd, StepRecord
from engrain.ingest import write
from engrain.ports import Services
from engrain.tasks.flow_requests import Flow, Sleep, StoreCall, UserCall
from engrain.tasks.result_encoding import convert_as_replayed, decode, describe_error, encode
from engrain.tasks.step_journal import SETTLED_STATUSES, StepJournal, StepSlot, build_step_end, write_reliably

MAX_RETRIES = 1_000
_MAX_SECONDS = 86_400
# Called like the effect. None or False: it did not happen, so it is done now. Anything else is its result.
Probe = Callable[..., Any]


@dataclass(frozen=True, slots=True)
class Compensate:
    """Undo an effect that may have happened, then do it again under a new key, or skip it.

    `undo` is called like the effect itself. It may be called twice if the process dies in it.
    """

    undo: Callable[..., Any]
    then: Literal["retry", "skip"] = "retry"

    def __post_init__(self) -> None:
        if not callable(self.undo) or self.then not in ("retry", "skip"):
            raise InvalidInput('Compensate takes a callable, and then="retry" or "skip".')


OnAmbiguous = Literal["halt", "retry"] | Probe | Compensate


@dataclass(frozen=True, slots=True)
class Retry:
    """Make `times` more attempts after the first.

    The pause grows by `factor` from `first` to `most` seconds. A random part of it, up to half, is left out, so that
    many workers do not return at the same moment.
    """

    times: int = 0
    first: float = 0.5
    factor: float = 2.0
    most: float = 60.0

    def __post_init__(self) -> None:
        if isinstance(self.times, bool) or not isinstance(self.times, int) or not 0 <= self.times <= MAX_RETRIES:
            raise InvalidInput(f"retries must be a whole number from 0 to {MAX_RETRIES:,}, not {self.times!r}.")
        numbers = (self.first, self.factor, self.most)
        fits = all(isinstance(number, (int, float)) and 0 <= number <= _MAX_SECONDS for number in numbers)
        if not fits or self.factor < 1:
            raise InvalidInput(f"a Retry needs first >= 0, factor >= 1 and most >= 0, and none over {_MAX_SECONDS:,}.")

    def pause(self, failures: int) -> float:
        """Return the seconds to wait after this many failures."""
        # The exponent is bounded, or many failures overflow.
        whole = min(self.most, self.first * self.factor ** min(failures - 1, 60))
        return whole * (0.5 + random.random() / 2)


NO_RETRY = Retry()


def parse_retry(retries: int | Retry) -> Retry:
    if retries == 0:
        return NO_RETRY
    return retries if isinstance(retries, Retry) else Retry(retries)


# A sleep reads the clock this often, because somebody may set it. The pause between two looks for an event grows.
_MAX_NAP_SECONDS = 1.0
_FIRST_POLL_SECONDS, _MAX_POLL_SECONDS = 0.05, 1.0


class StepWork(NamedTuple):
    """The function that a step calls, and how to handle its failure."""

    function: Callable[..., Any]
    args: tuple[Any, ...]
    retry: Retry
    on_ambiguous: OnAmbiguous = "halt"
    key_as: str | None = None

    def call(self, function: Callable[..., Any], key: str, journal: StepJournal) -> UserCall:
        named: Mapping[str, Any] = {} if self.key_as is None else {self.key_as: key}
        return UserCall(function, self.args, named, journal)


def check_effect(work: StepWork) -> None:
    policy, name = work.on_ambiguous, work.key_as
    if policy not in ("halt", "retry") and not isinstance(policy, Compensate) and not callable(policy):
        raise InvalidInput(f'on_ambiguous must be "halt", "retry", a probe to call, or Compensate(…), not {policy!r}.')
    if name is not None and not (isinstance(name, str) and name.isidentifier()):
        raise InvalidInput(f"key_as names the parameter that gets the effect's key, not {name!r}.")


def run_step(journal: StepJournal, slot: StepSlot, work: StepWork) -> Flow[Any]:
    """Run a step with one commit at its end.

    Each attempt after the first is recorded before it runs, so that a crash does not reset the count.
    """
    attempt = slot.attempt + 1
    # Attempts that a crash broke off count. A step that failed for good was continued by a person and starts again.
    used = slot.attempt if slot.record is not None and slot.record.status == "intent" else 0
    last = attempt + max(0, work.retry.times - used)
    while True:
        started = time.monotonic()
        try:
            value = yield UserCall(work.function, work.args, journal=journal)
            result = encode(value, slot)
        except Exception as exc:
            if attempt >= last or isinstance(exc, InvalidInput):
                failed = replace(journal.build_failure(slot, exc), took=time.monotonic() - started)
                yield StoreCall(journal.record, (slot, attempt, failed))
                exc.add_note(f"engrain: {slot} failed in attempt {attempt}, and no attempt is left.")
                raise
            attempt += 1
            yield StoreCall(journal.begin, (slot, attempt))
            yield Sleep(work.retry.pause(attempt - 1))
            continue
        end = StepEnd(slot.name, slot.occurrence, "done", result, None, time.monotonic() - started)
        yield StoreCall(journal.record, (slot, attempt, end))
        return convert_as_replayed(value, result)


def run_effect(journal: StepJournal, slot: StepSlot, work: StepWork) -> Flow[Any]:
    """Run an effect between two commits. The caller's policy settles an effect with an unknown outcome."""
    effect = _Effect(journal, slot, work)
    record = slot.record
    if record is not None and record.status in ("intent", "ambiguous"):
        settled = yield from effect.settle(record.error or "the process ended while it was under way")
        if settled:
            return effect.value
    while True:
        effect.attempt += 1
        begun = yield StoreCall(journal.begin, (slot, effect.attempt, effect.key))
        if begun.status in SETTLED_STATUSES:  # a person resolved it during the probe or the undo
            return journal.replay(slot._replace(record=begun))
        yield StoreCall(journal.holder.ensure_time_left)
        call = work.call(work.function, effect.key, journal)
        try:
            value = yield call
        except EffectNotPerformed as exc:
            yield StoreCall(journal.finish, (journal.build_failure(slot, exc),))
            if effect.failures >= work.retry.times:
                raise
            yield from effect.pause()
            continue
        except Exception as exc:  # the effect may or may not have happened
            if isinstance(exc, TypeError) and not call.accepts_arguments():
                yield StoreCall(journal.finish, (journal.build_failure(slot, exc),))
                raise
            settled = yield from effect.settle(exc)
            if settled:
                return effect.value
            yield from effect.pause()
            continue
        return (yield from effect.record_done(value))


class _Effect:
    """One effect between its attempts."""

    def __init__(self, journal: StepJournal, slot: StepSlot, work: StepWork) -> None:
        self._journal, self._slot, self._work = journal, slot, work
        self.attempt = slot.attempt
        self.key = self._choose_known_key() or journal.stable_key(slot)
        self.failures = 0
        self.value: Any = None

    def _choose_known_key(self) -> str:
        """Return the key of an earlier attempt, or a new one if that attempt had other arguments or was undone."""
        record = self._slot.record
        if record is None:
            return ""
        undone = record.status == "failed" and isinstance(self._work.on_ambiguous, Compensate)
        if record.input == self._slot.input and not undone:
            return record.key
        return self._journal.stable_key(self._slot, self.attempt)

    def pause(self) -> Flow[None]:
        self.failures += 1
        yield Sleep(self._work.retry.pause(self.failures))

    def record_done(self, value: object) -> Flow[Any]:
        try:
            result = encode(value, self._slot)
        except InvalidInput as exc:
            why = f"it happened, but its result could not be recorded: {exc}"
            yield StoreCall(self._journal.finish, (build_step_end(self._slot, "ambiguous", error=why),))
            raise
        yield StoreCall(self._journal.finish, (build_step_end(self._slot, "done", result),))
        self.value = convert_as_replayed(value, result)
        return self.value

    def settle(self, why: Exception | str) -> Flow[bool]:
        """Apply the policy to an effect that may have happened. Return False to call it again."""
        policy = self._work.on_ambiguous
        if policy == "halt":
            yield from self._halt(why)
        if policy == "retry":
            if self._retries_used(why):
                yield from self._halt(why)
            return False
        if isinstance(policy, Compensate):
            return (yield from self._undo(policy, why))
        return (yield from self._probe(policy, why))  # type: ignore[arg-type]

    def _retries_used(self, why: Exception | str) -> bool:
        """Failures of this run count. A text is the failure of an earlier run, which gets one more attempt."""
        return not isinstance(why, str) and self.failures >= self._work.retry.times

    def _probe(self, probe: Callable[..., Any], why: Exception | str) -> Flow[bool]:
        try:
            answer = yield self._work.call(probe, self.key, self._journal)
        except Exception as exc:  # noqa: BLE001
            yield from self._halt(exc)
        if answer is not None and answer is not False:  # 0 and "" are results of an effect that happened
            yield from self.record_done(answer)
            return True
        yield from self._raise_if_retries_used(why)
        return False

    def _undo(self, policy: Compensate, why: Exception | str) -> Flow[bool]:
        yield StoreCall(self._journal.holder.ensure_time_left)  # or this would undo the effect of the next worker
        try:
            yield self._work.call(policy.undo, self.key, self._journal)
        except Exception as exc:  # noqa: BLE001
            yield from self._halt(exc)
        if policy.then == "skip":
            end = build_step_end(self._slot, "skipped", error=f"undone: {describe_error(why)}")
            yield StoreCall(self._journal.finish, (end,))
            return True
        yield from self._raise_if_retries_used(why)
        # The receiver may remember the old key as done.
        self.key = self._journal.stable_key(self._slot, self.attempt)
        return False

    def _raise_if_retries_used(self, why: Exception | str) -> Flow[None]:
        """Record the effect as failed: it is certain now that it did not happen."""
        if self._retries_used(why) and isinstance(why, Exception):
            yield StoreCall(self._journal.finish, (self._journal.build_failure(self._slot, why),))
            raise why

    def _halt(self, why: Exception | str) -> Flow[None]:
        record = self._slot.record
        if not (isinstance(why, str) and record is not None and record.status == "ambiguous"):
            yield StoreCall(self._journal.finish, (build_step_end(self._slot, "ambiguous", error=why),))
        cause = None if isinstance(why, str) else why
        raise ambiguous_error(self._journal.task, self._slot, self.key, why) from cause


def ambiguous_error(task: str, slot: StepSlot, key: str, why: Exception | str) -> StepAmbiguous:
    name, number = slot.name, f", occurrence={slot.occurrence}" if slot.occurrence else ""
    return StepAmbiguous(
        f"{slot} of task {task!r} may or may not have happened ({describe_error(why)}). Look for its key {key}, "
        f'then say so: memory.tasks.resolve({task!r}, {name!r}, "done"{number}), or "failed" to have it done '
        'again, or "skipped".',
        task, name, slot.occurrence, key,
    )  # fmt: skip


class EventWait(NamedTuple):
    """The options of waiting for an event, and the default that is recorded after the time-out."""

    within: timedelta | None
    block: bool
    default: str | None  # encoded; None for a TimeoutError


def run_sleep(journal: StepJournal, slot: StepSlot, until: datetime, block: bool) -> Flow[None]:
    """Sleep until the time of the first call, however often the task is continued."""
    record = _find_wait_record(slot)
    due = until if record is None else check_time(record.input, "the recorded end of a sleep")
    if record is None or record.status != "intent":
        yield StoreCall(journal.begin, (slot._replace(input=due.isoformat()), slot.attempt + 1))
    while (left := (due - journal.now()).total_seconds()) > 0:
        if not block:
            raise TaskWaiting(f"task {journal.task!r} sleeps until {due.isoformat()}.")
        yield Sleep(min(left, _MAX_NAP_SECONDS))
        journal.holder.check()
    yield StoreCall(journal.finish, (build_step_end(slot, "done", encode(None, "")),))


def wait_for_event(journal: StepJournal, slot: StepSlot, name: str, wait: EventWait) -> Flow[Any]:
    """Return the payload of the event, or the default after the time-out, which counts from the first wait."""
    record = _find_wait_record(slot)
    begun = record is not None and record.status == "intent"
    attempt = slot.attempt if begun else slot.attempt + 1
    due = _compute_deadline(record, wait, journal.now())
    begin = StoreCall(journal.begin, (slot._replace(input="" if due is None else due.isoformat()), attempt))
    pause = _FIRST_POLL_SECONDS
    while (payload := (yield from _look_for_event(journal, name, None if begun else begin))) is None:
        timed_out = due is not None and journal.now() >= due
        if timed_out and wait.default is not None:
            payload = wait.default
            break
        if not begun and not (timed_out and record is not None):  # otherwise the time-out is recorded already
            yield begin
            begun = True
        if timed_out:
            error = TimeoutError(f"the event {name!r} did not come to task {journal.task!r} within {wait.within}.")
            if begun:
                yield StoreCall(journal.finish, (replace(journal.build_failure(slot, error), error="timed out"),))
            raise error
        if not wait.block:
            raise TaskWaiting(f"task {journal.task!r} waits for the event {name!r}.")
        yield Sleep(pause)
        pause = min(pause * 1.5, _MAX_POLL_SECONDS)
        journal.holder.check()
    yield StoreCall(journal.record, (slot, attempt, build_step_end(slot, "done", payload)))
    return decode(payload)


def _look_for_event(journal: StepJournal, name: str, begin: StoreCall | None) -> Flow[str | None]:
    """Return the payload of an event that has come.

    A wait that is cancelled meanwhile, because another of its group waits, begins all the same: `recover` must know
    that its event continues the task.
    """
    try:
        payload: str | None = yield StoreCall(journal.event, (name,))
    except asyncio.CancelledError:
        if begin is not None:
            yield begin
        raise
    return payload


def _find_wait_record(slot: StepSlot) -> StepRecord | None:
    """Return the record of this wait. The slot may hold a failed step of another kind."""
    return slot.record if slot.record is not None and slot.record.kind == slot.kind else None


def _compute_deadline(record: StepRecord | None, wait: EventWait, now: datetime) -> datetime | None:
    """Return the end of the first wait, even if it has timed out: a replay does not wait again."""
    if record is not None and record.input:
        return check_time(record.input, "the recorded end of a wait")
    if wait.within is None:
        return None
    return (record.began_at if record is not None and record.status == "intent" else now) + wait.within


def run_memory_step(journal: StepJournal, slot: StepSlot, services: Services, notes: Sequence[Note]) -> Flow[list[str]]:
    """Write items and record in one transaction if one store has both.

    If not, the journal checks the lease before the items are written, and the step's key makes repetition harmless.
    """
    started = slot.record is not None and slot.record.status == "intent"
    attempt = slot.attempt if started else slot.attempt + 1
    same_store = getattr(services.items, "journal", None) is services.journal
    began = None if same_store else (yield StoreCall(services.items.current_time))
    adds = tuple(Add(draft) for draft in (yield StoreCall(write.build_drafts, (notes, services))))
    plan = Plan(journal.lease.scope, adds)
    if same_store:
        applied = yield StoreCall(journal.apply, (services.items, plan, slot, attempt))
        return [outcome.id for outcome in applied.outcomes]
    yield StoreCall(journal.begin, (slot, attempt))
    plan = replace(plan, request_id=f"task:{journal.stable_key(slot)}", began=began)
    applied = yield StoreCall(write_reliably, (services.items.apply, plan))
    ids = [outcome.id for outcome in applied.outcomes]
    yield StoreCall(journal.record, (slot, attempt, build_step_end(slot, "done", json.dumps(ids))))
    return ids
