"""From a public verb to its SQL there are at most five files below the face."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from engrain_conformance.embedder import HashEmbedder

from engrain import Memory, SessionPosition
from engrain.stores.sqlite import engine_apsw
from engrain.stores.sqlite.store import SqliteStore

SOURCE = str(Path(engine_apsw.__file__).parents[2])
MOST = 5
# What only hands on: the face itself, the span around it, the open file, the seam behind which the lens is imported
# when it is first needed, and the adapter that gives the statement to SQLite.
NOT_COUNTED = {
    "memory/opened.py",
    "memory/knowledge.py",
    "memory/happenings.py",
    "memory/durable.py",
    "memory/__init__.py",
    "telemetry.py",
    "stores/sqlite/handle.py",
    "stores/sqlite/search.py",
    "stores/sqlite/engine.py",
    "stores/sqlite/engine_apsw.py",
}

# Begin, commit, checkpoints and connections: the machinery around every statement, not a statement of the verb's own.
MACHINERY = {"stores/sqlite/writer.py", "stores/sqlite/pool.py", "stores/sqlite/opening.py"}

VERBS: dict[str, Callable[[Memory], Any]] = {
    "remember": lambda memory: memory.remember("The parcel is in Lisbon.", slot="parcel.place"),
    "remember a turn": lambda memory: memory.remember("Hello.", place=SessionPosition("monday")),
    "remember_many": lambda memory: memory.remember_many(["one thing", "another thing"]),
    "recall": lambda memory: memory.recall("Where is the parcel?", where={"kind": "fact"}),
    "slot": lambda memory: memory.slot("parcel.place"),
    "relate": lambda memory: memory.relate("Ana", "works at", "Acme"),
    "about": lambda memory: memory.about("Ana"),
    "list": lambda memory: memory.list({"kind": "fact"}),
    "correct": lambda memory: memory.correct(memory.list()[0].id, "The parcel is in Porto."),
    "pin": lambda memory: memory.pin(memory.list()[0].id),
    "why": lambda memory: memory.why(memory.list()[0].id),
    "forget": lambda memory: memory.forget(memory.list()[0].id),
    "status": lambda memory: memory.status(),
}


class Hops:
    """The files on the way to every statement, with a thread's own way put behind the way of who started it."""

    def __init__(self) -> None:
        self.ways: set[tuple[str, ...]] = set()
        self._started_by = threading.local()

    def note(self, frame: FrameType) -> None:
        files = [*getattr(self._started_by, "files", []), *files_of(frame)]
        if not MACHINERY.intersection(files):
            self.ways.add(tuple(dict.fromkeys(file for file in files if file not in NOT_COUNTED)))

    def joined(self, call: Callable[..., Any]) -> Callable[..., Any]:
        files = files_of(sys._getframe(1))

        def run(*args: Any, **kwargs: Any) -> Any:
            self._started_by.files = files
            return call(*args, **kwargs)

        return run

    @property
    def longest(self) -> tuple[str, ...]:
        return max(self.ways, key=len)


def files_of(frame: FrameType | None) -> list[str]:
    files: list[str] = []
    while frame is not None:
        name = frame.f_code.co_filename
        if name.startswith(SOURCE):
            files.append(str(Path(name).relative_to(SOURCE)).removeprefix("engrain/"))
        frame = frame.f_back
    return files[::-1]


@contextmanager
def watched(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hops]:
    hops = Hops()
    for name in ("run", "rows", "many"):
        plain = getattr(engine_apsw.ApswConnection, name, None)
        if plain is not None:
            monkeypatch.setattr(engine_apsw.ApswConnection, name, noting(hops, plain))
    submit = ThreadPoolExecutor.submit

    def joining(pool: ThreadPoolExecutor, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Future[Any]:
        return submit(pool, hops.joined(call), *args, **kwargs)

    monkeypatch.setattr(ThreadPoolExecutor, "submit", joining)
    yield hops


def noting(hops: Hops, plain: Callable[..., Any]) -> Callable[..., Any]:
    def noted(*args: Any, **kwargs: Any) -> Any:
        hops.note(sys._getframe(1))
        return plain(*args, **kwargs)

    return noted


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with Memory(tmp_path / "agent.db", user="ana", embedder=HashEmbedder()) as opened:
        opened.remember("Ana prefers Python.")
        opened.recall("What does Ana prefer?")
        yield opened


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_reaches_its_sql_within_five_files(verb: str, memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    with watched(monkeypatch) as hops:
        VERBS[verb](memory)
    assert hops.ways, "the verb ran no statement: nothing was measured"
    assert len(hops.longest) <= MOST, " → ".join(hops.longest)


def test_a_planted_hop_is_noticed(memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also across the thread in which a bulk write commits."""
    planted = compile("def apply(self, plan): return plain(self, plan)", f"{SOURCE}/engrain/planted.py", "exec")
    names: dict[str, Any] = {"plain": SqliteStore.apply}
    exec(planted, names)
    monkeypatch.setattr(SqliteStore, "apply", names["apply"])
    for verb in ("remember", "remember_many"):
        with watched(monkeypatch) as hops:
            VERBS[verb](memory)
        assert any("planted.py" in way and "tiers/semantic.py" in way for way in hops.ways), verb
        assert len(hops.longest) > MOST, verb
