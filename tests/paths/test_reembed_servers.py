"""A change of the embedding model with the vectors on a server: every question is answered, and the old ones go."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from chroma_server import shared_server
from reembed_program import Marked, Watched, opened
from servers import postgres

from engrain import Memory

OLD, NEW = Marked("old").model.key, Marked("new").model.key
_numbers = count()


@pytest.fixture(params=["chroma, sqlite", "qdrant, sqlite", "chroma, postgres"])
def settings(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    server, store = request.param.split(", ")
    number = next(_numbers)
    default = tmp_path / "agent.db" if store == "sqlite" else f"{postgres().url()}?schema=reembed_{number}"
    vectors = f"{shared_server().url}/?collection=reembed-{number}" if server == "chroma" else f"qdrant://{tmp_path}/v"
    path = tmp_path / "agent.toml"
    path.write_text(f'[stores]\ndefault = "{default}"\nvectors = "{vectors}"\n')
    yield str(path)
    if store == "postgres":
        postgres().run(f"drop schema reembed_{number} cascade")


def points(memory: Memory) -> dict[str, int]:
    """How many of each model the server has, once it was fed."""
    feed: Any = memory.store.services.feed
    while feed.feed(1_000):
        pass
    server = feed._server
    found = {model: server.target(model, 0) for model in server.models()}
    return {model: server.count(model) for model in found}


def test_every_question_is_answered_by_one_model_and_the_old_collection_goes(settings: str) -> None:
    with Memory(settings, user="ana", embedder=Marked("old"), background=False) as memory:
        memory.remember_many([f"Note {n} is about the lighthouse {n}." for n in range(60)])
        assert points(memory) == {OLD: 60}
    with opened(settings) as memory:
        seen = Watched(memory.store.services.vectors, memory.store.services.items)
        memory.store.workers.services = replace(memory.store.services, vectors=seen)
        done, wrong = threading.Event(), []

        def ask() -> None:
            while not done.is_set():
                found = memory.recall("What about the lighthouse 7?")
                if found.degraded or not any("lighthouse 7." in hit.text for hit in found.hits):
                    wrong.append(found)

        asking = threading.Thread(target=ask)
        asking.start()
        try:
            assert memory.store.maintain(memory.scope, reembed=True).counts["embedded"] == 60
            assert points(memory) == {NEW: 60}, "nor is an empty collection left of the old one"
        finally:
            done.set()
            asking.join()
        assert wrong == []
        assert memory.recall("What about the lighthouse 7?").hits
        assert set(seen.models) == {"old", "new"}


def test_a_program_with_the_old_model_goes_on_although_its_collection_went(settings: str) -> None:
    with Memory(settings, user="ana", embedder=Marked("old"), background=False) as old:
        old.remember_many([f"Note {n} is about the lighthouse {n}." for n in range(20)])
        assert points(old) == {OLD: 20}
        with opened(settings) as memory:
            memory.store.maintain(memory.scope, reembed=True)
            assert points(memory) == {NEW: 20}
        assert old.recall("What about the lighthouse 7?").hits
        old.remember("Ana lives in Lima.")
        assert old.recall("Where does Ana live?").hits[0].text == "Ana lives in Lima."
        assert points(old) == {OLD: 1, NEW: 20}
