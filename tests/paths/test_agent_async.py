"""The agent for asyncio is the same agent, awaited: coroutine tools, and the calls of one reply side by side."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from agent_kit import Scripted, model_on, says, told
from engrain_conformance.embedder import HashEmbedder
from killing import Killed
from wire_server import Says, WireServer

from engrain import (
    AgentWithMemory,
    AsyncAgentWithMemory,
    AsyncMemory,
    Conflict,
    InvalidInput,
    Memory,
    StepAmbiguous,
    tool,
)
from engrain.core.errors import ModelFailed


@pytest.fixture
def server() -> Iterator[WireServer]:
    with WireServer() as running:
        yield running
        assert running.refused == []


@asynccontextmanager
async def opened(path: Path) -> AsyncIterator[AsyncMemory]:
    async with AsyncMemory(path / "agent.db", user="ana", embedder=HashEmbedder()) as memory:
        yield memory


async def log(memory: AsyncMemory) -> list[tuple[str, str]]:
    return told(await memory.conversation.last(100))


async def fetch(page: str) -> str:
    """Fetch a page."""
    await asyncio.sleep(0)
    return f"the text of {page}"


def count(page: str) -> int:
    """Count the words of a page."""
    return len(page)


@pytest.mark.parametrize("kind", ["anthropic", "openai"])
def test_a_turn_with_tools_of_both_kinds(tmp_path: Path, server: WireServer, kind: str) -> None:
    async def scene() -> None:
        server.script = [
            Says("I look.", [("fetch", {"page": "home"}), ("count", {"page": "home"}), ("fetch", {"page": 7})]),
            Says("Done."),
        ]
        async with opened(tmp_path) as memory:
            await memory.remember("Ana prefers short answers.")
            agent = AsyncAgentWithMemory(memory, model_on(kind, server), [fetch, count])
            answer = await agent.run("Look at the home page.")
            assert (str(answer), answer.stopped, answer.steps) == ("Done.", "end", 2)
            assert [(one.tool, one.result, one.failed) for one in answer.calls] == [
                ("fetch", "the text of home", False),
                ("count", "4", False),
                ("fetch", "fetch was not called: 'page' must be a text, not 7.", True),
            ]
            assert [role for role, _ in await log(memory)] == ["user", "assistant", "tool", "tool", "tool", "assistant"]
            assert "Ana prefers short answers." in str(server.asked[0].body)
            assert agent.status()["calls"] == 2

    asyncio.run(scene())


def test_working_memory_which_may_be_on_a_server_never_holds_the_loop_up(tmp_path: Path) -> None:
    async def scene() -> None:
        async with opened(tmp_path) as memory:
            await memory.store.status(memory.scope)
            wrote: list[int] = []
            memory.opened().working.after_change = lambda: wrote.append(threading.get_ident())
            model = Scripted(says("I look.", ("fetch", {"page": "home"})), "Done.")
            await AsyncAgentWithMemory(memory, model, [fetch]).run("Look at the home page.")
            assert len(wrote) > 3
            assert threading.get_ident() not in wrote

    asyncio.run(scene())


def test_the_calls_of_one_reply_are_made_side_by_side(tmp_path: Path) -> None:
    async def scene() -> None:
        met = asyncio.Barrier(2)
        both = threading.Barrier(2)

        async def meet(name: str) -> str:
            await asyncio.wait_for(met.wait(), 180)
            return name

        def meet_in_threads(name: str) -> str:
            both.wait(180)
            return name

        for meeting in (meet, meet_in_threads):
            called = meeting.__name__
            model = Scripted(says("", (called, {"name": "a"}), (called, {"name": "b"})), "Met.")
            async with opened(tmp_path) as memory:
                answer = await AsyncAgentWithMemory(memory, model, [meeting]).run("Meet.", task_id=called)
                assert [one.result for one in answer.calls] == ["a", "b"], answer.calls

    asyncio.run(scene())


def test_a_slow_tool_holds_nobody_else_up(tmp_path: Path) -> None:
    async def scene() -> None:
        enough = threading.Event()

        def slow() -> str:
            return "slow" if enough.wait(60) else "nobody else had a turn"

        async with opened(tmp_path) as memory:
            agent = AsyncAgentWithMemory(memory, Scripted(says("", ("slow", {})), "Done."), [slow])
            running = asyncio.create_task(agent.run("Go."))
            turns = 0
            while not running.done():
                await asyncio.sleep(0.005)
                turns += 1
                if turns == 20:
                    enough.set()
            assert [one.result for one in (await running).calls] == ["slow"]

    asyncio.run(scene())


def test_a_time_out_stops_a_coroutine(tmp_path: Path) -> None:
    async def scene() -> None:
        ended: list[str] = []

        async def hang() -> str:
            try:
                await asyncio.sleep(600)
            finally:
                ended.append("stopped")
            return "never"

        async with opened(tmp_path) as memory:
            model = Scripted(says("", ("hang", {})), "Too slow.")
            answer = await AsyncAgentWithMemory(memory, model, [tool(hang, timeout=0.05)]).run("Go.")
            assert answer.calls[0].result == "TimeoutError: no answer within 0.05 s."
            assert ended == ["stopped"]

    asyncio.run(scene())


def test_a_cancelled_turn_keeps_what_was_said_and_the_next_goes_on(tmp_path: Path) -> None:
    async def scene() -> None:
        async with opened(tmp_path) as memory:
            begun = asyncio.Event()

            async def hang() -> str:
                begun.set()
                await asyncio.sleep(600)
                return "never"

            agent = AsyncAgentWithMemory(memory, Scripted(says("", ("hang", {}))), [hang])
            running = asyncio.create_task(agent.run("Wait for me."))
            await begun.wait()
            with pytest.raises(Conflict, match="is working"):
                await agent.run("Me too.")
            running.cancel()
            with pytest.raises(asyncio.CancelledError):
                await running
            assert await log(memory) == [("user", "Wait for me.")]
            assert await memory.working.task() == ""
            assert (await agent.run("Go on.")).text == "ok"

    asyncio.run(scene())


def test_a_model_that_fails_is_the_same_error(tmp_path: Path) -> None:
    async def scene() -> None:
        async with opened(tmp_path) as memory:
            agent = AsyncAgentWithMemory(memory, Scripted(ModelFailed("no credit"), RuntimeError("broken")))
            for words in ("no credit", "broken"):
                with pytest.raises(ModelFailed, match=words):
                    await agent.run("Hello.")
            assert agent.status()["failures"] == 2
            assert (await log(memory))[0] == ("user", "Hello.")

    asyncio.run(scene())


def test_a_durable_turn_is_continued_with_the_tools_that_finished(tmp_path: Path) -> None:
    """Of two calls side by side one is cut off: the other is recorded, and not made again."""

    async def scene() -> None:
        sent: list[str] = []

        @tool(effect=True)
        async def mail(to: str) -> str:
            sent.append(to)
            await asyncio.sleep(0.01 if to == "bo" else 0)
            if to == "ana":
                raise TimeoutError("no answer")
            return f"sent to {to}"

        model = Scripted(says("", ("mail", {"to": "ana"}), ("mail", {"to": "bo"})), "Both are told.")
        async with opened(tmp_path) as memory:
            agent = AsyncAgentWithMemory(memory, model, [mail], session="s")
            with pytest.raises(StepAmbiguous) as halted:
                await agent.run("Tell them.", task_id="t")
            assert halted.value.step == "mail[1.1]"
            await memory.tasks.resolve("t", "mail[1.1]", "done", result="seen in the outbox")
            answer = await agent.run("Tell them.", task_id="t")
            assert [one.result for one in answer.calls] == ["seen in the outbox", "sent to bo"]
            assert (answer.text, answer.replayed, len(model.asked)) == ("Both are told.", 1, 2)
            assert sorted(sent) == ["ana", "bo"]

    asyncio.run(scene())


def test_a_turn_begun_by_one_face_is_continued_by_the_other(tmp_path: Path) -> None:
    def look(parcel: int) -> str:
        return "Lisbon"

    def dies(_: Any) -> str:
        raise Killed

    with Memory(tmp_path / "agent.db", user="ana", embedder=HashEmbedder()) as memory:
        agent = AgentWithMemory(memory, Scripted(says("", ("look", {"parcel": 7})), dies), [look], session="s")
        with pytest.raises(Killed):
            agent.run("Where is it?", task_id="t")

    async def scene() -> None:
        async with opened(tmp_path) as memory:
            model = Scripted("In Lisbon.")
            answer = await AsyncAgentWithMemory(memory, model, [look], session="s").run("Where is it?", task_id="t")
            assert (answer.text, answer.replayed, len(model.asked)) == ("In Lisbon.", 1, 1)

    asyncio.run(scene())


def test_a_plain_memory_is_for_the_other_agent(tmp_path: Path) -> None:
    with (
        Memory(tmp_path / "agent.db", embedder=HashEmbedder()) as memory,
        pytest.raises(InvalidInput, match="works on AsyncMemory, not on Memory"),
    ):
        AsyncAgentWithMemory(memory, Scripted())  # type: ignore[arg-type]
