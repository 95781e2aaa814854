"""Changing the embedder, or losing it, never breaks a store."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import pytest
from engrain_conformance.embedder import HashEmbedder

from engrain import EmbedderFailed, Memory, Scope

pytestmark = pytest.mark.meaning


class Failing(HashEmbedder):
    """An endpoint that is down."""

    broken = True

    def embed(self, texts: Sequence[str], kind: str):  # type: ignore[no-untyped-def, override]
        if self.broken:
            raise EmbedderFailed("the server did not answer")
        return super().embed(texts, kind)


def settled(memory: Memory) -> None:
    deadline = time.monotonic() + 180
    while memory.store.status(memory.scope).store["unembedded"] and time.monotonic() < deadline:
        time.sleep(0.02)
    assert memory.store.status(memory.scope).store["unembedded"] == 0


def test_a_new_model_finds_by_words_at_once_and_by_meaning_soon(open_memory: Callable[..., Memory]) -> None:
    with open_memory(embedder=HashEmbedder()) as memory:
        memory.remember_many([f"The {n}th parcel went to Lisbon." for n in range(80)])
        memory.remember("Ana prefers Python over JavaScript.")
    memory = open_memory(background=False)
    assert memory.store.status(memory.scope).store["unembedded"] == 81
    assert "Python" in str(memory.recall("Python or JavaScript?"))
    memory.close()
    memory = open_memory()
    settled(memory)
    found = memory.recall("Which programming language should the example use?", min_relevance=0)
    assert found.hits[0].item.text == "Ana prefers Python over JavaScript."


def test_an_embedder_that_fails_loses_no_text(open_memory: Callable[..., Memory]) -> None:
    embedder = Failing()
    with open_memory(embedder=embedder) as memory:
        item = memory.remember("The invoice number is 90210.")
        assert [hit.item.id for hit in memory.recall("invoice 90210").hits] == [item]
        assert memory.store.status(memory.scope).store["unembedded"] == 1
        embedder.broken = False
        assert memory.store.rebuild() == 1
        assert memory.store.status(memory.scope).store["unembedded"] == 0


def test_rebuild_makes_every_index_anew(memory: Memory) -> None:
    memory.remember_many([f"fact number {n} about parcels" for n in range(30)])
    before = [hit.item.id for hit in memory.recall("parcels", n=10, min_relevance=0).hits]
    assert memory.store.rebuild() == 30
    assert [hit.item.id for hit in memory.recall("parcels", n=10, min_relevance=0).hits] == before


def test_a_model_that_is_not_installed_names_the_command(open_memory: Callable[..., Memory]) -> None:
    with pytest.raises(ImportError, match="pip install"):
        open_memory(embedder="sentence-transformers:some-model").remember("x")


def test_the_doctor_reports_an_embedder_that_fails(open_memory: Callable[..., Memory]) -> None:
    findings = {finding.name: finding for finding in open_memory(embedder=Failing()).store.doctor(Scope(user="ana"))}
    assert findings["embedder"].state == "fail"
    assert "did not answer" in findings["embedder"].why
    assert len(findings) == 35


def test_what_was_kept_without_a_vector_gets_one_when_the_embedder_is_back(open_memory: Callable[..., Memory]) -> None:
    embedder = Failing()
    memory = open_memory(embedder=embedder)
    memory.remember("The invoice number is 90210.")
    assert memory.store.status(memory.scope).background["running"]
    embedder.broken = False
    settled(memory)
    memory.remember("Another one.")
    assert memory.store.status(memory.scope).store["unembedded"] == 0


def test_a_background_that_fails_says_why_and_goes_on(open_memory: Callable[..., Memory]) -> None:
    embedder = Failing()
    with open_memory(embedder=embedder, background=False) as memory:
        memory.remember("The invoice number is 90210.")
    memory = open_memory(embedder=embedder)
    deadline = time.monotonic() + 180
    while not memory.store.status(memory.scope).background["error"] and time.monotonic() < deadline:
        time.sleep(0.01)
    assert "did not answer" in memory.store.status(memory.scope).background["error"]
    embedder.broken = False
    settled(memory)
    assert memory.store.status(memory.scope).background["error"] is None


def test_a_long_document_comes_back_by_the_part_that_answers(open_memory: Callable[..., Memory]) -> None:
    sections = [
        f"Section {n}. This chapter lists spare parts, order codes and delivery times for pump {n}. " * 6
        for n in range(60)
    ]
    sections[50] = (
        "The canteen serves a vegetarian lunch on Wednesdays, and the cook is called Matilda. " + sections[50]
    )
    memory = open_memory()
    memory.remember("\n\n".join(sections))
    embedder, counted = memory.store.services.embedder, []
    plain = embedder.embed
    embedder.embed = lambda texts, kind: counted.append(len(texts)) or plain(texts, kind)
    hit = memory.recall("Who prepares the food here?", min_relevance=0).hits[0]
    assert "Matilda" in hit.text
    assert sum(counted) <= 9
