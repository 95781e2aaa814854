"""Promises of durable tasks: a failure that the program handled is not tried again."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from engrain_conformance.clock import SetClock
from killing import Calls, Killed, dies, killed_in

from engrain import AsyncMemory, AsyncRun, EffectNotPerformed, Memory, Run, StepFailed


class Declined(Exception):
    """A program's own, made from more than its message."""

    def __init__(self, card: str, *, code: int) -> None:
        super().__init__(f"{card} was declined")
        self.code = code


def test_an_effect_that_was_given_up_for_another_is_not_tried_again(
    memory: Memory, clock: SetClock, calls: Calls
) -> None:
    def body(run: Run, first: Any) -> str:
        try:
            run.effect("first card", calls.noting("first", first))
        except EffectNotPerformed as declined:
            run.effect("second card", calls.noting("second", 1))
            return str(declined)
        return "paid by the first"

    for _ in range(2):
        killed_in(memory, clock, "order", lambda run: (body(run, EffectNotPerformed("declined")), dies()))
    with memory.task("order") as run:
        assert body(run, "it would go now") == "declined"
    with memory.task("order") as run:  # it is done: replayed to the end
        assert body(run, "it would go now") == "declined"
    assert calls == ["first", "second"]


def test_a_failure_is_raised_again_as_what_it_was(memory: Memory, clock: SetClock, calls: Calls) -> None:
    seen: list[Any] = []

    def body(run: Run) -> None:
        for error in (Declined("visa", code=51), ConnectionRefusedError(111, "refused"), ZeroDivisionError()):
            try:
                run.step("pay", calls.noting("pay", error))
            except type(error) as found:
                seen.append((type(found), str(found), found.args, getattr(found, "code", None)))
        run.step("end", calls.noting("end"))

    killed_in(memory, clock, "order", lambda run: (body(run), dies()))
    with memory.task("order") as run:
        body(run)
    assert calls == ["pay", "pay", "pay", "end"]
    assert seen[3:] == seen[:3]


def test_a_failure_whose_class_is_gone_is_told_as_a_failed_step(memory: Memory, clock: SetClock) -> None:
    class Gone(Exception):  # of a function: nobody finds it by its name
        pass

    def fails() -> None:
        raise Gone("for good")

    def body(run: Run, caught: type[Exception]) -> None:
        with pytest.raises(caught, match="for good"):
            run.step("x", fails)
        run.step("y", lambda: 1)

    killed_in(memory, clock, "order", lambda run: (body(run, Gone), dies()))
    with memory.task("order") as run:
        body(run, StepFailed)


def test_the_last_failure_is_tried_again(memory: Memory, clock: SetClock, calls: Calls) -> None:
    def body(run: Run, second: Any) -> Any:
        try:
            run.step("first", calls.noting("first", OSError("down")))
        except OSError:
            return run.step("second", calls.noting("second", second))

    with pytest.raises(ValueError, match="mend me"), memory.task("order") as run:
        body(run, ValueError("mend me"))
    killed_in(memory, clock, "order", lambda run: body(run, Killed()))
    with memory.task("order") as run:
        assert body(run, "mended") == "mended"
    assert calls == ["first", "second", "second", "second"]


def test_a_failure_is_tried_again_if_nothing_began_after_it(memory: Memory, clock: SetClock, calls: Calls) -> None:
    def body(run: Run, answer: Any) -> Any:
        try:
            return run.effect("mail", calls.noting("mail", answer))
        except EffectNotPerformed:
            dies()

    killed_in(memory, clock, "order", lambda run: body(run, EffectNotPerformed("refused")))
    with memory.task("order") as run:
        assert body(run, "sent") == "sent"


def test_attempts_in_a_loop_of_the_program_are_replayed(memory: Memory, clock: SetClock, calls: Calls) -> None:
    answers = iter([OSError("1"), OSError("2"), "third time"])

    def body(run: Run) -> Any:
        while True:
            try:
                return run.step("ask", lambda: calls.noting("ask", next(answers))())
            except OSError:
                continue

    killed_in(memory, clock, "order", lambda run: (body(run), dies()))
    with memory.task("order") as run:
        assert body(run) == "third time"
    assert len(calls) == 3


def test_a_late_event_does_not_change_what_a_task_did_without_it(memory: Memory, clock: SetClock, calls: Calls) -> None:
    def body(run: Run) -> Any:
        try:
            return run.wait_event("paid", timeout=0)
        except TimeoutError:
            return run.effect("remind", calls.noting("remind", "reminded"))

    killed_in(memory, clock, "order", lambda run: (body(run), dies()))
    memory.tasks.signal("order", "paid", "late")
    with memory.task("order") as run:
        assert body(run) == "reminded"
    assert calls == ["remind"]


def test_what_failed_beside_others_is_tried_again_although_they_began_later(
    memory: Memory, clock: SetClock, calls: Calls
) -> None:
    def body(run: Run, first: Any) -> list[Any]:
        with ThreadPoolExecutor(1) as pool:  # one after the other, on a thread that is not the program's
            answers = (first, 1, 2)
            asked = [
                pool.submit(run.step, "part", calls.noting(f"part {n}", one), key=str(n))
                for n, one in enumerate(answers)
            ]
        return [one.result() for one in asked]

    with pytest.raises(OSError, match="down"), memory.task("order") as run:
        body(run, OSError("down"))
    with memory.task("order") as run:
        assert body(run, 0) == [0, 1, 2]
    assert calls == ["part 0", "part 1", "part 2", "part 0"]


def test_under_asyncio(store: str, calls: Calls) -> None:
    async def body(run: AsyncRun, first: Any) -> Any:
        async def part(number: int, answer: Any) -> Any:
            return await run.step("part", calls.noting(f"part {number}", answer), key=str(number))

        try:
            await run.effect("first", calls.noting("first", first))
        except EffectNotPerformed:
            await run.effect("second", calls.noting("second"))
        # Both end before the run does, or the second part might not be recorded.
        answers = await asyncio.gather(part(0, first), part(1, 1), return_exceptions=True)
        if isinstance(answers[0], Exception):
            raise answers[0]
        return answers

    async def main() -> None:
        async with AsyncMemory(store) as memory:
            with pytest.raises(EffectNotPerformed):
                async with memory.task("order") as run:
                    await body(run, EffectNotPerformed("declined"))
            async with memory.task("order") as run:
                assert await body(run, "it would go now") == ["it would go now", 1]

    asyncio.run(main())
    assert sorted(calls) == ["first", "part 0", "part 0", "part 1", "second"]
