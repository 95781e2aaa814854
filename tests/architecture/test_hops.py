"""From a public verb to its SQL there are at most seven files, every one of ours counted."""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any

import pytest
from engrain_conformance.embedder import HashEmbedder

from engrain import Memory, RecordDraft, SessionPosition
from engrain.stores.sqlite import connection
from engrain.stores.sqlite.store import SqliteStore
from engrain.stores.sqlite.writer import WriteQueue

SOURCE = str(Path(connection.__file__).parents[2])
MOST = 7
DRIVER = "stores/sqlite/connection.py"
# Transactions, checkpoints and the settings of a connection are nobody's verb.
NOBODYS = ("begin", "commit", "rollback", "savepoint", "release", "pragma")


def step(memory: Memory) -> None:
    with memory.task("order", working=False) as run:
        run.step("plan", lambda: 1)


def remember_step(memory: Memory) -> None:
    with memory.task("order", working=False) as run:
        run.remember_step("note", "The parcel is in Lisbon.")


def finish_task(memory: Memory) -> None:
    with memory.task("order", goal="ship it") as run:
        run.effect("pay", lambda: 1)
        run.outcome = "shipped"


def load_export(memory: Memory) -> None:
    with TemporaryDirectory() as folder:
        memory.export(Path(folder) / "ana.jsonl")
        memory.load(Path(folder) / "ana.jsonl")


def summarize(memory: Memory) -> None:
    for number in range(60):
        memory.add_message("user", f"message {number}", session="long")


def ask_to_forget(memory: Memory) -> None:
    memory.add_message("user", "I live in Quito.")
    memory.add_message("user", "Forget that I live in Quito.")
    memory.add_message("user", "Forget that I like tea.")  # of which nothing is known
    memory.session("monday").add_message("user", "Forget my city.")


VERBS: dict[str, Callable[[Memory], Any]] = {
    "remember": lambda memory: memory.remember("The parcel is in Lisbon.", slot="parcel.place"),
    "remember a turn": lambda memory: memory.remember("Hello.", position=SessionPosition("monday")),
    "remember_many": lambda memory: memory.remember_many(["one thing", "another thing"]),
    "recall": lambda memory: memory.recall("Where is the parcel?", where={"kind": "fact"}),
    "prompt": lambda memory: memory.prompt("Where is the parcel?"),
    "add_message": lambda memory: memory.add_message("user", "I moved to Quito."),
    "add_message until a summary is due": summarize,
    "add_message that asks to forget": ask_to_forget,
    "start_session": lambda memory: memory.start_session("monday"),
    "slot": lambda memory: memory.slots.get("parcel.place"),
    "relation": lambda memory: memory.relations.add("Ana", "works at", "Acme"),
    "about": lambda memory: memory.relations.about("Ana"),
    "list": lambda memory: memory.list({"kind": "fact"}),
    "get": lambda memory: memory.get(memory.list()[0].id),
    "correct": lambda memory: memory.correct(memory.list()[0].id, "The parcel is in Porto."),
    "update": lambda memory: memory.update(memory.list()[0].id, pinned=True),
    "explain": lambda memory: memory.explain(memory.list()[0].id),
    "forget": lambda memory: memory.forget(memory.list()[0].id),
    "erase": lambda memory: memory.erase(id=memory.list()[0].id),
    "write a record": lambda memory: memory.records.write("space", [RecordDraft(("a",), b"1")]),
    "scan records": lambda memory: memory.records.scan("space"),
    "drop records": lambda memory: memory.records.drop("space"),
    "step": step,
    "remember_step": remember_step,
    "task": finish_task,
    "undo": lambda memory: memory.store.undo("page", user="ana"),
    "load": lambda memory: memory.load(io.BytesIO(b'{"text": "Ana likes tea."}\n')),
    "export and load it": load_export,
    "erase a user": lambda memory: memory.store.erase(user="ana"),
    "hold": lambda memory: memory.store.hold(user="ana", reason="case-7"),
    "status": lambda memory: memory.store.status(memory.scope),
    "doctor": lambda memory: memory.store.doctor(memory.scope),
    "doctor of every memory": lambda memory: memory.store.doctor(),
    "maintain": lambda memory: memory.store.maintain(memory.scope),
    "maintain every memory": lambda memory: memory.store.maintain(),
}
ABOVE = 4  # files above the store


class Hops:
    """The files on the way to every statement, with a thread's own way put behind the way of who started it."""

    def __init__(self) -> None:
        self.ways: set[tuple[str, ...]] = set()
        self._started_by = threading.local()

    def note(self, frame: FrameType, sql: str) -> None:
        if not sql.startswith(NOBODYS):
            files = [*getattr(self._started_by, "files", []), *files_of(frame), DRIVER]
            self.ways.add(tuple(dict.fromkeys(files)))

    def joined(self, call: Callable[..., Any]) -> Callable[..., Any]:
        files = [*getattr(self._started_by, "files", []), *files_of(sys._getframe(1))]

        def run(*args: Any, **kwargs: Any) -> Any:
            before = getattr(self._started_by, "files", [])
            self._started_by.files = files
            try:
                return call(*args, **kwargs)
            finally:
                self._started_by.files = before

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
        plain = getattr(connection.Connection, name, None)
        if plain is not None:
            monkeypatch.setattr(connection.Connection, name, noting(hops, plain))
    submit = ThreadPoolExecutor.submit

    def joining(pool: ThreadPoolExecutor, call: Callable[..., Any], *args: Any, **kwargs: Any) -> Future[Any]:
        return submit(pool, hops.joined(call), *args, **kwargs)

    monkeypatch.setattr(ThreadPoolExecutor, "submit", joining)
    for name in ("run", "run_alone"):
        monkeypatch.setattr(WriteQueue, name, joining_write(hops, getattr(WriteQueue, name)))
    yield hops


def joining_write(hops: Hops, write: Callable[..., Any]) -> Callable[..., Any]:
    def joined(queue: WriteQueue, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return write(queue, hops.joined(work), *args, **kwargs)

    return joined


def noting(hops: Hops, plain: Callable[..., Any]) -> Callable[..., Any]:
    def noted(db: Any, sql: str, *args: Any) -> Any:
        hops.note(sys._getframe(1), sql)
        return plain(db, sql, *args)

    return noted


@pytest.fixture
def memory(tmp_path: Path) -> Iterator[Memory]:
    with Memory(tmp_path / "agent.db", user="ana", embedder=HashEmbedder()) as opened:
        opened.remember("Ana prefers Python.")
        opened.recall("What does Ana prefer?")
        opened.remember("Ana lives in Lima.", source="page")  # the index of the search has a change to read
        yield opened


@pytest.mark.parametrize("verb", VERBS)
def test_a_verb_reaches_its_sql_within_seven_files(verb: str, memory: Memory, monkeypatch: pytest.MonkeyPatch) -> None:
    with watched(monkeypatch) as hops:
        VERBS[verb](memory)
    assert hops.ways, "the verb ran no statement: nothing was measured"
    way = f"{verb}: {' → '.join(hops.longest)}"
    print(len(hops.longest), way)  # noqa: T201
    assert len(hops.longest) <= MOST, way
    above = max(len([file for file in one if not file.startswith("stores/")]) for one in hops.ways)
    assert above <= ABOVE, way


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
