"""A Redis server that dies, hangs or loses a reply costs no acknowledged write, doubles none, holds nobody up."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from engrain_conformance.drafts import ANA
from free_ports import free_port
from proxy import Direction, Fate, Judge, Proxy
from redis_server import Server, redis_cluster, redis_server, start_redis

from engrain.core.errors import (
    BackendUnavailableWarning,
    LeaseLost,
    OutcomeUnknown,
    StoreClosed,
    StoreUnavailable,
    TaskClaimed,
)
from engrain.core.identity import Scope
from engrain.core.model.sessions import Episode
from engrain.core.model.tasks import Claim, StepEnd, StepStart, TaskEnd
from engrain.stores.redis import RedisStore, connection

NOW = datetime.now(UTC)


@pytest.fixture
def server() -> Server:
    redis_server().client.flushall()
    return redis_server()


@pytest.fixture
def proxy(server: Server) -> Iterator[Proxy]:
    made = Proxy(server.port)
    yield made
    made.close()


@pytest.fixture
def timeout() -> float:
    """In seconds, of which a silent try takes a third; those who wait it out set a short one."""
    return 60


@pytest.fixture
def store(proxy: Proxy, timeout: float) -> Iterator[RedisStore]:
    """Behind the proxy."""
    opened = RedisStore(f"redis://127.0.0.1:{proxy.port}?timeout={timeout:g}")
    yield opened
    opened.close()


SOON = pytest.mark.parametrize("timeout", [1.8])


@pytest.fixture
def beside(server: Server) -> Iterator[RedisStore]:
    """The same store, not through the proxy."""
    opened = RedisStore(server.url)
    yield opened
    opened.close()


def episode(id: str, **values: Any) -> Episode:
    given = {"kind": "turn", "text": "", "importance": 0.5, "expires_at": NOW + timedelta(days=1), **values}
    return Episode(id, "s", happened_at=NOW, **given)


def strike(fate: Fate, direction: Direction) -> Judge:
    """Strike the next script, or its reply; what comes after passes."""
    seen, struck = threading.Event(), threading.Event()

    def judge(where: Direction, data: bytes) -> Fate:
        if where == "to server" and b"EVALSHA" in data:
            seen.set()
        if where == direction and seen.is_set() and not struck.is_set():
            struck.set()
            return fate
        return "pass"

    return judge


def calls(store: RedisStore) -> dict[str, Callable[[], Any]]:
    """Every write, as it looks to its caller; each begins from a state that `prepared` has made."""
    journal, episodes = store.journal, store.episodes
    held = journal.claim(Claim(ANA, "held", "me"))
    journal.begin(held, StepStart("unclear"))
    journal.finish(held, StepEnd("unclear", 0, "ambiguous"))
    ended = journal.claim(Claim(ANA, "ended", "me", deadline=NOW - timedelta(hours=1)))
    journal.end(ended, TaskEnd("done"))
    journal.claim(Claim(ANA, "late", "me", deadline=NOW - timedelta(hours=1)))
    for one in (episode("a", key="k"), episode("b", expires_at=NOW + timedelta(hours=1)), episode("c")):
        episodes.add(ANA, one)
    return {
        "claim": lambda: journal.claim(Claim(ANA, "new", "me")).epoch,
        "extend": lambda: journal.extend(held, 60).epoch,
        "begin": lambda: journal.begin(held, StepStart("one", kind="effect")).status,
        "finish": lambda: journal.finish(held, StepEnd("unclear", result="1")).status,
        "record": lambda: journal.record(held, StepStart("one"), StepEnd("one", result="1")).result,
        "keep": lambda: journal.keep(held, "{}"),
        "end": lambda: journal.end(held, TaskEnd("waiting")).status,
        "overrule": lambda: journal.overrule(ANA, "held", TaskEnd("cancelled")).epoch,
        "resolve": lambda: journal.resolve(ANA, "held", StepEnd("unclear", 0, "skipped")).status,
        "signal": lambda: journal.signal(ANA, "held", "paid", "1"),
        "expire tasks": lambda: [one.task for one in journal.expire(NOW)],
        "prune": lambda: journal.prune(datetime.now(UTC) + timedelta(hours=1)),
        "add": lambda: episodes.add(ANA, episode("d", key="k")).count,
        "remove": lambda: episodes.remove(ANA, ["a", "c", "none"]),
        "trim": lambda: episodes.trim(ANA, "s", 1),
        "expire": lambda: episodes.expire(NOW + timedelta(hours=2)),
    }


ANSWERS = {
    "claim": 1, "extend": 1, "begin": "intent", "finish": "done", "record": "1", "keep": None, "end": "waiting",
    "overrule": 2, "resolve": "skipped", "signal": True, "expire tasks": ["late"], "prune": 1,
    "add": 2, "remove": 2, "trim": 2, "expire": 1,
}  # fmt: skip


@pytest.mark.parametrize("direction", ["to server", "to client"])
@pytest.mark.parametrize("name", ANSWERS)
def test_a_write_whose_connection_is_cut_is_done_once_and_answered(
    store: RedisStore, proxy: Proxy, name: str, direction: Direction
) -> None:
    call = calls(store)[name]
    proxy.judge = strike("cut", direction)
    assert call() == ANSWERS[name]


@SOON
@pytest.mark.parametrize("name", ["claim", "end", "signal", "add", "remove"])
def test_a_write_whose_reply_never_comes_is_done_once_and_answered(store: RedisStore, proxy: Proxy, name: str) -> None:
    call = calls(store)[name]
    proxy.judge = strike("swallow", "to client")
    assert call() == ANSWERS[name]


def test_a_lost_reply_counts_nothing_twice(store: RedisStore, beside: RedisStore, proxy: Proxy) -> None:
    for n in range(20):
        proxy.judge = strike("cut", "to client" if n % 2 else "to server")
        store.episodes.add(ANA, episode(str(n), key="k"))
    assert [one.count for one in beside.episodes.recent(ANA, None, 9, NOW)] == [20]


@SOON
def test_a_server_that_takes_all_and_answers_nothing_is_given_up(
    store: RedisStore, beside: RedisStore, proxy: Proxy
) -> None:
    lease = store.journal.claim(Claim(ANA, "order", "me"))
    store.journal.record(lease, StepStart("zero"), StepEnd("zero"))  # the server knows the script now
    proxy.judge = lambda where, _: "swallow" if where == "to client" else "pass"
    with pytest.raises(OutcomeUnknown, match="may or may not"):
        store.journal.record(lease, StepStart("one"), StepEnd("one", result="1"))
    with pytest.raises(StoreUnavailable, match="did not answer in"):
        store.journal.steps(ANA, "order")
    # It was done, and it may be repeated.
    assert [one.name for one in beside.journal.steps(ANA, "order")] == ["zero", "one"]
    proxy.judge = lambda *_: "pass"
    proxy.cut()
    assert store.journal.record(lease, StepStart("one"), StepEnd("one", result="1")).result == "1"
    assert len(beside.journal.steps(ANA, "order")) == 2


@SOON
def test_a_slow_server_is_waited_for_but_not_longer_than_said(store: RedisStore, proxy: Proxy) -> None:
    proxy.delay = 0.1
    lease = store.journal.claim(Claim(ANA, "order", "me"))
    assert lease.epoch == 1
    proxy.delay = 600.0
    began = time.monotonic()
    with pytest.raises(OutcomeUnknown):
        store.journal.keep(lease, "where it stands")
    with pytest.raises(StoreUnavailable):
        store.journal.claim(Claim(ANA, "other", "me"))  # which first notes the scope: nothing can have happened
    assert time.monotonic() - began < 120


def test_a_server_that_is_not_there_is_named(store: RedisStore) -> None:
    nobody = free_port()
    for cluster in ("?patience=0.5", "?cluster=on&timeout=1&patience=0.5"):
        with pytest.warns(BackendUnavailableWarning, match=f"127.0.0.1:{nobody}.*one try") as told:
            away = RedisStore(f"redis://:secret@127.0.0.1:{nobody}{cluster}")
        with pytest.raises(StoreUnavailable, match=rf"127.0.0.1:{nobody}.* \d+ tries within \d+\.\d s"):
            _ = away.journal
        assert "secret" not in str(told[0].message)
        assert [one.state for one in away.check()] == ["fail"]
    store.close()
    store.close()
    with pytest.raises(StoreClosed):
        store.episodes.recent(ANA, None, 1, NOW)


@pytest.mark.filterwarnings("ignore::engrain.core.errors.BackendUnavailableWarning")
def test_a_journal_waits_for_a_server_that_is_still_starting() -> None:
    server = start_redis()
    server.kill()
    with ThreadPoolExecutor(1) as pool:
        opening = pool.submit(lambda: RedisStore(f"{server.url}?patience=180").journal)
        time.sleep(1)
        assert not opening.done()
        server.start()
        assert opening.result(180).task(ANA, "none") is None
    server.stop()


def test_a_cluster_that_comes_up_later_is_found_by_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "RETRY_PAUSE_SECONDS", 0.0)
    one = redis_cluster()[0]
    through = Proxy(free_port())  # nobody is there yet
    with pytest.warns(BackendUnavailableWarning):
        store = RedisStore(f"redis://127.0.0.1:{through.port}?cluster=on&timeout=10")
    through._server = one.port
    assert store.episodes.add(ANA, episode("late")).id == "late"
    assert store.last_error is None
    store.close()
    through.close()


@SOON
def test_episodes_of_a_silent_server_are_given_up_once_and_then_let_be(
    store: RedisStore, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection, "RETRY_PAUSE_SECONDS", 600.0)
    proxy.judge = lambda *_: "swallow"
    with pytest.raises((StoreUnavailable, OutcomeUnknown)):
        store.episodes.recent(ANA, None, 9, NOW)
    assert "did not answer" in (store.last_error or "")
    tries: list[int] = []
    connected = store._link._get_client
    monkeypatch.setattr(store._link, "_get_client", lambda: tries.append(1) or connected())
    for _ in range(20):
        with pytest.raises((StoreUnavailable, OutcomeUnknown)):
            store.episodes.recent(ANA, None, 9, NOW)
    assert tries == []
    monkeypatch.setattr(store._link, "_again", 0.0)
    with pytest.raises(StoreUnavailable, match="one try"):
        store.episodes.recent(ANA, None, 9, NOW)
    assert tries == [1]
    proxy.judge = lambda *_: "pass"
    proxy.cut()
    monkeypatch.setattr(store._link, "_again", 0.0)
    assert store.episodes.recent(ANA, None, 9, NOW) == []
    assert store.last_error is None


def test_a_full_pool_is_waited_for_and_then_told(server: Server) -> None:
    through = Proxy(server.port)
    store = RedisStore(f"redis://127.0.0.1:{through.port}?timeout=3&pool=1")
    store.journal.claim(Claim(ANA, "order", "me"))
    with ThreadPoolExecutor(8) as pool:
        assert all(pool.map(lambda n: store.journal.task(ANA, "order") is not None, range(32)))
    through.judge = lambda *_: "swallow"
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda n: _error(lambda: store.journal.task(ANA, "order")), range(4)))
    assert found == [StoreUnavailable] * 4
    store.close()
    through.close()


def _error(call: Callable[[], Any]) -> type[BaseException] | None:
    try:
        call()
    except StoreUnavailable as exc:
        return type(exc)
    return None


def test_a_server_killed_in_the_middle_of_writes_loses_nothing_that_it_acknowledged() -> None:
    server = start_redis()
    store = RedisStore(f"{server.url}?timeout=60")
    kills, stop = 3, threading.Event()
    told: list[tuple[str, int]] = []

    def work(n: int) -> None:
        lease = store.journal.claim(Claim(ANA, f"task {n}", "me", 600))
        step = 0
        while not stop.is_set():
            store.journal.record(lease, StepStart(str(step)), StepEnd(str(step), result=str(step)))
            store.episodes.add(ANA, episode(f"{n}/{step}", key=f"k{n}"))
            told.append((f"task {n}", step))
            step += 1

    with ThreadPoolExecutor(4) as pool:
        workers = [pool.submit(work, n) for n in range(4)]
        for _ in range(kills):
            before = len(told)
            _until(lambda before=before: len(told) > before + 40)  # type: ignore[misc]
            server.kill()
            server.start()
        stop.set()
        for one in workers:
            one.result(180)
    counts = {one.key: one.count for one in store.episodes.recent(ANA, None, 99, NOW)}
    for n in range(4):
        acknowledged = [step for task, step in told if task == f"task {n}"]
        steps = store.journal.steps(ANA, f"task {n}")
        assert [int(one.name) for one in steps] == acknowledged == list(range(len(acknowledged)))
        assert all(one.result == one.name for one in steps)
        assert counts[f"k{n}"] == len(acknowledged), "an episode was lost or counted twice"
    store.close()
    server.stop()


def test_a_server_of_a_cluster_that_is_away_for_a_while_loses_nothing() -> None:
    servers = redis_cluster()
    for one in servers:
        one.client.flushall()
    store = RedisStore(f"{servers[0].url}?cluster=on&timeout=60")
    scopes = [Scope(user=str(n)) for n in range(12)]
    told = dict.fromkeys(scopes, 0)
    stop = threading.Event()

    def work(scope: Scope) -> None:
        while not stop.is_set():
            store.episodes.add(scope, episode(str(told[scope]), key="k"))
            told[scope] += 1

    with ThreadPoolExecutor(len(scopes)) as pool:
        workers = [pool.submit(work, scope) for scope in scopes]
        _until(lambda: min(told.values()) > 3)
        servers[1].kill()
        time.sleep(0.3)
        servers[1].start()
        before = dict(told)
        _until(lambda: all(told[scope] > before[scope] + 3 for scope in scopes))
        stop.set()
        for one in workers:
            one.result(180)
    assert [store.episodes.recent(scope, "s", 9, NOW)[0].count for scope in scopes] == list(told.values())
    assert store.episodes.expire(NOW + timedelta(days=2)) == len(scopes)
    store.close()


def _until(true: Callable[[], bool], seconds: float = 180.0) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.002)


def test_a_worker_that_slept_is_fenced_by_the_server_s_own_clock(store: RedisStore, beside: RedisStore) -> None:
    first = store.journal.claim(Claim(ANA, "order", "one", 600))
    with pytest.raises(TaskClaimed, match="one"):
        beside.journal.claim(Claim(ANA, "order", "two"))
    store.journal.begin(first, StepStart("mail", kind="effect"))
    first = store.journal.extend(first, 0.1)
    time.sleep(0.15)
    second = beside.journal.claim(Claim(ANA, "order", "two"))
    assert second.epoch == 2
    for write in (
        lambda: store.journal.finish(first, StepEnd("mail")),
        lambda: store.journal.record(first, StepStart("more"), StepEnd("more")),
        lambda: store.journal.extend(first, 60),
        lambda: store.journal.keep(first, "late"),
        lambda: store.journal.end(first, TaskEnd("done")),
    ):
        with pytest.raises(LeaseLost, match="another worker"):
            write()
    assert [(one.name, one.status) for one in beside.journal.steps(ANA, "order")] == [("mail", "intent")]
    beside.journal.finish(second, StepEnd("mail"))
    beside.journal.end(second, TaskEnd("done"))
