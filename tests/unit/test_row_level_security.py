"""Row-level security holds every row to its scope, for a role that is neither superuser nor above the policies."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import psycopg
import pytest
from click.testing import CliRunner
from engrain_conformance.clock import START
from engrain_conformance.drafts import (
    ANA,
    BEN,
    EMBEDDER,
    derived,
    fact,
    list_items,
    message,
    texts,
    vector_query,
    word_query,
)
from engrain_conformance.episodes import episode
from postgres_schemas import fresh_schema, member, open_store, tables
from servers import postgres

from engrain import Memory
from engrain.cli.main import root
from engrain.core.identity import Scope
from engrain.core.model.items import Citation, Relation
from engrain.core.model.plans import Add, Forget, Plan
from engrain.core.model.procedures import Trial
from engrain.core.model.queries import Summary
from engrain.core.model.records import RecordDraft, RecordWrite
from engrain.core.model.sessions import RawOutput
from engrain.core.model.tasks import Claim, StepEnd, StepStart
from engrain.stores.postgres import PostgresStore


def fill(store: PostgresStore, scope: Scope) -> None:
    """A row in every table."""
    plan = Plan(
        scope,
        (
            Add(fact("a likes b", kind="relation", relation=Relation("a", "likes", "b"))),
            Add(message("Hello.")),
            Add(fact("Gone.")),
        ),
        request_id="r",
    )
    first, said, gone = (one.id or "" for one in store.apply(plan).outcomes)
    store.apply(Plan(scope, (Add(derived("Derived.", Citation(said))), Forget(gone))))
    store.summarize(scope, "monday", Summary("In sum.", 1, 1))
    store.advance(scope, "monday", "work", 1)
    store.episodes.add(scope, episode("e"), RawOutput("raw", START + timedelta(days=1)))
    store.outcomes.count(scope, Trial(first, "task", True, START))
    lease = store.journal.claim(Claim(scope, "task", "worker"))
    store.journal.record(lease, StepStart("step"), StepEnd("step", result="large " * 1_000))
    store.journal.keep(lease, "snapshot")
    store.journal.signal(scope, "task", "event", "payload")
    store.records.write(scope, RecordWrite("space", [RecordDraft(("key",), b"body")]))


@pytest.fixture
def schema() -> Iterator[str]:
    with fresh_schema() as name:
        store = open_store(name)
        fill(store, ANA)
        fill(store, BEN)
        store.close()
        yield name


def test_a_statement_without_a_scope_sees_only_its_own_rows(schema: str) -> None:
    with member(schema, ANA) as connection:
        for table in tables(connection, schema):
            rows = connection.execute(f"select scope from {table}".encode()).fetchall()
            assert {row[0].hex for row in rows} == {ANA.id}, table


def test_without_a_scope_nothing_is_seen(schema: str) -> None:
    with member(schema) as connection:
        for table in tables(connection, schema):
            assert connection.execute(f"select 1 from {table}".encode()).fetchall() == [], table
        connection.execute("select set_config('engrain.scope', '', false)")
        assert connection.execute("select 1 from item").fetchall() == []


def test_rows_of_others_are_neither_changed_nor_removed_nor_made(schema: str) -> None:
    with member(schema, ANA) as connection:
        before = {table: _count(schema, BEN, table) for table in tables(connection, schema)}
        for table in before:
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                connection.execute(f"update {table} set scope = %s".encode(), (BEN.id,))
        for table in sorted(before, key="large_result".__eq__):  # steps refer to it, so it goes last
            connection.execute(f"delete from {table}".encode())
        assert {table: _count(schema, BEN, table) for table in before} == before
        assert all(before.values())
        with pytest.raises(psycopg.errors.InsufficientPrivilege):
            connection.execute("insert into deleted_item (change, scope, n, id) values (99999, %s, 9, 'x')", (BEN.id,))


def test_the_scope_ends_with_the_transaction(schema: str) -> None:
    store = open_store(schema, "&pool=1")
    assert len(list_items(store)) > 0
    for setting in ("engrain.scope", "engrain.maintenance"):
        store.status()
        left = store._database.alone(lambda connection: connection.execute(f"show {setting}".encode()).fetchall())  # noqa: B023
        assert left == [("",)]
    store.close()


def test_the_role_of_the_tests_is_held_back(schema: str) -> None:
    with member(schema) as connection:
        found = connection.execute(
            "select rolsuper, rolbypassrls from pg_roles where rolname = current_user"
        ).fetchone()
        assert found == (False, False)
        owner = connection.execute("select tableowner from pg_tables where schemaname = %s", (schema,)).fetchone()
        assert owner == ("member",)


def test_a_table_without_a_wall_is_found(schema: str) -> None:
    store = open_store(schema)
    assert {one.point: one.state for one in store.check()}["isolation"] == "pass"
    with member(schema) as connection:
        connection.execute("alter table episode no force row level security")
    assert [one.why for one in store.check() if one.state == "fail"] == ["no row-level security on episode"]
    store.close()


PLANS = {
    "words": ("word_term", lambda store: store.best(word_query("hello derived"))),
    "items by id": ("item_id|item_anywhere", lambda store: store.get_many(ANA, ["x"])),
    "a slot": ("item_slot|item_open_slot", lambda store: store.slot(ANA, "city", None)),
    "vectors": ("embedding_pkey", lambda store: store.nearest(vector_query("hello"))),
    "a session": ("item_session|item_place", lambda store: store.last(ANA, "monday", 3)),
    "changes": ("item_changed", lambda store: store.changes(ANA, 10**9, 9)),
    "episodes": ("episode_session", lambda store: store.episodes.recent(ANA, "s", 9, START)),
}


@pytest.mark.parametrize("what", PLANS)
def test_the_index_is_used_under_row_level_security(schema: str, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """With many scopes in the tables, a scope's own rows are looked up and not searched for."""
    index, ask = PLANS[what]
    with member(schema) as connection:
        connection.execute("select set_config('engrain.maintenance', 'on', false)")
        _crowd(connection)
    store = open_store(schema)
    plans: list[str] = []
    run = psycopg.Connection.execute

    def explaining(self: psycopg.Connection, query: bytes, params: object = None, **values: object) -> object:
        if query.lstrip().startswith((b"select id, n", b"with", b"select")) and b"from" in query and params:
            shown = run(self, b"explain " + query, params).fetchall()
            plans.append("\n".join(line for (line,) in shown))
        return run(self, query, params, **values)  # type: ignore[arg-type]

    monkeypatch.setattr(psycopg.Connection, "execute", explaining)
    ask(store)
    used = "\n".join(plans)
    assert any(name in used for name in index.split("|")), used
    for table in ("item", "word", "embedding", "episode"):
        assert f"Seq Scan on {table}" not in used, used
    monkeypatch.undo()
    store.close()


def _count(schema: str, scope: Scope, table: str) -> int:
    with member(schema, scope) as connection:
        row = connection.execute(f"select count(*) from {table}".encode()).fetchone()
        assert row
        return int(row[0])


def _crowd(connection: psycopg.Connection) -> None:
    """The rows once more for each of 2,000 other scopes."""
    for table in ("item", "word", "embedding", "episode"):
        rows = connection.execute(
            "select string_agg(quote_ident(attname), ', ') from pg_attribute where attrelid = %s::regclass and "
            "attnum > 0 and not attisdropped and attidentity = '' and attname <> 'scope'",
            (table,),
        ).fetchone()
        assert rows
        connection.execute(
            f"insert into {table} (scope, {rows[0]}) select md5(crowd::text)::uuid, {rows[0]} from {table}, "
            f"generate_series(1, 2000) as crowd where scope = %s".encode(),
            (BEN.id,),
        )
        connection.execute(f"analyze {table}".encode())


def test_no_read_of_the_store_needs_more_than_its_scope(schema: str) -> None:
    """Without the policy for maintenance a scope still works in full; only what looks across scopes finds nothing."""
    with member(schema) as connection:
        for table in tables(connection, schema):
            connection.execute(f"drop policy maintenance on {table}".encode())
    store = open_store(schema)
    store.apply(Plan(ANA, (Add(fact("New.")), Add(message("Next.")))))
    assert "New." in texts(list_items(store))
    assert len(store.best(word_query("new")).hits) == 1
    assert store.unembedded("another", 9) == []
    assert store.status().hidden
    store.close()


def test_a_role_that_may_not_look_through_all_scopes_still_sees_what_waits_of_its_own(schema: str) -> None:
    """Else a vector server would hide what was written and not yet fed."""
    store = open_store(schema)
    waiting = store.outbox("index", 100, ANA)
    with member(schema) as connection:
        for table in tables(connection, schema):
            connection.execute(f"drop policy maintenance on {table}".encode())
    assert waiting
    assert store.outbox("index", 100, ANA) == waiting
    assert store.outbox("index", 100) == []
    store.close()


def test_what_this_role_cannot_take_from_a_vector_server_is_told_as_pending(schema: str, tmp_path: Path) -> None:
    toml = tmp_path / "engrain.toml"
    url = f"{postgres().url()}?schema={schema}"
    toml.write_text(f'[stores]\ndefault = "{url}"\nvectors = "qdrant://{tmp_path}/vectors"\n')
    with Memory(toml, user="ana", embedder=EMBEDDER) as memory:
        tea, train = memory.remember("Ana drinks green tea."), memory.remember("The train leaves at nine.")
        assert not memory.forget(tea).pending
        with member(schema) as connection:
            for table in tables(connection, schema):
                connection.execute(f"drop policy maintenance on {table}".encode())
        assert memory.forget(train).pending
        assert memory.store.status(memory.scope).store["hidden"]
    told = CliRunner().invoke(root, ["status", "--store", str(toml)]).stdout
    assert "hidden from this role" in told
    assert "every change" not in told
