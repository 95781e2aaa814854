"""Promises of durable tasks: a run that is not used as it is meant says so, and loses nothing."""

# ruff: noqa: PT012  (a run is a with-block: what it raises comes from inside)

from __future__ import annotations

import functools
import os
import threading
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from engrain_conformance.clock import SetClock
from examples import for_each
from forked import fork_child, wait_for_child
from killing import Calls, Killed, dies, kill, killed_in
from memory_kit import Open

from engrain import (
    DiskFull,
    InvalidInput,
    LeaseLost,
    Memory,
    Run,
    StepAmbiguous,
    StepNested,
    StoreUnavailable,
    TaskError,
    TaskWaiting,
)

# Where a step may be called


@pytest.mark.parametrize(
    "inner",
    [
        lambda run: run.step("inner", lambda: 1),
        lambda run: run.step("outer", lambda: 1),
        lambda run: run.effect("inner", lambda: 1),
        lambda run: run.remember_step("inner", "Inside."),
        lambda run: run.wait_event("inner", block=False),
    ],
)
def test_a_step_inside_a_step_is_refused(memory: Memory, inner: Callable[[Run], Any]) -> None:
    with pytest.raises(StepNested, match="inside another step"), memory.task("order") as run:
        run.step("outer", lambda: inner(run))
    assert [(one.name, one.status) for one in memory.tasks.timeline("order").steps] == [("outer", "failed")]
    assert memory.list() == []


def test_a_step_may_use_the_memory_and_run_another_task(memory: Memory) -> None:
    def work() -> Any:
        memory.remember("Noted inside a step.")
        with memory.task("other") as other:
            return other.step("inner", lambda: len(memory.list()))

    with memory.task("order") as run:
        assert run.step("outer", work) == 1
        with pytest.raises(StepNested), memory.task("third") as third:
            run.step("again", lambda: third.step("x", lambda: run.step("y", lambda: 1)))
    assert [one.status for one in memory.tasks.list()] == ["parked", "done", "done"]


def test_a_run_that_is_over_calls_nothing(memory: Memory, calls: Calls) -> None:
    with memory.task("order") as run:
        run.keep({"a": 1})
    for late in (
        lambda: run.step("late", calls.noting("step")),
        lambda: run.effect("late", calls.noting("effect")),
        lambda: run.keep({"late": True}),
    ):
        with pytest.raises(TaskError, match="is over"):
            late()
    assert calls == []
    assert run.snapshot == {"a": 1}


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs a system that forks")
def test_a_fork_neither_runs_nor_ends_the_task_of_its_parent(memory: Memory, calls: Calls) -> None:
    with memory.task("order") as run:

        def work() -> None:
            with pytest.raises(TaskError):
                run.step("a", calls.noting("a"))
            run.execution.close(None)
            assert not calls

        assert wait_for_child(fork_child(work)) == 0
        run.step("a", calls.noting("a"))
    assert memory.tasks.list()[0].status == "done"


# What may be called


@pytest.mark.parametrize("wrong", [3, None, "plan", {"parts": 2}])
def test_what_cannot_be_called_is_refused_before_anything_is_recorded(memory: Memory, wrong: Any) -> None:
    with memory.task("order") as run:
        for call in (run.step, run.effect):
            with pytest.raises(InvalidInput, match="function to call"):
                call("plan", wrong)  # type: ignore[operator]
    assert memory.tasks.timeline("order").steps == ()


def test_a_coroutine_function_is_refused_where_nobody_awaits_it(memory: Memory) -> None:
    async def fetch(page: str) -> str:
        return page

    with memory.task("order") as run:
        for function in (fetch, functools.partial(fetch, "a")):
            for call in (run.step, run.effect):
                with pytest.raises(InvalidInput, match="AsyncMemory"):
                    call("fetch", function)  # type: ignore[operator]
    assert memory.tasks.timeline("order").steps == ()


@for_each(
    "call",
    [
        lambda memory: memory.task("x", max_age="a day"),
        lambda memory: memory.task("x", max_age=-1),
        lambda memory: memory.task("x", max_age=float("nan")),
        lambda memory: memory.task("x", max_age=1e300),
        lambda memory: memory.task("x", accepts=3),
        lambda memory: memory.task("x", accepts=[3]),
        lambda memory: memory.task("x", goal="\ud800"),
        lambda memory: memory.tasks.prune("a day"),
        lambda memory: memory.tasks.prune(float("inf")),
        lambda memory: memory.tasks.list(status=3),
        lambda memory: memory.tasks.list(status=None),
        lambda memory: memory.tasks.resolve("x", "y", "done", occurrence="0"),
        lambda memory: memory.tasks.resolve("x", "y", "done", note=3),
        lambda memory: memory.tasks.recover(None),
    ],
)
def test_bad_values_are_named(memory: Memory, call: Callable[[Memory], Any]) -> None:
    with pytest.raises(InvalidInput):
        call(memory)


@pytest.mark.parametrize(
    "call",
    [
        lambda run: run.sleep("long"),
        lambda run: run.sleep(float("inf")),
        lambda run: run.sleep(-1),
        lambda run: run.wait_event("paid", timeout="long", block=False),
        lambda run: run.wait_event("paid", timeout=float("nan"), block=False),
        lambda run: run.step(["plan"], print),
        lambda run: run.step("plan", print, key=["a"]),
        lambda run: run.effect("plan", print, key_as=3),
    ],
)
def test_bad_values_of_steps_are_named(memory: Memory, call: Callable[[Run], Any]) -> None:
    with memory.task("order") as run, pytest.raises(InvalidInput):
        call(run)
    assert memory.tasks.timeline("order").steps == ()


# How a run is left


def test_groups_of_errors_are_looked_into(memory: Memory) -> None:
    def left_with(name: str, *errors: BaseException) -> tuple[str, str]:
        with pytest.raises(BaseExceptionGroup), memory.task(name):
            raise BaseExceptionGroup("several", [BaseExceptionGroup("inner", errors)])
        task = memory.tasks.timeline(name).task
        return task.status, task.outcome

    waits, fails = TaskWaiting("waits for Ana"), ValueError("bad luck")
    assert left_with("a", waits, waits) == ("waiting", "waits for Ana")
    assert left_with("b", waits, fails) == ("parked", "ValueError: bad luck")
    assert left_with("c", fails, fails) == ("parked", "ValueError: bad luck (and 1 more)")
    assert left_with("d", KeyboardInterrupt()) == ("waiting", "broken off: KeyboardInterrupt")
    assert "may or may not" in left_with("e", fails, StepAmbiguous("x", "e", "mail"))[1]
    assert left_with("f", LeaseLost("another task's"))[0] == "waiting"


def test_a_store_that_fails_at_the_end_does_not_hide_the_error(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: Any) -> None:
        raise DiskFull("the disk is full")

    with pytest.raises(ValueError, match="bad luck"), memory.task("order"):
        monkeypatch.setattr(memory.store.services.journal, "end", full)
        raise ValueError("bad luck")
    monkeypatch.undo()
    with pytest.raises(DiskFull), memory.task("other"):  # otherwise it would be taken for done
        monkeypatch.setattr(memory.store.services.journal, "end", full)
    monkeypatch.undo()


def test_a_run_that_could_not_say_its_end_holds_the_task_no_longer(
    memory: Memory, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: Any) -> None:
        raise StoreUnavailable("the disk is gone")

    with pytest.raises(StoreUnavailable), memory.task("order") as run:
        run.outcome = "sent"
        monkeypatch.setattr(memory.store.services.journal, "extend", fails)
    assert not [
        one for one in threading.enumerate() if one.name == "engrain-lease" and not one.join(60) and one.is_alive()
    ]


def test_a_run_that_is_left_while_a_step_runs_is_not_done(memory: Memory, calls: Calls) -> None:
    started, go = threading.Event(), threading.Event()

    def slow() -> None:
        started.set()
        go.wait(180)

    with ThreadPoolExecutor(1) as pool:
        with pytest.raises(TaskError, match="while fetch ran"), memory.task("order") as run:
            fetched = pool.submit(run.step, "fetch", slow)
            assert started.wait(180)
        go.set()
        assert isinstance(fetched.exception(), LeaseLost)
    assert memory.tasks.list()[0].status == "parked"
    with memory.task("order") as run:
        assert run.step("fetch", lambda: "fetched") == "fetched"


@pytest.mark.parametrize("text", ["\ud800", "x" * 10_000])
def test_an_outcome_can_always_be_stored(memory: Memory, text: str) -> None:
    with memory.task("order") as run:
        run.outcome = text
    assert memory.tasks.list()[0].outcome in ("?", "x" * 2_000)


# Snapshots


def test_a_snapshot_is_kept_although_the_code_has_changed(memory: Memory, clock: SetClock) -> None:
    """The steps that an earlier run settled never come: what is kept must not wait for them."""

    def first(run: Run) -> None:
        run.step("a", lambda: 1)
        run.step("dropped", lambda: 2)
        run.keep({"by": "the first"})
        dies()

    killed_in(memory, clock, "order", first)
    with memory.task("order") as run:
        run.step("a", lambda: 1)
        run.keep({"by": "the second, early"})
        assert memory.tasks.load_checkpoint("order") == {"by": "the first"}
        run.step("new", lambda: 3)
        run.keep({"by": "the second"})
        assert memory.tasks.load_checkpoint("order") == {"by": "the second"}
        kill(run)
    clock.advance(60)
    with memory.task("order") as run:
        run.keep({"by": "the third, at its end"})
    assert memory.tasks.load_checkpoint("order") == {"by": "the third, at its end"}


def test_a_snapshot_of_a_run_that_was_cut_off_in_its_replay_stays(memory: Memory, clock: SetClock) -> None:
    def body(run: Run, *, fatal: bool) -> None:
        run.step("a", lambda: 1)
        run.keep({"at": "a"})
        if fatal:
            raise Killed
        run.step("b", lambda: 2)
        run.keep({"at": "b"})
        dies()

    killed_in(memory, clock, "order", lambda run: body(run, fatal=False))
    killed_in(memory, clock, "order", lambda run: body(run, fatal=True))
    assert memory.tasks.load_checkpoint("order") == {"at": "b"}


def test_a_run_does_not_hold_what_its_steps_returned(open_memory: Open) -> None:
    memory = open_memory()
    tracemalloc.start()
    try:
        with memory.task("order") as run:
            for number in range(40):
                run.step("load", lambda n: f"{n} " * 200_000, number)
            held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 4_000_000
