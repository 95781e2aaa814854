"""What vector servers answer is told to the caller as an error that says what to do."""

from __future__ import annotations

import http.server
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from chroma_server import shared_server
from engrain_conformance.drafts import EMBEDDER, MODEL, add, fact, vector_query
from engrain_conformance.embedder import DIMENSION
from free_ports import free_port
from lazy_classes import ChromaServer, QdrantServer, Stub
from proxy import Proxy

from engrain.core.errors import ConfigError, EngrainError, NotFound, StoreUnavailable
from engrain.stores.sqlite import SqliteStore
from engrain.stores.vectors.outbox_index import OutboxVectorIndex


@pytest.fixture
def stub() -> Iterator[Stub]:
    made = Stub()
    yield made
    made.close()


def test_a_server_s_collection_has_an_index_on_all_that_is_filtered_by(stub: Stub) -> None:
    server = QdrantServer(stub.url)
    name = server.target(MODEL, DIMENSION).removeprefix("qdrant/")
    assert {key: one["data_type"] for key, one in stub.indexes[name].items()} == {
        "scope": "keyword",
        "item": "keyword",
        "begins": "integer",
        "ends": "integer",
    }
    server.close()


def test_a_small_scope_is_compared_whole_and_a_large_one_by_its_graph(
    stub: Stub, monkeypatch: pytest.MonkeyPatch
) -> None:
    from engrain.stores.vectors import qdrant

    store, server = SqliteStore(":memory:"), QdrantServer(stub.url)
    index = OutboxVectorIndex(store, server, EMBEDDER)
    add(store, *(fact(f"Number {n}.") for n in range(5)))
    assert index.feed(100) == 5
    assert index.nearest(vector_query("Number 1.")).exact
    monkeypatch.setattr(qdrant, "MAX_EXACT_POINTS", 4)
    assert not index.nearest(vector_query("Number 1.")).exact
    assert [one["exact"] for one in stub.params] == [True, False]
    assert stub.params[1]["hnsw_ef"] >= 256
    server.close()
    store.close()


def test_a_refused_key_names_the_variable() -> None:
    stub = Stub(key="right")
    for given in (None, "wrong"):
        server = QdrantServer(stub.url, given)
        with pytest.raises(ConfigError, match="QDRANT_API_KEY"):
            server.models()
        server.close()
    with pytest.warns(UserWarning, match="insecure"):
        server = QdrantServer(stub.url, "right")
    assert server.models() == []
    server.close()
    stub.close()


def test_a_lost_collection_and_a_server_in_trouble_are_told_apart(stub: Stub) -> None:
    server = QdrantServer(stub.url)
    server.target(MODEL, DIMENSION)
    stub.indexes.clear()
    with pytest.raises(NotFound, match="no longer in"):
        server.count(MODEL)
    stub.fails = 1
    with pytest.raises(StoreUnavailable, match="503"):
        server.models()
    assert server.models() == []
    server.close()


@pytest.mark.parametrize("kind", [ChromaServer, QdrantServer])
def test_nobody_there_a_name_that_is_none_and_a_slow_server_are_told_in_time(kind: Any, stub: Stub) -> None:
    scheme = kind.__name__.removesuffix("Server").lower()
    nobody = free_port()
    real = shared_server().port if kind is ChromaServer else stub.server.server_port
    slow = Proxy(real)
    slow.delay = 600.0
    for where in (f"127.0.0.1:{nobody}", "127.0.0.1.invalid:1", f"127.0.0.1:{slow.port}"):
        server = kind(f"{scheme}://{where}/?timeout=0.5")
        began = time.monotonic()
        with pytest.raises(StoreUnavailable, match=f"{scheme}://{where} did not answer within 0.5 s: .+"):
            server.models()
        assert time.monotonic() - began < 60
        server.close()
    slow.close()


@pytest.mark.parametrize("asked", [b"/auth/identity", b"/tenants/", b"/collections"])
def test_a_chroma_that_falls_silent_after_its_first_answers_is_given_up_in_time(asked: bytes) -> None:
    through = Proxy(shared_server().port)
    through.judge = lambda direction, data: "swallow" if direction == "to server" and asked in data else "pass"
    late = threading.Timer(90.0, through.cut)
    late.start()
    server = ChromaServer(f"chroma://127.0.0.1:{through.port}/?timeout=1")
    began = time.monotonic()
    with pytest.raises(StoreUnavailable, match=r"did not answer within 1 s: .+"):
        server.models()
    assert time.monotonic() - began < 60
    late.cancel()
    server.close()
    through.close()


@pytest.mark.parametrize("kind", [ChromaServer, QdrantServer])
def test_a_server_of_another_kind_is_an_error_of_ours(kind: Any) -> None:
    """Somebody's web server at that address."""
    with _answering(lambda: b"<html>hello</html>") as port:
        server = kind(f"{kind.__name__.removesuffix('Server').lower()}://127.0.0.1:{port}/?timeout=1")
        with pytest.raises(EngrainError, match=f"127.0.0.1:{port}"):
            server.models()
        server.close()


class _answering:  # noqa: N801
    def __init__(self, body: Callable[[], bytes]) -> None:
        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                self.send_response(200)
                self.end_headers()
                self.wfile.write(body())

            def log_message(self, *_: Any) -> None:
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)

    def __enter__(self) -> int:
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self.server.server_port

    def __exit__(self, *_: object) -> None:
        self.server.shutdown()
        self.server.server_close()
