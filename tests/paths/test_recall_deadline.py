"""A recall with a deadline answers in time, and says what it did without."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from engrain_conformance.embedder import HashEmbedder
from examples import for_each
from server_kit import run_server

from engrain import AsyncMemory, Memory
from engrain.core.errors import InvalidInput
from engrain.server.access import OpenAccess

FACT = "The staging server listens on port 4711."
LIMIT = 0.05


class StuckEmbedder(HashEmbedder):
    """Answers at once until it is stuck, and then only when the test lets it."""

    def __init__(self) -> None:
        super().__init__()
        self.free = threading.Event()
        self.free.set()

    def embed(self, texts: Any, kind: Any) -> Any:
        assert self.free.wait(60), "nobody freed the embedder"
        return super().embed(texts, kind)


@pytest.fixture
def embedder() -> Iterator[StuckEmbedder]:
    made = StuckEmbedder()
    yield made
    made.free.set()


@pytest.fixture
def memory(tmp_path: Path, embedder: StuckEmbedder) -> Iterator[Memory]:
    with Memory(tmp_path / "a.db", user="ana", embedder=embedder, background=False) as opened:
        opened.remember(FACT)
        yield opened


def test_a_stuck_embedder_leaves_the_words(memory: Memory, embedder: StuckEmbedder) -> None:
    embedder.free.clear()
    found = memory.recall("Which port does the staging server listen on?", deadline=LIMIT)
    assert [hit.text for hit in found] == [FACT]
    assert found.hits[0].found_by == ("words",)
    assert [str(one) for one in found.degraded] == ["without the meaning: the embedder did not answer within 0.05 s"]


def test_an_answer_in_time_is_the_usual_answer(memory: Memory) -> None:
    asked = "Which port does the staging server listen on?"
    found = memory.recall(asked, deadline=60)
    assert str(found) == str(memory.recall(asked))
    assert found.hits[0].found_by == ("meaning", "words")
    assert found.degraded == ()


def test_the_async_memory_has_the_deadline_too(tmp_path: Path, embedder: StuckEmbedder) -> None:
    async def ask() -> list[str]:
        async with AsyncMemory(tmp_path / "a.db", user="ana", embedder=embedder, background=False) as memory:
            await memory.remember(FACT)
            embedder.free.clear()
            found = await memory.recall("Which port does the staging server listen on?", deadline=LIMIT)
            embedder.free.set()
            return [one.part for one in found.degraded]

    assert asyncio.run(ask()) == ["meaning"]


def test_a_server_takes_the_deadline(tmp_path: Path) -> None:
    with run_server(tmp_path, open_access=OpenAccess(None)) as running, Memory(running.url, user="ana") as remote:
        remote.remember(FACT)
        assert [hit.text for hit in remote.recall("the port of the staging server", deadline=30)] == [FACT]
        with pytest.raises(InvalidInput, match="deadline"):
            remote.recall("port", deadline=-1)


@for_each("deadline", [0, -1, float("nan"), float("inf"), True, "1"])
def test_a_deadline_is_a_number_of_seconds(memory: Memory, deadline: Any) -> None:
    with pytest.raises(InvalidInput, match="deadline"):
        memory.recall("port", deadline=deadline)
