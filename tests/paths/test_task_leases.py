"""Promises of durable tasks: one worker at a time, and nothing unfinished is lost."""

# ruff: noqa: PT012  (a run is a with-block: what it raises comes from inside)

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from datetime import timedelta
from typing import Any

import pytest
from engrain_conformance.clock import SetClock
from examples import for_each
from forked import fork_child, wait_for_child
from killing import Calls, dies, kill, killed_in
from memory_kit import Open

from engrain import (
    Conflict,
    InvalidInput,
    LeaseLost,
    Memory,
    NotFound,
    Run,
    StepAmbiguous,
    TaskClaimed,
    TaskEnded,
    TaskError,
    TaskWaiting,
)

# Leases


def test_two_starts_of_one_task_one_runs(memory: Memory) -> None:
    with memory.task("order") as run:
        with pytest.raises(TaskClaimed, match="is run by"), memory.task("order"):
            pass
        run.step("a", lambda: 1)
    assert memory.tasks.list()[0].status == "done"


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
    assert memory.tasks.load_checkpoint("order") is None


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells when a process began")
def test_the_task_of_a_dead_worker_continues_before_its_lease_ends(open_memory: Open, calls: Calls) -> None:
    def work() -> None:
        with open_memory().task("order") as run:
            run.step("a", lambda: 1)
            run.step("b", lambda: os._exit(0))

    assert wait_for_child(fork_child(work)) == 0
    memory = open_memory()
    (left,) = memory.tasks.list()
    assert (left.status, left.epoch) == ("running", 1)
    with memory.task("order") as run:
        assert (run.step("a", calls.noting("a")), run.step("b", calls.noting("b", 2))) == (1, 2)
    assert calls == ["b"]
    (done,) = memory.tasks.list()
    assert (done.status, done.epoch) == ("done", 2)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux tells when a process began")
def test_a_task_of_a_dead_worker_can_be_resumed_and_recovered(open_memory: Open, calls: Calls) -> None:
    def work() -> None:
        with open_memory().task("order") as run:
            run.step("b", lambda: os._exit(0))

    assert wait_for_child(fork_child(work)) == 0
    memory = open_memory()
    assert memory.tasks.resume("order").status == "waiting"
    recovered = memory.tasks.recover(lambda run: run.step("b", calls.noting("b")))
    assert [one.status for one in recovered] == ["done"]


def test_recover_takes_the_oldest_up_to_its_limit(memory: Memory, clock: SetClock, calls: Calls) -> None:
    for name in ("first", "second", "third"):
        killed_in(memory, clock, name, lambda run: (run.step("a", lambda: 1), dies()))
    for taken in (["first", "second"], ["third"], []):
        recovered = memory.tasks.recover(lambda run: run.step("b", calls.noting("b")), limit=2)
        assert [one.task for one in recovered] == taken
    assert len(calls) == 3


def test_recover_reports_a_task_that_was_taken_over_meanwhile(
    memory: Memory, clock: SetClock, caplog: pytest.LogCaptureFixture
) -> None:
    killed_in(memory, clock, "order", lambda run: (run.step("a", lambda: 1), dies()))

    def lose(run: Run) -> None:
        clock.advance(31)
        with memory.task("order") as other:
            other.step("b", lambda: 2)
        run.step("b", lambda: 3)

    assert [one.status for one in memory.tasks.recover(lose)] == ["done"]
    assert "task 'order' was taken over while it was recovered" in caplog.text
    assert memory.tasks.timeline("order").steps[1].epoch == 3


def test_recover_leaves_other_versions_and_running_tasks_alone(memory: Memory, clock: SetClock, calls: Calls) -> None:
    killed_in(memory, clock, "old", lambda run: (run.step("a", lambda: 1), dies()), version="1")
    with memory.task("busy") as run:
        assert memory.tasks.recover(calls.noting("work")) == []
        assert memory.tasks.recover(calls.noting("work"), version="2", accepts=("1",))[0].task == "old"
        run.step("a", lambda: 1)
    assert calls == ["work"]


def test_the_end_of_a_task_is_removed_only_after_its_days(memory: Memory, clock: SetClock) -> None:
    with memory.task("order") as run:
        run.step("a", lambda: 1)
    clock.advance(100)
    assert memory.tasks.prune(101) == 0
    assert memory.tasks.prune(timedelta(seconds=99)) == 1
    assert memory.tasks.get("order") is None


def test_only_a_parked_or_stopped_task_is_resumed_and_each_decision_is_recorded(memory: Memory) -> None:
    with pytest.raises(OSError, match="down"), memory.task("order") as run:
        run.step("a", lambda: (_ for _ in ()).throw(OSError("down")))
    (parked,) = memory.tasks.list(status="parked")
    assert parked.outcome == "OSError: down"
    assert (memory.tasks.park("order", "later").status, memory.tasks.get("order").outcome) == ("parked", "later")  # type: ignore[union-attr]
    assert memory.tasks.resume("order").status == "waiting"
    assert memory.tasks.cancel("order", "not needed").outcome == "not needed"
    with pytest.raises(TaskEnded, match="cancelled: not needed"), memory.task("order"):
        pass
    with pytest.raises(NotFound):
        memory.tasks.resume("unknown")


def test_an_event_is_delivered_once(memory: Memory) -> None:
    assert memory.tasks.signal("order", "paid", 1) is True
    assert memory.tasks.signal("order", "paid", 2) is False
    with memory.task("order") as run:
        assert run.wait_event("paid") == 1
    assert memory.tasks.signal("order", "paid", 3) is False
    with pytest.raises(TaskEnded, match="nobody waits for the event 'sent'"):
        memory.tasks.signal("order", "sent")


def test_a_broad_except_does_not_swallow_a_lost_lease(memory: Memory, clock: SetClock) -> None:
    with pytest.raises(LeaseLost), memory.task("order") as slow:
        clock.advance(31)
        with memory.task("order"):
            pass
        try:
            slow.step("a", lambda: 1)
        except Exception:  # noqa: BLE001
            pytest.fail("an except clause went on writing")


def test_the_thread_that_extends_a_lease_does_not_keep_the_process_alive(memory: Memory) -> None:
    with memory.task("order"):
        assert [one.daemon for one in threading.enumerate() if one.name == "engrain-lease"][-1]


def test_a_sign_of_life_keeps_the_task(open_memory: Open) -> None:
    from engrain.core.clock import system_clock

    memory = open_memory(clock=system_clock)
    with memory.task("order", lease=9) as run:  # a busy machine may stand still for seconds
        (first,) = memory.tasks.list()

        def slow() -> None:
            ends = time.monotonic() + 180
            while memory.tasks.list()[0].until <= first.until:  # type: ignore[operator]
                assert time.monotonic() < ends, "no sign of life"
                time.sleep(0.01)

        run.step("slow", slow)
        with pytest.raises(TaskClaimed), memory.task("order"):
            pass
        run.step("after", lambda: 1)


def test_jumps_of_the_wall_clock_neither_end_nor_prolong_a_lease(open_memory: Open, clock: SetClock) -> None:
    from engrain.core.clock import add_time
    from engrain.stores.sqlite.opening import find_steady_clock

    memory = open_memory()
    journal = memory.store.services.journal
    assert journal is not None
    steady_clock, later = find_steady_clock(), timedelta()
    if steady_clock is None:
        pytest.skip("this machine does not tell one boot from another")
    journal._dialect.steady_clock = lambda: add_time(steady_clock(), later)  # type: ignore[attr-defined]
    for jump in (-3_600, 2 * 86_400, -2 * 86_400):
        task = f"order {jump}"
        with memory.task(task, lease=300, max_age=3_600) as run:
            run.step("a", lambda: 1)
            clock.advance(jump)
            with pytest.raises(TaskClaimed), memory.task(task):
                pass
            assert memory.tasks.recover(lambda run: pytest.fail("it is running")) == []
            assert [one.status for one in memory.tasks.list(status="expired")] == []
            kill(run)
        later += timedelta(seconds=301)
        with memory.task(task) as run:
            assert run.epoch == 2
    assert memory.tasks.prune(3_600) == 0
    with memory.task("old"):
        pass
    clock.advance(2 * 86_400)
    assert memory.tasks.prune(86_400) == 0


# Sleeping and waiting


def test_a_sleep_keeps_the_time_it_was_first_given(memory: Memory, clock: SetClock, calls: Calls) -> None:
    def body(run: Run) -> None:
        run.sleep(3_600, block=False)
        run.step("after", calls.noting("after"))

    for _ in range(2):
        with pytest.raises(TaskWaiting, match="sleeps until"), memory.task("nap") as run:
            body(run)
        clock.advance(1_000)
    assert [one.status for one in memory.tasks.list()] == ["waiting"]
    assert memory.tasks.recover(body) == []
    clock.advance(1_600)  # exactly when it is due
    assert [(one.task, one.status) for one in memory.tasks.recover(body)] == [("nap", "done")]
    assert calls == ["after"]


def test_a_sleep_in_the_process_ends_by_itself(open_memory: Open) -> None:
    from engrain.core.clock import system_clock

    memory = open_memory(clock=system_clock)
    began = time.monotonic()
    with memory.task("nap") as run:
        run.sleep(0.05)
        run.sleep_until("2020-01-01")
    assert 0.05 <= time.monotonic() - began < 60
    assert [one.status for one in memory.tasks.timeline("nap").steps] == ["done", "done"]


def test_a_timeline_names_what_the_task_still_waits_for(memory: Memory) -> None:
    with pytest.raises(TaskWaiting), memory.task("order") as run:
        run.sleep(0, name="nap")
        run.step("plan", lambda: 1)
        run.wait_event("paid", block=False)
    assert [step.name for step in memory.tasks.timeline("order").waits_for] == ["paid"]
    with pytest.raises(StepAmbiguous), memory.task("refund") as run:
        run.effect("pay", Calls().noting("pay", OSError("the line is dead")))
    assert memory.tasks.timeline("refund").waits_for == ()


def test_an_event_is_waited_for_and_replayed(memory: Memory, clock: SetClock) -> None:
    def body(run: Run) -> Any:
        run.outcome = str(run.wait_event("paid", block=False))
        return run.outcome

    with pytest.raises(TaskWaiting, match="'paid'"), memory.task("order") as run:
        body(run)
    assert memory.tasks.recover(body) == []
    assert memory.tasks.signal("order", "paid", {"sum": 3})
    assert not memory.tasks.signal("order", "paid", {"sum": 4})
    assert [one.outcome for one in memory.tasks.recover(body)] == ["{'sum': 3}"]
    assert memory.tasks.signal("early", "paid")
    with memory.task("early") as run:
        assert run.wait_event("paid") is None


def test_no_event_of_an_ended_task_reaches_the_next_of_its_name(memory: Memory, clock: SetClock) -> None:
    for end in (lambda: memory.tasks.prune(0), lambda: memory.tasks.remove("order")):
        memory.tasks.signal("order", "paid", 1)
        with memory.task("order") as run:
            assert run.wait_event("paid", block=False) == 1
        assert not memory.tasks.signal("order", "paid", 2)  # whoever tells it once more is no worse off
        with pytest.raises(TaskEnded, match="'refunded'"):
            memory.tasks.signal("order", "refunded", 1)
        clock.advance()
        end()
        for event in ("paid", "refunded"):
            with pytest.raises(TaskWaiting), memory.task("order") as run:
                run.wait_event(event, block=False)
        memory.tasks.cancel("order")
        memory.tasks.remove("order")


def test_an_event_that_does_not_come_times_out(memory: Memory, clock: SetClock) -> None:
    with pytest.raises(TimeoutError, match="'paid'"), memory.task("order") as run:
        run.wait_event("paid", timeout=0)
    assert memory.tasks.list()[0].status == "parked"
    memory.tasks.signal("order", "paid", 1)
    with memory.task("order") as run:
        assert run.wait_event("paid", timeout=0) == 1


def test_a_time_out_that_the_task_went_on_from_is_not_waited_for_again(memory: Memory, clock: SetClock) -> None:
    def body(run: Run) -> None:
        for _ in range(3):
            try:
                run.wait_event("paid", timeout=3_600, block=False)
            except TimeoutError:
                run.step("remind", lambda: "please")

    for _ in range(3):
        with pytest.raises(TaskWaiting), memory.task("order") as run:
            body(run)
        clock.advance(3_600)
    with memory.task("order") as run:
        body(run)
    assert [one.status for one in memory.tasks.timeline("order").steps] == ["failed", "done"] * 3


def test_what_stands_in_for_an_event_is_recorded(memory: Memory, clock: SetClock) -> None:
    def body(run: Run) -> Any:
        return run.wait_event("answer", timeout=60, default={"said": None}, block=False)

    with pytest.raises(TaskWaiting), memory.task("ask") as run:
        body(run)
    clock.advance(61)
    killed_in(memory, clock, "ask", lambda run: (body(run), run.step("give up", lambda: 1), dies()))
    assert memory.tasks.signal("ask", "answer", "too late")
    with memory.task("ask") as run:
        assert body(run) == {"said": None}
    for wrong in ({"default": 1}, {"timeout": 1, "default": object()}):
        with memory.task("wrong") as run, pytest.raises(InvalidInput):
            run.wait_event("answer", **wrong)


def test_a_sleep_that_somebody_settled_as_failed_goes_on(memory: Memory, clock: SetClock) -> None:
    def body(run: Run) -> None:
        run.sleep(60, block=False)

    with pytest.raises(TaskWaiting), memory.task("order") as run:
        body(run)
    memory.tasks.resolve("order", "sleep", "failed")
    clock.advance(61)
    with memory.task("order") as run:
        body(run)
    assert memory.tasks.list()[0].status == "done"


def test_a_wait_in_place_of_a_step_that_failed(memory: Memory, clock: SetClock) -> None:
    with pytest.raises(ZeroDivisionError), memory.task("order") as run:
        run.step("settle", lambda number: 1 / number, 0)
    with pytest.raises(TaskWaiting), memory.task("order") as run:
        run.sleep(60, name="settle", block=False)
    clock.advance(61)
    with memory.task("order") as run:
        run.sleep(60, name="settle", block=False)


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
        found = memory.tasks.recover(body, version="1")
    assert [(one.task, one.status) for one in found] == [("a", "done"), ("b", "parked")]
    assert calls == ["x"] * 3
    assert [one.task for one in memory.tasks.list(status="running")] == ["other version"]


def test_recover_leaves_alone_what_somebody_parked_meanwhile(memory: Memory, clock: SetClock, calls: Calls) -> None:
    for name in ("a", "b", "c"):
        killed_in(memory, clock, name, dies)

    def body(run: Run) -> None:
        calls.append(run.id)
        if run.id == "a":
            memory.tasks.park("b", "wait for Ana")
            memory.tasks.cancel("c")

    assert [one.task for one in memory.tasks.recover(body)] == ["a"]
    assert calls == ["a"]
    assert {one.task: one.status for one in memory.tasks.list()} == {"a": "done", "b": "parked", "c": "cancelled"}


def test_a_task_that_kills_its_workers_is_parked(memory: Memory, clock: SetClock, calls: Calls) -> None:
    for _ in range(5):
        killed_in(memory, clock, "bomb", lambda run: run.step("boom", dies))
    assert memory.tasks.recover(calls.noting("bomb")) == []
    (task,) = memory.tasks.list(status="parked")
    assert "5 workers" in task.outcome
    assert calls == []
    memory.tasks.resume("bomb")
    assert [one.status for one in memory.tasks.recover(calls.noting("bomb"))] == ["done"]


def test_a_task_that_people_park_and_resume_does_not_kill_its_workers(memory: Memory, clock: SetClock) -> None:
    for _ in range(6):
        with pytest.raises(OSError, match="down"), memory.task("order"):
            raise OSError("down")
        memory.tasks.resume("order")
    killed_in(memory, clock, "order", lambda run: run.step("slow", dies))
    assert [one.status for one in memory.tasks.recover(lambda run: None)] == ["done"]


def test_a_worker_that_ends_while_it_waits_is_not_killed_by_its_task(memory: Memory, clock: SetClock) -> None:
    def waits(run: Run) -> None:
        try:
            run.wait_event("paid", block=False)
        except TaskWaiting:  # in the place of a wait that blocks, in which the process ends
            dies()

    for _ in range(7):
        killed_in(memory, clock, "order", waits)
    memory.tasks.signal("order", "paid", 1)
    assert [one.status for one in memory.tasks.recover(waits)] == ["done"]


def test_a_step_that_gets_done_clears_the_name_of_its_task(memory: Memory, clock: SetClock) -> None:
    for number in range(8):
        killed_in(memory, clock, "order", lambda run: run.step("x", dies))
        if number == 3:
            killed_in(memory, clock, "order", lambda run: (run.step("y", lambda: 1), dies()))
    assert [one.status for one in memory.tasks.recover(lambda run: None)] == ["done"]


def test_an_effect_that_kills_its_workers_is_not_repeated_for_ever(
    memory: Memory, clock: SetClock, calls: Calls
) -> None:
    for _ in range(5):
        killed_in(memory, clock, "bomb", lambda run: run.effect("boom", dies, on_ambiguous="retry"))
    assert memory.tasks.recover(calls.noting("bomb")) == []
    assert [one.status for one in memory.tasks.list()] == ["parked"]
    assert calls == []


def test_nothing_unfinished_goes_away_and_max_age_is_visible(memory: Memory, clock: SetClock) -> None:
    killed_in(memory, clock, "old", lambda run: (run.step("a", lambda: 1), dies()), max_age=timedelta(days=1))
    killed_in(memory, clock, "ageless", lambda run: (run.step("a", lambda: 1), dies()))
    clock.advance(90_000)
    assert memory.tasks.recover(lambda run: None) == [memory.tasks.timeline("ageless").task]
    assert [one.task for one in memory.tasks.list(status="expired")] == ["old"]
    with pytest.raises(TaskEnded, match="expired"), memory.task("old"):
        pass
    clock.advance(6 * 86_400)
    assert memory.tasks.prune() == 0
    assert len(memory.tasks.timeline("old").steps) == 1
    clock.advance(2 * 86_400)
    assert memory.tasks.prune() == 2
    assert memory.tasks.list() == []


def test_a_person_parks_resumes_and_cancels(memory: Memory) -> None:
    with pytest.raises(LeaseLost), memory.task("order") as run:
        memory.tasks.park("order", "wait for Ana")
        run.step("late", lambda: 1)
    assert (memory.tasks.list()[0].status, memory.tasks.list()[0].outcome) == ("parked", "wait for Ana")
    memory.tasks.resume("order")
    assert memory.tasks.list()[0].status == "waiting"
    memory.tasks.cancel("order", "no longer wanted")
    with pytest.raises(TaskEnded, match="no longer wanted"), memory.task("order"):
        pass
    with pytest.raises(NotFound):
        memory.tasks.cancel("unknown")
    with pytest.raises(NotFound):
        memory.tasks.timeline("unknown")


def test_a_snapshot_travels_with_the_task(memory: Memory, clock: SetClock) -> None:
    def body(run: Run, fatal: bool) -> None:
        run.step("a", lambda: 1)
        run.keep({"at": "a"})
        run.step("b", lambda: 2)
        run.keep({"at": "b", "notes": ["ü"]})
        if fatal:
            dies()

    assert memory.tasks.load_checkpoint("order") is None
    killed_in(memory, clock, "order", lambda run: body(run, True))
    assert memory.tasks.load_checkpoint("order") == {"at": "b", "notes": ["ü"]}
    with memory.task("order") as run:
        assert run.snapshot == {"at": "b", "notes": ["ü"]}
        run.step("a", lambda: 1)
        run.keep({"at": "a"})  # replayed: what was kept later is newer
        assert memory.tasks.load_checkpoint("order") == {"at": "b", "notes": ["ü"]}
        run.step("b", lambda: 2)
        run.keep({"at": "end"})
    assert memory.tasks.load_checkpoint("order") == {"at": "end"}


def test_a_step_that_does_not_go_on_after_the_end(memory: Memory) -> None:
    with memory.task("order"):
        pass
    with pytest.raises(TaskEnded, match="is done"), memory.task("order") as run:
        run.step("new", lambda: 1)


@for_each(
    "call",
    [
        lambda memory: memory.task(""),
        lambda memory: memory.task("x" * 600),
        lambda memory: memory.task("x", lease=0),
        lambda memory: memory.task("x", accepts="1"),
        lambda memory: memory.task("x", version="checkpoint"),
        lambda memory: memory.task("x", goal=3),
        lambda memory: memory.tasks.list(status="dead"),
        lambda memory: memory.tasks.list(limit=0),
        lambda memory: memory.tasks.resolve("x", "y", "maybe"),
        lambda memory: memory.tasks.resolve("x", "y", "failed", result=1),
        lambda memory: memory.tasks.prune(-1),
        lambda memory: memory.tasks.signal("x", ""),
        lambda memory: memory.tasks.checkpoint("", {}),
        lambda memory: memory.tasks.checkpoint({}, {}),
        lambda memory: memory.tasks.load_checkpoint([]),
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
        lambda run: setattr(run, "cites", 4),
    ],
)
def test_bad_steps_are_named(memory: Memory, call: Callable[[Run], Any]) -> None:
    with memory.task("order") as run, pytest.raises(InvalidInput):
        call(run)


def test_a_run_is_entered_first_and_once(memory: Memory) -> None:
    run = memory.task("order")
    with pytest.raises(TaskError, match="enter the run first"):
        run.step("a", lambda: 1)
    assert run.epoch == 0
    with run:
        assert run.epoch == 1
    with pytest.raises(TaskError, match="entered before"), run:
        pass


def test_a_wait_with_a_time_out_goes_on_when_nobody_signals(memory: Memory, clock: SetClock) -> None:
    def body(run: Run) -> None:
        try:
            run.outcome = run.wait_event("answer", timeout=3_600, block=False)
        except TimeoutError:
            run.outcome = "no answer"

    with pytest.raises(TaskWaiting), memory.task("ask") as run:
        body(run)
    clock.advance(1_800)
    assert memory.tasks.recover(body) == []
    with pytest.raises(TaskWaiting), memory.task("ask") as run:
        body(run)  # looked at half way: the time-out counts from the first wait
    clock.advance(1_800)
    assert [(one.status, one.outcome) for one in memory.tasks.recover(body)] == [("done", "no answer")]


def test_a_task_past_its_max_age_is_not_started_again(memory: Memory, clock: SetClock, calls: Calls) -> None:
    killed_in(memory, clock, "old", lambda run: (run.step("a", lambda: 1), dies()), max_age=3_600)
    clock.advance(3_540)  # exactly its max_age, with the minute after the kill
    with pytest.raises(TaskEnded, match="expired"), memory.task("old") as run:
        run.step("b", calls.noting("b"))
    assert calls == []
    assert [(one.task, one.status) for one in memory.tasks.list()] == [("old", "expired")]
    assert len(memory.tasks.timeline("old").steps) == 1


def test_a_running_task_is_not_taken_from_its_worker_by_resume(memory: Memory) -> None:
    with memory.task("order") as run:
        with pytest.raises(Conflict, match="running already"):
            memory.tasks.resume("order")
        run.step("a", lambda: 1)
    assert memory.tasks.list()[0].status == "done"
