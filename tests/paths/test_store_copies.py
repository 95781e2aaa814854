"""The search for copies of a store in its folder: every copy is named, and no other store is read."""

from __future__ import annotations

import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from engrain_conformance.drafts import ANA

from engrain.core.model.items import Draft
from engrain.core.model.plans import Add, Plan
from engrain.stores.sqlite import SqliteStore


@pytest.fixture
def store(tmp_path: Path) -> Iterator[SqliteStore]:
    made(tmp_path / "agent.db")
    with closing(SqliteStore(tmp_path / "agent.db")) as store:
        yield store


def made(path: Path) -> None:
    with closing(SqliteStore(path)) as store:
        store.apply(Plan(ANA, (Add(Draft("Ana lives in Lima.")),)))


def named(store: SqliteStore) -> list[str]:
    return [Path(one).name for one in store.erasing.copies()]


def key_of(path: Path) -> bytes:
    with closing(sqlite3.connect(path)) as db:
        return str(db.execute("select value from meta where name = 'key'").fetchone()[0]).encode()


def test_another_store_is_known_by_what_it_says_and_not_read_through(store: SqliteStore, tmp_path: Path) -> None:
    key = key_of(shutil.copy(tmp_path / "agent.db", tmp_path / "copy.db"))
    made(tmp_path / "other.db")
    with (tmp_path / "other.db").open("ab") as file:
        file.write(key.ljust(4096, b"x"))
    assert named(store) == ["copy.db"]


@pytest.mark.parametrize("part", ["the list of tables", "a half"])
def test_a_copy_that_is_damaged_is_named_too(store: SqliteStore, tmp_path: Path, part: str) -> None:
    whole = (tmp_path / "agent.db").read_bytes()
    hurt = whole[:100] + b"\xff" * 3996 + whole[4096:] if part == "the list of tables" else whole[: len(whole) // 2]
    (tmp_path / "copy.db").write_bytes(hurt[: len(hurt) // 4096 * 4096])
    assert key_of(shutil.copy(tmp_path / "agent.db", tmp_path / "whole.db")) in (tmp_path / "copy.db").read_bytes()
    assert named(store) == ["copy.db", "whole.db"]


def test_the_look_writes_nothing(store: SqliteStore, tmp_path: Path) -> None:
    shutil.copy(tmp_path / "agent.db", tmp_path / "copy.db")
    before = {one.name: one.stat().st_mtime_ns for one in tmp_path.iterdir() if one.name.startswith("copy")}
    assert named(store) == ["copy.db"]
    assert {one.name: one.stat().st_mtime_ns for one in tmp_path.iterdir() if one.name.startswith("copy")} == before
