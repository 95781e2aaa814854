"""What is particular to the Redis store: the engine's TTL, keys that share a slot, settings that must be so."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from engrain_conformance.clock import START, SetClock
from engrain_conformance.drafts import ANA, BEN, hostile_scopes
from engrain_conformance.reference import ReferenceStore
from examples import for_each
from redis_server import Server, redis_cluster, redis_server, start_redis

from engrain.core.errors import ConfigError, ReadOnlyStore, StoreError
from engrain.core.model.retention import TIERS
from engrain.core.model.sessions import Episode, RawOutput
from engrain.core.model.tasks import Claim, StepEnd, StepStart, TaskEnd
from engrain.stores.redis import RedisStore, connection
from engrain.stores.redis.episodes import GRACE
from engrain.stores.urls import parse_redis_url

HOUR = timedelta(hours=1)


@pytest.fixture
def server() -> Server:
    redis_server().client.flushall()
    return redis_server()


@pytest.fixture
def store(server: Server) -> Iterator[RedisStore]:
    opened = RedisStore(server.url)
    yield opened
    opened.close()


def now() -> datetime:
    return datetime.now(UTC)


def episode(id: str, expires: datetime | None = None, **values: Any) -> Episode:
    given = {"session": "s", "kind": "turn", "text": f"What {id} was.", "importance": 0.5, **values}
    return Episode(id, happened_at=given.pop("happened_at", now()), expires_at=expires, **given)


def keys(server: Server, kind: str = "") -> list[str]:
    return sorted(key for key in server.client.keys("*") if kind in key)


# The engine's TTL


def test_the_engine_takes_an_episode_a_grace_after_its_time(store: RedisStore, server: Server) -> None:
    ends = now() + timedelta(seconds=30)
    store.episodes.add(ANA, episode("a", ends, key="k"), RawOutput("All of it.", ends - timedelta(seconds=20)))
    wanted = ends + GRACE
    found = [key for key in keys(server, "}:episodes:") if "call:" not in key]
    assert len(found) == 7
    for key in found:
        gone = now() + timedelta(milliseconds=server.client.pttl(key))
        early = timedelta(seconds=20) if ":raw:" in key else timedelta()
        assert abs(gone - (wanted - early)) < timedelta(seconds=2), key
    # What is shown goes by the time that was given, not by the engine's.
    assert store.episodes.recent(ANA, None, 9, ends - timedelta(microseconds=1))
    assert store.episodes.recent(ANA, None, 9, ends) == []


def test_what_lasts_has_no_ttl_and_keeps_its_indexes(store: RedisStore, server: Server) -> None:
    store.episodes.add(ANA, episode("lasts"))
    store.episodes.add(ANA, episode("goes", now() + HOUR))
    client = server.client
    for key in keys(server, "}:episodes:"):
        lasts = key.endswith((":lasts", ":all", ":of:s", ":due"))
        assert (client.pttl(key) == -1) == lasts, key


def test_a_joined_episode_lives_as_long_as_the_longest(store: RedisStore, server: Server) -> None:
    store.episodes.add(ANA, episode("a", now() + 9 * HOUR, key="k"))
    store.episodes.add(ANA, episode("b", now() + HOUR, key="k"))
    (key,) = keys(server, "episode:")
    assert timedelta(milliseconds=server.client.pttl(key)) > 9 * HOUR


def test_what_the_engine_took_leaves_no_trace_after_the_next_write(store: RedisStore, server: Server) -> None:
    past = now() - GRACE - HOUR
    store.episodes.add(ANA, episode("lasts"))
    for n in range(150):
        store.episodes.add(ANA, episode(f"lost {n}", past, key=f"k{n}"), RawOutput("raw", past))
    store.episodes.add(ANA, episode("new", now() + HOUR))
    assert not [key for key in keys(server) if "lost" in key]
    assert server.client.zrange(keys(server, ":all")[0], 0, -1) == ["lasts", "new"]
    assert server.client.zcard(keys(server, ":of:s")[0]) == 2
    assert store.episodes.expire(now()) == 0


def test_what_the_engine_took_has_no_place_among_the_newest(store: RedisStore, server: Server) -> None:
    most = TIERS["episodic"].max_items or 0
    began = now() - 3 * GRACE
    for n in range(most):
        short = n % 2
        one = episode(f"{n:04}", began + timedelta(seconds=n) if short else None, happened_at=began + n * HOUR / 9_999)
        store.episodes.add(ANA, one)
    store.episodes.add(ANA, episode("last"))
    left = [one.id for one in store.episodes.recent(ANA, "s", 9_999, began)]
    assert left == ["last", *(f"{n:04}" for n in range(most - 2, -1, -2))]


def test_many_episodes_come_page_by_page_in_order(store: RedisStore) -> None:
    at = now()
    for n in range(1_300):  # many at one moment, across the pages
        store.episodes.add(ANA, episode(f"{n:05}", session=f"s{n % 3}", happened_at=at + timedelta(seconds=n // 700)))
    found = [one.id for one in store.episodes.recent(ANA, None, 10_000, at)]
    assert found == [f"{n:05}" for n in range(1_299, -1, -1)]
    assert [one.id for one in store.episodes.recent(ANA, None, 777, at)] == found[:777]


@pytest.mark.parametrize("seed", range(5))
def test_random_calls_answer_like_the_reference(server: Server, seed: int) -> None:
    chance, clock = random.Random(seed), SetClock()
    server.client.flushall()
    store, reference = RedisStore(server.url, clock=clock), ReferenceStore(clock=clock)
    for _ in range(300):
        call = random_call(chance, clock)
        assert call(store.episodes) == call(reference.episodes)
        clock.advance(chance.choice([0, 0, 0.000001, 1, 900]))
    store.close()


def random_call(chance: random.Random, clock: SetClock) -> Callable[[Any], Any]:
    scope, session = chance.choice([ANA, BEN]), chance.choice(["s", "t"])
    at = clock() - chance.choice([0, 0, 1]) * HOUR
    ends = chance.choice([None, at + HOUR / 4, at + HOUR])
    one = Episode(
        str(chance.randrange(30)), session, "turn", "", chance.random(), at, ends, chance.randint(1, 3), {"a": 1},
        key=chance.choice([None, "k", "l"]),
    )  # fmt: skip
    raw = chance.choice([None, RawOutput("raw", at + HOUR / 2)])
    ids = [str(chance.randrange(30)) for _ in range(3)]
    n, where = chance.choice([1, 5, 99]), chance.choice([None, session])
    calls: list[Callable[[Any], Any]] = [
        lambda episodes: episodes.add(scope, one, raw),
        lambda episodes: episodes.add(scope, one, raw),
        lambda episodes: episodes.recent(scope, where, n, clock()),
        lambda episodes: [episodes.raw(scope, id, clock()) for id in ids],
        lambda episodes: episodes.remove(scope, ids),
        lambda episodes: episodes.trim(scope, session, 8),
        lambda episodes: episodes.expire(clock()),
    ]
    return chance.choices(calls, [5, 5, 4, 2, 1, 1, 1])[0]


# Keys


def test_all_keys_of_a_scope_share_one_slot(store: RedisStore, server: Server) -> None:
    for n, scope in enumerate(hostile_scopes()):
        store.episodes.add(
            scope, episode(f"}}{{{n}", now() + HOUR, key="k", session="{s}"), RawOutput("raw", now() + HOUR)
        )
        lease = store.journal.claim(Claim(scope, "{t}", "me", deadline=now() + HOUR))
        store.journal.record(lease, StepStart("a"), StepEnd("a"))
        store.journal.signal(scope, "{t}", "e", "1")
        store.journal.end(lease, TaskEnd("done"))
    client = server.client
    slots: dict[str, set[int]] = {}
    for key in keys(server, "engrain:{"):
        slots.setdefault(key[: key.index("}")], set()).add(_slot(client, key))
    assert len(slots) == len(hostile_scopes())
    assert all(len(found) == 1 for found in slots.values())
    assert all(key.startswith(("engrain:{", "engrain:scopes:")) for key in keys(server))


def _slot(client: Any, key: str) -> int:
    from redis.crc import key_slot

    return int(key_slot(key.encode()))


@pytest.mark.parametrize("cluster", [False, True], ids=["server", "cluster"])
def test_erasing_a_scope_blocks_nobody_and_leaves_the_others(server: Server, cluster: bool) -> None:
    servers = redis_cluster() if cluster else [server]
    for one in servers:
        one.client.flushall()
        one.client.config_resetstat()
    store = RedisStore(servers[0].url + ("?cluster=on" if cluster else ""))
    for scope in (ANA, BEN):
        store.journal.claim(Claim(scope, "order", "me"))
        for number in range(600):
            store.state.save(scope, f"session {number}", "text")
    assert store.erase(ANA) > 600
    assert store.count_remaining(ANA) == 0
    assert store.count_remaining(BEN) > 600
    assert all("cmdstat_keys" not in one.client.info("commandstats") for one in servers)
    store.close()


def test_a_server_that_has_forgotten_the_scripts_is_told_them_again(store: RedisStore, server: Server) -> None:
    store.episodes.add(ANA, episode("a"))
    server.client.script_flush()
    assert store.episodes.add(ANA, episode("b")).id == "b"
    assert len(store.episodes.recent(ANA, None, 9, now())) == 2


def test_a_scope_that_is_empty_is_let_go_of_when_nobody_has_written_there_for_long(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = RedisStore(server.url)
    for scope in (ANA, BEN):
        store.episodes.add(scope, episode("a", now() + HOUR))
        store.journal.end(store.journal.claim(Claim(scope, "t", "me")), TaskEnd("done"))
    later = now() + 2 * HOUR
    assert (store.episodes.expire(later), store.journal.prune(later)) == (2, 2)
    assert len(_noted(server)) == 4, "somebody may be about to write"
    store.episodes.add(ANA, episode("b"))
    monkeypatch.setattr(connection, "_KEPT_SECONDS", -10)
    assert (store.episodes.expire(later), store.journal.prune(later)) == (0, 0)
    assert len(_noted(server)) == 1
    assert not keys(server, "tasks:now")
    store.close()


def _noted(server: Server) -> list[str]:
    return [member for key in keys(server, "engrain:scopes:") for member in server.client.zrange(key, 0, -1)]


def test_a_scope_noted_again_meanwhile_is_not_let_go_of(store: RedisStore, server: Server) -> None:
    scopes = connection.ScopeRegistry(store._link, "test")
    scopes.note(ANA)
    ((one,),) = [page for page in scopes.pages() if page]
    assert one.scope == ANA
    scopes.forget([one._replace(at=1.0)])  # it was seen long ago, and has been noted since
    assert [found.scope for page in scopes.pages() for found in page] == [ANA]


# The journal


def test_a_step_s_result_is_kept_once_and_not_sent_back(store: RedisStore, server: Server) -> None:
    lease = store.journal.claim(Claim(ANA, "t", "me"))
    large = "x" * 1_000_000
    before = server.client.info("stats")["total_net_output_bytes"]
    assert store.journal.record(lease, StepStart("a"), StepEnd("a", result=large)).result == large
    assert server.client.info("stats")["total_net_output_bytes"] - before < 100_000
    assert sum(server.client.memory_usage(key) or 0 for key in keys(server, "tasks:")) < 2 * len(large)


def test_times_are_the_server_s_and_exact(store: RedisStore) -> None:
    before = now()
    lease = store.journal.claim(Claim(ANA, "t", "me", 12.345678))
    task = store.journal.task(ANA, "t")
    assert task
    assert before - timedelta(seconds=1) < task.started_at < now() + timedelta(seconds=1)
    assert lease.until - task.started_at == timedelta(seconds=12, microseconds=345_678)
    clock = SetClock(START + timedelta(microseconds=1))
    exact = RedisStore(redis_server().url, clock=clock)
    assert exact.journal.claim(Claim(BEN, "t", "me", 1)).until == START + timedelta(seconds=1, microseconds=1)
    exact.close()


# What a server must be


def test_a_journal_needs_a_server_that_keeps_what_it_acknowledges() -> None:
    server = start_redis("--appendfsync", "everysec", "--maxmemory-policy", "allkeys-lru")
    strict = RedisStore(server.url)
    with pytest.raises(ConfigError, match=r"appendfsync everysec, maxmemory-policy allkeys-lru.*durability=relaxed"):
        _ = strict.journal
    strict.episodes.add(ANA, episode("a"))  # these need no such server
    assert {one.state for one in strict.check()} == {"pass"}
    relaxed = RedisStore(f"{server.url}?durability=relaxed")
    assert relaxed.journal.claim(Claim(ANA, "t", "me")).epoch == 1
    told = {one.point: one for one in relaxed.check()}["redis durability"]
    assert told.state == "warn"
    assert "durability=relaxed" in told.why
    assert "appendfsync always" in told.fix
    server.client.config_set("appendfsync", "always")
    server.client.config_set("maxmemory-policy", "noeviction")
    assert [one.state for one in relaxed.check()] == ["pass", "pass"]
    server.kill()
    assert [one.state for one in relaxed.check()] == ["fail"]
    strict.close()
    relaxed.close()
    server.stop()


def test_a_server_that_hides_its_settings_is_refused_unless_that_is_accepted() -> None:
    server = start_redis("--rename-command", "CONFIG", "")
    store = RedisStore(server.url)
    with pytest.raises(ConfigError, match="CONFIG GET"):
        _ = store.journal
    store.close()
    relaxed = RedisStore(f"{server.url}?durability=relaxed")
    relaxed.journal.claim(Claim(ANA, "t", "me"))
    assert [one.state for one in relaxed.check()] == ["pass", "warn"]
    relaxed.close()
    server.stop()


def test_a_wrong_password_is_told_and_never_shown(server: Server) -> None:
    guarded = start_redis("--requirepass", "right")
    with pytest.raises(ConfigError, match="refused access") as caught:
        RedisStore(f"redis://:wrong-secret@127.0.0.1:{guarded.port}")
    assert "wrong-secret" not in str(caught.value)
    RedisStore(f"redis://:right@127.0.0.1:{guarded.port}").close()
    guarded.stop()


def test_a_full_server_keeps_nothing_of_a_write(server: Server) -> None:
    store = RedisStore(server.url)
    lease = store.journal.claim(Claim(ANA, "t", "me"))
    server.client.config_set("maxmemory", 1)
    try:
        for write in (
            lambda: store.episodes.add(ANA, episode("a")),
            lambda: store.journal.record(lease, StepStart("a"), StepEnd("a")),
        ):
            with pytest.raises(StoreError, match="takes no writes"):
                write()
    finally:
        server.client.config_set("maxmemory", "0")
    assert store.episodes.recent(ANA, None, 9, now()) == store.journal.steps(ANA, "t") == []
    store.journal.record(lease, StepStart("a"), StepEnd("a"))
    store.close()


def test_a_store_opened_to_be_read_writes_nothing(store: RedisStore, server: Server) -> None:
    store.episodes.add(ANA, episode("a"))
    reader = RedisStore(server.url, read_only=True)
    before = keys(server)
    for write in (
        lambda: reader.episodes.add(BEN, episode("b")),
        lambda: reader.episodes.remove(ANA, ["a"]),
        lambda: reader.journal.claim(Claim(BEN, "t", "me")),
    ):
        with pytest.raises(ReadOnlyStore):
            write()
    assert len(reader.episodes.recent(ANA, None, 9, now())) == 1
    assert [key for key in keys(server) if "call:" not in key] == [key for key in before if "call:" not in key]
    reader.close()


@for_each(
    "query",
    [
        "durability=some",
        "timeout=0",
        "timeout=soon",
        "patience=-1",
        "pool=0",
        "cluster=maybe",
        "nothing",
        "socket_timeout=x",
    ],
)
def test_a_setting_in_the_url_that_cannot_be_is_refused(query: str) -> None:
    with pytest.raises(ConfigError):
        RedisStore(f"redis://:secret@127.0.0.1:1/0?{query}")


def test_a_url_s_own_settings_are_read_and_the_rest_is_the_client_s() -> None:
    found = parse_redis_url(
        "rediss://me:secret@host:7000/2?durability=relaxed&timeout=3&pool=4&cluster=on&client_name=app"
    )
    assert (found.durability, found.timeout, found.pool, found.cluster) == ("relaxed", 3.0, 4, True)
    assert found.url == "rediss://me:secret@host:7000/2?client_name=app"
    assert "secret" not in found.shown
    assert "secret" not in repr(found)
