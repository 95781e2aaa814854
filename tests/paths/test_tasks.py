"""Promises of durable tasks: what is recorded done never runs again, and nothing is repeated or lost in silence."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from conftest import Open

from engrain import (
    AsyncMemory,
    Compensate,
    InputChanged,
    InvalidInput,
    LeaseLost,
    Memory,
    NotDone,
    NotFound,
    Retry,
    Run,
    StepAmbiguous,
    StepConcurrent,
    TaskClaimed,
    TaskEnded,
    TaskError,
    TaskWaiting,
    TooLarge,
    VersionChanged,
)
from engrain.conformance.clock import SetClock

QUICK = Retry(2, first=0.0)


class Killed(BaseException):
    """Stands for the end of the process: no handler of the library may tidy up after it."""


class Calls(list[Any]):
    def noting(self, name: str, answer: Any = None) -> Callable[..., Any]:
        def call(*args: Any, **named: Any) -> Any:
            self.append(name)
            if isinstance(answer, BaseException):
                raise answer
            return answer

        return call


@pytest.fixture
def calls() -> Calls:
    return Calls()


def kill(run: Run) -> None:
    """As if the process had died: the run never says how it ended, and its lease has run out."""
    run.course._over = True
    run.course._tenure.stop()  # type: ignore[union-attr]


def killed_in(memory: Memory, clock: SetClock, task: str, body: Callable[[Run], Any], **terms: Any) -> None:
    with pytest.raises(Killed), memory.task(task, **terms) as run:
        try:
            body(run)
        except Killed:
            kill(run)
            raise
    clock.advance(60)


def dies(*_: Any, **__: Any) -> None:
    raise Killed


# Steps


def test_a_done_step_is_replayed_and_never_runs_again(memory: Memory, clock: SetClock, calls: Calls) -> None:
    def body(run: Run, last: Callable[[], Any]) -> list[Any]:
        return [run.step("plan", calls.noting("plan", {"a": [1, None]}), "x"), run.step("ship", last)]

    killed_in(memory, clock, "order", lambda run: body(run, dies))
    with memory.task("order") as run:
        assert body(run, calls.noting("ship", "sent")) == [{"a": [1, None]}, "sent"]
        assert run.epoch == 2
    assert calls == ["plan", "ship"]
    with memory.task("order") as run:
        assert run.status == "done"
        assert body(run, dies) == [{"a": [1, None]}, "sent"]


def test_a_task_continues_at_its_first_step_that_is_not_done(memory: Memory, clock: SetClock) -> None:
    ran: list[int] = []

    def body(run: Run, fatal: int | None) -> None:
        for number in range(25):
            run.step("work", dies if number == fatal else ran.append, number)

    killed_in(memory, clock, "long", lambda run: body(run, 18))
    assert ran == list(range(18))
    with memory.task("long") as run:
        body(run, None)
    assert ran == list(range(25))


def test_the_first_run_returns_what_a_replay_returns(memory: Memory) -> None:
    for _ in range(2):
        with memory.task("order") as run:
            assert run.step("tuple", lambda: (1, (2,))) == [1, [2]]
            assert run.step("text", lambda: "ü\u0000 \U0001f600") == "ü\u0000 \U0001f600"
            assert run.step("none", lambda: None) is None
            assert run.step("big", lambda: 2**80) == 2**80


def test_a_large_result_is_stored_once(open_memory: Open) -> None:
    memory = open_memory()
    text = "large " * 40_000
    with memory.task("order") as run:
        for number in range(20):
            assert run.step("load", lambda _: text, number) == text
    assert sum(step.result is not None and len(step.result) > 200_000 for step in memory.timeline("order").steps) == 20
    assert memory.status().store["bytes"] < 5_000_000


@pytest.mark.parametrize(
    ("value", "named"),
    [
        ({"when": timedelta(1)}, r"\['when'\].*timedelta"),
        ([1, {2, 3}], r"\[1\].*set"),
        ({1: "a"}, "key 1 is a int"),
        (b"raw", "bytes"),
        (float("nan"), "nan is not a JSON number"),
        ("\ud800", "lone surrogate"),
        (object, "type"),
    ],
)
def test_a_result_that_is_not_plain_json_is_refused_by_name(memory: Memory, value: Any, named: str) -> None:
    with memory.task("order") as run:
        with pytest.raises(InvalidInput, match=named):
            run.step("bad", lambda: value)
        with pytest.raises(InvalidInput, match="argument 0"):
            run.step("bad", print, value)
        with pytest.raises(InvalidInput):
            run.keep(value)
    with pytest.raises(InvalidInput):
        memory.signal("order", "event", value)


def test_a_result_has_a_size_limit(memory: Memory) -> None:
    with memory.task("order") as run, pytest.raises(TooLarge, match="16,000,000"):
        run.step("huge", lambda: "x" * 16_000_001)


def test_steps_are_told_apart_by_occurrence_and_key(memory: Memory) -> None:
    for _ in range(2):
        with memory.task("order") as run:
            assert [run.step("again", lambda n=n: n) for n in range(3)] == [0, 1, 2]
            assert run.step("again", lambda: "keyed", key="a") == "keyed"
            assert run.step("again", lambda: 3) == 3
    assert [(step.name, step.occurrence) for step in memory.timeline("order").steps] == [
        ("again", 0), ("again", 1), ("again", 2), ("again[a]", 0), ("again", 3),
    ]  # fmt: skip


def test_changed_arguments_are_refused(memory: Memory, clock: SetClock, calls: Calls) -> None:
    killed_in(memory, clock, "order", lambda run: (run.step("plan", calls.noting("plan"), {"a": 1, "b": 2}), dies()))
    with pytest.raises(InputChanged, match="'plan'"), memory.task("order") as run:
        run.step("plan", calls.noting("plan"), {"a": 1, "b": 3})
    with memory.task("order") as run:
        run.step("plan", calls.noting("plan"), {"b": 2, "a": 1})
    assert calls == ["plan"]


def test_a_step_does_not_become_an_effect(memory: Memory, clock: SetClock, calls: Calls) -> None:
    killed_in(memory, clock, "order", lambda run: (run.step("mail", calls.noting("mail")), dies()))
    with pytest.raises(InputChanged, match="kind 'step'"), memory.task("order") as run:
        run.effect("mail", calls.noting("mail"))


def test_a_new_version_must_be_declared(memory: Memory, clock: SetClock, calls: Calls) -> None:
    killed_in(memory, clock, "order", lambda run: (run.step("a", calls.noting("a")), dies()), version="1")
    with pytest.raises(VersionChanged, match=r"'1'.*'2'"), memory.task("order", version="2"):
        pass
    with memory.task("order", version="2", accepts=("1",)) as run:
        run.step("a", calls.noting("a"))
        run.step("b", calls.noting("b"))
    assert calls == ["a", "b"]
    assert [step.version for step in memory.timeline("order").steps] == ["1", "2"]


# Retries


def test_a_step_is_tried_again_and_then_the_task_is_parked(memory: Memory, calls: Calls) -> None:
    with pytest.raises(OSError, match="no route"), memory.task("order") as run:
        run.step("call", calls.noting("call", OSError("no route")), retries=QUICK)
    assert len(calls) == 3
    (task,) = memory.tasks(status="parked")
    assert "no route" in task.outcome
    (step,) = memory.timeline("order").steps
    assert (step.status, step.attempt) == ("failed", 3)
    assert memory.recover(lambda run: pytest.fail("a parked task is not looped")) == []
    with memory.task("order") as run:
        assert run.step("call", calls.noting("call", "there"), retries=QUICK) == "there"


def test_attempts_are_counted_across_crashes(memory: Memory, clock: SetClock, calls: Calls) -> None:
    answers = iter([OSError("one"), Killed()])
    killed_in(memory, clock, "order", lambda run: run.step("call", lambda: _raise(next(answers)), retries=QUICK))
    with pytest.raises(OSError, match="late"), memory.task("order") as run:
        run.step("call", calls.noting("call", OSError("late")), retries=QUICK)
    assert calls == ["call"]
    assert memory.timeline("order").steps[0].attempt == 3


def _raise(error: BaseException) -> None:
    raise error


# Effects


def test_an_effect_has_one_stable_key(memory: Memory, clock: SetClock) -> None:
    keys: list[str] = []

    def send(to: str, *, token: str) -> None:
        keys.append(token)
        if len(keys) == 1:
            raise Killed

    def body(run: Run) -> None:
        run.effect("mail", send, "ana", key_as="token", on_ambiguous="retry")
        run.effect("mail", send, "ana", key_as="token", on_ambiguous="retry")

    killed_in(memory, clock, "order", body)
    with memory.task("order") as run:
        body(run)
    assert len(keys) == 3
    assert keys[0] == keys[1] != keys[2]
    memory.prune_tasks(0)
    clock.advance()
    memory.prune_tasks(0)
    with memory.task("order") as run:  # another task, although it has the same name
        run.effect("mail", send, "ana", key_as="token")
    assert keys[3] not in keys[:3]


@pytest.mark.parametrize("end", [Killed(), OSError("timed out")])
def test_an_effect_whose_outcome_is_unknown_halts(
    memory: Memory, clock: SetClock, calls: Calls, end: BaseException
) -> None:
    def body(run: Run, end: BaseException | None) -> Any:
        run.step("plan", calls.noting("plan"))
        return run.effect("mail", calls.noting("mail", end), "ana")

    if isinstance(end, Killed):
        killed_in(memory, clock, "order", lambda run: body(run, end))
    else:
        with pytest.raises(StepAmbiguous, match="timed out"), memory.task("order") as run:
            body(run, end)
    for _ in range(2):
        with (
            pytest.raises(StepAmbiguous, match=r"memory.resolve\('order', 'mail'") as halted,
            memory.task("order") as run,
        ):
            body(run, None)
    assert (halted.value.task, halted.value.step, halted.value.occurrence) == ("order", "mail", 0)
    assert calls == ["plan", "mail"]
    assert memory.tasks()[0].status == "parked"
    assert memory.timeline("order").steps[1].status == "ambiguous"
    memory.resolve("order", "mail", "done", result={"id": 7}, note="it is in the outbox")
    with memory.task("order") as run:
        assert body(run, None) == {"id": 7}
    assert calls == ["plan", "mail"]
    assert "it is in the outbox" in (memory.timeline("order").steps[1].error or "")


def test_a_resolved_effect_is_done_again_or_left_out(memory: Memory, clock: SetClock, calls: Calls) -> None:
    for name, outcome, expected in (("a", "failed", ["mail", "mail"]), ("b", "skipped", ["mail"])):
        calls.clear()
        killed_in(memory, clock, name, lambda run: run.effect("mail", calls.noting("mail", Killed())))
        memory.resolve(name, "mail", outcome)  # type: ignore[arg-type]
        with memory.task(name) as run:
            assert run.effect("mail", calls.noting("mail", 1)) == (1 if outcome == "failed" else None)
        assert calls == expected


@pytest.mark.parametrize(("found", "sent"), [({"id": 1}, 1), (0, 1), (True, 1), (None, 2), (False, 2)])
def test_a_probe_finds_out(memory: Memory, clock: SetClock, calls: Calls, found: Any, sent: int) -> None:
    asked: list[Any] = []

    def probe(to: str, token: str) -> Any:
        asked.append((to, token))
        return found

    def body(run: Run, end: Any) -> Any:
        return run.effect("mail", calls.noting("mail", end), "ana", on_ambiguous=probe, key_as="token")

    killed_in(memory, clock, "order", lambda run: body(run, Killed()))
    with memory.task("order") as run:
        assert body(run, "again") == (found if sent == 1 else "again")
    assert len(calls) == sent
    assert [to for to, _ in asked] == ["ana"]
    assert asked[0][1] == memory.timeline("order").steps[0].key


def test_a_probe_that_fails_leaves_the_effect_ambiguous(memory: Memory, clock: SetClock, calls: Calls) -> None:
    killed_in(memory, clock, "order", lambda run: run.effect("mail", calls.noting("mail", Killed())))
    with pytest.raises(StepAmbiguous, match="mailbox is down"), memory.task("order") as run:
        run.effect("mail", calls.noting("mail"), on_ambiguous=calls.noting("probe", OSError("mailbox is down")))
    assert calls == ["mail", "probe"]


def test_an_effect_is_undone_and_done_afresh_or_left_out(memory: Memory, clock: SetClock, calls: Calls) -> None:
    keys: list[str] = []

    def charge(*, token: str) -> str:
        calls.append("charge")
        keys.append(token)
        if len(keys) % 2:
            raise Killed
        return "paid"

    for name, then, expected in (("a", "retry", "paid"), ("b", "skip", None)):
        calls.clear()
        keys.clear()
        policy = Compensate(calls.noting("refund"), then)  # type: ignore[arg-type]

        def body(run: Run, policy: Compensate = policy) -> Any:
            return run.effect("charge", charge, on_ambiguous=policy, key_as="token")

        killed_in(memory, clock, name, body)
        with memory.task(name) as run:
            assert body(run) == expected
        assert calls == (["charge", "refund", "charge"] if then == "retry" else ["charge", "refund"])
        assert len(set(keys)) == len(keys)


def test_an_effect_that_says_it_did_not_happen_is_tried_again(memory: Memory, calls: Calls) -> None:
    answers: list[Any] = [NotDone("refused"), NotDone("refused"), "sent"]

    def send() -> Any:
        calls.append("mail")
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    with pytest.raises(NotDone), memory.task("order") as run:
        run.effect("mail", send)
    with memory.task("order") as run:
        assert run.effect("mail", send, retries=QUICK) == "sent"
    assert len(calls) == 3


def test_an_effect_broken_off_inside_a_run_is_not_taken_for_done(memory: Memory, calls: Calls) -> None:
    with pytest.raises(StepAmbiguous, match="broken off"), memory.task("order") as run:
        with pytest.raises(KeyboardInterrupt):
            run.effect("mail", calls.noting("mail", KeyboardInterrupt()))
    assert memory.tasks()[0].status == "parked"


# Memory steps


def test_a_memory_step_is_written_once(memory: Memory, clock: SetClock) -> None:
    def body(run: Run) -> tuple[str, list[str]]:
        one = run.remember_step("note", "Order 42 was planned.", importance=0.9, slot="order.42")
        return one, run.remember_step("notes", ["Paper is low.", {"text": "Ink is low.", "importance": 0.1}])

    ids: list[Any] = []
    killed_in(memory, clock, "order", lambda run: (ids.append(body(run)), dies()))
    memory.forget(ids[0][1][0])
    with memory.task("order") as run:
        assert body(run) == ids[0]
    assert memory.slot("order.42").importance == 0.9  # type: ignore[union-attr]
    assert sorted(item.text for item in memory.list()) == ["Ink is low.", "Order 42 was planned."]
    with pytest.raises(InputChanged), memory.task("order") as run:
        run.remember_step("note", "Order 43 was planned.")


def test_a_memory_step_in_another_domain_is_written_once(open_memory: Open, clock: SetClock) -> None:
    from dataclasses import replace

    memory, other = open_memory(), open_memory(store="reference://")
    engine = memory._open
    engine.kit = replace(engine.kit, journal=other._open.kit.journal)
    engine.tasks._kit = engine.kit
    killed_in(memory, clock, "order", lambda run: run.remember_step("note", "Planned.") and dies())
    with memory.task("order") as run:
        id = run.remember_step("note", "Planned.")
        # The record is lost, the write is not: repeating it is harmless.
        other._open.kit.journal._holder._state.steps.clear()  # type: ignore[union-attr]
    with memory.task("order-2") as run:
        assert run.remember_step("note", "Planned.") == id
    assert len(memory.list()) == 1


# Leases


def test_two_starts_of_one_task_one_runs(memory: Memory) -> None:
    with memory.task("order") as run:
        with pytest.raises(TaskClaimed, match="is run by"), memory.task("order"):
            pass
        run.step("a", lambda: 1)
    assert memory.tasks()[0].status == "done"


def test_a_worker_that_was_paused_too_long_can_change_nothing(memory: Memory, clock: SetClock, calls: Calls) -> None:
    with pytest.raises(LeaseLost), memory.task("order") as slow:
        slow.step("a", calls.noting("a"))
        clock.advance(31)
        with memory.task("order") as fast:
            fast.step("a", calls.noting("a"))
            for write in (
                lambda: slow.step("b", calls.noting("late b")),
                lambda: slow.remember_step("n", "Late."),
                lambda: slow.keep({"late": True}),
            ):
                with pytest.raises(LeaseLost):
                    write()
            fast.step("b", calls.noting("b"))
        slow.effect("mail", calls.noting("late mail"))
    assert "late mail" not in calls
    assert memory.list() == []
    assert memory.restore("order") is None


def test_a_broad_except_does_not_swallow_a_lost_lease(memory: Memory, clock: SetClock) -> None:
    with pytest.raises(LeaseLost), memory.task("order") as slow:
        clock.advance(31)
        with memory.task("order"):
            pass
        try:
            slow.step("a", lambda: 1)
        except Exception:  # noqa: BLE001
            pytest.fail("an except clause went on writing")


def test_a_sign_of_life_keeps_the_task(open_memory: Open) -> None:
    from engrain.core.clock import system_clock

    memory = open_memory(clock=system_clock)
    with memory.task("order", lease=0.3) as run:
        run.step("slow", lambda: threading.Event().wait(0.8) and None)
        with pytest.raises(TaskClaimed), memory.task("order", lease=0.3):
            pass
        run.step("after", lambda: 1)


def test_jumps_of_the_wall_clock_neither_end_nor_prolong_a_lease(open_memory: Open, clock: SetClock) -> None:
    from engrain.stores.sqlite.steady import machine_steady

    memory = open_memory()
    journal = memory._open.kit.journal
    assert journal is not None
    journal._steady = machine_steady()  # type: ignore[attr-defined]
    if journal._steady is None:  # type: ignore[attr-defined]
        pytest.skip("this machine does not tell one boot from another")
    for jump in (-3_600, 2 * 86_400, -2 * 86_400):
        task = f"order {jump}"
        with memory.task(task, lease=0.3, max_age=3_600) as run:
            run.step("a", lambda: 1)
            clock.advance(jump)
            with pytest.raises(TaskClaimed), memory.task(task):
                pass
            assert memory.recover(lambda run: pytest.fail("it is running")) == []
            assert [one.status for one in memory.tasks(status="expired")] == []
            kill(run)
        threading.Event().wait(0.35)
        with memory.task(task) as run:
            assert run.epoch == 2
    assert memory.prune_tasks(3_600) == 0
    with memory.task("old"):
        pass
    clock.advance(2 * 86_400)
    assert memory.prune_tasks(86_400) == 0


# Side by side


def test_finished_siblings_are_kept(memory: Memory, clock: SetClock) -> None:
    ran: list[str] = []

    def fetch(page: str) -> str:
        if page == "c" and ran.count("c") == 0:
            ran.append(page)
            raise Killed
        ran.append(page)
        return page.upper()

    def body(run: Run) -> list[str]:
        with ThreadPoolExecutor(4) as pool:
            waiting = [pool.submit(run.step, "fetch", fetch, page, key=page) for page in "abcd"]
        return [one.result() for one in waiting]

    killed_in(memory, clock, "pages", body)
    with memory.task("pages") as run:
        assert body(run) == ["A", "B", "C", "D"]
    assert sorted(ran) == ["a", "b", "c", "c", "d"]


def test_steps_of_one_name_at_the_same_time_need_a_key(memory: Memory) -> None:
    started, go = threading.Event(), threading.Event()
    with memory.task("order") as run, ThreadPoolExecutor(1) as pool:
        first = pool.submit(run.step, "fetch", lambda: started.set() or go.wait(5))
        assert started.wait(5)
        with pytest.raises(StepConcurrent, match="key="):
            run.step("fetch", lambda: 2)
        assert run.step("fetch", lambda: 2, key="other") == 2
        go.set()
        assert first.result() is True
        assert run.step("fetch", lambda: 3) == 3


# Sleeping and waiting


def test_a_sleep_keeps_the_time_it_was_first_given(memory: Memory, clock: SetClock, calls: Calls) -> None:
    def body(run: Run) -> None:
        run.sleep(3_600, block=False)
        run.step("after", calls.noting("after"))

    for _ in range(2):
        with pytest.raises(TaskWaiting, match="sleeps until"), memory.task("nap") as run:
            body(run)
        clock.advance(1_000)
    assert [one.status for one in memory.tasks()] == ["waiting"]
    assert memory.recover(body) == []
    clock.advance(1_601)
    assert [(one.task, one.status) for one in memory.recover(body)] == [("nap", "done")]
    assert calls == ["after"]


def test_a_sleep_in_the_process_ends_by_itself(open_memory: Open) -> None:
    from engrain.core.clock import system_clock

    with open_memory(clock=system_clock).task("nap") as run:
        run.sleep(0.05)
        run.sleep_until("2020-01-01")


def test_an_event_is_waited_for_and_replayed(memory: Memory, clock: SetClock) -> None:
    def body(run: Run) -> Any:
        run.outcome = str(run.wait_event("paid", block=False))
        return run.outcome

    with pytest.raises(TaskWaiting, match="'paid'"), memory.task("order") as run:
        body(run)
    assert memory.recover(body) == []
    assert memory.signal("order", "paid", {"sum": 3})
    assert not memory.signal("order", "paid", {"sum": 4})
    assert [one.outcome for one in memory.recover(body)] == ["{'sum': 3}"]
    assert memory.signal("early", "paid")
    with memory.task("early") as run:
        assert run.wait_event("paid") is None


def test_an_event_that_does_not_come_times_out(memory: Memory, clock: SetClock) -> None:
    with pytest.raises(TimeoutError, match="'paid'"), memory.task("order") as run:
        run.wait_event("paid", timeout=0)
    assert memory.tasks()[0].status == "parked"
    memory.signal("order", "paid", 1)
    with memory.task("order") as run:
        assert run.wait_event("paid", timeout=0) == 1


# Care


def test_recover_picks_up_what_a_dead_worker_left(memory: Memory, clock: SetClock, calls: Calls) -> None:
    for name in ("a", "b", "other version"):
        version = "2" if name == "other version" else "1"
        killed_in(memory, clock, name, lambda run: (run.step("x", calls.noting("x")), dies()), version=version)

    def body(run: Run) -> None:
        run.step("x", calls.noting("x"))
        if run.id == "b":
            raise ValueError("bad luck")

    with memory.task("held", version="1"):
        found = memory.recover(body, version="1")
    assert [(one.task, one.status) for one in found] == [("a", "done"), ("b", "parked")]
    assert calls == ["x"] * 3
    assert [one.task for one in memory.tasks(status="running")] == ["other version"]


def test_a_task_that_kills_its_workers_is_parked(memory: Memory, clock: SetClock, calls: Calls) -> None:
    for _ in range(5):
        killed_in(memory, clock, "bomb", lambda run: run.step("boom", dies))
    assert memory.recover(calls.noting("bomb")) == []
    (task,) = memory.tasks(status="parked")
    assert "5 times" in task.outcome
    assert calls == []
    memory.resume("bomb")
    assert [one.status for one in memory.recover(calls.noting("bomb"))] == ["done"]


def test_nothing_unfinished_goes_away_and_max_age_is_visible(memory: Memory, clock: SetClock) -> None:
    killed_in(memory, clock, "old", lambda run: (run.step("a", lambda: 1), dies()), max_age=timedelta(days=1))
    killed_in(memory, clock, "ageless", lambda run: (run.step("a", lambda: 1), dies()))
    clock.advance(90_000)
    assert memory.recover(lambda run: None) == [memory.timeline("ageless").task]
    assert [one.task for one in memory.tasks(status="expired")] == ["old"]
    with pytest.raises(TaskEnded, match="expired"), memory.task("old"):
        pass
    clock.advance(6 * 86_400)
    assert memory.prune_tasks() == 0
    assert len(memory.timeline("old").steps) == 1
    clock.advance(2 * 86_400)
    assert memory.prune_tasks() == 2
    assert memory.tasks() == []


def test_a_person_parks_resumes_and_cancels(memory: Memory) -> None:
    with pytest.raises(LeaseLost), memory.task("order") as run:
        memory.park("order", "wait for Ana")
        run.step("late", lambda: 1)
    assert (memory.tasks()[0].status, memory.tasks()[0].outcome) == ("parked", "wait for Ana")
    memory.resume("order")
    assert memory.tasks()[0].status == "waiting"
    memory.cancel("order", "no longer wanted")
    with pytest.raises(TaskEnded, match="no longer wanted"), memory.task("order"):
        pass
    with pytest.raises(NotFound):
        memory.cancel("unknown")
    with pytest.raises(NotFound):
        memory.timeline("unknown")


def test_a_snapshot_travels_with_the_task(memory: Memory, clock: SetClock) -> None:
    def body(run: Run, fatal: bool) -> None:
        run.step("a", lambda: 1)
        run.keep({"at": "a"})
        run.step("b", lambda: 2)
        run.keep({"at": "b", "notes": ["ü"]})
        if fatal:
            dies()

    assert memory.restore("order") is None
    killed_in(memory, clock, "order", lambda run: body(run, True))
    assert memory.restore("order") == {"at": "b", "notes": ["ü"]}
    with memory.task("order") as run:
        assert run.snapshot == {"at": "b", "notes": ["ü"]}
        run.step("a", lambda: 1)
        run.keep({"at": "a"})  # replayed: what was kept later is newer
        assert memory.restore("order") == {"at": "b", "notes": ["ü"]}
        run.step("b", lambda: 2)
        run.keep({"at": "end"})
    assert memory.restore("order") == {"at": "end"}


def test_a_step_that_does_not_go_on_after_the_end(memory: Memory) -> None:
    with memory.task("order"):
        pass
    with pytest.raises(TaskEnded, match="is done"), memory.task("order") as run:
        run.step("new", lambda: 1)


@pytest.mark.parametrize(
    "call",
    [
        lambda memory: memory.task(""),
        lambda memory: memory.task("x" * 600),
        lambda memory: memory.task("x", lease=0),
        lambda memory: memory.task("x", accepts="1"),
        lambda memory: memory.task("x", version="checkpoint"),
        lambda memory: memory.task("x", goal=3),
        lambda memory: memory.tasks(status="dead"),
        lambda memory: memory.tasks(limit=0),
        lambda memory: memory.resolve("x", "y", "maybe"),
        lambda memory: memory.resolve("x", "y", "failed", result=1),
        lambda memory: memory.prune_tasks(-1),
        lambda memory: memory.signal("x", ""),
        lambda memory: memory.checkpoint("", {}),
    ],
)
def test_bad_input_is_named(memory: Memory, call: Callable[[Memory], Any]) -> None:
    with pytest.raises(InvalidInput):
        call(memory)


@pytest.mark.parametrize(
    "call",
    [
        lambda run: run.step("a[b]", print),
        lambda run: run.step("", print),
        lambda run: run.step("a", print, key=""),
        lambda run: run.step("a", print, retries=-1),
        lambda run: run.effect("a", print, on_ambiguous="maybe"),
        lambda run: run.remember_step("a", ""),
        lambda run: run.remember_step("a", "text", colour="red"),
        lambda run: run.sleep_until("tomorrow"),
    ],
)
def test_bad_steps_are_named(memory: Memory, call: Callable[[Run], Any]) -> None:
    with memory.task("order") as run, pytest.raises(InvalidInput):
        call(run)


def test_a_run_is_entered_first_and_once(memory: Memory) -> None:
    run = memory.task("order")
    with pytest.raises(TaskError, match="enter the run first"):
        run.step("a", lambda: 1)
    with run:
        pass
    with pytest.raises(TaskError, match="entered before"), run:
        pass


# Coroutines


def test_coroutine_steps_run_once(store: str) -> None:
    ran: list[str] = []

    async def fetch(page: str) -> str:
        await asyncio.sleep(0)
        ran.append(page)
        return page.upper()

    async def body(memory: AsyncMemory) -> Any:
        async with memory.task("pages") as run:
            pages = await asyncio.gather(*(run.step("fetch", fetch, page, key=page) for page in "abc"))
            await run.remember_step("note", "Three pages.")
            sent = await run.effect("mail", fetch, "mail", on_ambiguous="halt")
            plain = await run.step("plain", lambda: threading.current_thread().name)
            await run.sleep(0)
            await run.keep({"pages": pages})
            return pages, sent, plain != "MainThread", run.snapshot

    async def main() -> None:
        async with AsyncMemory(store, user="ana") as memory:
            first = await body(memory)
            assert first == (["A", "B", "C"], "MAIL", True, {"pages": ["A", "B", "C"]})
            assert await body(memory) == first
            assert sorted(ran) == ["a", "b", "c", "mail"]
            assert [one.status for one in await memory.tasks()] == ["done"]
            with pytest.raises(LeaseLost):
                async with memory.task("stopped") as run:
                    await memory.cancel("stopped")
                    await run.step("late", fetch, "late")

    asyncio.run(main())


def test_a_cancelled_effect_is_reported(store: str) -> None:
    async def main() -> None:
        async with AsyncMemory(store) as memory:
            with pytest.raises(StepAmbiguous):
                async with memory.task("order") as run:
                    with pytest.raises(TimeoutError):
                        await asyncio.wait_for(run.effect("mail", asyncio.sleep, 5), 0.05)

            async def body(run: Any) -> None:
                await run.step("x", asyncio.sleep, 0)

            await memory.resolve("order", "mail", "skipped")
            await memory.resume("order")
            assert [one.status for one in await memory.recover(body)] == ["done"]

    asyncio.run(main())
