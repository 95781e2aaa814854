"""A whole memory moves between SQLite, Postgres and Redis, and stays what it was."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import closing
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest
from click.testing import CliRunner
from engrain_conformance.clock import SetClock
from engrain_conformance.drafts import ANA, EMBEDDER, add, fact
from engrain_conformance.dump_restore import SCOPES, dump_all, fill_store
from engrain_conformance.views import MOMENTS, View
from redis_server import redis_server
from servers import postgres

from engrain import Memory
from engrain.cli.main import root
from engrain.core.clock import system_clock
from engrain.core.errors import ConfigError
from engrain.core.model.rows import Row
from engrain.core.model.sessions import Episode, RawOutput
from engrain.core.model.tasks import TaskQuery
from engrain.factory import open_whole_store
from engrain.stores.postgres import PostgresStore
from engrain.stores.sqlite import SqliteStore
from engrain.transfer.copy import copy

_numbers = count()


@pytest.fixture
def url() -> Iterator[str]:
    schema = f"copy_{next(_numbers)}"
    yield f"{postgres().url()}?schema={schema}"
    postgres().run(f"drop schema if exists {schema} cascade")


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


def quiet(_: int) -> None:
    pass


def run(*args: str, code: int = 0) -> Any:
    result = CliRunner().invoke(root, list(args))
    assert result.exit_code == code, (result.output, result.exception)
    return result


def everything(store: Any) -> list[Any]:
    return [View(store, scope, MOMENTS[2], lambda id: id).everything() for scope in SCOPES]


def tasks(store: Any) -> list[Any]:
    """By name: those of one moment have no order between them."""
    found = [one for scope in SCOPES for one in sorted(store.journal.tasks(TaskQuery(scope)), key=lambda one: one.task)]
    return [(one, store.journal.steps(one.scope, one.task)) for one in found]


def test_sqlite_to_postgres_to_sqlite_is_the_same(url: str, tmp_path: Path, clock: SetClock) -> None:
    first = SqliteStore(tmp_path / "first.db", clock=clock)
    fill_store(first, clock)
    with (
        closing(first),
        closing(PostgresStore(url, clock=clock)) as between,
        closing(SqliteStore(tmp_path / "last.db", clock=clock)) as last,
    ):
        there, back = copy(first, between, quiet), copy(between, last, quiet)
        assert there == back
        assert there.written == sum(there.rows.values())
        assert dump_all(first) == dump_all(between) == dump_all(last)
        assert everything(first) == everything(between) == everything(last)
        assert tasks(first) == tasks(between) == tasks(last)
        ids = [row.key[0] for row in dump_all(first) if row.kind == "item" and row.scope == ANA]
        vectors = [store.vectors(ANA, ids, EMBEDDER.model.key) for store in (first, between, last)]
        assert vectors[0]
        assert vectors[0] == vectors[1] == vectors[2]
        for store in (between, last):
            assert [one for one in store.check() if one.state == "fail"] == []


def test_recall_answers_the_same_in_a_copy(url: str, tmp_path: Path) -> None:
    old, new = str(tmp_path / "old.db"), str(tmp_path / "new.db")
    with Memory(old, user="ana", embedder=EMBEDDER) as memory:
        for n in range(30):
            memory.remember(f"Ana drinks tea number {n} in the {('morning', 'evening', 'night')[n % 3]}.")
        memory.remember("Quito", slot="city")
        memory.forget(memory.remember("A secret."))
    told = [json.loads(run("copy", *where, "--json").stdout) for where in ((old, url), (url, new))]
    first, second = ({**one["rows"], "audit": 0} for one in told)
    assert first == second, "but that the second copy is on record too"
    answers = []
    for where in (old, url, new):
        with Memory(where, user="ana", embedder=EMBEDDER) as memory:
            asked = [memory.recall(one, min_relevance=0.0) for one in ("tea in the evening", "number 7", "city")]
            answers.append([[(hit.item.id, round(hit.score, 4)) for hit in one.hits] for one in asked])
    assert answers[0] == answers[1] == answers[2]
    assert all(answers[0])


KILLED = """
import itertools, sys, time
from engrain.transfer import copy as copying
from engrain.cli.main import root
from engrain.stores.postgres import PostgresStore
copying.PAGE_SIZE = 5
restore, pages = PostgresStore.restore, itertools.count()
# However late the kill comes, it is not over.
PostgresStore.restore = lambda self, rows: restore(self, rows) if next(pages) < 40 else time.sleep(600)
root(["copy", *sys.argv[1:]])
"""


@pytest.mark.slow
def test_a_copy_that_was_killed_goes_on_where_it_stopped(url: str, tmp_path: Path, clock: SetClock) -> None:
    source = str(tmp_path / "source.db")
    with closing(SqliteStore(source, clock=clock)) as store:
        fill_store(store, clock)
        add(store, *(fact(f"Number {n} of many.") for n in range(300)))
    with closing(PostgresStore(url, clock=clock)) as target:
        process = subprocess.Popen([sys.executable, "-c", KILLED, source, url])
        deadline = time.monotonic() + 180
        while len(target.dump("item", None, 100)) < 30 and time.monotonic() < deadline:
            time.sleep(0.01)
        process.kill()
        assert process.wait() < 0, "it was over before it was killed"
        there = len(dump_all(target))
    with closing(SqliteStore(source, clock=clock)) as store:
        whole = len(dump_all(store)) + 1  # with the record that the second was begun
    assert 30 <= there < whole
    told = json.loads(run("copy", source, url, "--json").stdout)
    assert told["written"] == whole - there
    assert json.loads(run("copy", source, url, "--json").stdout)["written"] == 0


def test_a_role_that_sees_one_scope_at_a_time_copies_nothing(url: str, tmp_path: Path, clock: SetClock) -> None:
    schema = url.partition("schema=")[2]
    with closing(PostgresStore(url, clock=clock)) as store:
        add(store, fact("Ana likes tea."))
        postgres().run(f"drop policy maintenance on {schema}.item", f"drop policy maintenance on {schema}.task")
        with pytest.raises(ConfigError, match=r"hides rows of item, task from this role.*BYPASSRLS"):
            store.dump("store", None, 1)
        assert [row.kind for row in dump_all(store, scope=ANA)] == ["store", "item"]
    result = run("copy", url, str(tmp_path / "copy.db"), code=1)
    assert "row-level security hides rows of item, task" in result.stderr
    above = url.replace("member@", "postgres@")
    assert json.loads(run("copy", above, str(tmp_path / "copy.db"), "--json").stdout)["rows"]["item"] == 1


def test_a_schema_that_is_not_there_is_not_copied_as_an_empty_memory(url: str, tmp_path: Path) -> None:
    assert "holds no memory in its schema" in run("copy", url, str(tmp_path / "copy.db"), code=1).stderr
    with psycopg.connect(postgres().url()) as connection:
        found = connection.execute("select 1 from pg_namespace where nspname = %s", (url.partition("schema=")[2],))
        assert not found.fetchall()


# What a TOML file describes


@pytest.fixture
def described(url: str, tmp_path: Path) -> str:
    """Items in Postgres, episodes and tasks in Redis."""
    server = redis_server()
    server.client.flushall()
    path = tmp_path / "described.toml"
    path.write_text(f'[stores]\ndefault = "{url}"\nepisodic = "{server.url}"\ntasks = "{server.url}"\n')
    return str(path)


def test_a_memory_with_redis_is_copied_there_and_back(
    described: str, url: str, tmp_path: Path, clock: SetClock
) -> None:
    first, last = str(tmp_path / "first.db"), str(tmp_path / "last.db")
    with closing(SqliteStore(first, clock=clock)) as store:
        fill_store(store, clock)
    assert run("copy", first, described).stdout.startswith("Copied: ")
    with closing(SqliteStore(first, clock=clock)) as store:
        wanted = dump_all(store)
    with closing(PostgresStore(url)) as items, closing(open_whole_store(described)) as whole:
        assert {row.kind for row in dump_all(items)}.isdisjoint({"episode", "task", "step", "event"})
        assert dump_all(whole) == wanted
    run("copy", described, last)
    with closing(SqliteStore(last, clock=clock)) as store:
        assert _but_audit(dump_all(store)) == _but_audit(wanted)
    assert json.loads(run("copy", described, last, "--json").stdout)["written"] == 0


def _but_audit(rows: list[Row]) -> list[Row]:
    return [row for row in rows if row.kind != "audit"]


def test_episodes_that_are_over_are_left_out(described: str, tmp_path: Path) -> None:
    first, now = str(tmp_path / "first.db"), system_clock()
    later, ago = now + timedelta(days=1), now - timedelta(days=2)
    with closing(SqliteStore(first)) as store:
        for id, expires, raw in (("over", ago, None), ("stays", later, RawOutput("The whole of it.", ago))):
            store.episodes.add(ANA, Episode(id, "monday", "turn", "", 0.5, ago, expires), raw)
    assert json.loads(run("copy", first, described, "--json").stdout)["rows"]["episode"] == 1
    with closing(open_whole_store(described)) as whole:
        (row,) = whole.dump("episode", None, 9)
    assert (row.key[1], row.values["raw"]) == ("stays", None)


def test_a_journal_is_not_copied_into_a_server_that_may_lose_it(tmp_path: Path) -> None:
    from redis_server import start_redis

    server = start_redis("--appendonly", "no")
    path = tmp_path / "loses.toml"
    path.write_text(f'[stores]\ndefault = "{tmp_path / "new.db"}"\ntasks = "{server.url}"\n')
    with closing(SqliteStore(tmp_path / "old.db")) as store:
        add(store, fact("Ana likes tea."))
    assert "durability=relaxed" in run("copy", str(tmp_path / "old.db"), str(path), code=1).stderr
    server.stop()


def test_a_copy_out_of_postgres_is_on_record_there_and_in_the_copy(url: str, tmp_path: Path) -> None:
    with Memory(url, user="ana", embedder=EMBEDDER) as memory:
        memory.remember("Ana lives in Lima.")
    run("copy", url, str(tmp_path / "copy.db"))
    for store in (url, str(tmp_path / "copy.db")):
        with Memory(store, user="ana", embedder=EMBEDDER) as memory:
            told = [(one.what, one.details) for one in memory.store.audit()]
            assert told == [("copy_begun", {"to": "file"}), ("copy", {"to": "file", "begun": 1})]
            assert memory.store.verify_audit()
    assert run("copy", url, str(tmp_path / "copy.db")).output.startswith("Copied")
    with Memory(url, user="ana", embedder=EMBEDDER) as memory:
        assert len(memory.store.audit()) == 2, "a copy that wrote nothing is none"


def test_a_role_that_may_only_read_copies_and_says_that_it_is_not_on_record(url: str, tmp_path: Path) -> None:
    with Memory(url, user="ana", embedder=EMBEDDER) as memory:
        memory.remember("Ana lives in Lima.")
    schema = url.rpartition("=")[2]
    postgres().run(
        "create role reader login nosuperuser bypassrls",
        f"grant usage on schema {schema} to reader",
        f"grant select on all tables in schema {schema} to reader",
        f"grant select on all sequences in schema {schema} to reader",
    )
    try:
        told = run("copy", url.replace("member@", "reader@"), str(tmp_path / "copy.db"))
        assert "not recorded in the audit log" in told.stderr
        assert "1 item;" in told.stdout
    finally:
        postgres().run("drop owned by reader", "drop role reader")
