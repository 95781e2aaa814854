"""Memories to test with: on SQLite, and with the long suites on the reference store as well."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from engrain_conformance.clock import SetClock
from engrain_conformance.embedder import HashEmbedder
from examples import REFERENCE, SERVED
from killing import Calls
from memory_kit import Open
from server_kit import run_server

from engrain import ConfigError, Memory
from engrain.ports.search import Embedder
from engrain.server.access import OpenAccess

# A memory on a server cannot do these; each has its reason.
LOCAL_FILES = {
    **dict.fromkeys(("test_task_effects", "test_task_failures", "test_task_leases", "test_task_runs"), "task"),
    **dict.fromkeys(("test_task_working_memory", "test_tasks", "test_resumable"), "task"),
    **dict.fromkeys(("test_records", "test_indexed_records"), "records"),
}
LOCAL_TESTS = {
    "test_many_notes_are_checked_before_the_first_is_written": "progress is not reported over HTTP",
    "test_a_purge_that_cannot_run_is_pending_and_no_error": "it replaces a port of the store",
    "test_to_end_a_session_again_without_a_new_message_writes_nothing": "it counts the writes of a port",
    "test_a_session_that_says_nothing_is_read_once": "it counts the reads of a port",
    "test_a_process_that_dies_right_after_the_summary_is_written_leaves_nothing_forgotten_in_it": "it replaces a port",
    "test_the_prompt_tells_the_conversation_in_words_and_within_the_budget": "it asks the store for its token counter",
}


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = {item for item in items if "[served" in item.name and _needs_opened_store(item)}
    config.hook.pytest_deselected(items=list(left_out))
    items[:] = [item for item in items if item not in left_out]


@pytest.hookimpl(hookwrapper=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> Iterator[None]:
    """Skip the rest of a test that runs a task through a server: its steps are functions of the test."""
    outcome = yield
    error = outcome.excinfo[1] if outcome.excinfo else None  # type: ignore[attr-defined]
    if "[served" in pyfuncitem.name and isinstance(error, ConfigError) and str(error).startswith("task does not work"):
        outcome.force_exception(pytest.skip.Exception(str(error)))  # type: ignore[attr-defined]


def _needs_opened_store(item: pytest.Item) -> bool:
    return item.path.stem in LOCAL_FILES or item.name.partition("[")[0] in LOCAL_TESTS


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


@pytest.fixture(params=["sqlite", REFERENCE, SERVED])
def memory(request: pytest.FixtureRequest, open_memory: Open, store: str) -> Memory:
    if request.param == "served":
        return request.getfixturevalue("served_memory")
    return open_memory(store=store if request.param == "sqlite" else "reference://")


@pytest.fixture
def served_memory(tmp_path: Path, clock: SetClock, embedder: Embedder | None) -> Iterator[Memory]:
    """A memory on a server with open access, through a unix socket."""
    access = OpenAccess(None)
    with (
        run_server(tmp_path, open_access=access, unix=True, clock=clock, embedder=embedder, background=True) as running,
        Memory(running.url, user="ana") as memory,
    ):
        yield memory


@pytest.fixture
def calls() -> Calls:
    """What a task's functions have done, in order."""
    return Calls()
