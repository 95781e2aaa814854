"""Changing the embedder, or losing it, never breaks a store."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

import numpy as np
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


class ByWord(HashEmbedder):
    """A text is near a question if both have the word "lunch". `down` names the kind of text that it refuses."""

    down: str | None = None

    def embed(self, texts: Sequence[str], kind: str):  # type: ignore[no-untyped-def, override]
        if kind == self.down:
            raise EmbedderFailed("the server did not answer")
        rows = np.zeros((len(texts), self.model.dimension), dtype=np.float32)
        for number, text in enumerate(texts):
            rows[number, 0 if "lunch" in text.lower() else 1] = 1
        return rows


def wait_until(reached: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 180
    while not reached():
        assert time.monotonic() < deadline, "the background did not get there"
        time.sleep(0.02)


def settled(memory: Memory) -> None:
    wait_until(lambda: memory.store.status(memory.scope).store["unembedded"] == 0)


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
    wait_until(lambda: bool(memory.store.status(memory.scope).background["error"]))
    assert "did not answer" in memory.store.status(memory.scope).background["error"]
    embedder.broken = False
    settled(memory)
    # The error goes after the vectors are written, on the background's own thread.
    wait_until(lambda: memory.store.status(memory.scope).background["error"] is None)


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


FILLER = "This page lists spare parts, order codes and delivery times. " * 14


def test_few_words_leave_the_choice_of_the_passage_to_the_meaning(open_memory: Callable[..., Memory]) -> None:
    memory = open_memory(embedder=ByWord())
    text = f"{FILLER}The canteen opens at noon. {FILLER}There is soup for lunch on Friday. {FILLER}"
    memory.remember(text)
    few = memory.recall("lunch canteen vegetables potatoes salads desserts", min_relevance=0).hits[0]
    assert "soup for lunch" in few.text
    many = memory.recall("canteen opens noon lunch", min_relevance=0).hits[0]
    assert "canteen opens" in many.text
    assert "soup" not in many.text


def test_words_alone_choose_the_passage_of_a_message(open_memory: Callable[..., Memory]) -> None:
    memory = open_memory(embedder=ByWord())
    text = f"{FILLER}The canteen opens at noon. {FILLER}There is soup for lunch on Friday. {FILLER}"
    memory.add_message("user", text)
    query = "canteen noon lunch vegetables potatoes salads desserts noodles"
    assert "canteen opens" in memory.recall(query, min_relevance=0).hits[0].text


def test_a_long_document_is_found_by_one_word_while_the_embedder_is_down(
    open_memory: Callable[..., Memory], caplog: pytest.LogCaptureFixture
) -> None:
    embedder = ByWord()
    memory = open_memory(embedder=embedder, background=False)
    text = f"{FILLER}{FILLER}There is soup for lunch on Friday. {FILLER}"
    memory.remember(text)
    query = "soup vegetables potatoes salads desserts noodles"
    embedder.down = "query"
    assert memory.recall(query, min_relevance=0).hits[0].span[0] == 0
    assert "recall searches by words only: the server did not answer" in caplog.text
    # The question has a vector and the passages have none: the first of the nearest window is shown.
    embedder.down = "document"
    assert memory.recall(f"{query} lunch", min_relevance=0).hits[0].text in text


def test_a_document_without_a_vector_shows_its_first_passage(open_memory: Callable[..., Memory]) -> None:
    embedder = ByWord()
    embedder.down = "document"
    memory = open_memory(embedder=embedder, background=False)
    memory.remember(f"{FILLER}{FILLER}There is soup for lunch on Friday. {FILLER}")
    found = memory.recall("soup vegetables potatoes salads desserts noodles", min_relevance=0).hits[0]
    assert found.span[0] == 0
    assert found.found_by == ("words",)


def test_a_language_whose_texts_cannot_be_embedded_is_judged_by_the_memory(open_memory: Callable[..., Memory]) -> None:
    embedder = ByWord("refuses documents")
    memory = open_memory(embedder=embedder, background=False)
    memory.remember_many(["Das Lunch gibt es um zwölf.", "Das Auto wird im Herbst geprüft.", "Peter mag keine Nüsse."])
    embedder.down = "document"
    unsure = memory.recall("Wann gibt es das Lunch?", min_relevance=0).hits[0]
    embedder.down = None
    sure = memory.recall("Wann gibt es das Lunch?", min_relevance=0).hits[0]
    assert unsure.item.id == sure.item.id
    assert 0 < unsure.relevance <= 1
