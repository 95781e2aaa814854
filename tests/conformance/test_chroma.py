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
from lazy_classes import ChromaServer

from engrain.core.model.queries import Nearest


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
    by_default = (
        "test_filter_and_validity_come_before_the_limit",
        "test_corrected_and_forgotten_items_are_not_found",
        "test_embedding_replaces_the_vectors_of_the_model",
        "test_the_scope_is_never_crossed",
    )


class TestServerBehind(Remote, HalfFedSuite):
    by_default = ("test_a_write_is_seen_at_once",)


class TestEmbedded(Approximate, FedSuite):
    by_default = ("test_the_nearest_are_those_of_a_full_comparison",)

    @pytest.fixture
    def server(self, tmp_path: Path) -> Iterator[Any]:
        opened = ChromaServer(f"chroma://{tmp_path}/vectors")
        yield opened
        opened.close()
