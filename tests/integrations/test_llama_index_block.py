"""EngrainMemoryBlock keeps and finds what LlamaIndex's VectorMemoryBlock keeps and finds."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("llama_index.core.memory", reason="make test-integrations runs it")

from engrain_conformance.embedder import HashEmbedder
from integration_kit import REFUSED, Figures, open_store
from llama_index.core.base.llms.types import ChatMessage, ImageBlock, TextBlock
from llama_index.core.embeddings import BaseEmbedding
from llama_index.core.memory import Memory as LlamaMemory
from llama_index.core.memory import VectorMemoryBlock
from llama_index.core.vector_stores import SimpleVectorStore

from engrain import Memory
from engrain.integrations.llama_index import EngrainMemoryBlock

WORDS = [f"{color} {thing}" for color in ("amber", "indigo", "scarlet") for thing in ("kettle", "violin", "harbour")]


@pytest.fixture(params=["sqlite", "postgres"])
def memory(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Memory]:
    with open_store(request.param, tmp_path) as opened:
        yield opened.memory(user="ana")


class WordVectors(BaseEmbedding):
    """The vectors of the tests' own embedder."""

    def _get_text_embedding(self, text: str) -> list[float]:
        return [float(one) for one in HashEmbedder().embed([text], "document")[0]]

    _get_query_embedding = _get_text_embedding

    async def _aget_query_embedding(self, query: str) -> list[float]:
        return self._get_text_embedding(query)


class StoreOfTexts(SimpleVectorStore):
    """The vector store of LlamaIndex, which also returns the texts."""

    stores_text: bool = True

    async def async_add(self, nodes: Any, **kwargs: Any) -> list[str]:
        TEXTS.update({node.node_id: node for node in nodes})
        return self.add(list(nodes))

    async def aquery(self, query: Any, **kwargs: Any) -> Any:
        found = self.query(query)
        found.nodes = [TEXTS[id] for id in found.ids]
        return found


TEXTS: dict[str, Any] = {}


def make_memory(block: Any, session: str) -> Any:
    return LlamaMemory.from_defaults(
        session_id=session, memory_blocks=[block], token_limit=60, chat_history_token_ratio=0.5, token_flush_size=10
    )


async def random_step(chance: random.Random, ours: Any, theirs: Any, put: list[str]) -> None:
    words = f"{chance.choice(WORDS)} {chance.randint(100, 999)}"
    act = chance.choices(["put", "get"], [2, 3])[0]
    if act == "put":
        text = f"The {words} is in the room."
        for block in (ours, theirs):
            given = ChatMessage(role=chance.choice(["user", "assistant"]), content=text)
            await block.aput([given], session_id=None)
        put.append(text)
    elif put:
        wanted = chance.choice(put)
        asked = [ChatMessage(role="user", content=f"Where is {wanted.removesuffix(' is in the room.')}?")]
        found, expected = [await block.aget(asked) for block in (ours, theirs)]
        assert wanted in found[0].content or wanted not in expected, (wanted, found)
        assert found[0].role == "user"


@pytest.mark.parametrize(("backend", "steps"), [("sqlite", 600), ("postgres", 500)])
def test_what_the_vector_block_finds_is_recalled(backend: str, steps: int, tmp_path: Path, figures: Figures) -> None:
    async def use(memory: Memory) -> None:
        ours = EngrainMemoryBlock(memory=memory, budget=None, n=8)
        theirs = VectorMemoryBlock(vector_store=StoreOfTexts(), embed_model=WordVectors(), similarity_top_k=8)
        chance, put = random.Random(17), list[str]()
        for _ in range(steps):
            await random_step(chance, ours, theirs, put)
        kept = {item.text for item in memory.list({"kind": "message"}, limit=10_000)}
        assert kept == set(put)

    with open_store(backend, tmp_path) as opened:
        asyncio.run(use(opened.memory(user="ana")))
    figures.name_packages("llama-index-core")
    figures.show("random calls: a message that `VectorMemoryBlock` finds is recalled too", backend, steps)


def test_messages_that_leave_the_chat_are_recalled_in_another_session(
    memory: Memory, request: pytest.FixtureRequest, figures: Figures
) -> None:
    async def use() -> list[ChatMessage]:
        monday = make_memory(EngrainMemoryBlock(memory=memory), "monday")
        await monday.aput(ChatMessage(role="user", content="My favourite tea is oolong."))
        for n in range(12):
            await monday.aput(ChatMessage(role="user", content=f"The parcel number {n} is in Lisbon now."))
            await monday.aput(ChatMessage(role="assistant", content="Noted."))
        tuesday = make_memory(EngrainMemoryBlock(memory=memory), "tuesday")
        await tuesday.aput(ChatMessage(role="user", content="Which tea do I like?"))
        return await tuesday.aget()

    given = asyncio.run(use())
    assert [one.role for one in given if "oolong" in (one.content or "")] == ["user"]  # recalled text is data
    assert any("oolong" in item.text for item in memory.list({"session": "monday", "kind": "message"}, limit=100))
    figures.show("messages that leave the chat are recalled in another session",
                 request.node.callspec.params["memory"], "yes")  # fmt: skip


def test_messages_without_words_are_left_out(memory: Memory) -> None:
    block = EngrainMemoryBlock(memory=memory)
    image = ChatMessage(role="user", blocks=[ImageBlock(url="http://localhost/x.png")])
    mixed = ChatMessage(
        role="user", blocks=[TextBlock(text="This is my cat Tom."), ImageBlock(url="http://localhost/x")]
    )
    asyncio.run(block.aput([image, mixed, ChatMessage(role="tool", content="42")]))
    assert [item.text for item in memory.list({"kind": "message"})] == ["This is my cat Tom."]
    assert asyncio.run(block.aget([])) == asyncio.run(block.aget([ChatMessage(role="user", content=" ")])) == []


@pytest.mark.parametrize("text", REFUSED)
def test_a_text_that_the_log_refuses_does_not_stop_the_chat(memory: Memory, text: str) -> None:
    block, said = EngrainMemoryBlock(memory=memory), ChatMessage(role="user", content=text)
    asyncio.run(block.aput([said, ChatMessage(role="assistant", content="Noted.")]))
    assert [item.text for item in memory.list({"kind": "message"})] == ["Noted."]
    assert asyncio.run(block.aget([said])) == []
