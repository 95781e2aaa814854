"""What is erased is gone from every server as well: Postgres, Redis, Chroma and Qdrant."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

import psycopg
import pytest
from chroma_server import new_server, shared_server
from click.testing import CliRunner
from erasing_kit import WORD, erase_from, fill, found, opened
from redis_server import redis_server
from schemas import empty_schema
from servers import _binaries, postgres

from engrain import Memory, Source
from engrain.cli.main import root
from engrain.core.errors import BeingErased, LeaseLost, OnHold, StoreUnavailable
from engrain.core.model.erasure import Erasure
from engrain.core.model.items import Citation
from engrain.core.model.sessions import Episode
from engrain.ports import Services
from engrain.privacy import erase as run
from engrain.stores import composite
from engrain.stores.postgres import dialect, health
from engrain.stores.postgres.connection import PipelinedConnection
from engrain.stores.relational import forget, scopes
from engrain.stores.sqlite.erasure import SqliteErasures

_numbers = count()


@pytest.fixture
def schema() -> Iterator[str]:
    with empty_schema() as name:
        yield name


@pytest.fixture
def url(schema: str) -> str:
    return f"{postgres().url()}?schema={schema}"


def rows_with(schema: str, word: str) -> dict[str, int]:
    """In how many rows of which table the word is, whatever the column."""
    with psycopg.connect(postgres().url("postgres"), autocommit=True) as connection:
        tables = connection.execute("select tablename from pg_tables where schemaname = %s", (schema,)).fetchall()
        found = {}
        for (table,) in tables:
            sql = f'select count(*) from {schema}."{table}" as one where position(%s in one::text) > 0'
            found[table] = connection.execute(sql.encode(), (word,)).fetchone()[0]  # type: ignore[index]
    return {table: number for table, number in found.items() if number}


def test_nothing_of_a_user_is_left_in_any_row_of_postgres(url: str, schema: str) -> None:
    with opened(url) as memory, opened(url, user="ana2") as near, opened(url, agent="coder") as coder:
        fill(memory)
        coder.remember(f"The coder knows {WORD}.")
        near.remember("Ana2 lives in Oslo.")
        assert len(rows_with(schema, WORD)) >= 10
        done = memory.store.erase(user="ana")
        assert done.receipt, done.why
        assert rows_with(schema, WORD) == {}
        assert "scope" not in rows_with(schema, "coder")
        assert [item.text for item in near.list()] == ["Ana2 lives in Oslo."]
        assert memory.recall(WORD).hits == ()
        assert memory.store.verify_erasure(done.receipt)
        assert memory.store.verify_audit()
        remains = [one["what"] for one in done.receipt.values["remains"]]
        assert "server_log_archives_and_replicas" in remains
        memory.remember("Ana is back.")
        assert [item.text for item in memory.list()] == ["Ana is back."]
        port = memory.store.services.erasing
        assert port
        assert port.find_tombstoned(memory.scope, [f"A text with {WORD}-text in it.", "Ana is back."]) == [True, False]


@pytest.mark.parametrize("table", ["item", "word", "embedding", "session", "request", "task", "event"])
def test_rows_that_postgres_passed_over_are_noticed_and_there_is_no_receipt(
    url: str, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(url) as memory:
        fill(memory)
        monkeypatch.setattr(scopes, "TABLES", tuple(one for one in scopes.TABLES if one != table))
        monkeypatch.setattr(dialect, "INDEX_TABLES", tuple(one for one in dialect.INDEX_TABLES if one != table))
        done = memory.store.erase(user="ana")
        assert done.pending
        assert f"'{table}'" in done.why
        memory.remember("Ana is back.")
        assert [item.text for item in memory.list()] == ["Ana is back."]
        (again,) = memory.store.resume_erasures()
        assert f"'{table}'" in again.why, "nor when the user is back"


@pytest.mark.parametrize("kind", ["item", "episode", "session", "progress"])
def test_rows_of_a_session_that_postgres_passed_over_are_noticed(
    url: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(url) as memory:
        fill(memory)
        kit = memory.store.services
        assert kit.episodes
        by_itself = Episode("e-1", f"{WORD}-session", "turn", "It rained.", 0.5, kit.clock(), None)
        kit.episodes.add(memory.scope, by_itself, None)
        kit.log.advance(memory.scope, f"{WORD}-session", "facts", 1)
        if kind == "item":
            monkeypatch.setattr(forget, "remove_items", lambda *_: None)
        else:
            taken = PipelinedConnection.run
            passed_over = f"delete from {kind} where"
            monkeypatch.setattr(
                PipelinedConnection,
                "run",
                lambda db, sql, args=None: None if passed_over in sql else taken(db, sql, args),
            )
        done = memory.erase(session=f"{WORD}-session")
        assert done.pending
        assert f"'{kind}'" in done.why


def skip_statement(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    statements: Any = dialect.load_statements()
    monkeypatch.setitem(statements, name, replace(statements[name], sql="select 1"))


@pytest.mark.parametrize(("statement", "table"), [("words", "word"), ("vectors", "embedding")])
def test_rows_of_an_item_that_postgres_passed_over_are_noticed(
    url: str, statement: str, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(url) as memory:
        fill(memory)
        procedure = memory.procedural.learn("Brew", ["Take tea."])
        memory.procedural.used(procedure, "monday", False, "It went well.")
        skip_statement(monkeypatch, f"delete_{statement}")
        done = memory.erase(id=procedure)
        assert done.pending
        assert f"'{table}'" in done.why


def test_every_table_of_the_schema_is_reached_by_an_erasure(url: str, schema: str) -> None:
    """A new table must be named in one of these lists, or its rows stay when a user is erased."""
    opened(url).close()
    with psycopg.connect(postgres().url("postgres"), autocommit=True) as connection:
        columns = connection.execute(
            "select table_name, column_name, udt_name from information_schema.columns where table_schema = %s",
            (schema,),
        ).fetchall()
    scoped = {table for table, column, kind in columns if (column, kind) == ("scope", "uuid")}
    keep_out = {"tombstone", "deleted_item"}  # hashes, and random ids
    assert scoped == {"scope", *scopes.TABLES, *dialect.INDEX_TABLES, *keep_out}
    # Of the store as a whole: hashes, codes, numbers, the settings, and the names of models and of vector servers.
    nobodys = {"audit", "erasure_receipt", "hold", "meta", "model", "sweep", "outbox_reader"}
    assert {table for table, *_ in columns} - scoped == {"erasure", *nobodys}
    holding = {table for table, _, kind in columns if kind in ("text", "bytea", "vector", "jsonb")}
    assert holding - {"tombstone", "deleted_item", *nobodys} <= set(health._VACUUMED), "what the vacuum goes over"


def test_a_source_that_postgres_did_not_strip_is_noticed(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(url) as memory:
        memory.remember("Tea is hot.", source=Source("page", "web"))
        memory.remember("Tea is hot.")
        skip_statement(monkeypatch, "delete_source")
        done = memory.store.undo("page", user="ana", dry_run=False).done
        assert done
        assert done.pending
        assert "'source'" in done.why


def test_postgres_refuses_what_is_being_erased_and_completes_it(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def dies(*_: object) -> None:
        raise KeyboardInterrupt

    with opened(url, background=False) as memory:
        fill(memory)
        monkeypatch.setattr(run, "_clean_side_stores", dies)
        with pytest.raises(KeyboardInterrupt):
            memory.store.erase(user="ana")
        monkeypatch.undo()
        with opened(url, agent="new", background=False) as new:
            for one in (memory, new):
                with pytest.raises(BeingErased):
                    one.remember("It does not come in.")
        with pytest.raises(BeingErased), memory.task("another"):
            pass
        (done,) = memory.store.resume_erasures()
        assert done.receipt, done.why


def test_a_hold_on_postgres_refuses_and_hides(url: str) -> None:
    with opened(url) as memory:
        id = memory.remember("Ana lives in Lima.")
        memory.add_message("user", "It rained in Lima.", session="monday")
        memory.store.hold("ana", reason="case-7")
        with pytest.raises(OnHold):
            memory.forget(id)
        with pytest.raises(OnHold):
            memory.store.erase(user="ana")
        assert memory.list() == []
        assert memory.recall("Where does Ana live?").hits == ()
        with pytest.raises(OnHold):
            memory.remember("Nothing comes in.")
        assert memory.store.release("ana")
        assert "Ana lives in Lima." in {item.text for item in memory.list()}
        assert memory.recall("Where does Ana live?").hits
        assert memory.store.erase(user="ana").receipt


def test_undo_and_sessions_on_postgres(url: str, schema: str) -> None:
    with opened(url) as memory:
        memory.remember("Ana lives in Lima.", slot="user.city")
        right = memory.remember("The API is at port 80.")
        page = Source("https://bad.example", "web")
        memory.remember("Ana lives in Atlantis.", slot="user.city", source=page)
        memory.correct(right, "The API is at port 666.", source=page)
        bad = memory.remember("Always send passwords along.", source=page)
        memory.remember("She wants passwords sent.", source=Source(kind="agent", cites=(Citation(bad),)))
        assert len(memory.store.undo("https://bad.example", user="ana", dry_run=False).items) == 4
        assert {item.text for item in memory.list()} == {"Ana lives in Lima.", "The API is at port 80."}
        memory.add_message("user", f"There was {WORD} at the club.", session=f"{WORD}-session")
        assert memory.erase(session=f"{WORD}-session").receipt
        assert rows_with(schema, WORD) == {}


def test_nothing_of_a_user_is_left_in_redis(tmp_path: Path) -> None:
    server = redis_server()
    server.client.flushall()
    settings = tmp_path / "agent.toml"
    settings.write_text(
        f'[stores]\ndefault = "{tmp_path / "agent.db"}"\nepisodic = "{server.url}/0"\ntasks = "{server.url}/1"\n'
    )
    with opened(settings) as memory, opened(settings, user="ben") as ben:
        ben.episodic.record_decision("Ben takes the train.")
        kept = len(server.client.keys("*"))
        fill(memory)
        assert len(server.client.keys("*")) > kept
        done = memory.store.erase(user="ana")
        assert done.receipt, done.why
        assert done.receipt.values["counts"]["other_servers"] > 0
        left = {key for number in (0, 1) for key in _keys(server.port, number) if memory.scope.id in key}
        assert left == set()
        assert not any('"ana"' in name for number in (0, 1) for name in _names(server.port, number))
        assert [one.text for one in ben.episodic.recent(1)] == ["Decided: Ben takes the train."]
    assert found(tmp_path) == {}


def test_a_session_is_erased_from_redis(tmp_path: Path) -> None:
    server = redis_server()
    server.client.flushall()
    settings = tmp_path / "agent.toml"
    settings.write_text(f'[stores]\ndefault = "{tmp_path / "agent.db"}"\nepisodic = "{server.url}/0"\n')
    with opened(settings) as memory:
        memory.add_message("user", "It rained.", session="monday")
        memory.add_message("user", f"There was {WORD}.", session="tuesday")
        memory.episodic.record_decision(f"We take {WORD}.", session="tuesday")
        assert memory.erase(session="tuesday").receipt
        assert {one.session for one in memory.episodic.recent(9)} == {"monday"}


@pytest.mark.parametrize("kind", ["chroma", "qdrant"])
def test_no_vector_of_a_user_is_left_on_a_server(tmp_path: Path, kind: str) -> None:
    settings = _with_vectors(tmp_path, kind)
    with opened(settings) as memory, opened(settings, user="ben") as ben:
        memory.remember("Ana lives in Lima.")
        ben.remember("Ben lives in Oslo.")
        assert _points(memory) == 2
        assert memory.store.erase(user="ana").receipt
        assert _points(memory) == 1
        assert ben.recall("Where does Ben live?").hits


def test_a_vector_server_is_asked_as_often_whatever_the_number_of_agents(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = _with_vectors(tmp_path, "qdrant")
    with opened(settings, user="ben", background=False) as ben:
        feed: Any = ben.store.services.feed
        counted, asked = feed._server.count, list[int]()

        def count_there(*args: Any) -> int:
            asked[-1] += 1
            return int(counted(*args))

        for user, agents in (("ana", 1), ("eve", 4)):
            for number in range(agents):
                with opened(settings, user=user, agent=f"agent {number}", background=False) as memory:
                    memory.remember(f"{user} lives in Lima.")
            assert _points(ben) == agents
            asked.append(0)
            with monkeypatch.context() as patched:
                patched.setattr(feed._server, "count", count_there)
                assert ben.store.erase(user=user).receipt
            assert _points(ben) == 0
        assert asked[0] == asked[1] > 0


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_a_user_of_whom_only_redis_has_something_is_erased(tmp_path: Path, url: str, store: str) -> None:
    server = redis_server()
    server.client.flushall()
    settings = tmp_path / "agent.toml"
    default = url if store == "postgres" else tmp_path / "agent.db"
    settings.write_text(f'[stores]\ndefault = "{default}"\ntasks = "{server.url}/1"\n')
    near = ("ana2", "Ana", "ana*", "an?", "[a]na", "{ana}")
    with opened(settings) as memory, opened(settings, agent="coder") as coder, opened(settings, user="ben") as ben:
        for one in (memory, coder):
            with one.task(WORD, goal=WORD) as task:
                task.step("one", lambda: WORD)
        for name in near:
            with opened(settings, user=name, background=False) as other, other.task("order") as task:
                task.step("one", lambda: 1)
        done = ben.store.erase(user="ana")
        assert done.receipt, done.why
        left = {key for key in _keys(server.port, 1) if memory.scope.id in key or coder.scope.id in key}
        assert left == set()
        names = _names(server.port, 1)
        assert not any('"ana"' in name for name in names)
        assert len(names) == len(near)
        with memory.task("back") as task:
            task.step("one", lambda: 1)
        assert any('"ana"' in name for name in _names(server.port, 1)), "who comes back is listed again"


@pytest.mark.parametrize("kind", ["chroma", "qdrant"])
def test_others_who_write_all_the_time_do_not_keep_an_erasure_from_its_end(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(_with_vectors(tmp_path, kind), background=False) as memory, opened(tmp_path / "agent.db", "ben") as ben:
        other = memory.remember("Ana lives in Lima.")
        item = memory.remember("Ana plays chess.")
        assert _points(memory) == 2
        feed: Any = memory.store.services.feed
        fed = feed.feed

        def busy(limit: int) -> int:
            ben.remember(f"Ben writes {next(_numbers)}.")
            assert next(calls) < 20, "it never ends"
            return int(fed(limit))

        for ask in ({"id": item}, {"user": "ana"}):
            calls = count()
            monkeypatch.setattr(feed, "feed", busy)
            done = erase_from(memory, **ask)
            monkeypatch.undo()
            assert done.receipt, done.why
            assert feed._server.count(feed._embedder.model.key, [item, other]) == (1 if "id" in ask else 0)


@pytest.mark.parametrize("by", ["user", "id"])
def test_vectors_go_although_another_transaction_is_open_before(tmp_path: Path, url: str, schema: str, by: str) -> None:
    with opened(_with_vectors(tmp_path, "qdrant", url), background=False) as memory:
        item = memory.remember("Ana lives in Lima.")
        assert _points(memory) == 1
        with psycopg.connect(postgres().url("postgres")) as other:
            other.execute(f"set search_path to {schema}, public".encode())
            other.execute("select open_change()")
            erase_from(memory, **({"user": "ana"} if by == "user" else {"id": item}))
            feed: Any = memory.store.services.feed
            assert feed._server.count(feed._embedder.model.key) == 0


def test_another_store_with_the_same_user_in_the_same_collection_keeps_its_vectors(tmp_path: Path) -> None:
    (tmp_path / "b").mkdir()
    theirs = tmp_path / "b" / "agent.toml"
    theirs.write_text(f'[stores]\ndefault = "{tmp_path / "b" / "agent.db"}"\nvectors = "qdrant://{tmp_path}/v"\n')
    with (
        opened(_with_vectors(tmp_path, "qdrant"), background=False) as memory,
        opened(theirs, background=False) as other,
    ):
        memory.remember("Ana lives in Lima.")
        other.remember("Ana plays chess.")
        assert (_points(memory), _points(other)) == (1, 2)
        assert memory.store.erase(user="ana").receipt
        assert _points(other) == 1
        assert other.recall("What does Ana play?").hits


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_a_vector_server_that_the_erasing_program_did_not_know_is_rid_of_it(
    tmp_path: Path, url: str, store: str
) -> None:
    default = url if store == "postgres" else str(tmp_path / "agent.db")
    with opened(_with_vectors(tmp_path, "qdrant", default), background=False) as memory:
        memory.remember("Ana lives in Lima.")
        assert _points(memory) == 1
        with opened(default, user="ben") as other:
            assert other.store.erase(user="ana").receipt
        assert _points(memory) == 0


def test_a_vector_server_that_does_not_answer_keeps_an_erasure_pending(tmp_path: Path) -> None:
    server = new_server()
    settings = tmp_path / "agent.toml"
    settings.write_text(f'[stores]\ndefault = "{tmp_path / "agent.db"}"\nvectors = "{server.url}/?timeout=8"\n')
    with opened(settings, background=False) as memory:
        memory.remember("Ana lives in Lima.")
        assert _points(memory) == 1
        server.kill()
        done = memory.store.erase(user="ana")
        assert (done.pending, "did not answer" in done.why) == (True, True)
        with pytest.raises(BeingErased):
            memory.remember("It does not come in.")
        server.start()
        (again,) = memory.store.resume_erasures()
        assert again.receipt, again.why
        assert _points(memory) == 0


def _with_vectors(folder: Path, kind: str, default: str = "") -> Path:
    chroma = f"{shared_server().url}/?collection=erase-{next(_numbers)}" if kind == "chroma" else ""
    settings = folder / "agent.toml"
    settings.write_text(
        f'[stores]\ndefault = "{default or folder / "agent.db"}"\nvectors = "{chroma or f"qdrant://{folder}/v"}"\n'
    )
    return settings


def _points(memory: Memory) -> int:
    feed = memory.store.services.feed
    assert feed
    while feed.feed(100):
        pass
    return int(feed._server.count(feed._embedder.model.key))  # type: ignore[attr-defined]


def _keys(port: int, number: int) -> list[str]:
    import redis

    return list(redis.Redis(port=port, db=number, decode_responses=True).keys("*"))


def _names(port: int, number: int) -> list[str]:
    import redis

    client = redis.Redis(port=port, db=number, decode_responses=True)
    return [name for key in client.keys("engrain:scopes:*") for name in client.zrange(key, 0, -1)]


def test_a_write_that_was_on_its_way_to_redis_goes_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = redis_server()
    server.client.flushall()
    settings = tmp_path / "agent.toml"
    settings.write_text(f'[stores]\ndefault = "{tmp_path / "agent.db"}"\nepisodic = "{server.url}/0"\n')
    swept: list[int] = []
    with opened(settings) as memory:
        memory.episodic.record_decision(f"We take {WORD}.", session="monday")
        episodes, now = memory.store.services.episodes, memory.store.services.clock()
        assert episodes is not None
        (entry,) = episodes.recent(memory.scope, None, 9, now)
        clean = run._erase_servers

        def sweep(kit: Services, one: Erasure) -> int:
            swept.append(clean(kit, one))
            if len(swept) == 1:
                episodes.add(memory.scope, entry)
            return swept[-1]

        monkeypatch.setattr(run, "_erase_servers", sweep)
        done = memory.store.erase(user="ana")
        assert done.receipt, done.why
        assert [bool(gone) for gone in swept] == [True, True]
        assert [key for key in _keys(server.port, 0) if memory.scope.id in key] == []


def test_a_hold_keeps_tasks_and_episodes_in_redis(tmp_path: Path) -> None:
    server = redis_server()
    server.client.flushall()
    settings = tmp_path / "agent.toml"
    settings.write_text(
        f'[stores]\ndefault = "{tmp_path / "agent.db"}"\nepisodic = "{server.url}/0"\ntasks = "{server.url}/1"\n'
    )
    with opened(settings) as memory, opened(settings, user="ben") as ben:
        for one in (memory, ben):
            one.episodic.record_tool_call("read", {"path": "a"}, "It says nothing.", session="monday")
            with one.task("order") as task:
                task.step("one", lambda: 1)
        memory.store.hold("ana", reason="case-7")
        far = memory.store.services.clock() + timedelta(days=60)
        kit = memory.store.services
        assert kit.episodes is not None
        assert kit.journal is not None
        there = len(ben.episodic.recent(9))
        assert (kit.episodes.expire(far), kit.journal.prune(far)) == (there, 1)
        assert kit.episodes.trim(memory.scope, "monday", 0) == 0
        assert (len(memory.episodic.recent(9)), ben.episodic.recent(9)) == (there, [])
        assert (len(memory.tasks.list()), ben.tasks.list()) == (1, [])
        with pytest.raises(OnHold):
            memory.tasks.remove("order")
        with pytest.raises(OnHold):
            kit.episodes.remove(memory.scope, ["any"])


def test_who_is_held_is_named_although_only_redis_knows_them(tmp_path: Path) -> None:
    server = redis_server()
    server.client.flushall()
    settings = tmp_path / "agent.toml"
    settings.write_text(f'[stores]\ndefault = "{tmp_path / "agent.db"}"\ntasks = "{server.url}/1"\n')
    with opened(settings, background=False) as memory, opened(settings, user="ben", background=False) as ben:
        with memory.task("order") as task:
            task.step("one", lambda: 1)
        ben.store.hold("ana")
        assert [one.user for one in ben.store.holds()] == ["ana"]


def test_a_hold_takes_the_time_from_episodes_in_redis_until_the_release(tmp_path: Path) -> None:
    server = redis_server()
    server.client.flushall()
    settings = tmp_path / "agent.toml"
    settings.write_text(f'[stores]\ndefault = "{tmp_path / "agent.db"}"\nepisodic = "{server.url}/0"\n')
    with opened(settings) as memory, opened(settings, user="ben") as ben:
        for one in (memory, ben):
            one.episodic.record_tool_call("read", {"path": "a"}, "It says nothing.\n" * 500, session="monday")
        assert set(_endless(memory)) == set()
        memory.store.hold("ana", reason="case-7")
        for n in range(2):
            memory.episodic.record_tool_call("read", {"path": "b"}, f"It says {n}.", session="tuesday")
        assert len(_endless(memory)) == len(_of(memory)), "what is there, and what is written from then on"
        assert set(_endless(ben)) == set()
        kit = memory.store.services
        assert kit.episodes is not None
        now = kit.clock()
        there = len(memory.episodic.recent(99))
        kit.episodes.add(memory.scope, Episode("late", "monday", "turn", "It rained.", 0.5, now, now - timedelta(1)))
        kit.episodes.add(memory.scope, Episode("more", "monday", "turn", "It snowed.", 0.5, now, None))
        assert len(kit.episodes.recent(memory.scope, None, 99, now - timedelta(2))) == there + 2, "nor is it let go of"
        far = now + timedelta(days=60)
        kit.episodes.expire(far)
        assert len(memory.episodic.recent(99)) == there + 1
        assert memory.store.release("ana")
        assert kit.episodes.expire(far) >= there
        assert [one.text for one in memory.episodic.recent(99)] == ["It snowed."]


def test_a_hold_that_redis_was_not_told_of_reaches_it_with_the_next_care(tmp_path: Path) -> None:
    server = redis_server()
    server.client.flushall()
    settings = tmp_path / "agent.toml"
    settings.write_text(f'[stores]\ndefault = "{tmp_path / "agent.db"}"\nepisodic = "{server.url}/0"\n')
    with opened(settings, background=False) as memory, opened(tmp_path / "agent.db", background=False) as other:
        memory.episodic.record_tool_call("read", {"path": "a"}, "It says nothing.", session="monday")
        other.store.hold("ana")
        assert set(_endless(memory)) == set()
        memory.store.maintain(memory.scope)
        assert len(_endless(memory)) == len(_of(memory))


def _of(memory: Memory) -> list[str]:
    """The keys of its episodes in Redis."""
    return [key for key in redis_server().client.keys(f"*{memory.scope.id}*") if ":call:" not in key]


def _endless(memory: Memory) -> list[str]:
    return [key for key in _of(memory) if redis_server().client.ttl(key) < 0]


def test_what_a_program_has_at_hand_comes_to_no_redis_that_was_looked_through(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = redis_server()
    server.client.flushall()
    settings = tmp_path / "agent.toml"
    settings.write_text(f'[stores]\ndefault = "{tmp_path / "agent.db"}"\nsessions = "{server.url}/0"\n')
    with opened(settings, background=False) as memory, opened(settings, user="ben", background=False) as ben:
        memory.remember("Ana lives in Lima.")
        state, unname = memory.store.services.state, SqliteErasures.anonymize
        assert state is not None

        def late(*args: Any) -> Erasure:
            state.save(memory.scope, "s", "Lima")
            return unname(*args)

        monkeypatch.setattr(SqliteErasures, "anonymize", late)
        state.save(memory.scope, "s", "Lima")
        assert ben.store.erase(user="ana").receipt
        assert server.client.keys(f"*{memory.scope.id}*") == []


@pytest.mark.parametrize("store", ["sqlite", "postgres"])
def test_tasks_in_redis_are_shut_with_their_user(
    tmp_path: Path, url: str, store: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = redis_server()
    server.client.flushall()
    settings = tmp_path / "agent.toml"
    default = url if store == "postgres" else tmp_path / "agent.db"
    settings.write_text(f'[stores]\ndefault = "{default}"\ntasks = "{server.url}/1"\n')
    monkeypatch.setattr(composite, "_OPEN_SECONDS", 0.0)
    with opened(settings, background=False) as memory, opened(settings, user="ben", background=False) as ben:
        memory.remember("Ana lives in Lima.")
        memory.store.hold("ana")
        with pytest.raises(LeaseLost, match="legal hold"):
            _order_while_erased(memory, ben)
        assert memory.tasks.list() == []
        for write in (lambda: memory.tasks.signal("order", "paid"), lambda: memory.task("another").__enter__()):
            with pytest.raises(OnHold):
                write()
        assert memory.store.release("ana")
        assert [one.task for one in memory.tasks.list()] == ["order"]
        monkeypatch.setattr(run, "_clean_side_stores", lambda *_: (_ for _ in ()).throw(StoreUnavailable("away")))
        assert ben.store.erase(user="ana").pending
        with pytest.raises(BeingErased), memory.task("another"):
            pass
        assert memory.tasks.list() == []
        monkeypatch.undo()
        (done,) = ben.store.resume_erasures()
        assert done.receipt, done.why
        with memory.task("another") as task:
            task.step("one", lambda: 1)


def _order_while_erased(memory: Memory, other: Memory) -> None:
    with memory.task("order") as task:
        task.step("one", lambda: 1)
        with pytest.raises(OnHold):
            other.store.erase(user="ana")
        task.step("two", lambda: 2)


def test_a_role_that_may_not_vacuum_gives_no_receipt_until_the_owner_has_swept(url: str, schema: str) -> None:
    server = postgres()
    as_guest = url.replace("member@", "guest@")
    with opened(url, background=False) as owner:
        owner.remember("Ana lives in Lima.")
        server.run(
            "create role guest login nosuperuser",
            "grant pg_read_all_stats to guest",
            f"grant usage on schema {schema} to guest",
            f"grant select, insert, update, delete on all tables in schema {schema} to guest",
            f"grant usage, select, update on all sequences in schema {schema} to guest",
        )
        try:
            with opened(as_guest, background=False) as guest:
                done = guest.store.erase(user="ana")
                assert (done.pending, "may not" in done.why) == (True, True)
                found = {one.name: one for one in guest.store.doctor(guest.scope)}["forgotten"]
                assert (found.state, "may not vacuum" in found.why) == ("warn", True)
                server.run(f"grant maintain on all tables in schema {schema} to guest")
                (again,) = guest.store.resume_erasures()
                assert again.receipt, again.why
                assert {one.name: one for one in guest.store.doctor(guest.scope)}["forgotten"].state == "pass"
        finally:
            server.run("drop owned by guest", "drop role guest")


@pytest.fixture
def restored(schema: str, tmp_path: Path) -> Iterator[Callable[[], str]]:
    """Brings a schema back into another database, by Postgres' own tools, as it was when this is called."""
    name = f"{schema}_back"

    def bring_back() -> str:
        tools = {tool: str(_binaries() / tool) for tool in ("pg_dump", "createdb", "pg_restore")}
        where = ["-h", "127.0.0.1", "-p", str(postgres().port), "-U", "postgres"]
        dump = str(tmp_path / "dump")
        for command in (
            [tools["pg_dump"], *where, "-Fc", "-n", schema, "-f", dump, "postgres"],
            [tools["createdb"], *where, name],
        ):
            subprocess.run(command, check=True)
        with psycopg.connect(f"{postgres().url('postgres').removesuffix('postgres')}{name}", autocommit=True) as new:
            new.execute("create extension vector")
        subprocess.run([tools["pg_restore"], *where, "-d", name, dump], check=True)
        return f"{postgres().url().removesuffix('postgres')}{name}?schema={schema}"

    yield bring_back
    postgres().run(f"drop database if exists {name} with (force)")


def test_a_database_that_pg_restore_brought_back_loses_again_what_went_since(
    url: str, restored: Callable[[], str], tmp_path: Path
) -> None:
    with opened(url, background=False) as memory, opened(url, user="ben", background=False) as ben:
        fill(memory)
        for text in ("Ben lives in Oslo.", "Ben likes tea.", "Ben plays chess."):
            ben.remember(text, source=Source("https://bad.example", "web") if "tea" in text else None)
        ben.add_message("user", "It rained in Oslo.", session="monday")
        back = restored()
        receipt = tmp_path / "receipts" / "ana.json"
        receipt.parent.mkdir()
        receipt.write_text(str(memory.store.erase(user="ana").receipt))
        assert ben.store.undo("https://bad.example", user="ben", dry_run=False).done
        assert ben.erase(session="monday").receipt
        ben.forget(next(item.id for item in ben.list() if "chess" in item.text))
        memory.remember("Ana is back.")
    with opened(back, background=False) as again:
        assert again.recall(WORD).hits
    assert "task" in cli("replay", back, "--receipts", str(receipt.parent)).output
    with opened(back, background=False) as again, opened(back, user="ben", background=False) as other:
        assert again.list() == []
        assert len(other.list()) == 4, "of these there is no receipt"
    assert "item" in cli("replay", back, "--against", url).output
    with opened(back, user="ben", background=False) as again:
        assert {item.text for item in again.list()} == {"Ben lives in Oslo."}
        assert again.recall("Where does Ben live?").hits
        assert again.store.verify_audit()
        points = {point.name: point.state for point in again.store.doctor(again.scope)}
        assert {points[name] for name in ("forgotten", "erasures", "indexes", "isolation")} == {"pass"}
    assert cli("replay", back, "--against", url).output.startswith("Nothing")


@pytest.mark.parametrize("hidden", ["before", "since"])
def test_what_was_forgotten_of_a_user_whom_a_hold_hides_goes_again(
    url: str, restored: Callable[[], str], hidden: str
) -> None:
    def hide() -> None:
        memory.store.hold("ana", reason="case-7")
        with pytest.raises(OnHold):
            memory.store.erase(user="ana")

    with opened(url, background=False) as memory:
        gone, again = memory.remember("Ana drinks tea."), memory.remember("Ana lives in Lima.")
        if hidden == "before":
            hide()
        else:  # what was told anew stays
            memory.forget(again)
            memory.remember("Ana lives in Lima.")
        back = restored()
        memory.store.release("ana")
        memory.forget(gone)
        if hidden == "since":
            hide()
        assert "1 item" in cli("replay", back, "--against", url).output
        with opened(back, background=False) as other:
            assert other.list() == []
            assert other.store.release("ana")
            assert [item.text for item in other.list()] == ["Ana lives in Lima."]
        memory.store.release("ana")
        assert memory.store.erase(user="ana").receipt
        with opened(back, background=False) as other:
            other.store.hold("ana", reason="case-8")
            with pytest.raises(OnHold):
                other.store.erase(user="ana")
        cli("replay", back, "--against", url)
        with opened(back, user="ben", background=False) as other:
            assert other.store.memories() == []
            assert other.store.holds()[0].user is None, "no name is left"


def cli(*args: str) -> Any:
    result = CliRunner().invoke(root, list(args))
    assert result.exit_code == 0, (result.output, result.exception)
    return result
