"""A memory on Postgres is loaded, cared for, restored and erased as one in a file is."""

from __future__ import annotations

import io
import signal
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest
from engrain_conformance.clock import SetClock
from engrain_conformance.drafts import ANA, add, fact
from engrain_conformance.dump_restore import dump_all
from engrain_conformance.embedder import HashEmbedder
from export_kit import exported
from schemas import empty_store

from engrain import Memory, replay_erasures
from engrain.core.clock import to_micros
from engrain.core.model.plans import Forget, Plan
from engrain.factory import open_whole_store
from engrain.stores.postgres import PostgresStore
from engrain.stores.postgres.connection import PipelinedConnection
from engrain.transfer.copy import copy

_numbers = count()


@pytest.fixture
def url() -> Iterator[str]:
    with empty_store() as url:
        yield url


def opened(store: str, **options: Any) -> Memory:
    return Memory(store, **{"user": "ana", "background": False, "embedder": HashEmbedder(), **options})


@pytest.fixture
def awaited(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The statements whose answer was waited for: the others go to the server in a pipeline."""
    seen: list[str] = []
    rows = PipelinedConnection.rows

    def counted(self: PipelinedConnection, sql: str, args: Any = None) -> Any:
        seen.append(sql)
        return rows(self, sql, args)

    monkeypatch.setattr(PipelinedConnection, "rows", counted)
    return seen


# Many rows


@pytest.mark.parametrize("vectors", [False, True])
def test_a_load_goes_to_the_server_in_a_few_round_trips(
    url: str, tmp_path: Path, awaited: list[str], vectors: bool
) -> None:
    with opened(str(tmp_path / "source.db")) as source:
        source.remember_many([{"text": f"Ana has read book {n}.", "metadata": {"n": n}} for n in range(300)])
        source.relations.add("Ana", "knows", "Ben")
        source.forget(source.remember("A secret."))
        source.export(tmp_path / "out.jsonl", vectors=vectors)
        raw = exported(source)
    with opened(url) as there:
        awaited.clear()
        assert there.load(tmp_path / "out.jsonl", trusted=True).added > 300
        assert 0 < len(awaited) < 60
        assert exported(there) == raw
        assert there.load(io.BytesIO(raw), trusted=True).added == 0


# Behind a pooler


@pytest.mark.parametrize("pooled", [True, False])
def test_behind_a_pooler_no_statement_is_prepared(url: str, pooled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if pooled:  # which gives its own numbers to the sessions
        monkeypatch.setattr(psycopg.ConnectionInfo, "backend_pid", property(lambda _: 0))
    with closing(PostgresStore(f"{url}&pool=1")) as store:
        for n in range(12):
            add(store, fact(f"Fact {n}."))
        kept = store._database.alone(lambda one: one.execute(b"select count(*) from pg_prepared_statements").fetchall())
    assert (kept == [(0,)]) is pooled


# Set back by other means


KILLED = """
import os, signal, sys
from engrain import replay_erasures
from engrain.privacy import tombstones as replay
from engrain.stores.relational.audit import Audit

def die(*_):
    os.kill(os.getpid(), signal.SIGKILL)

at, restored, present = sys.argv[1:]
if at == "log":
    Audit.append = die
else:
    setattr(replay, at, die)
replay_erasures(restored, present)
"""


@pytest.mark.parametrize("kind", [pytest.param("sqlite", marks=pytest.mark.slow), "postgres"])
def test_a_replay_that_is_killed_has_done_nothing_and_is_done_again(kind: str, url: str, tmp_path: Path) -> None:
    present, restored = str(tmp_path / "present.db"), url if kind == "postgres" else str(tmp_path / "restored.db")
    with opened(present) as memory:
        gone, stays = (memory.remember("Ana lives in Lima.", occurred_at=f"{year}-01-01") for year in (2020, 2021))
        with closing(open_whole_store(restored)) as back, closing(open_whole_store(present)) as there:
            copy(there, back, lambda _: None)
        memory.forget(gone)
    with closing(open_whole_store(restored)) as back:
        before = dump_all(back)
    for at in ("_restore_current_items", "_copy_records", "log"):
        done = subprocess.run([sys.executable, "-c", KILLED, at, restored, present], check=False)
        assert done.returncode == -signal.SIGKILL
        with closing(open_whole_store(restored)) as back:
            assert dump_all(back) == before, f"killed at {at}"
    assert replay_erasures(restored, present).rows["item"] == 1
    with opened(restored) as memory:
        assert [item.id for item in memory.list()] == [stays]
        assert [one.what for one in memory.store.audit()] == ["forget", "restore"]
        assert memory.store.verify_audit()


# Care for all memories of a store


USERS = ("ana", "bruno", "carla", "dora")
DIES = """
import os, signal, sys
from engrain import Memory
from engrain_conformance.clock import SetClock
from engrain_conformance.embedder import HashEmbedder
from engrain.core.clock import from_micros
from engrain.core.model.plans import Forget
from engrain.stores.postgres import PostgresStore

apply, times = PostgresStore.apply, []

def dying(self, plan):
    times.extend(step for step in plan.steps if isinstance(step, Forget))
    if len(times) == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return apply(self, plan)

PostgresStore.apply = dying
clock = SetClock(from_micros(int(sys.argv[2])))
with Memory(sys.argv[1], background=False, embedder=HashEmbedder(), clock=clock) as nobody:
    nobody.store.maintain()
"""


@pytest.mark.parametrize("role", ["member", pytest.param("postgres", marks=pytest.mark.slow)])
def test_every_memory_is_cared_for_though_a_round_is_killed_and_two_run_at_once(
    role: str, url: str, clock: SetClock
) -> None:
    store = url.replace("member@", f"{role}@")
    for user in USERS:
        with opened(store, user=user, clock=clock) as memory:
            memory.remember(f"{user} wore a hat.", importance=0.1)
            memory.remember(f"{user} likes tea.", importance=0.8)
            memory.add_message("user", f"I am {user}.", session="monday")
    clock.advance(8 * 86_400.0)
    now = str(to_micros(clock()))
    assert subprocess.run([sys.executable, "-c", DIES, store, now], check=False).returncode == -signal.SIGKILL
    assert sum(f"{user} wore a hat." in known(store, user, clock) for user in USERS) == 2, "two were done before"
    rules = {"every_minutes": 60}
    with opened(store, user=None, clock=clock, settings={"lifecycle": rules}) as one:
        with opened(store, user=None, clock=clock, settings={"lifecycle": rules}) as two, ThreadPoolExecutor(2) as pool:
            rounds = list(pool.map(lambda memory: memory.store.maintain(), (one, two)))
            one.store.workers.scheduler._enabled = two.store.workers.scheduler._enabled = True
            kept = [memory.store.workers.scheduler.once() is not None for memory in (one, two)]
        assert [(done.memories, done.problems) for done in rounds] == [(4, ()), (4, ())]
        assert kept == [True, False], "under one lease"
        assert one.store.maintain().each == ()
        assert one.store.verify_audit()
    for user in USERS:
        assert known(store, user, clock) == {f"{user} likes tea.", f"I am {user}."}


def known(store: str, user: str, clock: SetClock) -> set[str]:
    with opened(store, user=user, clock=clock) as memory:
        return {item.text for item in memory.list()}


# Erasing


@pytest.mark.parametrize("by", ["id", "session", "source"])
def test_the_folder_of_a_memory_no_longer_says_what_a_part_of_it_said(by: str, url: str, tmp_path: Path) -> None:
    folder = tmp_path / "files"
    folder.mkdir()
    with opened(url) as memory:
        gone = memory.remember("The harbour master is called Bo.", source="chat-1")
        memory.remember("The harbour master is called Al.")
        memory.add_message("user", "The lighthouse is called Cy.", session="monday")
        memory.mirror(folder).sync()
        assert {"Al", "Bo", "Cy"} <= said_in(folder)
        done = memory.erase(**{by: {"id": gone, "session": "monday", "source": "chat-1"}[by]}, folders=[folder])  # type: ignore[arg-type]
        assert done.receipt, done.why
        assert done.receipt.values["counts"]["files"] == 1
        word = "Cy" if by == "session" else "Bo"
        assert said_in(folder) & {"Al", "Bo", "Cy"} == {"Al", "Bo", "Cy"} - {word}
        memory.mirror(folder).sync()
        assert not [item for item in memory.list() if word in item.text], "no file brings it back"


def said_in(folder: Path) -> set[str]:
    return {word.strip(".") for file in folder.rglob("*") if file.is_file() for word in file.read_text().split()}


def test_rows_that_another_session_tells_of_after_they_went_do_not_hold_up_a_purge(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts = iter([40, 0])
    with closing(PostgresStore(url)) as store:
        (id,) = add(store, fact("A secret."))
        store.apply(Plan(ANA, (Forget(id),)))
        monkeypatch.setattr(store, "_count_dead_rows", lambda: next(counts, 0))
        assert store.purge()
        assert next(counts, None) is None, "it has looked again"
