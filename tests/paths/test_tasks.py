"""Promises of durable tasks: what is recorded done never runs again."""

# ruff: noqa: PT012  (a run is a with-block: what it raises comes from inside)

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest
from engrain_conformance.clock import SetClock
from killing import QUICK, Calls, Killed, dies, killed_in
from memory_kit import Open

from engrain import (
    AsyncMemory,
    InputChanged,
    InvalidInput,
    LeaseLost,
    Memory,
    OutcomeUnknown,
    Run,
    StepAmbiguous,
    StepConcurrent,
    TooLarge,
    VersionChanged,
)

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
    assert (
        sum(step.result is not None and len(step.result) > 200_000 for step in memory.tasks.timeline("order").steps)
        == 20
    )
    assert memory.store.status(memory.scope).store["bytes"] < 5_000_000


def test_a_journal_grows_with_its_payload(open_memory: Open) -> None:
    memory = open_memory()
    empty = memory.store.status(memory.scope).store["bytes"]
    with memory.task("order") as run:
        for number in range(400):
            run.step("work", lambda n: f"{n:06d}" * 171, number)
    memory.close()
    # An empty store is a page for each table and index, 260 KB; what counts is what the steps add.
    assert open_memory().store.status().store["bytes"] - empty <= 1.45 * 400 * 1026


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
        memory.tasks.signal("order", "event", value)


def test_a_result_has_a_size_limit(memory: Memory) -> None:
    with memory.task("order") as run, pytest.raises(TooLarge, match="16,000,000"):
        run.step("huge", lambda: "x" * 16_000_001)


def test_steps_are_told_apart_by_occurrence_and_key(memory: Memory) -> None:
    for _ in range(2):
        with memory.task("order") as run:
            assert [run.step("again", lambda n=n: n) for n in range(3)] == [0, 1, 2]
            assert run.step("again", lambda: "keyed", key="a") == "keyed"
            assert run.step("again", lambda: 3) == 3
    assert [(step.name, step.occurrence) for step in memory.tasks.timeline("order").steps] == [
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
    assert [step.version for step in memory.tasks.timeline("order").steps] == ["1", "2"]


# Retries


def test_a_step_is_tried_again_and_then_the_task_is_parked(memory: Memory, calls: Calls) -> None:
    with pytest.raises(OSError, match="no route"), memory.task("order") as run:
        run.step("call", calls.noting("call", OSError("no route")), retries=QUICK)
    assert len(calls) == 3
    (task,) = memory.tasks.list(status="parked")
    assert "no route" in task.outcome
    (step,) = memory.tasks.timeline("order").steps
    assert (step.status, step.attempt) == ("failed", 3)
    assert memory.tasks.recover(lambda run: pytest.fail("a parked task is not looped")) == []
    with memory.task("order") as run:
        assert run.step("call", calls.noting("call", "there"), retries=QUICK) == "there"


def test_attempts_are_counted_across_crashes(memory: Memory, clock: SetClock, calls: Calls) -> None:
    answers = iter([OSError("one"), Killed()])
    killed_in(memory, clock, "order", lambda run: run.step("call", lambda: _raise(next(answers)), retries=QUICK))
    with pytest.raises(OSError, match="late"), memory.task("order") as run:
        run.step("call", calls.noting("call", OSError("late")), retries=QUICK)
    assert calls == ["call"]
    assert memory.tasks.timeline("order").steps[0].attempt == 3


def _raise(error: BaseException) -> None:
    raise error


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
    assert memory.slots.get("order.42").importance == 0.9  # type: ignore[union-attr]
    assert sorted(item.text for item in memory.list()) == ["Ink is low.", "Order 42 was planned."]
    with pytest.raises(InputChanged), memory.task("order") as run:
        run.remember_step("note", "Order 43 was planned.")


def test_a_memory_step_is_repeated_only_with_the_same_metadata(memory: Memory, clock: SetClock) -> None:
    def body(run: Run, cost: int) -> str:
        return run.remember_step("note", "Order 42 was planned.", metadata={"cost": cost})

    killed_in(memory, clock, "order", lambda run: body(run, 5) and dies())
    with memory.task("order") as run:
        assert memory.get(body(run, 5)).metadata == {"cost": 5}  # type: ignore[union-attr]
    killed_in(memory, clock, "other", lambda run: body(run, 5) and dies())
    with pytest.raises(InputChanged), memory.task("other") as run:
        body(run, 6)


def test_a_memory_step_in_another_domain_is_written_once(open_memory: Open, clock: SetClock) -> None:

    memory, other = open_memory(), open_memory(store="reference://")
    services = replace(memory.store.services, journal=other.store.services.journal)
    memory.store.workers.services = services
    killed_in(memory, clock, "order", lambda run: run.remember_step("note", "Planned.") and dies())
    with memory.task("order") as run:
        id = run.remember_step("note", "Planned.")
        # The record is lost, the write is not: repeating it is harmless.
        other.store.services.journal.holder._state.steps.clear()  # type: ignore[union-attr]
    with memory.task("order-2") as run:
        assert run.remember_step("note", "Planned.") == id
    assert len(memory.list()) == 1


def test_nobody_speaks_for_a_memory_step(open_memory: Open, clock: SetClock, monkeypatch: pytest.MonkeyPatch) -> None:
    memory, other = open_memory(), open_memory(store="reference://")
    services = replace(memory.store.services, journal=other.store.services.journal)
    memory.store.workers.services = services
    monkeypatch.setattr(services.items, "apply", dies)
    killed_in(memory, clock, "order", lambda run: run.remember_step("note", "Planned."))
    monkeypatch.undo()
    with pytest.raises(InvalidInput, match="memory step"):
        memory.tasks.resolve("order", "note", "skipped")
    with memory.task("order") as run:
        assert run.remember_step("note", "Planned.") == memory.list()[0].id


# A store that does not say whether it wrote


@pytest.mark.parametrize("wrote", [True, False])
def test_a_write_whose_outcome_is_unknown_is_repeated(
    memory: Memory, calls: Calls, monkeypatch: pytest.MonkeyPatch, wrote: bool
) -> None:
    def unsure(call: Callable[..., Any]) -> Callable[..., Any]:
        told = False

        def once(*args: Any) -> Any:
            nonlocal told
            if told:
                return call(*args)
            told = True
            if wrote:
                call(*args)
            raise OutcomeUnknown("the disk did not say")

        return once

    kit = memory.store.services
    for name in ("claim", "begin", "record", "finish", "end", "keep"):
        monkeypatch.setattr(kit.journal, name, unsure(getattr(kit.journal, name)))
    monkeypatch.setattr(kit.items, "apply", unsure(kit.items.apply))
    with memory.task("order") as run:
        run.step("plan", calls.noting("plan"))
        run.effect("mail", calls.noting("mail"))
        run.remember_step("note", "Planned.")
        run.keep({"a": 1})
    assert calls == ["plan", "mail"]
    assert len(memory.list()) == 1
    assert (memory.tasks.list()[0].status, memory.tasks.load_checkpoint("order")) == ("done", {"a": 1})


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
        first = pool.submit(run.step, "fetch", lambda: started.set() or go.wait(180))
        assert started.wait(180)
        with pytest.raises(StepConcurrent, match="key="):
            run.step("fetch", lambda: 2)
        assert run.step("fetch", lambda: 2, key="other") == 2
        go.set()
        assert first.result() is True
        assert run.step("fetch", lambda: 3) == 3


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
            assert [one.status for one in await memory.tasks.list()] == ["done"]
            with pytest.raises(LeaseLost):
                async with memory.task("stopped") as run:
                    await memory.tasks.cancel("stopped")
                    await run.step("late", fetch, "late")

    asyncio.run(main())


def test_a_cancelled_effect_is_reported(store: str) -> None:
    async def main() -> None:
        async with AsyncMemory(store) as memory:
            with pytest.raises(StepAmbiguous):
                async with memory.task("order") as run:
                    with pytest.raises(TimeoutError):
                        async with asyncio.timeout(None) as limit:

                            async def hang() -> None:
                                limit.reschedule(0)
                                await asyncio.sleep(600)

                            await run.effect("mail", hang)

            async def body(run: Any) -> None:
                await run.step("x", asyncio.sleep, 0)

            await memory.tasks.resolve("order", "mail", "skipped")
            await memory.tasks.resume("order")
            assert [one.status for one in await memory.tasks.recover(body)] == ["done"]

    asyncio.run(main())
