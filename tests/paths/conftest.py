"""Memories to test with: the same promises on the SQLite store and on the reference."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from engrain_conformance.clock import SetClock
from killing import Calls

from engrain import Memory

Open = Callable[..., Memory]


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture
def store(tmp_path: Path) -> str:
    return str(tmp_path / "agent.db")


@pytest.fixture
def open_memory(store: str, clock: SetClock) -> Iterator[Open]:
    """Opens memories on one SQLite file, and closes them all."""
    with ExitStack() as stack:

        def opened(**options: Any) -> Memory:
            return stack.enter_context(
                Memory(options.pop("store", store), **{"user": "ana", "clock": clock, **options})
            )

        yield opened


@pytest.fixture(params=["sqlite", "reference"])
def memory(request: pytest.FixtureRequest, open_memory: Open, store: str) -> Memory:
    return open_memory(store=store if request.param == "sqlite" else "reference://")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What is `at_length` runs on SQLite by default; the reference, slow at it, comes with the long suites."""
    for item in items:
        if item.get_closest_marker("at_length") and not item.name.endswith("[sqlite]"):
            item.add_marker(pytest.mark.slow)


@pytest.fixture
def calls() -> Calls:
    """What a task's functions have done, in order."""
    return Calls()
