"""A Postgres server that dies, hangs or loses a reply costs no acknowledged write, doubles none, holds nobody up."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime
from itertools import count
from typing import Any

import psycopg
import pytest
from engrain_conformance.drafts import ANA, BEN, add, fact, list_items, texts, vector_query, word_query
from free_ports import free_port
from proxy import Direction, Fate, Judge, Proxy
from psycopg_pool.pool import WaitingClient
from schemas import empty_schema
from servers import Postgres, postgres, start_postgres

from engrain.core.errors import OutcomeUnknown, StoreBusy, StoreError, StoreUnavailable
from engrain.core.model.plans import Add, Plan
from engrain.stores.postgres import PostgresStore

_numbers = count()
# A dated text is never merged with another: only the request id keeps it from being written twice.
DATED = datetime(2020, 1, 1, tzinfo=UTC)


@pytest.fixture
def schema() -> Iterator[str]:
    with empty_schema() as name:
        yield name


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    made = Proxy(postgres().port)
    yield made
    made.close()


@pytest.fixture
def timeout() -> float:
    """In seconds; those who wait it out set a short one."""
    return 60


@pytest.fixture
def store(proxy: Proxy, schema: str, timeout: float, monkeypatch: pytest.MonkeyPatch) -> Iterator[PostgresStore]:
    """Behind the proxy. Without prepared statements a COMMIT can be seen on its way."""
    monkeypatch.setattr("engrain.stores.postgres.connection._GRACE_SECONDS", 1.0)
    url = f"{postgres().url(port=proxy.port)}?schema={schema}&timeout={timeout:g}&prepare=off&pool=3"
    opened = PostgresStore(url)
    yield opened
    proxy.judge = lambda *_: "pass"
    opened.close()


SOON = pytest.mark.parametrize("timeout", [2.0])


@pytest.fixture
def beside(store: PostgresStore, schema: str) -> Iterator[PostgresStore]:
    """The same store, not through the proxy."""
    opened = PostgresStore(f"{postgres().url()}?schema={schema}")
    yield opened
    opened.close()


def at_commit(fate: Fate, direction: Direction) -> Judge:
    """Strike the first commit itself, or its reply."""
    seen, struck = threading.Event(), threading.Event()

    def judge(where: Direction, data: bytes) -> Fate:
        if where == "to server" and b"commit\x00" in data:
            seen.set()
        if where == direction and seen.is_set() and not struck.is_set():
            struck.set()
            return fate
        return "pass"

    return judge


@SOON
@pytest.mark.parametrize("fate", ["cut", "swallow"])
@pytest.mark.parametrize("direction", ["to server", "to client"])
def test_a_lost_commit_is_told_and_repeating_it_is_safe(
    store: PostgresStore, beside: PostgresStore, proxy: Proxy, fate: Fate, direction: Direction
) -> None:
    add(store, fact("The model is known."), scope=BEN)
    plan = Plan(ANA, (Add(fact("Once.", occurred_at=DATED)),), request_id="r")
    proxy.judge = at_commit(fate, direction)
    with pytest.raises(OutcomeUnknown, match="request_id"):
        store.apply(plan)
    kept = texts(list_items(beside))
    assert kept == ([] if direction == "to server" else ["Once."])
    assert store.apply(plan).repeated is bool(kept)
    assert texts(list_items(beside)) == ["Once."]


def test_what_may_be_done_twice_is_done_again(store: PostgresStore, beside: PostgresStore, proxy: Proxy) -> None:
    proxy.judge = at_commit("cut", "to client")
    store.settle("index", 7)
    assert beside.dialect.ask(None, "find_outbox_reader", name="index") == [(7,)]


def test_a_connection_cut_before_the_commit_is_tried_again(
    store: PostgresStore, beside: PostgresStore, proxy: Proxy
) -> None:
    left = [2]

    def judge(where: Direction, data: bytes) -> Fate:
        if where == "to server" and b"insert into item" in data and left[0]:
            left[0] -= 1
            return "cut"
        return "pass"

    proxy.judge = judge
    assert store.apply(Plan(ANA, (Add(fact("Kept.", occurred_at=DATED)),))).outcomes[0].status == "added"
    assert left == [0]
    assert texts(list_items(beside)) == ["Kept."]


def test_reads_go_on_after_every_connection_was_cut(store: PostgresStore, proxy: Proxy) -> None:
    store.apply(Plan(ANA, (Add(fact("Some tea.")),)))
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda _: list_items(store), range(9)))
    proxy.cut()
    assert texts(list_items(store)) == ["Some tea."]
    proxy.cut()
    assert len(store.best(word_query("tea")).hits) == len(store.nearest(vector_query("tea")).ids) == 1


@SOON
def test_a_server_that_takes_all_and_answers_nothing_is_given_up(store: PostgresStore, proxy: Proxy) -> None:
    proxy.judge = lambda where, _: "swallow" if where == "to server" else "pass"
    with pytest.raises(StoreUnavailable, match="did not answer"):
        list_items(store)
    proxy.judge = lambda *_: "pass"
    proxy.cut()
    assert list_items(store) == []


@SOON
@pytest.mark.parametrize("first", ["cut", "swallow"])
def test_connections_that_died_in_silence_cost_one_time_out_not_one_each(
    store: PostgresStore, proxy: Proxy, first: Fate
) -> None:
    together = threading.Barrier(3)
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda _: store._database.alone(lambda _: together.wait(180)), range(3)))
    fates = iter([first])
    met: list[Fate] = []

    def buried(_: Direction, data: bytes) -> Fate:
        fate = next(fates, "swallow")
        if data != b"X\0\0\0\4":  # which takes leave, and waits for nothing
            met.append(fate)
        return fate

    proxy.bury(buried)
    if first == "swallow":
        with pytest.raises(StoreUnavailable, match="did not answer"):
            list_items(store)
    assert list_items(store) == []
    assert met == [first]


def test_a_slow_network_is_no_error(store: PostgresStore, proxy: Proxy) -> None:
    proxy.delay = 0.02
    store.apply(Plan(ANA, (Add(fact("Slow but kept.")),)))
    assert texts(list_items(store)) == ["Slow but kept."]


def test_a_server_that_is_not_there_is_named(schema: str) -> None:
    port = free_port()
    began = time.monotonic()
    with pytest.raises(StoreUnavailable, match=rf"127\.0\.0\.1:{port}\S* \d+ times in \d+\.\d s") as caught:
        PostgresStore(f"postgresql://ana:s3cret@127.0.0.1:{port}/db?patience=1&schema={schema}")
    assert 0.5 < time.monotonic() - began < 60
    assert "s3cret" not in str(caught.value)


def test_an_interrupt_while_waiting_for_a_connection_costs_none(
    store: PostgresStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupt(self: WaitingClient[Any], timeout: float) -> None:
        raise KeyboardInterrupt

    store._database._give_up(store._database.get_pool())  # a new pool has none yet, so that each call waits
    with monkeypatch.context() as patched:
        patched.setattr(WaitingClient, "wait", interrupt)
        for _ in range(3):
            with pytest.raises(KeyboardInterrupt):
                list_items(store)
    together = threading.Barrier(3)
    with ThreadPoolExecutor(3) as pool:
        list(pool.map(lambda _: store._database.alone(lambda _: together.wait(60)), range(3)))


@SOON
def test_a_full_pool_is_told_within_the_time_out(store: PostgresStore) -> None:
    release, held = threading.Event(), threading.Barrier(4)

    def hold(_: int) -> None:
        store._database.alone(lambda connection: (held.wait(180), release.wait(180)))

    with ThreadPoolExecutor(3) as pool:
        list_ = [pool.submit(hold, n) for n in range(3)]
        held.wait(180)
        began = time.monotonic()
        with pytest.raises(StoreBusy, match="all 3 connections"):
            list_items(store)
        assert 1.5 < time.monotonic() - began < 60
        release.set()
        for one in list_:
            one.result()
    assert list_items(store) == []


@SOON
def test_a_writer_that_waits_too_long_is_told(store: PostgresStore, schema: str) -> None:
    store.apply(Plan(ANA, (Add(fact("First.")),)))
    with psycopg.connect(postgres().url("postgres")) as other:
        other.execute(f"select 1 from {schema}.scope for update".encode())
        began = time.monotonic()
        with pytest.raises(StoreBusy):
            store.apply(Plan(ANA, (Add(fact("Second.")),)))
        assert 1.5 < time.monotonic() - began < 60
        assert store.apply(Plan(BEN, (Add(fact("Another scope's.")),))).outcomes[0].status == "added"
    assert store.apply(Plan(ANA, (Add(fact("Second.")),))).outcomes[0].status == "added"


@pytest.fixture
def mortal() -> Iterator[Postgres]:
    """A server of the test's own, to be killed."""
    server = start_postgres()
    yield server
    server.stop()


@pytest.mark.slow
def test_a_server_that_is_still_starting_is_waited_for(mortal: Postgres) -> None:
    mortal.kill()
    with ThreadPoolExecutor(1) as pool:
        opening = pool.submit(PostgresStore, f"{mortal.url()}?patience=180")
        time.sleep(1)
        assert not opening.done()
        mortal.start()
        with closing(opening.result(180)) as opened:
            assert list_items(opened) == []


def test_a_server_killed_in_the_middle_of_writes_loses_and_doubles_nothing(mortal: Postgres) -> None:
    store = PostgresStore(f"{mortal.url()}?timeout=60&pool=6")
    acknowledged: list[str] = []
    stop = threading.Event()

    def write(worker: int) -> None:
        for n in count():
            if stop.is_set():
                return
            text = f"{worker} wrote {n}."
            plan = Plan(ANA if worker % 2 else BEN, (Add(fact(text, occurred_at=DATED)),), request_id=text)
            while not stop.is_set():
                try:
                    store.apply(plan)
                except StoreError:
                    continue
                acknowledged.append(text)
                break

    with ThreadPoolExecutor(4) as pool:
        writers = [pool.submit(write, n) for n in range(4)]
        for _ in range(3):
            _until_more(acknowledged)
            mortal.kill()
            mortal.start()
        _until_more(acknowledged)
        stop.set()
        for one in writers:
            one.result()
    kept = [*texts(list_items(store)), *texts(list_items(store, scope=BEN))]
    assert set(acknowledged) <= set(kept)
    assert len(kept) == len(set(kept))
    assert not [one for one in store.check() if one.state == "fail"]
    store.close()


def _until_more(acknowledged: list[str]) -> None:
    """The writers are in the middle of it."""
    before, ends = len(acknowledged), time.monotonic() + 180
    while len(acknowledged) < before + 20:
        assert time.monotonic() < ends, "nobody writes"
        time.sleep(0.005)
