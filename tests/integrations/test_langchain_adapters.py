"""LangChain's own suites pass, and random calls do what they do to the classes of langchain-core."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("langchain_tests", reason="make test-integrations runs it")

from engrain_conformance.clock import SetClock
from engrain_conformance.embedder import HashEmbedder
from integration_kit import REFUSED, Figures, count_bytes, open_store
from langchain_core.caches import InMemoryCache
from langchain_core.documents import Document
from langchain_core.embeddings import DeterministicFakeEmbedding
from langchain_core.messages import AIMessage
from langchain_core.outputs import ChatGeneration, Generation
from langchain_core.stores import InMemoryByteStore
from langchain_core.vectorstores import InMemoryVectorStore
from langchain_tests.integration_tests import (
    AsyncCacheTestSuite,
    BaseStoreAsyncTests,
    BaseStoreSyncTests,
    RetrieversIntegrationTests,
    SyncCacheTestSuite,
    VectorStoreIntegrationTests,
)

from engrain import InvalidInput, Memory, Store
from engrain.integrations.langchain import EngrainByteStore, EngrainCache, EngrainRetriever, EngrainVectorStore

BACKENDS = ["sqlite", "postgres"]


@pytest.fixture(params=BACKENDS)
def memory(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Memory]:
    with open_store(request.param, tmp_path) as opened:
        yield opened.memory(user="ana")


@pytest.fixture(autouse=True)
def count_suites(request: pytest.FixtureRequest, figures: Figures) -> Iterator[None]:
    """Count the tests of each suite of langchain-tests on each backend."""
    yield
    figures.name_packages("langchain-core", "langchain-tests")
    if "memory" in request.fixturenames and request.cls is not None:
        name = f"langchain-tests, {request.cls.about}: tests passed"
        backend = request.node.callspec.params["memory"]
        passed = int(figures.shown.get(name, {}).get(backend, "0"))
        figures.show(name, backend, passed + 1)


class TestVectorStore(VectorStoreIntegrationTests):
    about = "vector store"

    @pytest.fixture
    def vectorstore(self, memory: Memory) -> EngrainVectorStore:
        return EngrainVectorStore(memory)


class TestBytes(BaseStoreSyncTests[bytes]):
    about = "key-value"

    @pytest.fixture
    def kv_store(self, memory: Memory) -> EngrainByteStore:
        return EngrainByteStore(memory)

    @pytest.fixture
    def three_values(self) -> tuple[bytes, bytes, bytes]:
        return b"foo", b"\x00bar", "bäz".encode()


class TestAsyncBytes(BaseStoreAsyncTests[bytes]):
    about = "key-value"

    @pytest.fixture
    async def kv_store(self, memory: Memory) -> EngrainByteStore:
        return EngrainByteStore(memory)

    @pytest.fixture
    def three_values(self) -> tuple[bytes, bytes, bytes]:
        return b"foo", b"\x00bar", "bäz".encode()


class TestCache(SyncCacheTestSuite):
    about = "LLM cache"

    @pytest.fixture
    def cache(self, memory: Memory) -> EngrainCache:
        return EngrainCache(memory)


class TestAsyncCache(AsyncCacheTestSuite):
    about = "LLM cache"

    @pytest.fixture
    async def cache(self, memory: Memory) -> EngrainCache:
        return EngrainCache(memory)


class TestRetriever(RetrieversIntegrationTests):
    about = "retriever"
    retriever_constructor = EngrainRetriever
    retriever_query_example = "Which tea does Ana like?"

    @pytest.fixture(autouse=True)
    def fill(self, memory: Memory) -> None:
        memory.remember_many([f"Ana likes {tea} tea." for tea in ("green", "black", "white", "oolong", "mint")])
        self.memory = memory

    @property
    def retriever_constructor_params(self) -> dict[str, Any]:
        return {"memory": self.memory}


IDS = ("1", "2", "ü", "4")


def random_document(chance: random.Random) -> Document:
    text = " ".join(chance.choices(["green", "tea", "parcel", "Lisbon", "日本"], k=3))
    return Document(page_content=text, metadata={"n": chance.randint(0, 3), "of": {"x": [1, None]}})


def random_step(chance: random.Random, ours: Any, theirs: Any) -> None:
    act = chance.choices(["add", "delete", "get", "search"], [4, 2, 3, 3])[0]
    ids = chance.sample(IDS, k=chance.randint(1, 3))
    n = chance.randint(0, 3)
    answers = []
    added = [random_document(chance) for _ in ids]
    for store in (ours, theirs):
        if act == "add":
            answers.append(store.add_documents(added, ids=ids))
        elif act == "delete":
            store.delete(ids)
        elif act == "get":
            answers.append([(one.id, one.page_content, one.metadata) for one in store.get_by_ids(ids)])
        else:
            found = store.similarity_search("green tea", k=10, filter=lambda document: document.metadata["n"] <= n)
            answers.append(sorted((one.id, one.page_content) for one in found))
    assert not answers or answers[0] == answers[1]


@pytest.mark.parametrize(("backend", "steps"), [("sqlite", 600), ("postgres", 200)])
def test_random_calls_do_what_they_do_to_the_vector_store(
    backend: str, steps: int, tmp_path: Path, figures: Figures
) -> None:
    with open_store(backend, tmp_path) as opened:
        ours = EngrainVectorStore(opened.memory(user="ana"))
        theirs, chance = InMemoryVectorStore(DeterministicFakeEmbedding(size=8)), random.Random(17)
        for _ in range(steps):
            random_step(chance, ours, theirs)
    figures.show("random calls equal to `InMemoryVectorStore`, but for the order of results", backend, steps)


@pytest.mark.parametrize(("backend", "steps"), [("sqlite", 1_000), ("postgres", 300)])
def test_random_calls_do_what_they_do_to_bytes_and_cache(
    backend: str, steps: int, tmp_path: Path, figures: Figures
) -> None:
    def step(ours: Any, theirs: Any) -> None:
        keys = [chance.choice(["a", "ab", "b", "ü"]) for _ in range(chance.randint(0, 3))]
        act, value, prefix = chance.randint(0, 3), chance.randbytes(5), chance.choice([None, "a"])
        answers = []
        for store in (ours, theirs):
            if act == 0:
                store.mset([(key, value + key.encode()) for key in keys])
            elif act == 1:
                store.mdelete(keys)
            elif act == 2:
                answers.append(store.mget(keys))
            else:
                answers.append(sorted(store.yield_keys(prefix=prefix)))
        assert not answers or answers[0] == answers[1]

    def cache_step(ours: Any, theirs: Any) -> None:
        prompt, model, act = chance.choice("pqr"), chance.choice("mn"), chance.random()
        answer = [chance.choice([Generation(text="a"), ChatGeneration(message=AIMessage("Hello."))])]
        for cache in (ours, theirs):
            if act < 0.5:
                cache.update(prompt, model, answer)
            elif act > 0.97:
                cache.clear()
        assert ours.lookup(prompt, model) == theirs.lookup(prompt, model)

    with open_store(backend, tmp_path) as opened:
        memory, chance = opened.memory(user="ana"), random.Random(17)
        stores, caches = (
            (EngrainByteStore(memory), InMemoryByteStore()),
            (EngrainCache(memory), InMemoryCache()),
        )
        for _ in range(steps):
            step(*stores)
            cache_step(*caches)
    figures.show("random calls equal to `InMemoryByteStore`", backend, steps)
    figures.show("random calls equal to `InMemoryCache`", backend, steps)


def test_the_best_document_comes_first_with_its_relevance(memory: Memory) -> None:
    store = EngrainVectorStore(memory, collection="notes")
    texts = ["Ana likes green tea.", "The parcel is in Lisbon.", "Green is a colour."]
    store.add_texts(texts, [{"page": n} for n in range(3)], ids=["a", "b", "c"])
    EngrainVectorStore(memory, collection="other").add_texts(["Ben likes green tea."])
    found = store.similarity_search_with_relevance_scores("green tea", k=3)
    assert [found[0][0].id, found[0][0].metadata] == ["a", {"page": 0}]
    scores = [score for _, score in found]
    assert scores == sorted(scores, reverse=True)
    assert all(0 <= score <= 1 for score in scores)
    assert [one.id for one in store.similarity_search("green tea", filter={"page": 2})] == ["c"]
    assert store.as_retriever(search_kwargs={"k": 1}).invoke("green tea")[0].id == "a"
    assert len(memory.recall("green tea").hits) == 3  # of both collections
    with pytest.raises(InvalidInput):
        store.add_texts(["x"], [{"y": object()}])
    store.delete()
    assert [item.text for item in memory.list()] == ["Ben likes green tea."]


def test_a_document_of_the_retriever_says_where_it_comes_from(memory: Memory) -> None:
    memory.add_message("user", "My favourite tea is oolong.", session="monday")
    (found, *_) = asyncio.run(EngrainRetriever(memory=memory).ainvoke("Which tea?"))
    assert "oolong" in found.page_content
    assert {"source", "date", "relevance", "trust"} <= found.metadata.keys()
    assert EngrainRetriever(memory=memory).invoke(" ") == []


@pytest.mark.parametrize("query", REFUSED)
def test_an_odd_query_is_no_error(memory: Memory, query: str) -> None:
    EngrainVectorStore(memory).add_texts(["Ana drinks green tea."])
    EngrainRetriever(memory=memory).invoke(query)
    assert len(EngrainVectorStore(memory).similarity_search(query)) == 1


def test_an_answer_in_the_cache_expires(tmp_path: Path) -> None:
    clock = SetClock()
    with Store(tmp_path / "agent.db", embedder=HashEmbedder(), clock=clock, background=False) as opened:
        cache = EngrainCache(opened.memory(user="ana"), ttl=60)
        cache.update("p", "m", [Generation(text="a")])
        assert cache.lookup("p", "m") == [Generation(text="a")]
        clock.advance(61)
        assert cache.lookup("p", "m") is None
        opened.maintain()
        assert opened.status().store["records"] == 0


def test_deleting_leaves_no_byte(tmp_path: Path) -> None:
    with Store(tmp_path / "agent.db", embedder=HashEmbedder()) as opened:
        store = EngrainVectorStore(opened.memory(user="ana"))
        store.add_texts(["zephyrquokka likes tea"], ids=["1"])
        store.delete(["1"])
        assert count_bytes(tmp_path, "zephyrquokka") == 0
