"""Every adapter: an erased user leaves no byte, others everything; stores of asyncio are taken too."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from engrain_conformance.embedder import HashEmbedder
from integration_kit import Figures, count_bytes, is_installed

from engrain import AsyncStore, InvalidInput, Memory, Store
from engrain.integrations.memory_owners import Owners, open_memory, open_store

Fill = Callable[[Store, Memory, str], Any]


def fill_agent_framework(store: Store, memory: Memory, word: str) -> None:
    from agent_framework import Agent, BaseChatClient, ChatResponse, Message

    from engrain.integrations.agent_framework import EngrainContextProvider, EngrainHistoryProvider

    class Scripted(BaseChatClient):
        async def _inner_get_response(self, **kwargs: Any) -> ChatResponse:
            return ChatResponse(messages=[Message("assistant", [f"{word} noted."])])

    providers = [EngrainHistoryProvider(memory), EngrainContextProvider(memory)]
    agent = Agent(Scripted(), context_providers=providers)
    asyncio.run(agent.run(f"{word} likes tea.", session=agent.create_session(session_id=f"session-{word}")))


def fill_anthropic(store: Store, memory: Memory, word: str) -> None:
    from engrain.integrations.anthropic import EngrainMemoryTool

    tool, path = EngrainMemoryTool(memory), f"/memories/{word}.md"
    tool.call({"command": "create", "path": path, "file_text": f"{word} likes tea.\n"})
    tool.call({"command": "str_replace", "path": path, "old_str": "tea", "new_str": "oolong"})


def fill_google_adk(store: Store, memory: Memory, word: str) -> None:
    from google.adk.events.event import Event
    from google.adk.events.event_actions import EventActions
    from google.genai import types

    from engrain.integrations.google_adk import EngrainMemoryService, EngrainSessionService

    async def use() -> None:
        user, app = memory.scope.user or "", "tea"
        sessions, memories = EngrainSessionService(store), EngrainMemoryService(store)
        session = await sessions.create_session(
            app_name=app, user_id=user, session_id=f"session-{word}", state={"own": word, "user:name": word}
        )
        said = types.Content(role="user", parts=[types.Part(text=f"{word} likes tea.")])
        actions = EventActions(state_delta={"later": word})
        await sessions.append_event(session, Event(author="user", content=said, actions=actions))
        await memories.add_session_to_memory(session)

    asyncio.run(use())


def fill_langchain(store: Store, memory: Memory, word: str) -> None:
    from langchain_core.outputs import Generation

    from engrain.integrations.langchain import EngrainByteStore, EngrainCache, EngrainVectorStore

    EngrainVectorStore(memory).add_texts([f"{word} likes tea."], [{"page": word}], ids=[f"id-{word}"])
    EngrainCache(memory).update(word, "model", [Generation(text=word)])
    EngrainByteStore(memory).mset([(f"key-{word}", word.encode())])


def fill_langgraph(store: Store, memory: Memory, word: str) -> None:
    from typing import TypedDict

    from langgraph.graph import END, START, StateGraph

    from engrain.integrations.langgraph import EngrainSaver, EngrainStore

    state = TypedDict("state", {"messages": list[str]})  # noqa: UP013
    builder = StateGraph(state)
    builder.add_node("answer", lambda state: {"messages": [*state["messages"], f"{word} noted."]})
    builder.add_edge(START, "answer")
    builder.add_edge("answer", END)
    graph = builder.compile(checkpointer=EngrainSaver(store, user_of=lambda config: config["configurable"]["user"]))
    config = {"configurable": {"thread_id": f"thread-{word}", "user": memory.scope.user}}
    graph.invoke({"messages": [f"{word} likes tea."]}, config)
    EngrainStore(memory).put(("notes", word), word, {"text": f"{word} likes tea."})


def fill_llama_index(store: Store, memory: Memory, word: str) -> None:
    from llama_index.core.base.llms.types import ChatMessage

    from engrain.integrations.llama_index import EngrainMemoryBlock

    block = EngrainMemoryBlock(memory=memory)
    asyncio.run(block.aput([ChatMessage(role="user", content=f"{word} likes tea.")], session_id=f"session-{word}"))


def fill_openai_agents(store: Store, memory: Memory, word: str) -> None:
    from engrain.integrations.openai_agents import EngrainSession

    call = {"type": "function_call", "call_id": "c", "name": f"{word}-call", "arguments": "{}"}
    said = {"role": "user", "content": f"{word} likes tea."}
    asyncio.run(EngrainSession(f"session-{word}", memory).add_items([said, call]))


def fill_pydantic_ai(store: Store, memory: Memory, word: str) -> None:
    from pydantic_ai import Agent
    from pydantic_ai.conversation import Conversation
    from pydantic_ai.models.test import TestModel

    from engrain.integrations.pydantic_ai import EngrainConversationStore, RecallFromMemory

    async def use() -> None:
        agent = Agent(TestModel(custom_output_text=f"{word} noted."), capabilities=[RecallFromMemory(memory)])
        result = await agent.run(f"{word} likes tea.", conversation=Conversation(conversation_id=f"talk-{word}"))
        await EngrainConversationStore(memory).save(result)

    asyncio.run(use())


FILL: dict[str, Fill] = {
    "agent_framework": fill_agent_framework,
    "anthropic": fill_anthropic,
    "google.adk": fill_google_adk,
    "langchain_tests": fill_langchain,
    "langgraph": fill_langgraph,
    "llama_index": fill_llama_index,
    "agents": fill_openai_agents,
    "pydantic_ai": fill_pydantic_ai,
}


@pytest.mark.parametrize("module", FILL)
def test_erasing_a_user_leaves_no_byte(module: str, tmp_path: Path, figures: Figures) -> None:
    if not is_installed(module):
        pytest.skip("make test-integrations runs it")
    with Store(tmp_path / "agent.db", embedder=HashEmbedder()) as store:
        for name in ("ana", "ben"):
            FILL[module](store, store.memory(user=name), f"zephyrquokka-{name}")
        assert count_bytes(tmp_path, "zephyrquokka-ana") > 0
        assert store.erase(user="ana").receipt
        assert count_bytes(tmp_path, "zephyrquokka-ana") == 0
        assert count_bytes(tmp_path, "zephyrquokka-ben") > 0
    figures.show("bytes of a user in the files after `erase`", "sqlite", 0)


@pytest.mark.parametrize("module", FILL)
def test_a_store_of_asyncio_is_taken_too(module: str, tmp_path: Path) -> None:
    if not is_installed(module):
        pytest.skip("make test-integrations runs it")
    store: Any = AsyncStore(tmp_path / "agent.db", embedder=HashEmbedder())
    FILL[module](store, store.memory(user="ana"), "zephyrquokka")
    asyncio.run(store.close())
    assert count_bytes(tmp_path, "zephyrquokka") > 0


@pytest.mark.parametrize("open_it", [open_memory, open_store, lambda value: Owners(value, None)])
def test_anything_else_is_refused_with_what_is_meant(open_it: Any, tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"give a (Memory|Store), such as .*, not str"):
        open_it("agent.db")
    store = AsyncStore(tmp_path / "agent.db", embedder=HashEmbedder())
    assert isinstance(open_store(store), Store)
    assert isinstance(open_memory(store.memory(user="ana")), Memory)
    asyncio.run(store.close())
