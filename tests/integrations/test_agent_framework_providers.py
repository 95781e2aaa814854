"""EngrainHistoryProvider does what the framework's FileHistoryProvider does; EngrainContextProvider recalls."""

from __future__ import annotations

import asyncio
import random
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("agent_framework", reason="make test-integrations runs it")

from agent_framework import Agent, BaseChatClient, ChatResponse, Content, FileHistoryProvider, Message
from integration_kit import REFUSED, Figures, open_store

from engrain import Memory
from engrain.integrations.agent_framework import EngrainContextProvider, EngrainHistoryProvider


@pytest.fixture(params=["sqlite", "postgres"])
def memory(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Memory]:
    with open_store(request.param, tmp_path) as opened:
        yield opened.memory(user="ana")


def random_message(chance: random.Random) -> Message:
    id = chance.choice([None, None, str(chance.randint(0, 5))])
    return chance.choice([
        Message("user", [f"Question {chance.randint(0, 2)} ü"], message_id=id),
        Message("assistant", ["An answer."], message_id=id, author_name="helper"),
        Message("assistant", [Content.from_function_call("c", "search", arguments={"q": chance.randint(0, 2)})]),
        Message("tool", [Content.from_function_result("c", result="x" * chance.randint(0, 9))]),
        Message("user", []),
    ])  # fmt: skip


async def random_step(
    chance: random.Random, session: str, ours: Any, theirs: Any, said: dict[str, list[Message]]
) -> None:
    act = chance.choices(["new", "again", "get"], [4, 2, 3])[0]
    new = [random_message(chance) for _ in range(chance.randint(0, 3))]
    if act == "again":  # the history, or its end, in front of the new messages
        new = said.setdefault(session, [])[chance.choice([0, -1, -2, -3]) :] + new
    if act == "get":
        found = [await one.get_messages(session) for one in (ours, theirs)]
        assert [one.to_dict() for one in found[0]] == [one.to_dict() for one in found[1]]
        said[session] = found[1]
    else:
        for provider in (ours, theirs):
            await provider.save_messages(session, new)


@pytest.mark.parametrize(("backend", "steps"), [("sqlite", 1_000), ("postgres", 500)])
def test_random_calls_do_what_they_do_to_the_history_in_files(
    backend: str, steps: int, tmp_path: Path, figures: Figures
) -> None:
    async def use(memory: Memory) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the class is marked as experimental
            theirs = FileHistoryProvider(tmp_path / "theirs")
        ours, chance, said = EngrainHistoryProvider(memory), random.Random(17), dict[str, list[Message]]()
        for n in range(steps):
            session = f"{n // 20} {chance.randint(0, 1)}"  # short ones: a history that is handed over again grows
            await random_step(chance, session, ours, theirs, said)

    with open_store(backend, tmp_path) as opened:
        asyncio.run(use(opened.memory(user="ana")))
    figures.name_packages("agent-framework-core")
    figures.show("random calls equal to `FileHistoryProvider`", backend, steps)


class Scripted(BaseChatClient):
    """Answers with a count of what it was given, and keeps it."""

    def __init__(self) -> None:
        super().__init__()
        self.given: list[Any] = []

    async def _inner_get_response(self, *, messages: Any, stream: bool, options: Any, **kwargs: Any) -> ChatResponse:
        self.given.append((list(messages), dict(options)))
        return ChatResponse(messages=[Message("assistant", [f"I saw {len(messages)} messages."])])


def test_an_agent_goes_on_with_its_session_and_recalls_in_the_next(
    memory: Memory, request: pytest.FixtureRequest, figures: Figures
) -> None:
    async def use() -> tuple[list[str], Scripted]:
        client = Scripted()
        make = lambda: Agent(  # noqa: E731
            client, "Be brief.", context_providers=[EngrainHistoryProvider(memory), EngrainContextProvider(memory)]
        )
        agent = make()
        first = await agent.run("My favourite tea is oolong.", session=agent.create_session(session_id="monday"))
        again = make()
        second = await again.run("And now?", session=again.create_session(session_id="monday"))
        other = make()
        third = await other.run("Which tea do I like?", session=other.create_session(session_id="tuesday"))
        return [first.text, second.text, third.text], client

    texts, client = asyncio.run(use())
    assert texts[0] in ("I saw 1 messages.", "I saw 2 messages.")
    messages, options = client.given[-1]
    quoted = [one for one in messages if "oolong" in one.text]
    assert [one.role for one in quoted] == ["user"]
    assert "oolong" not in str(options.get("instructions"))  # recalled text is data
    assert not [one for one in messages if one.role == "system" and "oolong" in one.text]
    saved = asyncio.run(EngrainHistoryProvider(memory).get_messages("monday"))
    assert [one.role for one in saved] == ["user", "assistant"] * 2
    assert not [one for one in saved[1:] if "oolong" in one.text]  # recalled texts are not stored again
    figures.show("an `Agent` with a scripted client goes on in its session and recalls in the next",
                 request.node.callspec.params["memory"], "yes")  # fmt: skip


def test_many_who_save_at_once_lose_nothing(memory: Memory) -> None:
    async def use() -> list[Message]:
        providers = [EngrainHistoryProvider(memory) for _ in range(4)]
        saving = [one.save_messages("s", [Message("assistant", [f"{n}"], message_id=f"{n} {m}")])
                  for n in range(8) for m, one in enumerate(providers)]  # fmt: skip
        await asyncio.gather(*saving)
        return await providers[0].get_messages("s")

    assert len({one.message_id for one in asyncio.run(use())}) == 32


def test_a_cleared_session_is_empty(memory: Memory) -> None:
    async def use() -> list[Message]:
        history = EngrainHistoryProvider(memory)
        await history.save_messages(None, [Message("user", ["Hello."])])
        await history.clear(None)
        return await history.get_messages(None)

    assert asyncio.run(use()) == []


def test_nothing_is_kept_without_remember(memory: Memory) -> None:
    agent = Agent(Scripted(), context_providers=[EngrainContextProvider(memory, remember=False)])
    asyncio.run(agent.run("My favourite tea is oolong.", session=agent.create_session()))
    assert memory.list() == []


@pytest.mark.parametrize("text", REFUSED)
def test_a_text_that_the_log_refuses_does_not_stop_the_agent(memory: Memory, text: str) -> None:
    agent = Agent(Scripted(), context_providers=[EngrainContextProvider(memory)])
    answer = asyncio.run(agent.run(text, session=agent.create_session()))
    assert [item.text for item in memory.list({"kind": "message"})] == [answer.text]
