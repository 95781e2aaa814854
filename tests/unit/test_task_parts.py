"""The parts of durable tasks: envelopes, fingerprints, pauses, workers, the steady clock, flows."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engrain.core.clock import ClockReading, add_time, has_passed, is_lease_over
from engrain.core.errors import (
    InvalidInput,
    LeaseLost,
    OutcomeUnknown,
    StepAmbiguous,
    StoreCorrupt,
    TaskClaimed,
    TaskWaiting,
    TooLarge,
)
from engrain.core.identity import Scope
from engrain.core.model.tasks import Claim, Lease, StepRecord, TaskEnd, TaskRecord
from engrain.core.validation import MAX_JSON_DEPTH
from engrain.stores.sqlite.opening import find_steady_clock
from engrain.tasks.flow_requests import Flow, Sleep, StoreCall, UserCall
from engrain.tasks.lease import LeaseHolder, create_worker_name, is_worker_dead
from engrain.tasks.result_encoding import (
    choose_task_end,
    decode,
    describe_error,
    encode,
    encode_error,
    failure_number,
    fingerprint_arguments,
    rebuild_error,
)
from engrain.tasks.run import run_flow, run_flow_async
from engrain.tasks.step_journal import _MAX_WRITE_ATTEMPTS, write_reliably
from engrain.tasks.step_kinds import Retry

plain = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(st.characters(codec="utf-8")),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(st.characters(codec="utf-8")), inner, max_size=4)
    ),
)


@given(plain)
def test_plain_json_comes_back_as_it_was(value: Any) -> None:
    text = encode(value, "value")
    assert decode(text) == value
    assert json.loads(text)["v"] == 1


@given(st.dictionaries(st.text(st.characters(codec="utf-8")), st.integers(), min_size=2))
def test_a_fingerprint_does_not_depend_on_the_order_of_keys(value: dict[str, int]) -> None:
    turned = dict(reversed(list(value.items())))
    assert fingerprint_arguments((value, 1), "x") == fingerprint_arguments((turned, 1), "x")
    assert fingerprint_arguments((value, 1), "x") != fingerprint_arguments((value, 2), "x")


def test_a_fingerprint_tells_arguments_apart() -> None:
    seen = {
        fingerprint_arguments(args, "x")
        for args in [(), (None,), ("",), ([],), ({},), (0,), (False,), ("0",), (0, 0), ([0, 0],)]
    }
    assert len(seen) == 10


def test_what_is_nested_too_deep_is_refused() -> None:
    value: Any = 1
    for _ in range(MAX_JSON_DEPTH + 2):
        value = [value]
    with pytest.raises(TooLarge, match="deeper"):
        encode(value, "value")
    round_: list[Any] = []
    round_.append(round_)
    with pytest.raises(InvalidInput, match=r"^value\['a'\]\[0\] contains itself"):
        encode({"a": round_}, "value")
    with pytest.raises(TooLarge, match="digits"):
        encode(10**5000, "value")


def test_an_envelope_of_another_version_is_not_guessed_at() -> None:
    for text in ('{"v":2,"value":1}', "1", '"x"', "{", "null"):
        with pytest.raises(StoreCorrupt):
            decode(text)
    assert decode(None) is None


def test_pauses_grow_to_a_limit() -> None:
    retry = Retry(5, first=1, factor=2, most=10)
    for failures, whole in ((1, 1), (2, 2), (3, 4), (5, 10), (900, 10)):
        assert all(whole / 2 <= retry.pause(failures) <= whole for _ in range(20))
    assert all(0.5 <= Retry(3, first=1, factor=1).pause(failures) <= 1 for failures in (1, 2, 9))
    assert Retry(1_000, first=0, most=0).pause(1) == 0
    assert Retry(first=86_400, factor=86_400, most=86_400).pause(2) >= 43_200
    for wrong in (
        {"times": -1}, {"times": 1.5}, {"times": True}, {"times": 1_001}, {"factor": 0.5}, {"first": -1}, {"most": -1},
        {"most": 86_401}, {"first": "1"}, {"factor": float("nan")},
    ):  # fmt: skip
        with pytest.raises(InvalidInput):
            Retry(**wrong)  # type: ignore[arg-type]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells when a process began")
def test_a_worker_is_dead_once_its_process_is_gone() -> None:
    assert not is_worker_dead(create_worker_name())
    code = "from engrain.tasks.lease import create_worker_name; print(create_worker_name(), flush=True); input()"
    child = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert child.stdout
    name = child.stdout.readline().strip()
    assert not is_worker_dead(name)
    child.kill()
    os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOWAIT)  # dead, and not yet buried
    assert is_worker_dead(name)
    child.communicate()
    assert is_worker_dead(name)


def test_a_worker_elsewhere_may_be_alive() -> None:
    host, space, pid, began, chance = create_worker_name().split("/")
    assert not is_worker_dead(f"elsewhere/{space}/999999999/{began}/{chance}")
    assert not is_worker_dead(f"{host}/other/999999999/{began}/{chance}")
    assert not is_worker_dead(f"{host}//999999999//{chance}")
    for odd in ("", "worker one", "a/b", f"{host}/{space}/x/1/2"):
        assert not is_worker_dead(odd)
    if space:
        assert is_worker_dead(f"{host}/{space}/{pid}/1/{chance}")  # the same number, another process


@pytest.mark.parametrize(("now", "then"), [("boot-a:1000000", "boot-a:3000000"), (1_000_000, 3_000_000)])
def test_a_moment_of_the_lease_clock_passes_in_time(now: ClockReading, then: ClockReading) -> None:
    assert add_time(now, timedelta(seconds=2)) == then
    assert has_passed(then, now) is False
    assert has_passed(then, then) is True
    assert has_passed(then, then, timedelta(seconds=1)) is False
    assert (is_lease_over(9, then, 9, now), is_lease_over(9, then, 8, then)) == (False, True)
    assert add_time(None, timedelta()) is has_passed(None, now) is has_passed(then, None) is None
    assert (is_lease_over(9, None, 8, now), is_lease_over(9, then, 9, None)) == (False, True)


def test_the_steady_clock_speaks_of_its_own_boot_only() -> None:
    assert has_passed("boot-a:1", "boot-b:2") is None
    assert is_lease_over(9, "boot-a:5", 1, "boot-b:2")
    if clock := find_steady_clock():
        assert has_passed(clock(), clock()) is True


def flow(failing: bool) -> Flow[list[Any]]:
    seen = [(yield StoreCall(lambda: "asked")), (yield UserCall(lambda a, b: a + b, (1,), {"b": 2}))]
    yield Sleep(0)
    try:
        yield UserCall(_fails)
    except ZeroDivisionError:
        seen.append("caught")
    if failing:
        yield StoreCall(_fails)
    return seen


def _fails() -> None:
    raise ZeroDivisionError


def test_a_flow_runs_alike_in_both_colours() -> None:
    async def hop(call: Any) -> Any:
        return await asyncio.to_thread(call)

    expected = ["asked", 3, "caught"]
    assert run_flow(flow(False)) == asyncio.run(run_flow_async(flow(False), hop)) == expected
    with pytest.raises(ZeroDivisionError):
        run_flow(flow(True))
    with pytest.raises(ZeroDivisionError):
        asyncio.run(run_flow_async(flow(True), hop))


def test_an_interrupt_that_broke_off_a_write_reaches_the_flow_of_both_drivers() -> None:
    def interrupted() -> None:
        raise OutcomeUnknown("broken off", interrupt=KeyboardInterrupt())

    def flow() -> Flow[str]:
        try:
            yield UserCall(interrupted)
        except Exception:  # noqa: BLE001  # an ordinary handler must not get it
            return "swallowed"
        return "nothing raised"

    async def on_thread(call: Any) -> Any:
        return await asyncio.to_thread(call)

    with pytest.raises(KeyboardInterrupt):
        run_flow(flow())
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(run_flow_async(flow(), on_thread))


class Journal:
    """A journal that answers a write as it is told, and knows one task."""

    def __init__(self, *answers: object, record: TaskRecord | None = None) -> None:
        self.answers, self.record = list(answers), record
        self.calls: list[str] = []

    def __getattr__(self, name: str) -> Any:
        def write(*args: Any) -> Any:
            self.calls.append(name)
            answer = self.answers.pop(0) if self.answers else None
            if isinstance(answer, BaseException):
                raise answer
            return answer

        return write

    def task(self, *_: object) -> TaskRecord | None:
        return self.record


SCOPE, NOW = Scope(user="ana"), datetime(2026, 11, 15, tzinfo=UTC)
CLAIM = Claim(SCOPE, "order", "me", 30.0)
LEASE = Lease(SCOPE, "order", "me", 3, NOW)
RECORD = TaskRecord(SCOPE, "order", "", "", "running", 3, "me", NOW, NOW)


def holder(journal: Any) -> LeaseHolder:
    held = LeaseHolder(journal, CLAIM).acquire()
    held.stop()
    return held


def test_a_claim_with_an_unknown_outcome_is_looked_up_and_repeated_if_it_failed() -> None:
    unknown = OutcomeUnknown("broken off")
    made = Journal(unknown, record=RECORD)
    assert holder(made).lease == LEASE
    assert made.calls == ["claim"]
    for record in (None, replace(RECORD, worker="other"), replace(RECORD, until=None)):
        failed = Journal(unknown, LEASE, record=record)
        assert holder(failed).lease == LEASE
        assert failed.calls == ["claim", "claim"]


def test_a_claimed_task_is_left_to_a_worker_that_may_be_alive() -> None:
    for record in (None, replace(RECORD, worker=None), RECORD, replace(RECORD, worker=create_worker_name())):
        journal = Journal(TaskClaimed("is run by another"), record=record)
        with pytest.raises(TaskClaimed):
            LeaseHolder(journal, CLAIM).acquire()  # type: ignore[arg-type]
        assert journal.calls == ["claim"]


def test_a_lease_is_extended_before_an_effect_once_a_third_of_it_is_left(monkeypatch: pytest.MonkeyPatch) -> None:
    times = iter([100.0, 119.9, 120.1, 120.1, 139.9, 140.2, 140.2])
    monkeypatch.setattr("engrain.tasks.lease.read_boot_clock", lambda: next(times))
    journal = Journal(LEASE)
    held = holder(journal)
    held.ensure_time_left()
    assert journal.calls == ["claim"]
    held.ensure_time_left()
    assert journal.calls == ["claim", "extend"]
    held.ensure_time_left()
    assert journal.calls == ["claim", "extend"]
    held.ensure_time_left()
    assert journal.calls == ["claim", "extend", "extend"]


def test_a_confirmation_with_an_unknown_outcome_is_repeated_once() -> None:
    unknown = OutcomeUnknown("broken off")
    journal = Journal(LEASE, unknown, None)
    holder(journal).confirm()
    assert journal.calls == ["claim", "extend", "extend"]
    with pytest.raises(OutcomeUnknown):
        holder(Journal(LEASE, unknown, unknown)).confirm()


def test_an_end_with_an_unknown_outcome_is_repeated_unless_it_was_recorded() -> None:
    unknown, end = OutcomeUnknown("broken off"), TaskEnd("done")
    recorded = Journal(LEASE, unknown, record=replace(RECORD, worker=None))
    holder(recorded).end(end)
    assert recorded.calls == ["claim", "end"]
    for record in (None, RECORD, replace(RECORD, worker=None, epoch=4)):
        lost = Journal(LEASE, unknown, record=record)
        holder(lost).end(end)
        assert lost.calls == ["claim", "end", "end"]


def test_a_lost_lease_is_remembered_unless_the_run_is_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(LeaseHolder, "try_to_extend", lambda self: False)
    held = LeaseHolder(Journal(LEASE, LeaseLost("taken over")), CLAIM).acquire()  # type: ignore[arg-type]
    held.check()
    with pytest.raises(LeaseLost):
        held.confirm()
    with pytest.raises(LeaseLost, match="taken over"):
        held.check()
    over = holder(Journal(LEASE, LeaseLost("taken over")))
    with pytest.raises(LeaseLost):
        over.confirm()
    over.check()


def test_a_write_with_an_unknown_outcome_is_repeated_a_few_times() -> None:
    unknown = OutcomeUnknown("broken off")
    journal = Journal(*[unknown] * (_MAX_WRITE_ATTEMPTS - 1), "written")
    assert write_reliably(journal.keep, 1) == "written"
    assert len(journal.calls) == _MAX_WRITE_ATTEMPTS


class Odd(Exception):
    def __init__(self, code: int, where: object) -> None:
        super().__init__(code, where)
        self.code, self.where = code, where


def test_an_error_is_rebuilt_with_its_class_and_plain_attributes() -> None:
    error = Odd(7, {1, 2})
    error.add_note("not kept")
    step = StepRecord("mail", 0, "effect", "failed", 1, 1, "", "", "", NOW, None, encode_error(error, 4), "Odd: 7")
    again = rebuild_error(step)
    assert type(again) is Odd
    assert (again.args, again.code, vars(again)) == ((7, "{1, 2}"), 7, {"code": 7})
    assert failure_number(step) == 4
    assert failure_number(replace(step, status="done")) == failure_number(replace(step, result=None)) == 0
    gone = replace(step, result=encode_error(error, 0).replace("Odd", "Gone"))
    assert str(rebuild_error(gone)) == "effect 'mail' failed in an earlier run: Odd: 7"


def test_how_a_task_stands_after_an_error() -> None:
    ambiguous = StepAmbiguous("?", "order", "mail", 0, "k")
    group = BaseExceptionGroup("", [OSError("down"), ExceptionGroup("", [TaskWaiting("sleeps"), ValueError()])])
    assert choose_task_end(BaseExceptionGroup("", [OSError(), ambiguous])).outcome.startswith("the effect 'mail' may")
    assert choose_task_end(group) == TaskEnd("parked", "OSError: down (and 1 more)")
    assert choose_task_end(ValueError()) == TaskEnd("parked", "ValueError")
    assert choose_task_end(TaskWaiting("sleeps")) == TaskEnd("waiting", "sleeps")
    assert choose_task_end(KeyboardInterrupt()) == TaskEnd("waiting", "broken off: KeyboardInterrupt")
    assert describe_error("x" * 3_000) == "x" * 2_000
