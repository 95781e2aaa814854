"""The whole contract of a vector index, with Qdrant behind it: its local mode, over the wire, and a server."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from fed_kit import FedSuite, HalfFedSuite
from lazy_classes import QdrantServer, Stub


class Local:
    @pytest.fixture
    def server(self, tmp_path: Path) -> Iterator[QdrantServer]:
        opened = QdrantServer(f"qdrant://{tmp_path}/vectors")
        yield opened
        opened.close()


class TestLocal(Local, FedSuite):
    pass


class TestLocalBehind(Local, HalfFedSuite):
    by_default = ("test_a_write_is_seen_at_once", "test_the_scope_is_never_crossed")


class TestOverTheWire(FedSuite):
    """The local mode behind the REST interface: all that is ours on the way to a server."""

    by_default = (
        "test_filter_and_validity_come_before_the_limit",
        "test_corrected_and_forgotten_items_are_not_found",
        "test_embedding_replaces_the_vectors_of_the_model",
        "test_the_scope_is_never_crossed",
    )

    @pytest.fixture
    def server(self) -> Iterator[QdrantServer]:
        stub = Stub()
        opened = QdrantServer(stub.url)
        yield opened
        opened.close()
        stub.close()


@pytest.mark.skipif("QDRANT_URL" not in os.environ, reason="set QDRANT_URL, such as http://127.0.0.1:6333")
class TestServer(FedSuite):
    @pytest.fixture
    def server(self) -> Iterator[QdrantServer]:
        scheme, _, where = os.environ["QDRANT_URL"].rstrip("/").rpartition("://")
        tls = "&tls=true" if scheme == "https" else ""
        opened = QdrantServer(
            f"qdrant://{where}/?collection=test-{uuid.uuid4().hex[:12]}{tls}", os.environ.get("QDRANT_KEY")
        )
        yield opened
        opened.clear()
        opened.close()
