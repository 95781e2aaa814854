"""Memories to test with: on SQLite, and with the long suites on the reference store as well."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from engrain_conformance.clock import SetClock
from engrain_conformance.embedder import HashEmbedder
from examples import REFERENCE
from killing import Calls

from engrain import Memory
from engrain.ports.search import Embedder

Open = Callable[..., Memory]


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture
def store(tmp_path: Path) -> str:
    return str(tmp_path / "agent.db")


@pytest.fixture
def embedder(request: pytest.FixtureRequest) -> Embedder | None:
    """By words alone. The model that comes with us, where a test needs the meaning."""
    return None if request.node.get_closest_marker("meaning") else HashEmbedder()


@pytest.fixture
def open_memory(store: str, clock: SetClock, embedder: Embedder | None) -> Iterator[Open]:
    """Opens memories on one SQLite file, and closes them all."""
    with ExitStack() as stack:

        def opened(**options: Any) -> Memory:
            return stack.enter_context(
                Memory(
                    options.pop("store", store),
                    **{"user": "ana", "clock": clock, "embedder": embedder, **options},
                )
            )

        yield opened


@pytest.fixture(params=["sqlite", REFERENCE])
def memory(request: pytest.FixtureRequest, open_memory: Open, store: str) -> Memory:
    return open_memory(store=store if request.param == "sqlite" else "reference://")


@pytest.fixture
def calls() -> Calls:
    """What a task's functions have done, in order."""
    return Calls()
