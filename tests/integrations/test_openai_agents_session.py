"""EngrainSession does what the SDK's SQLiteSession does, and its words are found by recall."""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("agents.memory", reason="make test-integrations runs it")

from agents import Agent, Model, ModelResponse, Runner, SQLiteSession, Usage, set_tracing_disabled
from integration_kit import Figures, open_store
from openai.types.responses import ResponseOutputMessage, ResponseOutputText

from engrain import Memory
from engrain.integrations.openai_agents import SPACE, EngrainSession

set_tracing_disabled(True)


@pytest.fixture(params=["sqlite", "postgres"])
def memory(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Memory]:
    with open_store(request.param, tmp_path) as opened:
        yield opened.memory(user="ana")


def say(role: str, text: str) -> Any:
    return {"role": role, "content": text}


def random_item(chance: random.Random) -> Any:
    return chance.choice([
        say("user", f"Message {chance.randint(0, 99)} ü"),
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "An answer."}]},
        {"type": "function_call", "call_id": "c", "name": "search", "arguments": '{"q": 1}'},
        {"type": "function_call_output", "call_id": "c", "output": "x" * chance.randint(0, 50)},
        say("user", ""),
        {"role": "user", "content": [{"type": "input_image", "image_url": "data:"}]},
    ])  # fmt: skip


async def random_step(chance: random.Random, ours: Any, theirs: Any) -> None:
    act = chance.choices(["add", "get", "pop", "clear"], [5, 5, 3, 0.3])[0]
    items = [random_item(chance) for _ in range(chance.randint(0, 3))]
    limit = chance.choice([None, -1, 0, 1, 2, 5, 1_000])
    answers = []
    for session in (ours, theirs):
        if act == "add":
            answers.append(await session.add_items(items))
        elif act == "get":
            answers.append(await session.get_items(limit))
        elif act == "pop":
            answers.append(await session.pop_item())
        else:
            answers.append(await session.clear_session())
    assert answers[0] == answers[1], (act, limit)


@pytest.mark.parametrize(("backend", "steps"), [("sqlite", 1_000), ("postgres", 500)])
def test_random_calls_do_what_they_do_to_the_session_of_the_sdk(
    backend: str, steps: int, tmp_path: Path, figures: Figures
) -> None:
    async def use(memory: Memory) -> None:
        pairs = [(EngrainSession(name, memory), SQLiteSession(name, tmp_path / "theirs.db")) for name in ("s", "s2")]
        chance = random.Random(17)
        for _ in range(steps):
            await random_step(chance, *chance.choice(pairs))

    with open_store(backend, tmp_path) as opened:
        asyncio.run(use(opened.memory(user="ana")))
    figures.show("random calls equal to `SQLiteSession`", backend, steps)
    figures.name_packages("openai-agents")


def test_many_who_add_at_once_lose_nothing(memory: Memory) -> None:
    async def use() -> list[Any]:
        sessions = [EngrainSession("s", memory, log=False) for _ in range(4)]
        adding = [one.add_items([say("user", f"{n} {m}") for m in range(2)]) for n in range(8) for one in sessions]
        await asyncio.gather(*adding)
        return await sessions[0].get_items()

    found = [item["content"] for item in asyncio.run(use())]
    assert len(found) == 64
    pairs = list(zip(found[::2], found[1::2], strict=True))
    assert all(first.split()[0] == second.split()[0] and second.endswith("1") for first, second in pairs)


class Scripted(Model):
    """Answers with what it was given."""

    async def get_response(self, *args: Any, **kwargs: Any) -> ModelResponse:
        given = args[1] if len(args) > 1 else kwargs["input"]
        text = ResponseOutputText(text=f"I saw {len(given)} items.", type="output_text", annotations=[])
        output = ResponseOutputMessage(id="m", content=[text], role="assistant", status="completed", type="message")
        return ModelResponse(output=[output], usage=Usage(), response_id=None)

    def stream_response(self, *args: Any, **kwargs: Any) -> Any:
        raise NotImplementedError


def test_a_runner_remembers_across_turns_and_sessions(
    memory: Memory, request: pytest.FixtureRequest, figures: Figures
) -> None:
    async def use() -> list[str]:
        agent = Agent(name="helper", model=Scripted())
        session = EngrainSession("monday", memory)
        first = await Runner.run(agent, "My favourite tea is oolong.", session=session)
        second = await Runner.run(agent, "And now?", session=EngrainSession("monday", memory))
        return [first.final_output, second.final_output]

    assert asyncio.run(use()) == ["I saw 1 items.", "I saw 3 items."]
    assert any("oolong" in hit.text for hit in memory.recall("Which tea does she like?").hits)
    said = memory.list({"session": "monday", "kind": "message"})
    assert [item.role for item in said][::-1] == ["user", "assistant"] * 2
    figures.show(
        "a `Runner` with a scripted model, two turns, found by recall", request.node.callspec.params["memory"], "yes"
    )


def test_a_popped_item_and_a_cleared_session_are_not_found(memory: Memory) -> None:
    async def use() -> None:
        session = EngrainSession("s", memory)
        await session.add_items([say("user", "The parcel is in Lisbon."), say("user", "The parcel is in Porto.")])
        await session.pop_item()
        assert [hit.text for hit in memory.recall("Where is the parcel?").hits] == ["The parcel is in Lisbon."]
        await session.clear_session()

    asyncio.run(use())
    assert memory.recall("Where is the parcel?").hits == ()
    assert memory.records.keys(SPACE) == []


KILLED = """
import asyncio, os, signal, sys
from engrain import Store
from engrain.integrations.openai_agents import EngrainSession
from engrain.stores.relational.records import Records
from engrain_conformance.embedder import HashEmbedder

when, act, write = sys.argv[2], sys.argv[3], Records.write

def die(*given):
    if when == "before":
        os.kill(os.getpid(), signal.SIGKILL)
    write(*given)
    os.kill(os.getpid(), signal.SIGKILL)

with Store(sys.argv[1], embedder=HashEmbedder()) as store:
    session = EngrainSession("s", store.memory(user="ana"))
    asyncio.run(session.add_items([{"role": "user", "content": "The parcel is in Lisbon."}]))
    Records.write = die
    if act == "add":
        asyncio.run(session.add_items([{"role": "user", "content": "The parcel is in Porto."}]))
    else:
        asyncio.run(session.pop_item())
"""


@pytest.mark.parametrize("act", ["add", "pop"])
@pytest.mark.parametrize("when", ["before", "after"])
def test_a_kill_leaves_the_items_and_the_log_in_step(tmp_path: Path, when: str, act: str, figures: Figures) -> None:
    """The kill comes before or after the records are written, and so between the two halves of the transaction."""
    call = [sys.executable, "-c", KILLED, str(tmp_path / "agent.db"), when, act]
    assert subprocess.run(call, check=False).returncode == -signal.SIGKILL
    with open_store("sqlite", tmp_path) as opened:
        memory = opened.memory(user="ana")
        items = asyncio.run(EngrainSession("s", memory).get_items())
        said = memory.list({"session": "s", "kind": "message"})
        assert [item["content"] for item in items] == [one.text for one in said] == ["The parcel is in Lisbon."]
    figures.show(
        "a kill while items are added or popped: items without their words, or words without items", "sqlite", 0
    )
