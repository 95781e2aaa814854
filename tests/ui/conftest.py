"""A page with something on every page, and one of an empty memory."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from engrain_conformance.embedder import HashEmbedder
from ui_kit import Page, furnish, serve_page

from engrain import Scope, Store


@pytest.fixture(scope="session")
def furnished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("furnished") / "agent.db"
    with Store(path, embedder=HashEmbedder(), background=False) as store:
        furnish(store)
    return path


@pytest.fixture
def page(tmp_path: Path, furnished: Path) -> Iterator[Page]:
    with (
        Store(shutil.copy(furnished, tmp_path / "agent.db"), embedder=HashEmbedder(), background=False) as store,
        serve_page(store, Scope(user="ana")) as served,
    ):
        yield served


@pytest.fixture
def empty_page(tmp_path: Path) -> Iterator[Page]:
    with (
        Store(tmp_path / "agent.db", embedder=HashEmbedder(), background=False) as store,
        serve_page(store, Scope(user="nobody")) as served,
    ):
        yield served
