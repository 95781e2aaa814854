"""The whole contract of a vector index, with Qdrant behind it: its local mode, and a server where there is one."""

from __future__ import annotations

import os
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from fed_kit import FedSuite, HalfFedSuite

from engrain.stores.qdrant import QdrantServer


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


@pytest.mark.skipif("QDRANT_URL" not in os.environ, reason="set QDRANT_URL, such as qdrant://127.0.0.1:6333")
class TestServer(FedSuite):
    @pytest.fixture
    def server(self) -> Iterator[QdrantServer]:
        url = f"{os.environ['QDRANT_URL'].rstrip('/')}/?collection=test-{uuid.uuid4().hex[:12]}"
        opened = QdrantServer(url, os.environ.get("QDRANT_KEY"))
        yield opened
        opened.clear()
        opened.close()
