"""Damage to an SQLite store is noticed: changed rows, vanished rows, and a write-ahead log that is lost."""

from __future__ import annotations

import random
import shutil
import sqlite3
import subprocess
import sys
import warnings
from contextlib import closing
from pathlib import Path

import pytest
from engrain_conformance.embedder import HashEmbedder

from engrain import Memory, Store
from engrain.core.errors import OutcomeUnknown, StoreCorrupt, StoreError
from engrain.core.model.results import CheckResult
from engrain.stores.sqlite.connection import Connection, compute_checksum

# Writes, and dies without closing the store.
WRITER = """
import os, sys
from engrain import Memory
memory = Memory(sys.argv[1], user="ana", background=False, embedder=None)
for number in range(8):
    memory.remember(f"Note {number} of the killed writer.")
os._exit(0)
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return fill(tmp_path / "agent.db")


def fill(path: Path) -> Path:
    with opened(path) as memory:
        memory.remember("Ana lives in Quito.", slot="user.city", source="letter")
        memory.remember("Ana likes tea.")
    return path


def opened(path: Path) -> Memory:
    return Memory(path, user="ana", background=False, embedder=HashEmbedder())


def change_outside(path: Path, statement: str) -> None:
    """As another program does."""
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(statement)


def check_integrity(path: Path) -> CheckResult:
    with opened(path) as memory:
        return next(one for one in memory.store.doctor(memory.scope) if one.name == "integrity")


@pytest.mark.parametrize(
    "statement",
    [
        "update item set text = 'Ana lives in Lima.' where slot = 'user.city'",
        "update item set importance = 0.9 where slot = 'user.city'",
        "update source set name = 'diary' where name = 'letter'",
    ],
)
def test_a_row_that_another_program_changed_is_refused_and_reported(path: Path, statement: str) -> None:
    change_outside(path, statement)
    with opened(path) as memory, pytest.raises(StoreCorrupt, match="is damaged"):
        memory.slots.get("user.city")
    assert (check_integrity(path).state, "1 damaged row in table" in check_integrity(path).why) == ("fail", True)


@pytest.mark.parametrize("table", ["item", "source", "words", "scope", "code, vector"])
def test_a_row_that_vanished_is_reported(path: Path, table: str) -> None:
    for name in table.split(", "):
        change_outside(path, f"delete from {name}")
    if table == "item":
        change_outside(path, "delete from words")  # no reference is left that points to nothing
        change_outside(path, "delete from source")
    with Store(path, background=False, embedder=HashEmbedder()) as store:
        found = next(one for one in store.doctor() if one.name == "integrity")
    assert (found.state, "missing" in found.why) == ("fail", True), found


@pytest.mark.parametrize("table", ["meta", "counter"])
def test_a_file_that_lost_what_opening_needs_does_not_open(path: Path, table: str) -> None:
    change_outside(path, f"delete from {table}")
    with pytest.raises(StoreCorrupt, match="is damaged"):
        opened(path)


def test_a_page_of_an_older_time_is_reported(path: Path, tmp_path: Path) -> None:
    """Its own checksums fit: a write that the disk has lost."""
    before = path.read_bytes()
    with opened(path) as memory:
        memory.update(memory.slots.list()[0].id, importance=0.9)
    after = path.read_bytes()
    pages = [at for at in range(0, len(before), 4096) if before[at : at + 4096] != after[at : at + 4096]]
    stale = 0
    for at in pages[1:]:
        path.write_bytes(after[:at] + before[at : at + 4096] + after[at + 4096 :])
        stale += check_integrity(path).state == "fail"
    assert stale == len(pages) - 1 > 0


def test_a_damaged_row_is_not_written_over(path: Path) -> None:
    change_outside(path, "update item set text = 'Ana lives in Lima.' where slot = 'user.city'")
    with opened(path) as memory:
        with pytest.raises(StoreCorrupt):
            memory.remember("Ana lives in Loja.", slot="user.city")
        assert memory.remember("Something else.")  # other rows are written
    assert check_integrity(path).state == "fail"


def test_writes_that_fail_leave_the_digests_as_they_were(path: Path) -> None:
    """A member that raises, a statement that fails halfway, and one that fails at its second row and is caught."""
    fails = "insert into tombstone (scope, hash, at) select 1, x'00', value from json_each('[1, 2]')"

    def catch(db: Connection) -> None:
        with pytest.raises(StoreError):
            db.run(fails)
        db.run("insert into tombstone (scope, hash, at) values (1, x'01', 1)")

    with opened(path) as memory:
        store = memory.store.services.items
        for statements in ([fails], ["insert into tombstone (scope, hash, at) values (1, x'02', 1)", fails]):
            with pytest.raises(StoreError):
                store.transaction(lambda db: [db.run(one) for one in statements])  # type: ignore[attr-defined] # noqa: B023
        store.transaction(catch)  # type: ignore[attr-defined]
        assert store.snapshot(lambda db: db.rows("select hash from tombstone")) == [(b"\x01",)]  # type: ignore[attr-defined]
    assert check_integrity(path).state == "pass"


def test_a_load_and_the_writes_after_it_have_checksums(path: Path, tmp_path: Path) -> None:
    """A load inserts rows or updates them, so that triggers compute its checksums, and only its."""
    with opened(path) as memory:
        memory.export(tmp_path / "all.jsonl")
        memory.load(tmp_path / "all.jsonl")
        assert memory.remember("Ana plays chess.")
        listed = "select name from sqlite_temp_schema where name like '%_insert'"
        store = memory.store.services.items
        triggers = {name for (name,) in store.transaction(lambda db: db.rows(listed))}  # type: ignore[attr-defined]
        assert "request_insert" in triggers
        assert not triggers & {"item_insert", "source_insert", "words_insert"}
    assert check_integrity(path).state == "pass"


def test_without_a_backup_a_rebuild_keeps_what_is_there(path: Path) -> None:
    change_outside(path, "update item set text = 'Ana lives in Lima.' where slot = 'user.city'")
    change_outside(path, "update code set windows = zeroblob(4)")
    change_outside(path, "delete from source where name = 'letter'")
    with opened(path) as memory:
        memory.store.rebuild()
        city = memory.slots.get("user.city")
        assert city
        assert city.text == "Ana lives in Lima."
        assert [hit.item.text for hit in memory.recall("Ana likes tea.", n=1)] == ["Ana likes tea."]
    assert check_integrity(path).state == "pass"


def test_damage_gets_into_no_backup_and_no_copy(path: Path, tmp_path: Path) -> None:
    with opened(path) as memory:
        memory.procedural.learn("bake bread", ["knead", "bake"])
        memory.procedural.used(memory.procedural.require("bake bread").id, "baking", success=False, note="brown")
    change_outside(path, "update trial set note = 'black'")
    with opened(path) as memory:
        with pytest.raises(StoreCorrupt, match="1 damaged row in table trial"):
            memory.store.backup(tmp_path / "backup.db")
        with pytest.raises(StoreCorrupt, match="a row of table trial is damaged"):
            memory.store.copy(tmp_path / "copy.db")
    assert not (tmp_path / "backup.db").exists()


def test_a_damaged_item_can_be_forgotten(path: Path) -> None:
    with opened(path) as memory:
        id_ = memory.slots.list()[0].id
    change_outside(path, "update item set text = 'Ana lives in Lima.' where slot = 'user.city'")
    with opened(path) as memory:
        memory.forget(id_)
    assert check_integrity(path).state == "pass"


def test_checksums_are_the_same_in_every_version_of_python() -> None:
    """They are stored."""
    assert compute_checksum(1, None, "Zoë", b"\x00\xff", 0.5, 1 << 40, -7) == 1101286706741


# The write-ahead log


@pytest.fixture(scope="module")
def killed_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = fill(tmp_path_factory.mktemp("killed") / "agent.db")
    subprocess.run([sys.executable, "-c", WRITER, str(path)], check=True)
    return path


@pytest.fixture
def killed(path: Path, killed_store: Path) -> Path:
    """A store whose writer was killed: its last writes are in the log alone."""
    for file in killed_store.parent.iterdir():
        shutil.copy(file, path.with_name(file.name))
    log = path.with_name("agent.db-wal")
    assert log.stat().st_size > 0
    return log


def test_a_log_that_is_there_warns_of_nothing(path: Path, killed: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        with opened(path) as memory:
            assert len(memory.list()) == 10
    assert check_integrity(path).state == "pass"


@pytest.mark.parametrize("left", [0.0, 0.6])
def test_a_log_that_was_lost_or_cut_is_noticed_at_the_next_open(path: Path, killed: Path, left: float) -> None:
    with killed.open("r+b") as file:
        file.truncate(int(killed.stat().st_size * left))
    if not left:
        killed.unlink()
    with pytest.warns(UserWarning, match="commits are missing"):
        memory = opened(path)
    with memory:
        found = next(one for one in memory.store.doctor(memory.scope) if one.name == "integrity")
        assert (found.state, "commits were missing" in found.why) == ("warn", True)


@pytest.mark.parametrize("count", [10, pytest.param(150, marks=pytest.mark.slow)])
@pytest.mark.parametrize("harm", ["cut", "flip"])
def test_a_log_that_was_cut_or_flipped_anywhere_loses_nothing_unseen(
    path: Path, killed: Path, tmp_path: Path, harm: str, count: int
) -> None:
    content, chosen = killed.read_bytes(), random.Random(13)
    for number in range(count):
        (folder := tmp_path / str(number)).mkdir()
        for name in ("agent.db", "agent.db-lock"):
            shutil.copy(path.with_name(name), folder / name)
        at = chosen.randrange(len(content))
        flipped = bytes([content[at] ^ 1 << chosen.randrange(8)])
        left = content[:at] if harm == "cut" else content[:at] + flipped + content[at + 1 :]
        (folder / killed.name).write_bytes(left)
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            with opened(folder / "agent.db") as memory:
                kept = len(memory.list())
        assert (kept == 10) or any("commits are missing" in str(one.message) for one in warned), (at, kept)


def test_a_new_store_of_the_same_name_misses_nothing(path: Path, killed: Path) -> None:
    path.unlink()
    killed.unlink()
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        opened(path).close()


def test_a_restored_backup_misses_nothing(path: Path, tmp_path: Path) -> None:
    from engrain import restore_backup

    with opened(path) as memory:
        memory.store.backup(tmp_path / "backup.db")
        memory.remember("Said after the backup.")
    with warnings.catch_warnings():
        warnings.simplefilter("error", UserWarning)
        restore_backup(tmp_path / "backup.db", path, force=True)
        opened(path).close()


@pytest.mark.parametrize("replaced", [False, True])
def test_a_log_that_goes_under_a_live_writer_is_noticed_before_the_next_answer(path: Path, replaced: bool) -> None:
    log = path.with_name("agent.db-wal")
    with opened(path) as memory:
        memory.remember("Written before.")
        if replaced:
            shutil.copy(log, log.with_name("other"))
            log.with_name("other").replace(log)
        else:
            log.unlink()
        for number in range(3):
            with pytest.raises(OutcomeUnknown, match="-wal was removed or replaced"):
                memory.remember(f"Write {number}.")


def test_closing_saves_what_was_in_a_log_that_was_deleted(path: Path) -> None:
    with opened(path) as memory:
        memory.remember("Written before.")
        path.with_name("agent.db-wal").unlink()
    with opened(path) as memory:
        assert "Written before." in [item.text for item in memory.list()]


def test_the_doctor_warns_of_a_log_ten_times_the_store(path: Path) -> None:
    with opened(path) as memory:
        log = path.with_name("agent.db-wal")
        with log.open("r+b") as file:
            file.truncate(20_000_000)  # a hole, after the last frame
        found = next(one for one in memory.store.doctor(memory.scope) if one.name == "disk")
    assert (found.state, "in the log" in found.why) == ("warn", True)
