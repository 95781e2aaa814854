"""Old stores open in every newer version, with a copy made before they are changed."""

from __future__ import annotations

import shutil
from datetime import UTC, datetime
from importlib.resources import files
from pathlib import Path

import pytest

from engrain.core.errors import NewerStore, NotADatabase, StoreError
from engrain.core.identity import Scope
from engrain.core.model.items import Draft, Source, Vectors
from engrain.core.model.plans import Add, Correct, Forget, Plan
from engrain.core.text.passages import index_words
from engrain.ports import ListQuery
from engrain.stores.sqlite import SqliteStore, migrate
from engrain.stores.sqlite.engine import connect, uri

FIRST = Path(__file__).parents[1] / "files" / "store-v1.db"
SCOPE = Scope(tenant="t", agent="a", user="ana")
SECOND = "create table extra (n integer primary key) strict;\nalter table item add column mood text;\n"


def make_first(path: Path) -> None:
    """How tests/files/store-v1.db was made, by the version that brought schema 1. Never run again."""
    store = SqliteStore(path, clock=lambda: datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
    vector = Vectors("small/2/0", (b"\x00\x00\x80?\x00\x00\x00\x00",))

    def draft(text: str, **more: object) -> Draft:
        return Draft(text, words=index_words(text), vectors=vector, **more)  # type: ignore[arg-type]

    steps = (
        Add(draft("Ana lives in Lima.", slot="user.city", metadata={"from": "chat"})),
        Add(draft("Ana lives in Quito.", slot="user.city", source=Source("notes.md", "document"))),
        Add(draft("Ana prefers Python over JavaScript.", importance=0.8)),
    )
    done = store.apply(Plan(SCOPE, steps, request_id="first"))
    store.apply(Plan(SCOPE, (Correct(done.outcomes[2].id or "", draft("Ana prefers Rust.")),)))
    gone = store.apply(Plan(SCOPE, (Add(draft("A secret.")),))).outcomes[0].id
    store.apply(Plan(SCOPE, (Forget(gone or ""),)))
    store.purge()
    store.close()


@pytest.fixture
def old(tmp_path: Path) -> Path:
    return Path(shutil.copy(FIRST, tmp_path / "store.db"))


@pytest.fixture
def newer(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a version with one more migration were installed."""
    known = migrate.migrations()
    monkeypatch.setattr(migrate, "migrations", lambda: (*known, (migrate_number(known) + 1, SECOND)))


def migrate_number(known: tuple[tuple[int, str], ...]) -> int:
    return known[-1][0]


def test_a_store_of_the_first_version_opens(old: Path) -> None:
    store = SqliteStore(old)
    assert {item.text for item in store.page(ListQuery(SCOPE))} == {"Ana lives in Quito.", "Ana prefers Rust."}
    assert [item.text for item in store.history(SCOPE, "user.city")] == ["Ana lives in Lima.", "Ana lives in Quito."]
    assert store.apply(Plan(SCOPE, (), request_id="first")).repeated
    assert store.apply(Plan(SCOPE, (Add(Draft("A secret.", derived=True)),))).outcomes[0].status == "kept_out"
    assert [one.point for one in store.check() if one.state == "fail"] == []
    store.close()


def test_schema_sql_is_the_picture_of_all_migrations() -> None:
    store = SqliteStore(":memory:")
    picture = store.snapshot(migrate.picture)
    store.close()
    assert (files("engrain.stores.sqlite") / "schema.sql").read_text("utf-8") == picture, (
        "write migrate.picture(db) to it"
    )


def test_an_upgrade_makes_a_copy_first_and_keeps_everything(old: Path, newer: None) -> None:
    store = SqliteStore(old)
    assert store.snapshot(lambda db: db.rows("pragma user_version")) == [(migrate.latest(),)]
    assert store.snapshot(lambda db: db.rows("select count(*) from extra")) == [(0,)]
    assert len(store.page(ListQuery(SCOPE))) == 2
    (copy,) = old.parent.glob("store.db-before-v*")
    before = connect(uri(copy, "ro", immutable=True), "apsw")
    assert before.rows("pragma user_version") == [(1,)]
    assert before.rows("select count(*) from item") == [(4,)]
    before.close()
    store.close()
    again = SqliteStore(old)  # and only once
    again.close()
    assert len(list(old.parent.glob("store.db-before-v*"))) == 1


def test_forgetting_removes_the_copy_too(old: Path, newer: None) -> None:
    store = SqliteStore(old)
    item = store.page(ListQuery(SCOPE))[0]
    store.apply(Plan(SCOPE, (Forget(item.id),)))
    assert store.purge()
    assert list(old.parent.glob("store.db-before-v*")) == []
    store.close()


def test_an_upgrade_that_fails_changes_nothing(old: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    known = migrate.migrations()
    broken = (*known, (known[-1][0] + 1, "create table extra (n integer);\ncreate table item (n integer);\n"))
    with monkeypatch.context() as patch:
        patch.setattr(migrate, "migrations", lambda: broken)
        with pytest.raises(StoreError):
            SqliteStore(old)
    store = SqliteStore(old)
    extra = "select count(*) from sqlite_master where name = 'extra'"
    assert store.snapshot(lambda db: db.rows(extra)) == [(0,)]
    assert len(store.page(ListQuery(SCOPE))) == 2
    store.close()


def test_a_new_store_needs_no_copy(tmp_path: Path) -> None:
    SqliteStore(tmp_path / "store.db").close()
    assert sorted(one.name for one in tmp_path.iterdir()) == ["store.db", "store.db-lock"]


def test_a_store_of_a_newer_version_is_refused(old: Path) -> None:
    db = connect(uri(old, "rw"), "apsw")
    db.rows("pragma user_version = 999")
    db.close()
    with pytest.raises(NewerStore, match="pip install -U engrain"):
        SqliteStore(old)


def test_a_database_of_another_program_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    db = connect(uri(path, "rwc"), "apsw")
    db.run("create table t (x)")
    db.close()
    before = path.read_bytes()
    with pytest.raises(NotADatabase, match="another program"):
        SqliteStore(path)
    assert path.read_bytes() == before


def test_an_older_store_cannot_be_opened_read_only_until_it_is_upgraded(old: Path, newer: None) -> None:
    with pytest.raises(StoreError, match="older schema"):
        SqliteStore(old, read_only=True)
