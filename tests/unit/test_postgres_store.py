"""What is particular to the Postgres store: its feed, its clock, its schema, its sweeping, its address."""

from __future__ import annotations

import multiprocessing
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from engrain_conformance.clock import START, SetClock
from engrain_conformance.drafts import (
    ANA,
    BEN,
    add,
    fact,
    forget,
    get_item,
    list_items,
    message,
    texts,
    vector_query,
    without_vectors,
    word_query,
)
from engrain_conformance.embedder import HashEmbedder
from engrain_conformance.episodes import episode
from examples import for_each
from forked import fork_child, wait_for_child
from postgres_schemas import Pooler, fresh_schema, member, open_store
from servers import postgres

from engrain import Memory
from engrain.core.errors import (
    BackendMissing,
    ConfigError,
    NewerStore,
    NotADatabase,
    ReadOnlyStore,
    StoreError,
    StoreUnavailable,
)
from engrain.core.model.plans import Add, Applied, Plan
from engrain.core.model.sessions import RawOutput
from engrain.core.model.tasks import Claim
from engrain.stores.postgres import PostgresStore
from engrain.stores.postgres.connection import Database, read_url
from engrain.stores.postgres.migrate import latest_version
from engrain.stores.relational.dialect import Deferred, Transaction
from engrain.stores.relational.usage import Uses


@pytest.fixture
def schema() -> Iterator[str]:
    with fresh_schema() as name:
        yield name


@pytest.fixture
def store(schema: str) -> Iterator[PostgresStore]:
    opened = open_store(schema)
    yield opened
    opened.close()


# The feed


@contextmanager
def half_written(store: PostgresStore, slow: Plan) -> Iterator[None]:
    """The plan's transaction stands before its commit while the block runs, and is committed after it."""
    reached, go_on = threading.Event(), threading.Event()
    apply = store._apply

    def halting(tx: Transaction, plan: Plan, uses: Uses) -> Applied | Deferred[Applied]:
        applied = apply(tx, plan, uses)
        if plan is slow:
            tx.rows("find_now")  # all that was sent is done
            reached.set()
            assert go_on.wait(180)
        return applied

    store._apply = halting  # type: ignore[method-assign]
    with ThreadPoolExecutor(1) as pool:
        writer = pool.submit(store.apply, slow)
        try:
            assert reached.wait(180)
            yield
        finally:
            go_on.set()
            writer.result()


def test_an_outbox_never_passes_a_number_that_is_still_to_come(store: PostgresStore) -> None:
    """A transaction that took number 1 commits after number 2 could be read."""
    (first,) = add(store, fact("Before."))
    store.outbox("index", 9)
    with half_written(store, Plan(ANA, (Add(fact("Slow.")),))):
        (fast,) = add(store, fact("Fast."), scope=BEN)
        handed = store.outbox("index", 9)
        assert [one.item for one in handed] == [first]
        store.settle("index", handed[-1].seq)
        assert store.outbox("index", 9) == []
    after = [one.item for one in store.outbox("index", 9)]
    assert len(after) == 2
    assert after[-1] == fast  # in the order of their numbers
    assert get_item(store, after[0]).text == "Slow."


def test_changes_of_a_scope_never_pass_a_number_that_is_still_to_come(store: PostgresStore) -> None:
    seen = store.changes(ANA, 0, 99).seq
    with ThreadPoolExecutor(1) as pool:
        with half_written(store, Plan(ANA, (Add(fact("Slow.")),))):
            add(store, fact("Fast."), scope=BEN)
            next_ = pool.submit(add, store, fact("Next."))
            during = store.changes(ANA, seen, 99)
            assert during.changes == ()
            assert not next_.done()  # a writer of the same scope waits
        (after,) = next_.result()
    found = store.changes(ANA, during.seq, 99).changes
    assert [get_item(store, one.id).text for one in found] == ["Slow.", "Next."]
    assert found[-1].id == after


def test_the_outbox_says_nothing_twice_and_leaves_nothing_out_while_many_write(schema: str) -> None:
    store = open_store(schema, "&pool=9")
    scopes = [ANA, BEN, *(type(ANA)(user=f"u{n}") for n in range(4))]
    taken: list[str] = []
    done = threading.Event()

    def drain() -> None:
        while True:
            last = done.is_set()
            while entries := store.outbox("index", 7):
                taken.extend(one.item for one in entries)
                store.settle("index", entries[-1].seq)
            if last:
                return

    drainer = threading.Thread(target=drain)
    drainer.start()
    with ThreadPoolExecutor(6) as pool:
        written = list(pool.map(lambda n: add(store, fact(f"a{n}"), fact(f"b{n}"), scope=scopes[n % 6]), range(60)))
    done.set()
    drainer.join()
    assert sorted(taken) == sorted(id for two in written for id in two)
    store.close()


# The clock


def test_without_a_clock_the_server_s_is_used(store: PostgresStore) -> None:
    (id,) = add(store, fact("Now."))
    with member(store._database.address.schema) as connection:
        row = connection.execute("select clock_timestamp()").fetchone()
    assert row
    assert timedelta(0) <= row[0] - get_item(store, id).recorded_at < timedelta(seconds=30)


def test_times_never_run_backwards_across_scopes_and_machines(schema: str) -> None:
    clock, behind = SetClock(), SetClock(SetClock()() - timedelta(days=1))
    one, two = open_store(schema, clock=clock), open_store(schema, clock=behind)
    (first,) = add(one, fact("First."))
    (second,) = add(two, fact("Second."), scope=BEN)
    assert get_item(two, second, BEN).recorded_at == get_item(one, first).recorded_at == clock()
    assert texts(list_items(two, scope=BEN)) == ["Second."]
    one.close()
    two.close()


def test_writers_of_many_scopes_record_times_that_rise(schema: str) -> None:
    """The time is taken from one sequence, under a lock that is not held until the commit."""
    store = open_store(schema, "&pool=9")
    with half_written(store, Plan(ANA, (Add(fact("Slow.")),))):
        add(store, fact("Others need not wait."), scope=BEN)
    times = [
        get_item(store, id, scope).recorded_at
        for scope in (ANA, BEN)
        for id in [one.id for one in list_items(store, scope)]
    ]
    assert times == sorted(times)
    store.close()


def test_a_lease_ends_by_the_server_s_clock_though_recorded_times_stand_still(store: PostgresStore) -> None:
    """A clock that was once ahead stops recorded times; leases must not stop with them."""
    with member(store._database.address.schema) as connection:
        connection.execute("select tick(%s)", (int(datetime(2090, 1, 1, tzinfo=UTC).timestamp() * 1e6),))
    lease = store.journal.claim(Claim(ANA, "task", "one", seconds=0.2))
    assert lease.until.year == 2090
    threading.Event().wait(0.3)
    assert store.journal.claim(Claim(ANA, "task", "two")).epoch == 2


# The schema


def _open(url: str, ready: object, answers: object) -> None:
    ready.wait(180)  # type: ignore[attr-defined]
    try:
        PostgresStore(url).close()
        answers.put("opened")  # type: ignore[attr-defined]
    except BaseException as exc:  # noqa: BLE001
        answers.put(repr(exc))  # type: ignore[attr-defined]


def test_several_that_start_at_once_make_one_schema(schema: str) -> None:
    fork = multiprocessing.get_context("fork")
    ready, answers = fork.Barrier(3), fork.Queue()
    url = f"{postgres().url()}?schema={schema}"
    started = [fork.Process(target=_open, args=(url, ready, answers)) for _ in range(3)]
    for one in started:
        one.start()
    assert [answers.get(timeout=180) for _ in started] == ["opened"] * 3
    for one in started:
        one.join(180)
    with member(schema) as connection:
        keys = connection.execute("select count(*) from meta where name = 'key'").fetchone()
    assert keys == (1,)


def test_only_our_own_schema_is_made(schema: str) -> None:
    quoted = f'{schema} "quoted" %'
    PostgresStore(f"{postgres().url()}?schema={schema}%20%22quoted%22%20%25").close()
    with psycopg.connect(postgres().url(), autocommit=True) as connection:
        made = connection.execute("select nspname from pg_namespace where nspname like %s", (f"{schema}%",)).fetchall()
    assert made == [(quoted,)]
    postgres().run(f'drop schema "{schema} ""quoted"" %" cascade')


def test_two_schemas_of_one_database_are_two_stores(store: PostgresStore) -> None:
    with fresh_schema() as other:
        second = open_store(other)
        add(store, fact("Here."))
        assert list_items(second) == []
        assert store.dialect.key != second.dialect.key
        second.close()


def test_a_newer_schema_is_refused(store: PostgresStore, schema: str) -> None:
    with member(schema) as connection:
        connection.execute("update meta set value = %s where name = 'schema'", (str(latest_version() + 1),))
    with pytest.raises(NewerStore, match="pip install -U engrain"):
        open_store(schema)


def test_a_schema_of_another_program_is_left_alone(schema: str) -> None:
    with psycopg.connect(postgres().url(), autocommit=True) as connection:
        connection.execute(f"create schema {schema}".encode())
        connection.execute(f"create table {schema}.item (x int)".encode())
        with pytest.raises(NotADatabase, match="another program"):
            open_store(schema)
        assert connection.execute(f"select count(*) from {schema}.item".encode()).fetchone() == (0,)


def test_a_store_that_is_not_there_yet_cannot_be_read_only(schema: str) -> None:
    with pytest.raises(StoreError, match="read_only"):
        open_store(schema, read_only=True)


def test_a_read_only_store_takes_no_write(store: PostgresStore, schema: str) -> None:
    (id,) = add(store, fact("Read me."))
    reader = open_store(schema, read_only=True)
    assert texts(list_items(reader)) == ["Read me."]
    reader.touch(ANA, [id])
    for write in (lambda: add(reader, fact("No.")), lambda: reader.settle("t", 1), reader.rebuild):
        with pytest.raises(ReadOnlyStore):
            write()
    reader.close()


# Sweeping


def test_what_a_reader_may_still_see_is_swept_out_later(store: PostgresStore, schema: str) -> None:
    (id,) = add(store, fact("Secret."))
    with psycopg.connect(postgres().url()) as reader:
        reader.execute("set transaction isolation level repeatable read")
        reader.execute(f"select count(*) from {schema}.item".encode())
        forget(store, id)
        assert not store.purge()
        assert store.status().purge_pending
        assert [one.state for one in store.check() if one.point == "forgotten"] == ["warn"]
    assert store.purge()
    assert not store.status().purge_pending


def test_no_row_dead_or_alive_keeps_what_was_forgotten(store: PostgresStore, schema: str) -> None:
    secret = "xylophone-quartz-zanzibar"
    (id, _) = add(store, fact(f"The password is {secret}.", slot=secret, metadata={"k": secret}), fact("Kept."))
    store.episodes.add(ANA, replace(episode("over"), text="", item=id), RawOutput(secret, START + timedelta(days=1)))
    forget(store, id)
    assert secret not in everything(schema)
    assert store.purge()
    dead = (
        "select coalesce(sum(n_dead_tup), 0)::int from pg_stat_all_tables where schemaname = %s and relname = any(%s)"
    )
    with psycopg.connect(postgres().url("postgres")) as connection:
        assert connection.execute(dead, (schema, ["item", "word", "embedding", "episode"])).fetchone() == (0,)


def everything(schema: str) -> str:
    """Every row of every table, as text."""
    tables = "select tablename from pg_tables where schemaname = %s"
    with psycopg.connect(postgres().url("postgres")) as connection:
        names = [name for (name,) in connection.execute(tables, (schema,)).fetchall()]
        found = [connection.execute(f"select t::text from {schema}.{name} as t".encode()).fetchall() for name in names]
    return repr(found)


# Care


def test_a_missing_index_row_is_found_and_mended(store: PostgresStore, schema: str) -> None:
    add(store, fact("Some tea."))
    with member(schema, ANA) as connection:
        connection.execute("delete from word")
        connection.execute("update embedded set count = 7")
    (found,) = [one for one in store.check() if one.state == "fail"]
    assert found.why == "1 items without words, 1 scopes whose vectors are miscounted"
    assert "rebuild" in found.fix
    assert store.rebuild() == 1
    assert not [one for one in store.check() if one.state == "fail"]


def test_uses_are_written_when_many_wait(schema: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engrain.stores.relational.usage._MOST_WAITING", 3)
    store, other = open_store(schema), open_store(schema)
    ids = add(store, *(without_vectors(f"{n}") for n in range(5)))
    store.touch(ANA, ids[:2])
    assert get_item(other, ids[0]).access_count == 0
    store.touch(ANA, ids)
    assert [get_item(other, id).access_count for id in ids] == [2, 2, 1, 1, 1]
    assert [get_item(store, id).access_count for id in ids] == [2, 2, 1, 1, 1]
    store.close()
    other.close()


def test_maintenance_sweeps_out_what_a_reader_held_when_it_was_forgotten(schema: str) -> None:
    with Memory(f"{postgres().url()}?schema={schema}", user="ana", embedder=HashEmbedder()) as memory:
        id = memory.remember("Secret.")
        with member(schema) as reader, reader.transaction():
            reader.execute("set transaction isolation level repeatable read")
            reader.execute("select count(*) from item")
            assert memory.forget(id).pending
        assert memory.store.status(memory.scope).store["purge_pending"]
        memory.store.maintain(memory.scope)
        assert not memory.store.status(memory.scope).store["purge_pending"]


def test_what_was_removed_and_brought_back_is_scored_by_another_process_too(schema: str) -> None:
    store, other = open_store(schema), open_store(schema)
    (id,) = add(other, fact("Some tea."))
    kept = other.dump("item", None, 10)
    before = store.counts(word_query("tea"), [id]), store.cosines(vector_query("tea"), [id])
    forget(other, id)
    assert store.counts(word_query("tea"), [id]).hits == []
    other.restore(kept)
    assert (store.counts(word_query("tea"), [id]), store.cosines(vector_query("tea"), [id])) == before
    store.close()
    other.close()


def test_while_a_long_sweep_is_at_work_nobody_stands_in_line_behind_it(
    schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engrain.stores.postgres.health._LONG_VACUUM", 0.2)
    store = open_store(schema, "&timeout=120")
    (id,) = add(store, fact("Secret."))
    forget(store, id)
    sweeps = "select count(*) from pg_stat_activity where query like %s and state = 'active'"
    with ThreadPoolExecutor(1) as pool, member(schema) as other, member(schema) as watch:
        with other.transaction():
            other.execute("lock table item in share update exclusive mode")
            first = pool.submit(store.purge)
            while watch.execute(sweeps, (f'vacuum%"{schema}"%',)).fetchone() != (1,):
                time.sleep(0.05)
            time.sleep(0.3)
            began = time.monotonic()
            assert not store.purge()
            assert time.monotonic() - began < 60
            assert watch.execute(sweeps, (f'vacuum%"{schema}"%',)).fetchone() == (1,)
        assert first.result(180)
    assert store.purge()
    store.close()


# Processes and poolers


def test_a_fork_s_child_has_connections_of_its_own(store: PostgresStore) -> None:
    add(store, fact("Before."))
    child = fork_child(lambda: add(store, fact("By the child.")))
    for n in range(20):
        add(store, fact(f"By the parent {n}."))
    assert wait_for_child(child) == 0
    assert "By the child." in texts(list_items(store))
    assert len(list_items(store)) == 22


def test_prepared_statements_can_be_left_out(schema: str) -> None:
    store = open_store(schema, "&prepare=off&pool=1")
    for n in range(12):
        add(store, message(f"{n}"))
    count = b"select count(*) from pg_prepared_statements"
    left = store._database.alone(lambda connection: connection.execute(count).fetchall())
    assert left == [(0,)]
    store.close()


def test_a_pooler_may_give_every_statement_of_the_opening_to_another_session(
    schema: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with fresh_schema() as another:
        open_store(another).close()
        first = open_store(schema)
        with Pooler(Database(read_url(postgres().url())).parameters()) as pooler:
            monkeypatch.setattr(Database, "connect", lambda self, patience=0.0: pooler.connect())
            for name in (schema, another) * 3:
                opened = open_store(name, "&prepare=off")
                assert (opened.dialect.key == first.dialect.key) is (name == schema)
                opened.close()
            assert pooler.left() == set()
        first.close()


# The address


def test_a_password_is_shown_nowhere(schema: str) -> None:
    address = read_url("postgresql://ana:s3cret@db.example:5433/memory?sslmode=require&password=s3cret2&schema=mine")
    assert "s3cret" not in f"{address} {address.shown}"
    assert address.schema == "mine"
    assert "sslmode=require" in address.url
    assert "schema" not in address.url
    with pytest.raises(StoreUnavailable) as caught:
        PostgresStore("postgresql://ana:s3cret@127.0.0.1:1/db?timeout=2")
    assert "s3cret" not in str(caught.value)
    assert "127.0.0.1:1" in str(caught.value)


def test_options_with_a_space_reach_the_server(schema: str) -> None:
    store = open_store(schema, "&options=-c%20work_mem%3D7MB")
    assert store._database.alone(lambda connection: connection.execute(b"show work_mem").fetchall()) == [("7MB",)]
    store.close()


@for_each("wrong", ["pool=0", "pool=many", "timeout=-1", "timeout=x", "prepare=perhaps", "schema=", "nosuch=1"])
def test_a_parameter_that_cannot_be_used_is_named(wrong: str) -> None:
    with pytest.raises(ConfigError, match=wrong.partition("=")[0]):
        PostgresStore(f"{postgres().url()}?{wrong}")


def test_a_wrong_role_or_database_is_a_matter_of_settings() -> None:
    for url in (postgres().url("nobody_here"), postgres().url().replace("/postgres", "/nothing_here")):
        with pytest.raises(ConfigError, match="refused"):
            PostgresStore(f"{url}?timeout=5")


def test_a_missing_driver_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(BackendMissing, match=r'pip install "engrain\[postgres\]"'):
        Memory("postgresql://localhost/db", embedder=HashEmbedder())


def test_the_whole_memory_works_on_a_url(schema: str) -> None:
    with Memory(f"{postgres().url()}?schema={schema}", user="ana", embedder=HashEmbedder()) as memory:
        memory.remember("Ana prefers Python over JavaScript.", importance=0.8)
        memory.remember("Lima", slot="user.city")
        memory.remember("Quito", slot="user.city")
        assert "Python" in str(memory.recall("Does Ana prefer Python or JavaScript?"))
        assert memory.slots.get("user.city").text == "Quito"  # type: ignore[union-attr]
        with memory.task("order-42", goal="ship it") as run:
            assert run.step("plan", lambda: 3) == 3
            run.remember_step("note", "Order 42 was planned.")
        assert memory.forget(memory.list()[0].id)
