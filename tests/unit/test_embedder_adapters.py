"""Embedders of a service speak its protocol, try again when that may help, and fail with words that help."""

from __future__ import annotations

import contextlib
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from engrain.core.errors import BackendMissing, ConfigError, EmbedderFailed, InvalidInput
from engrain.core.model.queries import EmbeddingModel
from engrain.providers import http
from engrain.providers.embeddings_http import OpenAIEmbedder, ServedModel, VoyageEmbedder
from engrain.providers.local import SentenceTransformersEmbedder

Answer = tuple[int, dict[str, str], bytes]
DIMENSION = 8


def vector(text: str) -> list[float]:
    """A vector of no particular length that depends on the text alone."""
    return [float((ord(c) * 7 + place) % 13 - 6) for place, c in enumerate((text * DIMENSION)[:DIMENSION])]


def embeddings(body: dict[str, Any]) -> Answer:
    # Out of order on purpose: the index says which text a vector belongs to.
    data = [{"object": "embedding", "index": n, "embedding": vector(text)} for n, text in enumerate(body["input"])]
    return 200, {}, json.dumps({"object": "list", "model": body["model"], "data": data[::-1]}).encode()


@dataclass
class Service:
    """A service on loopback: the answers it will give, then `embeddings`; and what it was asked."""

    url: str = ""
    answers: list[Answer | Callable[[], Answer]] = field(default_factory=list)
    asked: list[SimpleNamespace] = field(default_factory=list)

    def answer(self, path: str, headers: dict[str, str], body: dict[str, Any]) -> Answer:
        self.asked.append(SimpleNamespace(path=path, headers=headers, body=body, at=time.monotonic()))
        if not self.answers:
            return embeddings(body)
        answer = self.answers.pop(0)
        return answer() if callable(answer) else answer


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Service]:
    running = Service()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            status, headers, content = running.answer(self.path, dict(self.headers), body)
            self.send_response(status)
            for name, value in ({"Content-Length": str(len(content))} | headers).items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            pass

        def handle(self) -> None:
            with contextlib.suppress(OSError):  # the client stopped waiting
                super().handle()

    for name in ("http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY", "OPENAI_BASE_URL"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(http, "FIRST_WAIT_SECONDS", 0.01)
    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True)
    thread.start()
    running.url = f"http://127.0.0.1:{server.server_port}/v1"
    yield running
    server.shutdown()
    server.server_close()
    thread.join()


def openai(service: Service, **options: Any) -> OpenAIEmbedder:
    return OpenAIEmbedder("test-model", **({"dimension": DIMENSION, "base_url": service.url} | options))


def voyage(service: Service, **options: Any) -> VoyageEmbedder:
    settings = {"dimension": DIMENSION, "base_url": service.url, "api_key": "voyage-key"}
    return VoyageEmbedder("voyage-4", **(settings | options))


BOTH = pytest.mark.parametrize("make", [openai, voyage])


def error(status: int, message: str = "no", headers: dict[str, str] | None = None) -> Answer:
    return status, headers or {}, json.dumps({"error": {"message": message}}).encode()


# What is sent and what comes back


@BOTH
def test_rows_are_unit_vectors_in_the_order_of_the_texts(service: Service, make: Any) -> None:
    texts = ["one", "two", "three"]
    rows = make(service).embed(texts, "document")
    expected = np.array([vector(text) for text in texts])
    np.testing.assert_allclose(rows, expected / np.linalg.norm(expected, axis=1, keepdims=True), rtol=1e-5)
    assert rows.dtype == np.float32


def test_openai_is_asked_in_its_own_words(service: Service) -> None:
    OpenAIEmbedder(dimension=DIMENSION, base_url=service.url + "/", api_key=" secret\n").embed(["text"], "document")
    (request,) = service.asked
    assert request.path == "/v1/embeddings"
    assert request.headers["Authorization"] == "Bearer secret"
    assert request.body == {
        "model": "text-embedding-3-small",
        "input": ["text"],
        "encoding_format": "float",
        "dimensions": DIMENSION,
    }


def test_a_compatible_server_needs_no_key_and_is_not_asked_for_a_size(service: Service) -> None:
    openai(service).embed(["text"], "document")
    (request,) = service.asked
    assert "Authorization" not in request.headers
    assert "dimensions" not in request.body


def test_voyage_is_told_queries_from_documents(service: Service) -> None:
    embedder = voyage(service)
    embedder.embed(["q"], "query")
    embedder.embed(["d"], "document")
    assert [request.body["input_type"] for request in service.asked] == ["query", "document"]
    assert service.asked[0].body["output_dimension"] == DIMENSION
    assert service.asked[0].headers["Authorization"] == "Bearer voyage-key"


def test_prefixes_tell_queries_from_documents(service: Service) -> None:
    embedder = OpenAIEmbedder("nomic-embed-text", dimension=DIMENSION, base_url=service.url)
    embedder.embed(["q"], "query")
    embedder.embed(["d"], "document")
    assert [request.body["input"] for request in service.asked] == [["search_query: q"], ["search_document: d"]]


@BOTH
def test_a_query_is_sent_once(service: Service, make: Any) -> None:
    embedder = make(service)
    first = embedder.embed(["which city?"], "query")
    np.testing.assert_array_equal(first, embedder.embed(["which city?"], "query"))
    assert len(service.asked) == 1


@BOTH
def test_no_texts_ask_nothing(service: Service, make: Any) -> None:
    assert make(service).embed([], "document").shape == (0, DIMENSION)
    assert make(service).embed([], "query").shape == (0, DIMENSION)
    assert service.asked == []


@BOTH
def test_many_texts_go_in_batches(service: Service, make: Any) -> None:
    texts = [f"text {n}" for n in range(300)] + ["long " * 1_500] * 60
    rows = make(service).embed(texts, "document")
    assert len(rows) == 360
    assert all(len(request.body["input"]) <= 128 for request in service.asked)
    assert all(sum(map(len, request.body["input"])) <= 200_000 for request in service.asked)
    assert sum(len(request.body["input"]) for request in service.asked) == 360


@BOTH
def test_no_text_is_refused(service: Service, make: Any) -> None:
    rows = make(service).embed(["", " \n", "lone \ud800", "用" * 10_000], "document")
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-5)
    sent = service.asked[0].body["input"]
    assert sent[:3] == [".", ".", "lone ?"]
    assert len(sent[3].encode()) <= 8_000


def test_a_vector_of_zeros_still_gives_a_unit_row(service: Service) -> None:
    service.answers = [(200, {}, json.dumps({"data": [{"index": 0, "embedding": [0.0] * DIMENSION}]}).encode())]
    assert np.linalg.norm(openai(service).embed(["text"], "document")) == 1


def test_windows_fit_the_service(service: Service) -> None:
    text = "A sentence of some words. " * 2_000
    found = openai(service).windows(text)
    assert len(found) > 1
    assert all(len(window.encode()) <= 8_000 and window in text for window in found)


# When it goes wrong


@BOTH
@pytest.mark.parametrize("status", [429, 500, 503, 529])
def test_a_passing_trouble_is_waited_out(service: Service, make: Any, status: int) -> None:
    service.answers = [error(status), error(status)]
    assert make(service).embed(["text"], "document").shape == (1, DIMENSION)
    assert len(service.asked) == 3


@pytest.mark.parametrize("after", ["0.4", lambda: formatdate(time.time() + 2, usegmt=True)])
def test_retry_after_is_obeyed(service: Service, after: Any) -> None:
    service.answers = [lambda: error(429, headers={"Retry-After": after if isinstance(after, str) else after()})]
    openai(service).embed(["text"], "document")
    first, second = service.asked
    assert second.at - first.at >= 0.4


def test_a_long_retry_after_is_not_waited_for(service: Service) -> None:
    service.answers = [error(429, "slow down", {"Retry-After": "3600"})]
    with pytest.raises(EmbedderFailed, match=r"slow down.*wait 3600 s"):
        openai(service).embed(["text"], "document")


@BOTH
def test_a_lasting_trouble_is_given_up(service: Service, make: Any) -> None:
    service.answers = [error(500, "broken")] * 9
    with pytest.raises(EmbedderFailed, match="answered 500: broken"):
        make(service).embed(["text"], "document")
    assert len(service.asked) == http.MAX_ATTEMPTS


@pytest.mark.parametrize(
    ("make", "variable"), [(openai, "OPENAI_API_KEY"), (voyage, "VOYAGE_API_KEY")], ids=["openai", "voyage"]
)
def test_a_refused_key_names_the_variable_and_never_the_key(service: Service, make: Any, variable: str) -> None:
    service.answers = [error(401, "bad key")]
    with pytest.raises(EmbedderFailed, match=variable) as caught:
        make(service, api_key="very-secret").embed(["text"], "document")
    assert len(service.asked) == 1
    assert "very-secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (error(400, "model not found"), "answered 400: model not found"),
        ((404, {}, b"<html>nothing here</html>"), "answered 404"),
        ((422, {}, b'{"detail": "too many texts"}'), "answered 422: too many texts"),
        ((429, {}, b'{"error": {"code": "insufficient_quota", "message": "no credit"}}'), "answered 429: no credit"),
        ((307, {"Location": "http://127.0.0.1:1/"}, b""), "redirects"),
        ((200, {}, b"<html>hello</html>"), "did not answer in JSON"),
        ((200, {}, b'{"data": "nothing"}'), "an embedding for each"),
        ((200, {}, b"[]"), "an embedding for each"),
        ((200, {}, b'{"data": []}'), "an embedding for each"),
        ((200, {}, b'{"data": [{"index": 0, "embedding": "text"}]}'), "vectors of one size"),
        ((200, {}, b'{"data": [{"index": 0, "embedding": [1, 2, 3]}]}'), "3 dimensions where 8 were expected"),
        ((200, {}, b'{"data": [{"index": 0, "embedding": [1, 2, 3, 4, 5, 6, 7, null]}]}'), "not finite"),
    ],
)
def test_a_wrong_answer_is_a_typed_error_and_not_repeated(service: Service, answer: Answer, message: str) -> None:
    service.answers = [answer]
    with pytest.raises(EmbedderFailed, match=message):
        openai(service).embed(["text"], "document")
    assert len(service.asked) == 1


def test_a_silent_service_is_given_up(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "MAX_ATTEMPTS", 2)
    done = threading.Event()
    service.answers = [lambda: (done.wait(60), error(500))[1]] * 2
    with pytest.raises(EmbedderFailed, match=r"did not answer within 0\.2 s"):
        openai(service, timeout=0.2).embed(["text"], "document")
    ends = time.monotonic() + 50
    while len(service.asked) < 2:  # it may be slow to take what it was sent
        assert time.monotonic() < ends
        time.sleep(0.01)
    done.set()
    assert len(service.asked) == 2


def test_a_service_that_is_not_there_is_a_typed_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http, "FIRST_WAIT_SECONDS", 0.01)
    with pytest.raises(EmbedderFailed, match="cannot be reached"):
        OpenAIEmbedder("m", dimension=3, base_url="http://127.0.0.1:9", timeout=1).embed(["text"], "document")


# Settings


@pytest.mark.parametrize(("make", "variable"), [(OpenAIEmbedder, "OPENAI_API_KEY"), (VoyageEmbedder, "VOYAGE_API_KEY")])
def test_a_missing_key_names_the_variable(make: Any, variable: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(variable, raising=False)
    monkeypatch.delenv("OPENAI_BASE_URL", raising=False)
    with pytest.raises(ConfigError, match=f"Set {variable}"):
        make()
    monkeypatch.setenv(variable, "key")
    assert make().model.hash == ""


def test_an_unknown_model_asks_for_its_dimension() -> None:
    with pytest.raises(InvalidInput, match="dimension=… in Python"):
        OpenAIEmbedder("mystery", api_key="key")
    assert OpenAIEmbedder("mystery", api_key="key", dimension=5).model.key == "mystery/5/"


def test_a_model_can_be_described(service: Service) -> None:
    described = ServedModel(EmbeddingModel("mine", "r7", DIMENSION, floor=0.1), window=10, query_prefix="q: ")
    embedder = OpenAIEmbedder(described, base_url=service.url)
    embedder.embed(["a text that is too long"], "query")
    embedder.embed(["用用用用"], "query")
    assert [asked.body["input"] for asked in service.asked] == [["q: a text tha"], ["q: 用用用"]]
    assert embedder.model is described.model


@pytest.mark.parametrize("url", ["file:///etc/passwd", "localhost:11434", "http://"])
def test_only_web_addresses_are_opened(url: str) -> None:
    with pytest.raises(ConfigError, match="http"):
        OpenAIEmbedder("m", dimension=3, base_url=url)


def test_the_base_url_may_come_from_the_environment(service: Service, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OPENAI_BASE_URL", service.url)
    OpenAIEmbedder("m", dimension=DIMENSION).embed(["text"], "document")
    assert len(service.asked) == 1


# sentence-transformers, stood in for by a stub: torch is too heavy for every run


class StubTransformer:
    made: Any = None
    prompts = {"query": "ask: "}  # noqa: RUF012
    max_seq_length = 12
    tokenizer = SimpleNamespace(tokenize=str.split)

    def __init__(self, name: str, **options: Any) -> None:
        if name == "absent":
            raise OSError("not found in the cache")
        self.options = options
        self.calls: list[tuple[list[str], str | None]] = []
        type(self).made = self

    def get_sentence_embedding_dimension(self) -> int:
        return DIMENSION

    def encode(self, texts: list[str], prompt_name: str | None, show_progress_bar: bool) -> np.ndarray:
        self.calls.append((texts, prompt_name))
        return np.array([vector(text) for text in texts], np.float32)


@pytest.fixture
def transformer(monkeypatch: pytest.MonkeyPatch) -> type[StubTransformer]:
    monkeypatch.setitem(sys.modules, "sentence_transformers", SimpleNamespace(SentenceTransformer=StubTransformer))
    return StubTransformer


def test_sentence_transformers_gives_unit_rows_with_the_models_prompts(transformer: type[StubTransformer]) -> None:
    embedder = SentenceTransformersEmbedder("some/model", revision="abc")
    rows = np.concatenate([embedder.embed(["q"], "query"), embedder.embed(["d", ""][:1], "document")])
    np.testing.assert_allclose(np.linalg.norm(rows, axis=1), 1, atol=1e-6)
    assert transformer.made.calls == [(["q"], "query"), (["d"], None)]
    assert embedder.model.key == f"some/model/{DIMENSION}/abc"
    assert embedder.embed([], "document").shape == (0, DIMENSION)


def test_sentence_transformers_may_call_the_dimension_by_its_newer_name(
    transformer: type[StubTransformer], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(StubTransformer, "get_embedding_dimension", lambda self: DIMENSION, raising=False)
    monkeypatch.delattr(StubTransformer, "get_sentence_embedding_dimension")
    assert SentenceTransformersEmbedder("some/model").model.dimension == DIMENSION


def test_sentence_transformers_downloads_nothing_unasked(transformer: type[StubTransformer]) -> None:
    SentenceTransformersEmbedder("some/model").embed(["text"], "document")
    assert transformer.made.options["local_files_only"] is True
    assert transformer.made.options["trust_remote_code"] is False
    SentenceTransformersEmbedder("some/model", download=True).embed(["text"], "document")
    assert transformer.made.options["local_files_only"] is False


def test_sentence_transformers_windows_fit_the_model(transformer: type[StubTransformer]) -> None:
    found = SentenceTransformersEmbedder("some/model").windows("Five words are in this. " * 9)
    assert len(found) > 1
    assert all(len(window.split()) <= 10 for window in found)


def test_a_model_that_is_not_there_is_a_typed_error(transformer: type[StubTransformer]) -> None:
    with pytest.raises(EmbedderFailed, match="download=True"):
        SentenceTransformersEmbedder("absent").embed(["text"], "document")


def test_a_missing_package_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "sentence_transformers", None)
    with pytest.raises(BackendMissing, match=r'pip install "engrain\[sentence-transformers\]"'):
        SentenceTransformersEmbedder("some/model").embed(["text"], "document")
