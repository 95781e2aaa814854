"""A store of an older schema is brought up to date, with a copy made before it is changed."""

from __future__ import annotations

from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from engrain.core.errors import NewerStore, NotADatabase, StoreError
from engrain.core.identity import Scope
from engrain.core.model.items import Draft
from engrain.core.model.plans import Add, Forget, Plan
from engrain.core.model.queries import ListQuery
from engrain.core.text.passages import index_words
from engrain.stores.sqlite import SqliteStore, schema
from engrain.stores.sqlite.connection import Row, connect, file_uri

SCOPE = Scope(tenant="t", agent="a", user="ana")
SCHEMA = "select name, sql from sqlite_master order by name"
SECOND = "create table extra (n integer primary key) strict;\nalter table item add column mood text;\n"


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """A store of the first schema, before a version with one more migration opens it."""
    store = SqliteStore(tmp_path / "store.db", clock=lambda: datetime(2026, 1, 2, 3, 4, 5, tzinfo=UTC))
    steps = tuple(Add(Draft(text, words=index_words(text))) for text in ("Ana lives in Quito.", "Ana prefers Rust."))
    store.apply(Plan(SCOPE, steps))
    store.close()
    return tmp_path / "store.db"


@pytest.fixture
def newer(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if a version with one more migration were installed."""
    known = schema.load_migrations()
    monkeypatch.setattr(schema, "load_migrations", lambda: (*known, (migrate_number(known) + 1, SECOND)))


def migrate_number(known: tuple[tuple[int, str], ...]) -> int:
    return known[-1][0]


def test_an_upgrade_makes_a_copy_first_and_keeps_everything(old: Path, newer: None) -> None:
    store = SqliteStore(old)
    assert store.snapshot(lambda db: db.rows("pragma user_version")) == [(schema.latest_version(),)]
    assert store.snapshot(lambda db: db.rows("select count(*) from extra")) == [(0,)]
    assert len(store.page(ListQuery(SCOPE))) == 2
    (copy,) = old.parent.glob("store.db-before-v*")
    before = connect(file_uri(copy, "ro", immutable=True))
    assert before.rows("pragma user_version") == [(1,)]
    assert before.rows("select count(*) from item") == [(2,)]
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
    known = schema.load_migrations()
    broken = (*known, (known[-1][0] + 1, "create table extra (n integer);\ncreate table item (n integer);\n"))
    with monkeypatch.context() as patch:
        patch.setattr(schema, "load_migrations", lambda: broken)
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
    db = connect(file_uri(old, "rw"))
    db.rows("pragma user_version = 999")
    db.close()
    with pytest.raises(NewerStore, match="pip install -U engrain"):
        SqliteStore(old)


def test_a_database_of_another_program_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    db = connect(file_uri(path, "rwc"))
    db.run("create table t (x)")
    db.close()
    before = path.read_bytes()
    with pytest.raises(NotADatabase, match="another program"):
        SqliteStore(path)
    assert path.read_bytes() == before


def test_an_older_store_cannot_be_opened_read_only_until_it_is_upgraded(old: Path, newer: None) -> None:
    with pytest.raises(StoreError, match="older schema"):
        SqliteStore(old, read_only=True)


def test_a_store_is_the_same_where_no_finished_file_can_be_put_in_place(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError(1, "no hard links here")

    def open_new(name: str) -> tuple[list[Row], list[object], bytes]:
        with closing(SqliteStore(tmp_path / name)) as store:
            pragmas = ("application_id", "user_version", "journal_mode", "page_size", "auto_vacuum", "encoding")
            found = [store.snapshot(lambda db: db.rows(f"pragma {pragma}")) for pragma in pragmas]  # noqa: B023
            return store.snapshot(lambda db: db.rows(SCHEMA)), found, store.dialect.key

    first, second = open_new("first.db"), open_new("second.db")
    monkeypatch.setattr(schema.os, "link", refuse)
    third = open_new("third.db")
    assert first[:2] == second[:2] == third[:2]
    assert len({first[2], second[2], third[2]}) == 3, "every store has a key of its own"
    assert not [one for one in tmp_path.iterdir() if "-new-" in one.name]
