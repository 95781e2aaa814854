"""`load` takes what LangGraph's own stores wrote, on SQLite and Postgres."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from integration_kit import Figures, open_store

pytest.importorskip("langgraph.store.sqlite", reason="make test-integrations runs it")

from langgraph.store.postgres import PostgresStore
from langgraph.store.sqlite import SqliteStore

VALUES: list[tuple[tuple[str, ...], str, dict[str, Any]]] = [
    (("memories", "ana"), "drink", {"text": "Ana likes green tea."}),
    (("memories", "ana"), "city", {"text": "Ana lives in Lima."}),
    (("settings",), "theme", {"colour": "blue", "sizes": [1, 2]}),
]


@contextmanager
def fill_their_store(backend: str, folder: Path) -> Iterator[str]:
    """Write the values with LangGraph's store, and return where `load` finds them."""
    if backend == "sqlite":
        with SqliteStore.from_conn_string(str(folder / "theirs.sqlite")) as theirs:
            _fill(theirs)
        yield str(folder / "theirs.sqlite")
        return
    from servers import postgres

    name = f"langgraph_{uuid.uuid4().hex[:12]}"
    postgres().run(f"create database {name}")
    url = postgres().url("postgres").removesuffix("postgres") + name
    try:
        with PostgresStore.from_conn_string(url) as theirs:
            _fill(theirs)
        yield url
    finally:
        postgres().run(f"drop database {name} with (force)")


def _fill(theirs: Any) -> None:
    theirs.setup()
    for namespace, key, value in VALUES:
        theirs.put(namespace, key, value)
    theirs.put(("memories", "ana"), "gone", {"text": "Ana lives in Rome."})
    theirs.delete(("memories", "ana"), "gone")


@pytest.mark.parametrize("backend", ["sqlite", "postgres"])
def test_the_stores_of_langgraph_are_loaded(backend: str, tmp_path: Path, figures: Figures) -> None:
    with fill_their_store(backend, tmp_path) as place, open_store("sqlite", tmp_path) as store:
        memory = store.memory(user="ana")
        loaded = memory.load(place)
        assert (loaded.format, loaded.added) == ("langgraph", 3)
        found = {item.metadata["key"]: item for item in memory.list()}
        assert {key: found[key].text for key in ("drink", "city")} == {
            "drink": "Ana likes green tea.", "city": "Ana lives in Lima.",
        }  # fmt: skip
        assert found["drink"].metadata["namespace"] == "memories.ana"
        assert '"blue"' in found["theme"].text
        assert memory.load(place).added == 0
        profile = " ".join(item.text for item in memory.sessions.collect_profile())
        assert "green tea" in profile, "an imported fact that names the user"
    figures.show("`load` takes what `SqliteStore` and `PostgresStore` wrote", backend, "yes")
