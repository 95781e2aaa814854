"""A path that cannot be a store is refused with words that help, and nothing in it is touched."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from forked import fork_child, wait_for_child

from engrain.core.errors import NotADatabase, ReadOnlyStore, StoreClosed, StoreCorrupt, StoreError
from engrain.core.identity import Scope
from engrain.core.model.erasure import Subject
from engrain.core.model.items import Draft
from engrain.core.model.plans import Add, Plan
from engrain.core.model.queries import ListQuery
from engrain.stores.sqlite import SqliteStore
from engrain.stores.sqlite.opening import detect_file_system, inspect_path

SCOPE = Scope(user="ana")


def add(store: SqliteStore, text: str) -> str:
    return store.apply(Plan(SCOPE, (Add(Draft(text)),))).outcomes[0].id or ""


def texts(store: SqliteStore) -> list[str]:
    return [item.text for item in store.page(ListQuery(SCOPE))]


@pytest.fixture
def filled(tmp_path: Path) -> Path:
    store = SqliteStore(tmp_path / "store.db")
    add(store, "kept")
    store.close()
    return tmp_path / "store.db"


def test_a_folder(tmp_path: Path) -> None:
    with pytest.raises(NotADatabase, match="is a folder"):
        SqliteStore(tmp_path)


def test_a_missing_folder(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="does not exist"):
        SqliteStore(tmp_path / "no" / "store.db")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("content", [b"hello", b"notes\n" * 2000, b"SQLite format 3\x00" + b"x" * 5000, bytes(4096)])
def test_a_file_that_is_no_database(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    with pytest.raises(NotADatabase):
        SqliteStore(path)
    assert path.read_bytes() == content


def test_an_empty_file_becomes_a_store(tmp_path: Path) -> None:
    (tmp_path / "store.db").touch()
    store = SqliteStore(tmp_path / "store.db")
    assert add(store, "first")
    store.close()


def test_a_truncated_database_is_told(filled: Path) -> None:
    whole = filled.read_bytes()
    filled.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(StoreCorrupt, match="doctor"):
        _use(filled)


def _use(path: Path) -> None:
    store = SqliteStore(path)
    try:
        texts(store)
        if any(one.state == "fail" for one in store.check()):
            raise StoreCorrupt("engrain doctor finds it")
    finally:
        store.close()


def test_read_only_reads_and_refuses_to_write(filled: Path) -> None:
    store = SqliteStore(filled, read_only=True)
    assert texts(store) == ["kept"]
    item = store.page(ListQuery(SCOPE))[0]
    store.touch(SCOPE, [item.id])
    with pytest.raises(ReadOnlyStore, match="read_only"):
        add(store, "more")
    with pytest.raises(ReadOnlyStore):
        store.rebuild()
    assert store.purge()
    store.close()


def test_a_read_only_store_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="does not exist"):
        SqliteStore(tmp_path / "store.db", read_only=True)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.skipif(not hasattr(os, "fork") or os.geteuid() != 0, reason="needs root, to become somebody else")
def test_a_file_that_this_user_may_not_write(filled: Path) -> None:
    modes = {one: one.stat().st_mode for one in filled.parents if one.is_relative_to(tempfile.gettempdir())}
    modes.pop(Path(tempfile.gettempdir()), None)
    for folder in modes:
        folder.chmod(0o555)
    filled.chmod(0o444)

    def work() -> None:
        with pytest.raises(ReadOnlyStore, match="read-only"):
            SqliteStore(filled)
        store = SqliteStore(filled, read_only=True)
        assert texts(store) == ["kept"]
        with pytest.raises(ReadOnlyStore, match="you may not write to it"):
            store.erasing.release(Subject(Scope(user="ana"), "user", "ana"))
        store.close()

    try:
        _as_nobody(work)
    finally:
        for folder, mode in modes.items():
            folder.chmod(mode)


def test_a_path_with_a_file_for_a_folder(filled: Path) -> None:
    with pytest.raises(StoreError):
        SqliteStore(filled / "store.db")


def _as_nobody(work: Callable[[], None]) -> None:
    def work_as_nobody() -> None:
        os.setgid(65534)
        os.setuid(65534)
        work()

    assert wait_for_child(fork_child(work_as_nobody)) == 0


def test_after_close_every_call_says_so(filled: Path) -> None:
    store = SqliteStore(filled)
    store.close()
    store.close()
    for call in (lambda: texts(store), lambda: add(store, "x"), store.status, store.purge, store.check):
        with pytest.raises(StoreClosed):
            call()


def test_an_sqlite_that_can_lose_writes_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("apsw.sqlite_lib_version", lambda: "3.51.2")
    with pytest.raises(StoreError, match=r"SQLite 3\.51\.2 can lose writes.*3\.51\.3 is needed.*pip install"):
        SqliteStore(tmp_path / "store.db")
    assert not (tmp_path / "store.db").exists()


def test_no_write_ahead_log_on_a_network_file_system(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text(f"/dev/vda / ext4 rw 0 0\nserver:/x {tmp_path} nfs4 rw 0 0\n")
    assert detect_file_system(tmp_path / "store.db", str(mounts)) == "nfs4"
    assert detect_file_system(Path("/elsewhere/store.db"), str(mounts)) == "ext4"
    monkeypatch.setattr("engrain.stores.sqlite.opening.detect_file_system", lambda path: "nfs4")
    assert inspect_path(tmp_path / "store.db", read_only=False).journal == "truncate"
    store = SqliteStore(tmp_path / "store.db")
    add(store, "x")
    assert not (tmp_path / "store.db-wal").exists()
    assert [one.state for one in store.deployment() if one.point == "file system"] == ["warn"]
    store.close()


def test_names_with_odd_characters(tmp_path: Path) -> None:
    for name in ("a b.db", "what?#%41.db", "日本.db", "'; drop table item.db"):
        store = SqliteStore(tmp_path / name)
        add(store, name)
        store.close()
        assert (tmp_path / name).exists()


@pytest.mark.parametrize("wanted", ["foreign_keys", "secure_delete"])
def test_settings_hold_on_every_connection(filled: Path, wanted: str) -> None:
    store = SqliteStore(filled)
    for run in (store.snapshot, store.transaction):
        assert run(lambda db: db.rows(f"pragma {wanted}")) == [(1,)]
        assert run(lambda db: db.rows("pragma synchronous")) == [(2,)]
        assert run(lambda db: db.rows("pragma trusted_schema")) == [(0,)]
    assert store.transaction(lambda db: db.rows("pragma journal_mode")) == [("wal",)]
    store.close()
