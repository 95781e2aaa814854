"""A whole memory moves from one store to another, and both are proved to be the same."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from engrain_conformance.clock import SetClock
from engrain_conformance.drafts import EMBEDDER, add, fact, forget
from engrain_conformance.dump_restore import SCOPES, dump_all, fill_store
from engrain_conformance.reference import ReferenceStore
from engrain_conformance.views import MOMENTS, View

from engrain import Memory
from engrain.cli.main import root
from engrain.core.errors import Conflict, StoreError
from engrain.core.identity import Scope
from engrain.core.model.rows import ROW_KINDS, Key, Row, RowKind
from engrain.stores.sqlite import SqliteStore
from engrain.transfer import copy as copying
from engrain.transfer.copy import copy


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture
def source(tmp_path: Path, clock: SetClock) -> Iterator[SqliteStore]:
    store = SqliteStore(tmp_path / "from.db", clock=clock)
    fill_store(store, clock)
    yield store
    store.close()


@pytest.fixture
def target(tmp_path: Path, clock: SetClock) -> Iterator[SqliteStore]:
    store = SqliteStore(tmp_path / "to.db", clock=clock)
    yield store
    store.close()


def quiet(_: int) -> None:
    pass


def everything(store: Any) -> list[Any]:
    return [View(store, scope, MOMENTS[2], lambda id: id).everything() for scope in SCOPES]


def test_sqlite_to_sqlite_is_the_same_item_by_item(source: SqliteStore, target: SqliteStore) -> None:
    copied = copy(source, target, quiet)
    assert everything(target) == everything(source)
    assert copied.rows["item"] == source.status().items == target.status().items
    assert copied.written == sum(copied.rows.values())


def test_there_and_back_through_another_backend_is_the_same(
    source: SqliteStore, target: SqliteStore, clock: SetClock
) -> None:
    between = ReferenceStore(clock=clock)
    first, second = copy(source, between, quiet), copy(between, target, quiet)
    assert first == second
    assert everything(between) == everything(source)
    assert everything(target) == everything(source)
    assert [one for one in target.check() if one.state == "fail"] == []


def test_an_interrupted_copy_goes_on_where_it_stopped(
    source: SqliteStore, target: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(copying, "PAGE_SIZE", 5)
    whole = len(dump_all(source))
    restore, calls = target.restore, [0]

    def failing(rows: Any) -> None:
        calls[0] += 1
        if calls[0] > 4:
            raise StoreError("the line was cut")
        restore(rows)

    monkeypatch.setattr(target, "restore", failing)
    with pytest.raises(StoreError):
        copy(source, target, quiet)
    there = len(dump_all(target))
    assert 1 < there < whole
    monkeypatch.setattr(target, "restore", restore)
    assert copy(source, target, quiet).written == whole - there
    assert copy(source, target, quiet).written == 0
    assert everything(target) == everything(source)


def test_what_was_forgotten_since_is_not_left_in_a_copy_unseen(source: SqliteStore, target: SqliteStore) -> None:
    copy(source, target, quiet)
    (gone,) = add(source, fact("A secret."))
    copy(source, target, quiet)
    forget(source, gone)
    with pytest.raises(Conflict, match="forgotten in the source"):
        copy(source, target, quiet)


class Late:
    """A target during whose last page somebody writes to the source."""

    def __init__(self, target: SqliteStore, source: SqliteStore) -> None:
        self.restore, self.close, self._dump = target.restore, target.close, target.dump
        self._source: SqliteStore | None = source

    def dump(self, kind: RowKind, after: Key | None, limit: int, scope: Scope | None = None) -> list[Row]:
        if kind == ROW_KINDS[-1] and self._source:
            add(self._source, fact("Written late."))
            self._source = None
        return self._dump(kind, after, limit, scope)


def test_a_write_in_the_middle_is_noticed_and_the_next_copy_takes_it(source: SqliteStore, target: SqliteStore) -> None:
    with pytest.raises(Conflict, match=r"differ in items: .* Copy again"):
        copy(source, Late(target, source), quiet)
    assert copy(source, target, quiet).written == 1


def test_a_copy_that_differs_in_one_value_is_no_copy(
    source: SqliteStore, target: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    restore = target.restore

    def careless(rows: Sequence[Row]) -> None:
        restore([replace(row, values={**row.values, "importance": 0.3}) if row.kind == "item" else row for row in rows])

    monkeypatch.setattr(target, "restore", careless)
    with pytest.raises(Conflict, match="differ in contents"):
        copy(source, target, quiet)


def run(*args: str, code: int = 0) -> Any:
    result = CliRunner().invoke(root, list(args))
    assert result.exit_code == code, (result.output, result.exception)
    return result


def test_the_command_copies_a_memory_that_then_recalls(tmp_path: Path) -> None:
    old, new = tmp_path / "old.db", tmp_path / "new.db"
    with Memory(old, user="ana", embedder=EMBEDDER) as memory:
        memory.remember("Ana drinks green tea every morning.")
        memory.remember("Quito", slot="city")
        gone = memory.remember("A secret.")
        memory.forget(gone)
    told = json.loads(run("copy", str(old), str(new), "--json").stdout)
    assert told["rows"]["item"] == 2
    assert run("copy", str(old), str(new)).stdout.startswith("Copied: 2 items")
    with Memory(new, user="ana", embedder=EMBEDDER) as memory:
        assert memory.slots.get("city").text == "Quito"  # type: ignore[union-attr]
        assert "green tea" in str(memory.recall("green tea every morning", min_relevance=0.0))
    assert b"A secret." not in new.read_bytes()


@pytest.mark.parametrize("case", ["same", "missing", "inhabited"])
def test_the_command_refuses_what_would_lose_something(case: str, tmp_path: Path) -> None:
    one, other = tmp_path / "one.db", tmp_path / "other.db"
    for path in (one, other):
        with Memory(path, user="ana", embedder=EMBEDDER) as memory:
            memory.remember(f"In {path.name}.")
    where = {"same": (one, one), "missing": (tmp_path / "no.db", other), "inhabited": (one, other)}[case]
    run("copy", *map(str, where), code=1)
    with Memory(other, user="ana", embedder=EMBEDDER) as memory:
        assert [item.text for item in memory.list()] == ["In other.db."]
    assert not (tmp_path / "no.db").exists()


def test_a_copy_that_was_cut_off_is_known_to_the_receipt(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = tmp_path / "old.db", tmp_path / "new.db"
    with Memory(old, user="ana", embedder=EMBEDDER) as memory:
        memory.remember("The garden is a secret.")
    restore = SqliteStore.restore

    def until_the_items(self: SqliteStore, rows: Sequence[Row], *more: Any) -> None:
        restore(self, rows, *more)
        if rows[0].kind == "item":
            raise StoreError("cut off")

    with monkeypatch.context() as patch:
        patch.setattr(SqliteStore, "restore", until_the_items)
        run("copy", str(old), str(new), code=1)
    with Memory(old, user="ana", embedder=EMBEDDER) as memory:
        assert [entry.what for entry in memory.store.audit()] == ["copy_begun"]
        receipt = memory.store.erase(user="ana").receipt
    assert receipt is not None
    assert [one["known"] for one in receipt.values["remains"] if one["what"] == "copies_made_before"] == [1]


def test_a_copy_that_was_refused_is_not_on_record(tmp_path: Path) -> None:
    one, other = tmp_path / "one.db", tmp_path / "other.db"
    for path in (one, other):
        with Memory(path, user="ana", embedder=EMBEDDER) as memory:
            memory.remember(f"In {path.name}.")
    run("copy", str(one), str(other), code=1)
    with Memory(one, user="ana", embedder=EMBEDDER) as memory:
        assert memory.store.audit() == []


def test_a_copy_is_on_record_in_both_and_one_that_writes_nothing_is_none(tmp_path: Path) -> None:
    old, new = tmp_path / "old.db", tmp_path / "new.db"
    with Memory(old, user="ana", embedder=EMBEDDER) as memory:
        memory.remember("Ana drinks tea.")
    for _ in range(2):
        run("copy", str(old), str(new))
        for path in (old, new):
            with Memory(path, user="ana", embedder=EMBEDDER) as memory:
                told = [(entry.what, entry.details) for entry in memory.store.audit()]
                assert told == [("copy_begun", {"to": "file"}), ("copy", {"to": "file", "begun": 1})]
                assert memory.store.verify_audit()
