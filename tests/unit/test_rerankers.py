"""Rerankers speak their services' formats. A thorough recall mixes their scores with its own, and outlives them."""

from __future__ import annotations

import contextlib
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any, ClassVar

import numpy as np
import pytest
from wire_server import Says, WireServer

from engrain import Memory
from engrain.core.errors import BackendMissing, ConfigError, InvalidInput, RerankerFailed
from engrain.providers import http
from engrain.providers.chat import OpenAIModel
from engrain.providers.rerankers import CrossEncoderReranker, ModelReranker, ServedReranker, open_reranker
from engrain.retrieval import rerank

TURNS = [
    ("user", "We had dinner at the harbour on Sunday."),
    ("assistant", "How was the fish at the harbour restaurant?"),
    ("user", "Too salty. My sister liked it."),
    ("user", "No cars on the pier since May."),
    ("user", "I bought a red kettle for the office."),
]
QUESTION = "How was dinner at the harbour?"


class Service:
    """A rerank service on loopback. It scores a text by its length, and answers in any order."""

    def __init__(self, results: str) -> None:
        self.results = results
        self.url = ""
        self.asked: list[dict[str, Any]] = []
        self.keys: list[str | None] = []
        self.answer: Callable[[dict[str, Any]], tuple[int, Any]] = self.score_by_length

    def score_by_length(self, body: dict[str, Any]) -> tuple[int, Any]:
        scored = [{"index": n, "relevance_score": len(text) / 100} for n, text in enumerate(body["documents"])]
        return 200, {self.results: sorted(scored, key=lambda one: -one["relevance_score"])}


@pytest.fixture
def start_service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Service]]:
    monkeypatch.setattr(http, "FIRST_WAIT_SECONDS", 0.01)
    servers: list[ThreadingHTTPServer] = []

    def start(results: str) -> Service:
        service = Service(results)

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                service.asked.append(body)
                service.keys.append(self.headers.get("Authorization"))
                status, answer = service.answer(body)
                content = json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                with contextlib.suppress(OSError):  # the client stopped waiting
                    self.wfile.write(content)

            def log_message(self, *_: Any) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
        servers.append(server)
        service.url = f"http://127.0.0.1:{server.server_port}/rerank"
        return service

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


@pytest.mark.parametrize(
    ("kind", "results", "count"),
    [("cohere", "results", "top_n"), ("voyage", "data", "top_k"), ("jina", "results", "top_n")],
)
def test_a_service_scores_each_text_in_its_own_format(
    start_service: Callable[[str], Service], kind: str, results: str, count: str
) -> None:
    service = start_service(results)
    reranker = ServedReranker("some-model", kind, url=service.url, api_key="secret")
    assert reranker.score("a question", ["four", "longer text"]) == [0.04, 0.11]
    assert service.asked == [
        {"model": "some-model", "query": "a question", "documents": ["four", "longer text"], count: 2}
    ]
    assert service.keys == ["Bearer secret"]


def test_an_answer_without_a_score_for_each_text_is_refused(start_service: Callable[[str], Service]) -> None:
    service = start_service("results")
    reranker = ServedReranker("m", url=service.url)
    for answer in ({"results": [{"index": 0, "relevance_score": 1}]}, {}, [], {"results": [{"index": "x"}]}):
        service.answer = lambda _, answer=answer: (200, answer)
        with pytest.raises(RerankerFailed, match=r"a score for each text|1 scores, not 2"):
            reranker.score("q", ["a", "b"])
    service.answer = lambda _: (401, {"message": "no such key"})
    with pytest.raises(RerankerFailed, match="COHERE_API_KEY"):
        reranker.score("q", ["a", "b"])


def test_a_public_service_needs_a_key_and_a_known_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JINA_API_KEY", raising=False)
    with pytest.raises(ConfigError, match="JINA_API_KEY"):
        open_reranker("jina:some-model", None, 5, None)
    for name in ("jina", "unknown:x", "cross-encoder"):
        with pytest.raises(ConfigError, match="Known: cohere:MODEL"):
            open_reranker(name, None, 5, None)
    with pytest.raises(ConfigError, match="none is set"):
        open_reranker("model", None, 5, None)


def test_a_chat_model_rates_the_texts() -> None:
    with WireServer() as server:
        model = OpenAIModel("small", base_url=server.openai_url, api_key="")
        server.script = [Says("Here you are: [2, 9.5]"), Says("I would rather not.")]
        assert ModelReranker(model).score("Where?", ["one", 'two "quoted"']) == [2.0, 9.5]
        with pytest.raises(RerankerFailed, match="JSON array"):
            ModelReranker(model).score("Where?", ["one"])


class StubCrossEncoder:
    """Stands in for sentence-transformers: torch is too heavy for every run."""

    made: ClassVar[list[dict[str, Any]]] = []

    def __init__(self, name: str, **options: Any) -> None:
        if name == "missing":
            raise OSError("not here")
        self.made.append({"name": name, **options})

    def predict(self, pairs: Sequence[tuple[str, str]]) -> Any:
        return np.array([len(query) + len(text) for query, text in pairs], np.float32)


def test_a_cross_encoder_reads_each_pair_and_downloads_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentence_transformers", SimpleNamespace(CrossEncoder=StubCrossEncoder))
    StubCrossEncoder.made.clear()
    reranker = CrossEncoderReranker("tiny")
    assert reranker.score("abc", ["d", "ef"]) == [4.0, 5.0]
    assert reranker.score("abc", ["d"]) == [4.0]
    assert StubCrossEncoder.made == [
        {"name": "tiny", "device": None, "local_files_only": True, "trust_remote_code": False}
    ]
    with pytest.raises(RerankerFailed, match="download=True"):
        CrossEncoderReranker("missing").score("a", ["b"])
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(BackendMissing, match="sentence-transformers"):
        CrossEncoderReranker("tiny").score("a", ["b"])


# In a recall


class Favours:
    """A reranker that likes the texts with a word, and remembers what it was asked."""

    name = "favours"

    def __init__(self, word: str) -> None:
        self.word = word
        self.asked: list[tuple[str, list[str]]] = []

    def score(self, query: str, texts: Sequence[str]) -> list[float]:
        self.asked.append((query, list(texts)))
        return [float(self.word in text) for text in texts]


def open_memory(reranker: Any = None, **settings: Any) -> Memory:
    memory = Memory(":memory:", user="ana", settings={"reranker": {"use": reranker, **settings}})
    memory.remember_many([text for _, text in TURNS[3:]])
    for role, text in TURNS[:3]:
        memory.add_message(role, text)
    return memory


def texts_of(memory: Memory, effort: Any, query: str = QUESTION) -> list[str]:
    return [hit.text for hit in memory.recall(query, n=10, min_relevance=0, effort=effort)]


def test_a_reranker_moves_what_it_favours_and_sees_the_turn_before() -> None:
    reranker = Favours("cars")
    with open_memory(reranker) as memory:
        before, after = texts_of(memory, "quick"), texts_of(memory, "thorough")
        assert not [query for query, _ in reranker.asked if query != QUESTION]
        assert len(reranker.asked) == 1, "a quick recall asks no reranker"
        assert after.index(TURNS[3][1]) < before.index(TURNS[3][1])
        assert sorted(after) == sorted(before)
        assert (
            "assistant: How was the fish at the harbour restaurant?\nuser: Too salty. My sister liked it."
            in (reranker.asked[0][1])
        )
        explained = memory.recall(QUESTION, n=10, min_relevance=0, effort="thorough")
        assert any("reranker" in hit.score_parts for hit in explained)


def test_a_reranker_alone_does_not_decide() -> None:
    with open_memory(Favours("kettle")) as memory:
        assert texts_of(memory, "thorough")[0] != TURNS[4][1]


class Breaks:
    name = "breaks"

    def __init__(self, answer: Callable[[int], Any]) -> None:
        self.answer = answer

    def score(self, query: str, texts: Sequence[str]) -> Any:
        return self.answer(len(texts))


def raise_error(_: int) -> Any:
    raise ZeroDivisionError("it broke")


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (raise_error, "ZeroDivisionError: it broke"),
        (lambda n: [1.0] * (n - 1), "finite numbers"),
        (lambda n: [float("nan")] * n, "finite numbers"),
        (lambda n: ["good"] * n, "not a number"),
        (lambda n: [10**400] * n, "not a number"),
        (lambda n: time.sleep(3) or [1.0] * n, "did not answer within 0.05 s"),
    ],
)
def test_a_reranker_that_fails_or_is_late_changes_nothing_but_a_note(answer: Callable[[int], Any], why: str) -> None:
    with open_memory() as memory:
        expected = texts_of(memory, "thorough")
    with open_memory(Breaks(answer), timeout=0.05 if "within" in why else 5) as memory:
        found = memory.recall(QUESTION, n=10, min_relevance=0, effort="thorough")
        assert [hit.text for hit in found] == expected
        assert [one.part for one in found.degraded] == ["reranker"]
        assert why in found.degraded[0].why


def test_a_service_named_in_the_settings_is_asked(start_service: Callable[[str], Service]) -> None:
    service = start_service("results")
    with open_memory("cohere:some-model", url=service.url) as memory:
        assert not memory.recall(QUESTION, effort="thorough").degraded
        assert service.asked[0]["query"] == QUESTION
        service.answer = lambda _: (400, {"message": "no such model"})
        (note,) = memory.recall(QUESTION, effort="thorough").degraded
        assert "no such model" in str(note)


def test_an_object_that_is_no_reranker_is_refused_when_the_memory_opens() -> None:
    for given in (lambda query, texts: [], SimpleNamespace(score=len), SimpleNamespace(name="nameless")):
        with pytest.raises(ConfigError, match="a name and a method score"):
            open_memory(given)


def test_effort_is_quick_or_thorough() -> None:
    with Memory(":memory:") as memory, pytest.raises(InvalidInput, match="quick, thorough"):
        memory.recall("anything", effort="hard")  # type: ignore[arg-type]


def test_a_thorough_recall_compares_short_texts_word_by_word() -> None:
    with open_memory() as memory:
        quick, thorough = (memory.recall(QUESTION, n=10, min_relevance=0, effort=one) for one in ("quick", "thorough"))
        assert not thorough.degraded
        assert all("words compared" not in hit.score_parts for hit in quick)
        assert all("words compared" in hit.score_parts for hit in thorough)
        assert quick.confidence == thorough.confidence
        answer = next(hit for hit in thorough if hit.text.startswith("Too salty"))
        assert answer.score_parts["words compared before"] > 0, "the question that it answers meets the words"


def test_the_turn_before_counts_if_it_is_not_among_the_best_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rerank, "POOL_SIZE", 1)
    with open_memory() as memory:
        found = memory.recall("Was the fish too salty, and did my sister like it?", min_relevance=0, effort="thorough")
        (compared,) = [hit for hit in found if "words compared" in hit.score_parts]
        assert compared.text == TURNS[2][1]
        assert compared.score_parts["words compared before"] > 0


def test_among_long_texts_a_thorough_recall_keeps_the_order_of_a_quick_one() -> None:
    with open_memory() as memory:
        memory.remember_many([f"Guest {number} wrote of dinner. " * 12 for number in range(20)])
        quick, thorough = (memory.recall(QUESTION, n=10, min_relevance=0, effort=one) for one in ("quick", "thorough"))
        assert [hit.item.id for hit in quick] == [hit.item.id for hit in thorough]
        assert not any("words compared" in hit.score_parts for hit in thorough)


def test_confidence_is_low_for_a_question_of_another_memory() -> None:
    with open_memory() as memory:
        assert memory.recall(QUESTION).confidence > 0.8
        foreign = memory.recall("Which enzyme unwinds the double helix of DNA?")
        assert foreign.confidence < 0.2
        assert not foreign
        assert foreign.to_dict()["confidence"] == foreign.confidence
    with Memory(":memory:") as memory:
        assert memory.recall(QUESTION).confidence == 0.0
