"""Every reranker keeps the contract of its port."""

from __future__ import annotations

import contextlib
import json
import re
import sys
import threading
from collections.abc import Iterator, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from engrain_conformance import RerankerSuite
from engrain_conformance.rerankers import Answer, OpenReranker

from engrain.core.errors import ModelFailed
from engrain.core.model.messages import ChatReply, ChatRequest
from engrain.ports.reranker import Reranker
from engrain.providers import http
from engrain.providers.rerankers import SERVICES, CrossEncoderReranker, ModelReranker, ServedReranker

TIMEOUT = 0.25


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """A rerank service on loopback: `answer` has its scores, which come last first, as of a service that sorts."""
    monkeypatch.setattr(http, "FIRST_WAIT_SECONDS", 0.01)
    behind = SimpleNamespace(answer=None, results="results", url="")

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            try:
                scores = list(enumerate(behind.answer(body["query"], body["documents"])))
                rows = [{"index": index, "relevance_score": score} for index, score in scores[::-1]]
                status, content = 200, json.dumps({behind.results: rows}).encode()
            except RuntimeError as exc:
                status, content = 400, json.dumps({"message": str(exc)}).encode()
            with contextlib.suppress(OSError):  # the client stopped waiting
                self.send_response(status)
                self.send_header("Content-Length", str(len(content)))
                self.end_headers()
                self.wfile.write(content)

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    behind.url = f"http://127.0.0.1:{server.server_port}/rerank"
    yield behind
    server.shutdown()
    server.server_close()


class TestServed(RerankerSuite):
    late_seconds = TIMEOUT

    @pytest.fixture(params=sorted(SERVICES))
    def open_reranker(self, service: Any, request: pytest.FixtureRequest) -> OpenReranker:
        def open_it(answer: Answer) -> Reranker:
            service.answer, service.results = answer, SERVICES[request.param].results
            late = request.node.name.startswith("test_an_answer_that_is_late")
            return ServedReranker("some-model", request.param, url=service.url, timeout=TIMEOUT if late else 10)

        return open_it


class TestCrossEncoder(RerankerSuite):
    """sentence-transformers is replaced: torch is too heavy for every run."""

    @pytest.fixture
    def open_reranker(self, monkeypatch: pytest.MonkeyPatch) -> OpenReranker:
        def open_it(answer: Answer) -> Reranker:
            class Encoder:
                def __init__(self, *_: Any, **__: Any) -> None:
                    pass

                def predict(self, pairs: Sequence[tuple[str, str]]) -> Any:
                    scores = answer(pairs[0][0], [text for _, text in pairs])
                    return np.array(scores, np.float64 if all(type(one) is float for one in scores) else object)

            monkeypatch.setitem(sys.modules, "sentence_transformers", SimpleNamespace(CrossEncoder=Encoder))
            return CrossEncoderReranker("tiny")

        return open_it


class ScriptedModel:
    """Reads the numbered texts of a request as a chat model does, and answers with the scores as JSON."""

    name = "scripted"

    def __init__(self, answer: Answer) -> None:
        self._answer = answer

    def reply(self, request: ChatRequest) -> ChatReply:
        question, *lines = request.messages[-1].text.split("\n")
        texts = [re.sub(r'^\d+\. "|"$', "", line).replace("\\n", "\n") for line in lines]
        try:
            scores = self._answer(question.removeprefix('Question: "').removesuffix('"'), texts)
        except RuntimeError as exc:
            raise ModelFailed(str(exc)) from exc
        return ChatReply(f"The ratings: {json.dumps(scores)}.", (), "end", self.name)


class TestModel(RerankerSuite):
    """Each model keeps the time limit of a request itself."""

    @pytest.fixture
    def open_reranker(self) -> OpenReranker:
        return lambda answer: ModelReranker(ScriptedModel(answer))
