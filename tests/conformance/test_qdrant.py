"""The whole contract of a vector index, with Qdrant behind it: its local mode, over the wire, and a server."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from fed_kit import FedSuite, HalfFedSuite
from qdrant_stub import Stub

from engrain.stores.vectors.qdrant import QdrantServer


class Local:
    @pytest.fixture
    def server(self, tmp_path: Path) -> Iterator[QdrantServer]:
        opened = QdrantServer(f"qdrant://{tmp_path}/vectors")
        yield opened
        opened.close()


class TestLocal(Local, FedSuite):
    pass


class TestLocalBehind(Local, HalfFedSuite):
    pass


class TestOverTheWire(FedSuite):
    """The local mode behind the REST interface: all that is ours on the way to a server."""

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
