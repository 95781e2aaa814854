"""Promises of durable tasks under asyncio: whoever is cancelled leaves nothing behind that nobody knows of."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from engrain import AsyncMemory, AsyncRun, StepAmbiguous, StepNested, TaskError


class Gate:
    """A call on a thread waits in it, until whoever waits for the call was cancelled."""

    def __init__(self) -> None:
        self.begun, self._go = threading.Event(), threading.Event()

    def wait(self) -> None:
        self.begun.set()
        assert self._go.wait(180)

    def before(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def slow(*args: Any) -> Any:
            self.wait()
            return call(*args)

        return slow

    async def cancel(self, task: asyncio.Task[Any], times: int = 1) -> None:
        while not self.begun.is_set():
            await asyncio.sleep(0.005)
        for _ in range(times):
            task.cancel()
            await asyncio.sleep(0.01)
        assert not task.done(), "it did not wait for the call"
        self._go.set()
        with pytest.raises(asyncio.CancelledError):
            await task


def journal(memory: AsyncMemory) -> Any:
    return memory.opened()._store.services.journal


def test_a_cancelled_start_holds_no_task(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with AsyncMemory(store) as memory:
            gate = Gate()
            monkeypatch.setattr(journal(memory), "claim", gate.before(journal(memory).claim))

            async def start() -> None:
                async with memory.task("order"):
                    pytest.fail("it was cancelled before")

            await gate.cancel(asyncio.create_task(start()))
            (task,) = await memory.tasks.list()
            assert (task.status, task.worker) == ("waiting", None)
            assert not [
                one
                for one in threading.enumerate()
                if one.name == "engrain-lease" and not one.join(60) and one.is_alive()
            ]

    asyncio.run(main())


def test_a_cancelled_write_is_finished_before_the_run_is_left(store: str, monkeypatch: pytest.MonkeyPatch) -> None:
    sent: list[str] = []

    async def send(to: str) -> str:
        sent.append(to)
        return "sent"

    async def body(run: AsyncRun) -> Any:
        return await run.effect("mail", send, "ana")

    async def main() -> None:
        async with AsyncMemory(store) as memory:
            gate = Gate()

            async def start() -> None:
                async with memory.task("order") as run:
                    monkeypatch.setattr(journal(memory), "finish", gate.before(journal(memory).finish))
                    await body(run)

            await gate.cancel(asyncio.create_task(start()))
            monkeypatch.undo()
            assert [one.status for one in (await memory.tasks.timeline("order")).steps] == ["done"]
            async with memory.task("order") as run:
                assert await body(run) == "sent"

    asyncio.run(main())
    assert sent == ["ana"]


def test_a_call_that_was_cancelled_is_reported(store: str) -> None:
    async def main() -> None:
        async with AsyncMemory(store) as memory:
            limit = asyncio.timeout(None)

            async def hang() -> None:
                limit.reschedule(0)
                await asyncio.sleep(600)

            async def body(run: AsyncRun) -> Any:
                return await run.effect("mail", hang)

            with pytest.raises(TimeoutError):
                async with limit, memory.task("order") as run:
                    await body(run)
            assert [one.status for one in await memory.tasks.list()] == ["waiting"]
            with pytest.raises(StepAmbiguous):
                async with memory.task("order") as run:
                    await body(run)

    asyncio.run(main())


@pytest.mark.parametrize("cancels", [1, 2])
def test_a_cancelled_call_on_a_thread_is_waited_for_and_recorded(store: str, cancels: int) -> None:
    """A probe that looked while it still runs would find nothing, and the mail would go out twice."""
    sent: list[str] = []
    gate = Gate()

    def send(to: str) -> str:
        gate.wait()
        sent.append(to)
        return "sent"

    def found(to: str) -> str | None:
        return "found" if to in sent else None

    async def main() -> None:
        async with AsyncMemory(store) as memory:

            async def start() -> Any:
                async with memory.task("order") as run:
                    return await run.effect("mail", send, "ana", on_ambiguous=found)

            await gate.cancel(asyncio.create_task(start()), cancels)
            assert [one.status for one in await memory.tasks.list()] == ["waiting"]
            assert await start() == "sent"

    asyncio.run(main())
    assert sent == ["ana"]


def test_a_cancelled_group_of_calls_on_threads_is_recorded_whole(store: str) -> None:
    sent: list[int] = []
    together, gate = threading.Barrier(3), Gate()

    def send(number: int) -> int:
        together.wait(180)
        gate.wait()
        sent.append(number)
        return number

    async def main() -> None:
        async with AsyncMemory(store) as memory:

            async def start() -> list[int]:
                async with memory.task("order") as run:
                    return await asyncio.gather(*(run.effect("mail", send, one, key=str(one)) for one in range(3)))

            await gate.cancel(asyncio.create_task(start()))
            assert await start() == [0, 1, 2]

    asyncio.run(main())
    assert sorted(sent) == [0, 1, 2]


def test_a_call_that_was_cancelled_before_it_had_a_thread_is_not_made(store: str) -> None:
    sent: list[int] = []
    begun, go = threading.Event(), threading.Event()

    def send(number: int) -> int:
        begun.set()
        go.wait(180)
        sent.append(number)
        return number

    async def main() -> None:
        threads = ThreadPoolExecutor(1)
        asyncio.get_running_loop().set_default_executor(threads)
        async with AsyncMemory(store) as memory:

            async def start() -> list[int]:
                async with memory.task("order") as run:
                    return await asyncio.gather(*(run.effect("mail", send, one, key=str(one)) for one in range(2)))

            first = asyncio.create_task(start())
            while not (begun.is_set() and threads._work_queue.qsize()):  # one has the thread, the other waits for it
                await asyncio.sleep(0.005)
            first.cancel()
            await asyncio.sleep(0.01)
            go.set()
            with pytest.raises(asyncio.CancelledError):
                await first
            assert len(sent) == 1
            assert sorted(one.status for one in (await memory.tasks.timeline("order")).steps) == ["done", "failed"]
            assert await start() == [0, 1]

    asyncio.run(main())
    assert sorted(sent) == [0, 1]


def test_a_cancelled_call_that_fails_on_its_thread_is_reported(store: str) -> None:
    gate = Gate()

    def send() -> None:
        gate.wait()
        raise ConnectionError("no answer")

    async def main() -> None:
        async with AsyncMemory(store) as memory:

            async def start() -> None:
                async with memory.task("order") as run:
                    await run.effect("mail", send, on_ambiguous="retry", retries=3)

            await gate.cancel(asyncio.create_task(start()))
            gate.begun.clear()
            await asyncio.sleep(0.05)
            assert not gate.begun.is_set()  # whoever was cancelled does not try again
            assert [one.status for one in (await memory.tasks.timeline("order")).steps] == ["intent"]

    asyncio.run(main())


def test_a_group_of_steps_that_wait_leaves_the_task_waiting(store: str) -> None:
    async def body(run: AsyncRun) -> list[Any]:
        async with asyncio.TaskGroup() as group:
            waits = [group.create_task(run.wait_event(name, block=False)) for name in ("paid", "packed")]
        return [one.result() for one in waits]

    async def main() -> None:
        async with AsyncMemory(store) as memory:
            with pytest.raises(ExceptionGroup):
                async with memory.task("order") as run:
                    await body(run)
            assert [one.status for one in await memory.tasks.list()] == ["waiting"]
            assert await memory.tasks.recover(body) == []
            for event, status in (("paid", "waiting"), ("packed", "done")):
                await memory.tasks.signal("order", event, event)
                assert [one.status for one in await memory.tasks.recover(body)] == [status]

    asyncio.run(main())


def test_a_wait_that_is_cancelled_while_it_looks_for_its_event_is_known_to_recover(
    store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def body(run: AsyncRun) -> None:
        await run.wait_event("paid", block=False)

    async def main() -> None:
        async with AsyncMemory(store) as memory:
            gate = Gate()
            monkeypatch.setattr(journal(memory), "event", gate.before(journal(memory).event))

            async def start() -> None:
                async with memory.task("order") as run:
                    await body(run)

            await gate.cancel(asyncio.create_task(start()))
            assert await memory.tasks.recover(body) == []  # it waits, and nothing has come
            await memory.tasks.signal("order", "paid")
            assert [one.status for one in await memory.tasks.recover(body)] == ["done"]

    asyncio.run(main())


def test_a_run_that_was_not_entered_says_so(store: str) -> None:
    async def main() -> None:
        async with AsyncMemory(store) as memory:
            run = memory.task("order")
            with pytest.raises(TaskError, match="enter the run first"):
                await run.step("a", asyncio.sleep, 0)
            with pytest.raises(TaskError, match="enter the run first"):
                assert run.id

    asyncio.run(main())


def test_a_step_inside_a_step_is_refused(store: str) -> None:
    async def main() -> None:
        async with AsyncMemory(store) as memory, memory.task("order") as run:

            async def outer() -> None:
                await run.step("inner", asyncio.sleep, 0)

            async def aside() -> None:
                await asyncio.create_task(outer())

            for work in (outer, aside):
                with pytest.raises(StepNested):
                    await run.step("outer", work)

    asyncio.run(main())


def test_two_tasks_at_once_have_a_working_memory_each(store: str) -> None:
    async def main() -> list[Any]:
        async with AsyncMemory(store) as memory:
            both = asyncio.Barrier(2)

            async def work(name: str) -> tuple[str, tuple[str, ...]]:
                async with memory.task(name) as run:
                    await both.wait()
                    await run.step("think", lambda: run.working.add_thought(f"of {name}"))
                    await both.wait()
                    return run.working.task, run.working.scratchpad

            found = await asyncio.gather(work("one"), work("two"))
            await memory.tasks.remove("one")
            assert [task.task for task in await memory.tasks.list()] == ["two"]
            return found

    assert asyncio.run(main()) == [("one", ("of one",)), ("two", ("of two",))]
