"""EngrainConversationStore does what InMemoryConversationStore does, and a capability recalls."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pydantic_ai.conversation_store", reason="make test-integrations runs it")

from integration_kit import REFUSED, Figures, open_store
from pydantic_ai import Agent
from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import ConversationConflict, InMemoryConversationStore
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import BinaryContent, ModelRequest, ModelResponse, TextPart, ToolCallPart, UserPromptPart
from pydantic_ai.models.function import AgentInfo, FunctionModel

from engrain import Memory
from engrain.integrations.pydantic_ai import EngrainConversationStore, RecallFromMemory
from engrain.integrations.pydantic_ai.conversations import ENTRY, SPACE


@pytest.fixture(params=["sqlite", "postgres"])
def memory(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Memory]:
    with open_store(request.param, tmp_path) as opened:
        yield opened.memory(user="ana")


def random_message(chance: random.Random) -> Any:
    text = f"Message {chance.randint(0, 999)} ü"
    return chance.choice([
        ModelRequest(parts=[UserPromptPart(content=text)]),
        ModelResponse(parts=[TextPart(content=text)]),
        ModelResponse(parts=[ToolCallPart(tool_name="search", args={"q": text}, tool_call_id="c")]),
        ModelRequest(parts=[UserPromptPart(content=[text, BinaryContent(b"\x00\xff", media_type="application/pdf")])]),
    ])  # fmt: skip


async def answer(do: Any) -> Any:
    try:
        return await do
    except (ConversationConflict, UserError) as exc:
        return type(exc).__name__


def plain(found: Any) -> Any:
    """Without ids, revisions and times, which each store makes itself."""
    if isinstance(found, Conversation):
        return found.messages, found.usage, found.conversation_id
    if isinstance(found, list):
        return [getattr(one, "message", None) or (one.conversation_id, one.scope, one.forked_from) for one in found]
    return found


async def random_step(chance: random.Random, stores: Any, held: dict[str, list[Conversation]]) -> None:
    """The same call on each. `held` are conversations as a program holds them, one for each store."""
    name = chance.choice("abc")
    acts = {"save": 8, "load": 5, "entries": 2, "fork": 2, "branch": 2, "list": 2, "delete": 1, "stale": 1}
    act = chance.choices(list(acts), list(acts.values()))[0]
    scope, limit = chance.choice([None, None, "x"]), chance.choice([None, 0, 1, 3])
    at, other, answers = chance.randint(0, 4), chance.choice("abcd"), list[Any]()
    more = [random_message(chance) for _ in range(chance.randint(0, 3))]
    for n, store in enumerate(stores):
        if act == "save":
            mine = held.setdefault(name, [Conversation(conversation_id=name) for _ in stores])[n]
            mine.messages.extend(more)
            answers.append(await answer(store.save(mine, scope=scope)))
        elif act in ("load", "stale"):
            found = await answer(store.load(name, limit=limit, scope=scope))
            answers.append(found)
            if isinstance(found, Conversation) and act == "load":
                held.setdefault(name, [Conversation(conversation_id=name) for _ in stores])[n] = found
        elif act == "entries":
            answers.append(await answer(store.load_entries(name, limit=limit)))
        elif act == "fork":
            answers.append(await answer(store.fork(name, at=at, new_conversation_id=other)))
        elif act == "branch":
            stored = await store.read_record(name)
            revision = stored.revision if stored and scope is None else "stale"
            answers.append(await answer(store.branch(name, at=at, expected_revision=revision)))
        elif act == "list":
            answers.append(await answer(store.list_conversations(scope=scope, limit=limit)))
        else:
            answers.append(await answer(store.delete(name, scope=scope)))
    assert plain(answers[0]) == plain(answers[1]), act


@pytest.mark.parametrize(("backend", "steps"), [("sqlite", 1_000), ("postgres", 500)])
def test_random_calls_do_what_they_do_to_the_store_in_memory(
    backend: str, steps: int, tmp_path: Path, figures: Figures
) -> None:
    async def use(memory: Memory) -> None:
        theirs, chance, held = InMemoryConversationStore(), random.Random(17), dict[str, list[Conversation]]()
        stores = (EngrainConversationStore(memory), theirs)
        for _ in range(steps):
            await random_step(chance, stores, held)
        assert {key[1] for key in memory.records.keys(SPACE, ("conversation",))} == {
            one.conversation_id for one in await theirs.list_conversations()
        }

    with open_store(backend, tmp_path) as opened:
        asyncio.run(use(opened.memory(user="ana")))
    figures.show("random calls equal to `InMemoryConversationStore`", backend, steps)
    figures.name_packages("pydantic-ai-slim")


def test_of_many_who_save_at_once_one_succeeds_and_nothing_is_lost(
    memory: Memory, request: pytest.FixtureRequest, figures: Figures
) -> None:
    async def add(store: EngrainConversationStore, n: int) -> int:
        conflicts = 0
        while True:
            conversation = await store.load("shared")
            assert conversation is not None
            conversation.messages.append(ModelRequest(parts=[UserPromptPart(content=f"message {n}")]))
            try:
                await store.save(conversation)
                return conflicts
            except ConversationConflict:
                conflicts += 1

    async def use() -> Any:
        stores = [EngrainConversationStore(memory) for _ in range(4)]
        await stores[0].save(Conversation(conversation_id="shared"))
        conflicts = await asyncio.gather(*(add(stores[n % 4], n) for n in range(24)))
        loaded = await stores[0].load("shared")
        assert loaded is not None
        return sum(conflicts), loaded.messages

    conflicts, messages = asyncio.run(use())
    assert sorted(one.parts[0].content for one in messages) == sorted(f"message {n}" for n in range(24))
    assert conflicts > 0
    assert len(memory.records.keys(SPACE, (ENTRY,))) == 24
    figures.show("24 programs save one conversation at once: messages lost", request.node.callspec.params["memory"], 0)


def test_a_conversation_goes_on_with_an_agent(memory: Memory) -> None:
    def reply(messages: Any, info: AgentInfo) -> ModelResponse:
        return ModelResponse(parts=[TextPart(content=f"I saw {len(messages)} messages.")])

    async def use() -> list[str]:
        agent, outputs = Agent(FunctionModel(reply)), []
        for prompt in ("Hello.", "And now?"):
            store = EngrainConversationStore(memory)
            conversation = await store.load("monday") or Conversation(conversation_id="monday")
            result = await agent.run(prompt, conversation=conversation)
            await store.save(result)
            outputs.append(result.output)
        return outputs

    assert asyncio.run(use()) == ["I saw 1 messages.", "I saw 3 messages."]


def test_recalled_texts_are_a_part_of_the_message_and_not_an_instruction(
    memory: Memory, request: pytest.FixtureRequest, figures: Figures
) -> None:
    seen: list[Any] = []

    def reply(messages: Any, info: AgentInfo) -> ModelResponse:
        seen.append((messages, info))
        return ModelResponse(parts=[TextPart(content="Oolong, I think.")])

    memory.remember("Ana's favourite tea is oolong.")
    agent = Agent(FunctionModel(reply), capabilities=[RecallFromMemory(memory)])
    result = agent.run_sync("Which favourite tea does Ana drink?")
    messages, info = seen[0]
    assert "oolong" not in str(info.instructions or "")
    recalled, asked = messages[-1].parts
    assert isinstance(recalled, UserPromptPart)
    assert "Ana's favourite tea is oolong." in str(recalled.content)
    assert asked.content == "Which favourite tea does Ana drink?"
    assert "favourite tea is oolong" not in str(result.all_messages())
    said = memory.list({"kind": "message"})
    assert [item.text for item in said][::-1] == ["Which favourite tea does Ana drink?", "Oolong, I think."]
    figures.show("recalled texts are data, not instructions", request.node.callspec.params["memory"], "yes")


@pytest.mark.parametrize("text", REFUSED)
def test_a_text_that_the_log_refuses_does_not_stop_the_agent(memory: Memory, text: str) -> None:
    def reply(messages: Any, info: AgentInfo) -> ModelResponse:
        return ModelResponse(parts=[TextPart(content="Noted.")])

    agent = Agent(FunctionModel(reply), capabilities=[RecallFromMemory(memory)])
    assert agent.run_sync(text).output == "Noted."
    assert [item.text for item in memory.list({"kind": "message"})] == ["Noted."]


def test_the_words_beside_an_image_are_kept(memory: Memory) -> None:
    agent = Agent(FunctionModel(lambda messages, info: ModelResponse(parts=[TextPart(content="A cat.")])),
                  capabilities=[RecallFromMemory(memory)])  # fmt: skip
    agent.run_sync(["This is my cat Tom.", BinaryContent(b"\x89PNG", media_type="image/png")])
    assert [item.text for item in memory.list({"kind": "message"})][::-1] == ["This is my cat Tom.", "A cat."]
