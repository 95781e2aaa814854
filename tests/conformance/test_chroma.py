"""The whole contract of a vector index, with Chroma behind it: a real server, and the embedded form."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from chroma_server import shared_server
from engrain_conformance.vectors import check_order
from fed_kit import FedSuite, HalfFedSuite

from engrain.ports import Nearest
from engrain.stores.vectors.chroma import ChromaServer


class Approximate:
    """Scopes of these sizes are found whole; only the claim of exactness is missing."""

    @staticmethod
    def check_order(found: Nearest, truth: dict[str, float], limit: int) -> None:
        check_order(Nearest(found.ids, found.cosines), truth, limit)


class Remote(Approximate):
    @pytest.fixture
    def server(self) -> Iterator[Any]:
        opened = ChromaServer(f"{shared_server().url}/?collection=test-{uuid.uuid4().hex[:12]}")
        yield opened
        opened.clear()
        opened.close()


class TestServer(Remote, FedSuite):
    pass


class TestServerBehind(Remote, HalfFedSuite):
    pass


class TestEmbedded(Approximate, FedSuite):
    @pytest.fixture
    def server(self, tmp_path: Path) -> Iterator[Any]:
        opened = ChromaServer(f"chroma://{tmp_path}/vectors")
        yield opened
        opened.close()
