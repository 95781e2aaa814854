"""Backups: one moment of a store in use, checked; restored without what was forgotten or erased since."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from engrain_conformance.clock import SetClock
from engrain_conformance.embedder import HashEmbedder
from examples import up_to
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from engrain import (
    ConfigError,
    Conflict,
    DiskFull,
    EngrainError,
    InvalidInput,
    Memory,
    NewerStore,
    NotADatabase,
    NotFound,
    OnHold,
    StoreBusy,
    StoreCorrupt,
    StoreError,
)
from engrain.cli.main import root
from engrain.core.formats.manifests import make_backup_name
from engrain.core.model.rows import Row, RowKind
from engrain.memory.transfer import restore_backup
from engrain.stores.sqlite import SqliteStore, schema
from engrain.stores.sqlite import backup as backing

CANARY = "canary-5b1e"
HOUR = 3600.0


def opened(path: Path | str, **options: object) -> Memory:
    return Memory(path, user="ana", embedder=HashEmbedder(), background=False, **options)  # type: ignore[arg-type]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "agent.db"
    with opened(path) as memory:
        memory.remember("Ana likes tea.")
        memory.remember("Ana lives in Quito.", slot="user.city")
        memory.add_message("user", "Please remember that I prefer Python.", session="s")
    return path


@pytest.fixture
def backup(store: Path, tmp_path: Path) -> Path:
    path = tmp_path / "monday.db"
    with opened(store) as memory:
        memory.store.backup(path)
    return path


def texts(path: Path | str, read_only: bool = False) -> list[str]:
    with opened(path, settings={"stores": {"read_only": read_only}}) as memory:
        return sorted(item.text for item in memory.list(limit=999))


def holding(folder: Path, words: str = CANARY) -> list[str]:
    return sorted(one.name for one in folder.rglob("*") if one.is_file() and words.encode() in one.read_bytes())


# Taking


def test_a_backup_is_one_moment_of_a_store_that_is_written_to(store: Path, tmp_path: Path) -> None:
    stop, told = threading.Event(), threading.Event()
    written: list[str] = []

    def write() -> None:
        with opened(store) as other:
            while not stop.is_set():
                # Two in one transaction: a backup has both or none.
                pair = [f"Left {len(written)}.", f"Right {len(written)}."]
                other.remember_many([{"text": text} for text in pair])
                written.extend(pair)
                told.set()

    thread = threading.Thread(target=write)
    thread.start()
    try:
        assert told.wait(180)
        with opened(store) as memory:
            for n in range(3):
                before = list(written)
                done = memory.store.backup(tmp_path / f"{n}.db")
                found = texts(tmp_path / f"{n}.db")
                lefts, rights = (
                    {one.split()[1] for one in found if one.startswith(side)} for side in ("Left", "Right")
                )
                assert lefts == rights
                assert set(before) <= set(found), "all that was acknowledged before"
                assert done.manifest.items >= len(before)
    finally:
        stop.set()
        thread.join()
    assert len(written) > len(before), "the writer was not stopped"


def test_a_backup_says_what_is_in_it(store: Path, tmp_path: Path, clock: SetClock) -> None:
    with opened(store, clock=clock) as memory:
        done = memory.store.backup(tmp_path / "b.db")
        items = memory.store.status(memory.scope).store["items"]
    manifest = json.loads((tmp_path / "b.db.json").read_text())
    assert manifest["sha256"] == done.manifest.sha256
    assert manifest["rows"]["item"] == manifest["items"] == items
    assert manifest["bytes"] == (tmp_path / "b.db").stat().st_size
    assert str(done).endswith("bytes, checked")
    assert (tmp_path / "b.db").stat().st_mode & 0o77 == 0, "nobody else may read it"


def test_what_was_forgotten_before_is_not_in_it(store: Path, tmp_path: Path) -> None:
    with opened(store) as memory:
        id = memory.remember(f"The word is {CANARY}.")
        memory.forget(id)
        memory.store.backup(tmp_path / "after.db")
    assert "after.db" not in holding(tmp_path)


def test_a_backup_is_never_written_over_another(store: Path, backup: Path) -> None:
    before = backup.read_bytes()
    with opened(store) as memory:
        for path in (backup, store):
            with pytest.raises(InvalidInput, match="is there already"):
                memory.store.backup(path)
        with pytest.raises(InvalidInput, match="does not exist"):
            memory.store.backup(backup.parent / "nowhere" / "b.db")
    assert backup.read_bytes() == before


def test_a_backup_that_fails_leaves_nothing(store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    there = sorted(tmp_path.iterdir())
    monkeypatch.setattr("engrain.stores.sqlite.backup.write_file", full)
    with opened(store) as memory, pytest.raises(StoreError, match="Nothing is left"):
        memory.store.backup(tmp_path / "b.db")
    assert sorted(tmp_path.iterdir()) == there


@pytest.mark.parametrize("link", [False, True])
def test_what_stands_where_a_manifest_is_written_is_neither_followed_nor_kept(
    store: Path, tmp_path: Path, link: bool
) -> None:
    other, part = tmp_path / "other.txt", tmp_path / "b.db.json.part"
    other.write_text("Not yours.")
    if link:
        part.symlink_to(other)
    else:
        part.touch(0o666)
        part.chmod(0o666)
    with opened(store) as memory:
        memory.store.backup(tmp_path / "b.db")
    manifest = tmp_path / "b.db.json"
    assert other.read_text() == "Not yours."
    assert not manifest.is_symlink()
    assert manifest.stat().st_mode & 0o777 == 0o600
    restore_backup(tmp_path / "b.db", tmp_path / "new.db")
    assert texts(tmp_path / "new.db") == texts(store)


def test_a_backup_that_is_killed_is_known_to_a_receipt_and_replaced_by_the_next(store: Path, tmp_path: Path) -> None:
    with opened(store) as memory:
        memory.remember(f"The word is {CANARY}.")
        with pytest.raises(InvalidInput):
            memory.store.backup(store)  # leaves nothing, and is not counted
    code = (
        "import os, sys; from engrain import Memory; from engrain.stores.sqlite import backup\n"
        "backup.Backups._make_manifest = lambda *_: os._exit(9)\n"
        "Memory(sys.argv[1], user='ana', background=False).store.backup(sys.argv[2])\n"
    )
    killed = subprocess.run([sys.executable, "-c", code, str(store), str(tmp_path / "b.db")], check=False)
    assert killed.returncode == 9
    assert "b.db.part" in holding(tmp_path)
    with opened(store) as memory:
        done = memory.store.erase(user="ana")
        assert done.receipt
        assert {"what": "backups_made_before", "known": 1, "until": "removed_by_hand"} in done.receipt.values["remains"]
        memory.store.backup(tmp_path / "b.db")
        memory.remember("Ana is back.")
        done = memory.store.erase(user="ana")
        assert done.receipt
        assert done.receipt.values["remains"][0]["known"] == 2
    assert holding(tmp_path) == []


def test_a_store_on_a_server_has_its_own_tools(tmp_path: Path) -> None:
    with Memory("reference://", embedder=HashEmbedder()) as memory, pytest.raises(ConfigError, match="pg_dump"):
        memory.store.backup(tmp_path / "b.db")
    with pytest.raises(ConfigError, match="pg_dump"):
        restore_backup(tmp_path / "b.db", "postgresql://host/engrain")


# Restoring


def test_a_restored_store_is_the_one_that_was_backed_up(store: Path, backup: Path, tmp_path: Path) -> None:
    before = texts(store)
    with opened(store) as memory:
        memory.remember("Later.")
    done = restore_backup(backup, tmp_path / "new.db")
    assert (done.may_hold_forgotten, done.kept_out) == (True, {})
    assert texts(tmp_path / "new.db") == before
    assert done.manifest.items == len(before)
    with opened(tmp_path / "new.db") as memory:
        assert memory.recall("Does Ana like tea?").hits
        assert all(one.state != "fail" for one in memory.store.doctor(memory.scope))
    assert [one.name for one in tmp_path.iterdir() if "restoring" in one.name] == []


def test_what_was_forgotten_since_does_not_come_back(store: Path, tmp_path: Path) -> None:
    with opened(store) as memory:
        id = memory.remember(f"The word is {CANARY}.")
        memory.add_message("user", f"Remember that {CANARY} is my word.", session="s")
        memory.store.backup(tmp_path / "b.db")
        memory.forget(id)
        for item in memory.list({"session": "s"}, limit=99):
            if CANARY in item.text:
                memory.forget(item.id)
    assert "agent.db" not in holding(tmp_path)
    done = restore_backup(tmp_path / "b.db", store, force=True)
    (tmp_path / "b.db").unlink()
    assert holding(tmp_path) == []
    assert done.kept_out
    assert done.kept_out["item"] >= 2
    assert done.items == done.manifest.items - done.kept_out["item"]
    assert f"{done.items} of the {done.manifest.items} items in the backup" in str(done)
    with opened(store) as memory:
        assert memory.store.status(memory.scope).store["items"] == done.items
    assert not [text for text in texts(store) if CANARY in text]
    assert "Ana likes tea." in texts(store)


def test_whom_was_erased_since_does_not_come_back(store: Path, tmp_path: Path) -> None:
    for user in ("ana", "ana2", "Ana", "ana%"):
        with Memory(store, user=user, embedder=HashEmbedder(), background=False) as memory:
            memory.remember(f"{CANARY} of {user}." if user == "ana" else f"A note of {user}.")
            if user == "ana":
                memory.add_message("user", f"I like {CANARY}.", session=CANARY)
                memory.tasks.checkpoint(CANARY, {"state": CANARY})
    with opened(store) as memory:
        memory.store.backup(tmp_path / "b.db")
        memory.store.erase(user="ana")
    assert "agent.db" not in holding(tmp_path)
    restore_backup(tmp_path / "b.db", store, force=True)
    (tmp_path / "b.db").unlink()
    assert holding(tmp_path) == []
    for user in ("ana2", "Ana", "ana%"):
        with Memory(store, user=user, embedder=HashEmbedder(), background=False) as memory:
            assert [item.text for item in memory.list()] == [f"A note of {user}."], "a near name loses nothing"
    with opened(store) as memory:
        assert memory.list(limit=99) == []


def test_what_was_cut_comes_back_as_it_stands_now(store: Path, tmp_path: Path) -> None:
    with opened(store) as memory:
        said = memory.add_message("user", f"I prefer {CANARY}. My dog is called Rex.", session="talk").id
        facts = [item for item in memory.list({"kind": "fact"}, limit=99) if CANARY in item.text]
        memory.store.backup(tmp_path / "b.db")
        for fact in facts:
            memory.forget(fact.id)
        now = memory.get(said)
    restore_backup(tmp_path / "b.db", store, force=True)
    with opened(store) as memory:
        assert memory.get(said) == now
    (tmp_path / "b.db").unlink()
    assert holding(tmp_path) == []


def test_what_was_told_anew_comes_back(store: Path, tmp_path: Path) -> None:
    with opened(store) as memory:
        memory.forget(memory.remember("Ana has a cat."))
        again = memory.remember("Ana has a cat.")
        memory.store.backup(tmp_path / "b.db")
    restore_backup(tmp_path / "b.db", store, force=True)
    with opened(store) as memory:
        found = memory.get(again)
        assert found is not None
        assert found.text == "Ana has a cat."


def test_what_was_told_anew_comes_back_every_time(store: Path, tmp_path: Path) -> None:
    with opened(store) as memory:
        memory.forget(memory.remember("Ana has a cat."))
        again = memory.remember("Ana has a cat.")
    for name in ("first", "second"):
        with opened(store) as memory:
            memory.store.backup(tmp_path / f"{name}.db")
            memory.forget(memory.remember(f"Said before the {name}."))
        restore_backup(tmp_path / f"{name}.db", store, force=True)
        with opened(store) as memory:
            assert memory.get(again) is not None, name


def test_what_stays_out_is_found_without_reading_every_item(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(store) as memory:
        gone = memory.remember("Ana has a cat.")
        memory.store.backup(tmp_path / "b.db")
        memory.forget(gone)
    dump, kinds = SqliteStore.dump, list[str]()

    def counted(self: SqliteStore, kind: RowKind, *rest: Any) -> list[Row]:
        kinds.append(kind)
        return dump(self, kind, *rest)

    monkeypatch.setattr(SqliteStore, "dump", counted)
    restore_backup(tmp_path / "b.db", store, force=True)
    assert "audit" in kinds
    assert "item" not in kinds
    with opened(store) as memory:
        assert memory.get(gone) is None


def test_a_store_is_replaced_only_if_that_is_said(store: Path, backup: Path) -> None:
    before = store.read_bytes()
    with pytest.raises(InvalidInput, match="--force"):
        restore_backup(backup, store)
    assert store.read_bytes() == before


def test_another_memory_is_not_replaced(backup: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    with opened(other) as memory:
        memory.remember("Of another memory.")
    with pytest.raises(Conflict, match="different memories"):
        restore_backup(backup, other, force=True)
    assert texts(other) == ["Of another memory."]


def damage(store: Path, words: bytes) -> None:
    """Every page with these words becomes noise."""
    raw, page = bytearray(store.read_bytes()), 4096
    for start in range(page, len(raw), page):
        if words in raw[start : start + page]:
            raw[start : start + page] = random.Random(start).randbytes(page)
    store.write_bytes(raw)


def test_a_damaged_store_still_says_what_was_forgotten_in_it(store: Path, tmp_path: Path) -> None:
    with opened(store) as memory:
        gone = memory.remember(f"The word is {CANARY}.")
        memory.remember_many([{"text": f"Fact {n} about {'tea ' * 40}"} for n in range(200)])
        memory.store.backup(tmp_path / "b.db")
        memory.forget(gone)
    damage(store, b"Fact 150 about")
    with opened(store, settings={"stores": {"read_only": True}}) as memory:
        assert [one.state for one in memory.store.doctor(memory.scope) if one.name == "integrity"] != ["pass"]
    done = restore_backup(tmp_path / "b.db", store, force=True)
    assert (done.may_hold_forgotten, done.kept_out["item"]) == (True, 1)
    assert "forgotten since may be back" in str(done)
    assert len(texts(store)) == done.items
    (tmp_path / "b.db").unlink()
    assert holding(tmp_path) == []


@pytest.mark.parametrize("raw", [b"", b"\0" * 8192, b"SQLite format 3\0" + b"x" * 5000])
def test_a_store_that_is_damaged_beyond_reading_is_replaced_and_the_answer_says_so(
    store: Path, backup: Path, raw: bytes
) -> None:
    store.write_bytes(raw)
    with pytest.raises(InvalidInput):
        restore_backup(backup, store)
    assert store.read_bytes() == raw
    done = restore_backup(backup, store, force=True)
    assert (done.may_hold_forgotten, done.kept_out) == (True, {})
    assert "Ana likes tea." in texts(store)


def test_what_is_no_store_is_not_replaced(backup: Path, tmp_path: Path) -> None:
    other = tmp_path / "other.db"
    with closing(sqlite3.connect(other)) as db:
        db.execute("create table mine (value)")
    before = other.read_bytes()
    with pytest.raises(NotADatabase, match="another program"):
        restore_backup(backup, other, force=True)
    assert other.read_bytes() == before
    with pytest.raises(InvalidInput, match="not a file"):
        restore_backup(backup, tmp_path, force=True)


def test_a_store_in_which_something_is_forgotten_until_the_last_moment_is_not_replaced(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(store) as memory:
        gone = memory.remember(f"The word is {CANARY}.")
        memory.store.backup(tmp_path / "b.db")
    place = backing.replace_store

    def late(*args: Any) -> None:
        with opened(store) as memory:
            memory.remember("Said at the last moment.")
            memory.forget(gone)
        place(*args)

    with monkeypatch.context() as patch:
        patch.setattr(backing, "replace_store", late)
        with pytest.raises(Conflict, match="meanwhile"):
            restore_backup(tmp_path / "b.db", store, force=True)
    assert "Said at the last moment." in texts(store)
    restore_backup(tmp_path / "b.db", store, force=True)
    assert [text for text in texts(store) if CANARY in text] == []


def test_a_store_with_somebody_on_hold_is_not_replaced(store: Path, backup: Path) -> None:
    with opened(store) as memory:
        memory.remember("Said since.")
        memory.store.hold(user="ana", reason="case-7")
    with pytest.raises(OnHold, match="case-7"):
        restore_backup(backup, store, force=True)
    with opened(store) as memory:
        memory.store.release(user="ana")
    assert "Said since." in texts(store)
    assert "Said since." not in texts(restore_backup(backup, store, force=True).path)


def test_a_store_in_use_is_not_replaced(store: Path, backup: Path) -> None:
    with opened(store) as memory:
        memory.remember("While open.")
        with pytest.raises(StoreBusy, match="close the programs"):
            restore_backup(backup, store, force=True)
        memory.remember("Still open.")
    assert {"While open.", "Still open."} <= set(texts(store))


def test_an_older_backup_is_brought_up_to_date(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    older = tmp_path / "older.db"
    with Memory(older, embedder=HashEmbedder(), background=False) as memory:
        memory.remember("Ana lives in Quito.")
    manifest = made_manifest(older)
    older.with_name("older.db.json").write_text(json.dumps(manifest))
    known = schema.load_migrations()
    monkeypatch.setattr(
        schema, "load_migrations", lambda: (*known, (known[-1][0] + 1, "create table extra (n integer);\n"))
    )
    restore_backup(older, tmp_path / "new.db")
    with Memory(tmp_path / "new.db", embedder=HashEmbedder(), background=False) as memory:
        assert memory.store.status(memory.scope).store["items"] == manifest["items"]
    assert not [one.name for one in tmp_path.iterdir() if "before-v" in one.name]


def made_manifest(path: Path) -> dict[str, object]:
    import hashlib

    with sqlite3.connect(path) as db:
        names = [name for (name,) in db.execute("select name from sqlite_master where type = 'table'")]
        rows = {
            name: db.execute(f'select count(*) from "{name}"').fetchone()[0]
            for name in names
            if not name.startswith("sqlite_")
        }
        (schema,) = db.execute("pragma user_version").fetchone()
    db.close()
    raw = path.read_bytes()
    return {
        "engrain_backup": 1, "taken_at": "2026-01-01T00:00:00+00:00", "schema": schema, "items": rows["item"],
        "bytes": len(raw), "sha256": hashlib.sha256(raw).hexdigest(), "rows": rows,
    }  # fmt: skip


# What is no backup

Damage = Callable[[Path], None]
DAMAGED: dict[str, tuple[type[EngrainError], Damage]] = {
    "gone": (NotFound, lambda path: path.unlink()),
    "without its manifest": (NotADatabase, lambda path: path.with_name(path.name + ".json").unlink()),
    "cut short": (StoreCorrupt, lambda path: os.truncate(path, path.stat().st_size // 2)),
    "longer": (StoreCorrupt, lambda path: path.write_bytes(path.read_bytes() + b"\0")),
    "empty": (StoreCorrupt, lambda path: os.truncate(path, 0)),
    "of another program": (StoreCorrupt, lambda path: path.write_text("Dear diary")),
    "with a manifest that is no JSON": (
        StoreCorrupt,
        lambda path: path.with_name(path.name + ".json").write_text("{") and None,
    ),
    "with another manifest": (
        StoreCorrupt,
        lambda path: path.with_name(path.name + ".json").write_text('{"hello": 1}') and None,
    ),
    "newer": (NewerStore, lambda path: changed_manifest(path, schema=9_999)),
    "of a newer format": (NewerStore, lambda path: changed_manifest(path, engrain_backup=3, more=1)),
    "miscounted": (StoreCorrupt, lambda path: changed_manifest(path, rows={"item": 1})),
}


def changed_manifest(path: Path, **values: object) -> None:
    beside = path.with_name(path.name + ".json")
    beside.write_text(json.dumps({**json.loads(beside.read_text()), **values}))


@pytest.mark.parametrize("how", DAMAGED)
def test_a_backup_that_is_not_whole_changes_nothing(store: Path, backup: Path, how: str) -> None:
    error, damage = DAMAGED[how]
    damage(backup)
    before = store.read_bytes()
    with pytest.raises(error):
        restore_backup(backup, store, force=True)
    with pytest.raises(error):
        restore_backup(backup, store.with_name("new.db"))
    assert store.read_bytes() == before
    assert not [one.name for one in store.parent.iterdir() if one.name.startswith(("new", "agent.db."))]


@settings(max_examples=up_to(12), suppress_health_check=list(HealthCheck), deadline=None)
@given(place=st.floats(0, 1, exclude_max=True), flip=st.integers(1, 255))
def test_one_byte_that_was_changed_is_found(backup: Path, place: float, flip: int) -> None:
    raw = bytearray(backup.read_bytes())
    raw[int(place * len(raw))] ^= flip
    bad = backup.with_name("bad.db")
    bad.write_bytes(raw)
    shutil.copy(backup.with_name("monday.db.json"), bad.with_name("bad.db.json"))
    with pytest.raises(StoreCorrupt):
        restore_backup(bad, bad.with_name("new.db"))
    assert not bad.with_name("new.db").exists()


@pytest.mark.parametrize("delay", [0.3, 0.6])
def test_a_restore_that_is_killed_leaves_the_old_store_or_the_new_one(store: Path, backup: Path, delay: float) -> None:
    with opened(store) as memory:
        memory.remember_many([{"text": f"Since {n}."} for n in range(300)])
    code = (
        "import sys; from engrain.memory.transfer import restore_backup\n"
        "restore_backup(sys.argv[1], sys.argv[2], force=True)\n"
    )
    count = len(texts(backup, read_only=True))
    running = subprocess.Popen([sys.executable, "-c", code, str(backup), str(store)])
    time.sleep(delay)
    running.kill()
    running.wait()
    assert len(texts(store)) in (count, count + 300)
    restore_backup(backup, store, force=True)
    assert len(texts(store)) == count


def test_a_backup_is_never_restored_over_itself_or_another(store: Path, backup: Path, tmp_path: Path) -> None:
    with opened(store) as memory:
        memory.store.backup(tmp_path / "tuesday.db")
    link = tmp_path / "link.db"
    link.symlink_to(backup)
    for goal in (backup, link, tmp_path / "tuesday.db"):
        before = goal.read_bytes()
        with pytest.raises(InvalidInput, match="backup itself"):
            restore_backup(backup, goal, force=True)
        assert goal.read_bytes() == before
    store.with_name("agent.db.json").write_text('{"mine": 1}')
    restore_backup(backup, store, force=True)


def test_a_store_behind_a_link_is_replaced_where_it_is(store: Path, backup: Path, tmp_path: Path) -> None:
    link = tmp_path / "link" / "agent.db"
    link.parent.mkdir()
    link.symlink_to(store)
    with opened(store) as memory:
        memory.remember("Ana likes rum.")
        with pytest.raises(StoreBusy):
            restore_backup(backup, link, force=True)
        assert "Ana likes rum." in [item.text for item in memory.list()]
    restore_backup(backup, link, force=True)
    assert link.is_symlink()
    assert "Ana likes rum." not in texts(store)
    (loop := tmp_path / "loop.db").symlink_to(loop)
    with pytest.raises(InvalidInput, match="a link"):
        restore_backup(backup, loop, force=True)


def test_a_restore_to_where_nothing_can_be_written_is_a_typed_error(
    store: Path, backup: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = store.read_bytes()
    for problem, error in ((errno.EROFS, StoreError), (errno.ENOSPC, DiskFull)):

        def fails(*_: object, problem: int = problem) -> None:
            if problem == errno.ENOSPC:
                raise DiskFull("as the engine says it")
            raise OSError(problem, os.strerror(problem))

        monkeypatch.setattr("engrain.stores.sqlite.opening.write_copy", fails)
        with pytest.raises(error, match=str(store)):
            restore_backup(backup, store, force=True)
    assert store.read_bytes() == before


@pytest.mark.parametrize("late", [False, True], ids=["in the copy", "in its manifest"])
def test_a_full_disk_is_named_and_nothing_is_left_of_the_backup(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    fsync, calls = os.fsync, iter(range(100))

    def full(file: int) -> None:
        if next(calls) == late:
            raise OSError(errno.ENOSPC, "No space left on device")
        fsync(file)

    with opened(store) as memory:
        monkeypatch.setattr("engrain.stores.sqlite.backup.os.fsync", full)
        with pytest.raises(DiskFull, match=f"no room for the backup {tmp_path / 'full.db'}"):
            memory.store.backup(tmp_path / "full.db")
        assert not list(tmp_path.glob("full*"))
        memory.store.backup(tmp_path / "full.db")


# By the clock


def names(folder: Path) -> list[str]:
    return sorted(one.name for one in folder.iterdir() if one.suffix == ".db")


def test_backups_are_taken_when_due_and_the_newest_kept(tmp_path: Path, clock: SetClock) -> None:
    folder = tmp_path / "backups"
    rules = {"backup_folder": str(folder), "backup_hours": 24, "backup_keep": 2}
    with opened(tmp_path / "agent.db", clock=clock, settings={"lifecycle": rules}) as memory:
        memory.remember("Ana likes tea.")
        assert memory.store.maintain(memory.scope, dry_run=True).counts["backed_up"] == 1
        assert not folder.exists()
        assert memory.store.maintain(memory.scope).counts["backed_up"] == 1
        assert memory.store.maintain(memory.scope).counts["backed_up"] == 0
        folder.joinpath("agent-notes.db").write_text("mine")
        first = names(folder)[0]
        for _ in range(2):
            clock.advance(24 * HOUR)
            planned = memory.store.maintain(memory.scope, dry_run=True)
            assert memory.store.maintain(memory.scope).each == planned.each
        kept = names(folder)
        assert len(kept) == 3
        assert first not in kept
        assert "agent-notes.db" in kept, "a file of another name is nobody's backup"
        clock.advance(-48 * HOUR)
        assert memory.store.maintain(memory.scope).counts["backed_up"] == 0, (
            "a clock that jumps back makes none and drops none"
        )
        assert names(folder) == kept
    restore_backup(folder / kept[0], tmp_path / "new.db")
    assert texts(tmp_path / "new.db") == ["Ana likes tea."]


def test_an_old_backup_stays_until_the_new_one_is_there(
    tmp_path: Path, clock: SetClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "backups"
    rules = {"backup_folder": str(folder), "backup_hours": 24, "backup_keep": 1}
    with opened(tmp_path / "agent.db", clock=clock, settings={"lifecycle": rules}) as memory:
        memory.remember("Ana likes tea.")
        memory.store.maintain(memory.scope)
        kept = names(folder)
        clock.advance(24 * HOUR)

        def full(*_: object) -> None:
            raise DiskFull("the disk is full.")

        with monkeypatch.context() as patch:
            patch.setattr("engrain.stores.sqlite.backup.write_copy", full)
            done = memory.store.maintain(memory.scope)
        (problem,) = done.problems
        assert problem.startswith(f"backed_up: there is no room for the backup {folder}")
        assert (done.counts["backed_up"], done.counts["backups_dropped"], names(folder)) == (0, 0, kept)
        done = memory.store.maintain(memory.scope)
        assert (done.counts["backed_up"], done.counts["backups_dropped"]) == (1, 1)
        assert len(names(folder)) == 1
        assert names(folder) != kept


def test_two_stores_of_one_name_share_a_folder_of_backups(tmp_path: Path, clock: SetClock) -> None:
    folder = tmp_path / "backups"
    rules = {"backup_folder": folder, "backup_keep": 2}
    for place in ("here", "there"):
        (tmp_path / place).mkdir()
    with (
        opened(tmp_path / "here" / "agent.db", clock=clock, settings={"lifecycle": rules}) as here,
        opened(tmp_path / "there" / "agent.db", clock=clock, settings={"lifecycle": rules}) as there,
    ):
        for memory, text in ((here, "Here."), (there, "There.")):
            memory.remember(text)
        for _ in range(4):
            assert here.store.maintain(here.scope).counts["backed_up"] == 1
            clock.advance(HOUR)
            assert there.store.maintain(there.scope).counts["backed_up"] == 1, "the other's is none of it"
            clock.advance(23 * HOUR)
        found = [texts(folder / name, read_only=True) for name in names(folder)]
        assert found == [["Here."], ["There."], ["Here."], ["There."]]


def test_a_backup_whose_manifest_was_never_written_goes_with_its_time(tmp_path: Path, clock: SetClock) -> None:
    folder = tmp_path / "backups"
    with opened(
        tmp_path / "agent.db", clock=clock, settings={"lifecycle": {"backup_folder": folder, "backup_keep": 2}}
    ) as memory:
        memory.remember("Ana likes tea.")
        memory.store.maintain(memory.scope)
        (folder / (killed := f"{names(folder)[0]}.json")).unlink()
        for days in range(1, 4):
            clock.advance(24 * HOUR)
            planned, done = memory.store.maintain(memory.scope, dry_run=True), memory.store.maintain(memory.scope)
            assert (done.each, done.problems) == (planned.each, ())
            assert (killed.removesuffix(".json") in names(folder)) is (days < 2), days
        assert len(names(folder)) == 2
        between = folder / make_backup_name("agent", clock() - timedelta(hours=12))
        between.write_text("It may be all that is left of that day.")
        memory.store.maintain(memory.scope)
        assert between.exists()


def test_a_backup_of_an_earlier_version_counts(tmp_path: Path, clock: SetClock) -> None:
    folder = tmp_path / "backups"
    with opened(
        tmp_path / "agent.db", clock=clock, settings={"lifecycle": {"backup_folder": folder, "backup_keep": 1}}
    ) as memory:
        memory.remember("Ana likes tea.")
        memory.store.maintain(memory.scope)
        (manifest,) = folder.glob("*.json")
        values = {**json.loads(manifest.read_text()), "engrain_backup": 1}
        del values["store"]
        manifest.write_text(json.dumps(values))
        assert memory.store.maintain(memory.scope).counts["backed_up"] == 0
        clock.advance(24 * HOUR)
        assert memory.store.maintain(memory.scope).counts["backups_dropped"] == 1
        assert not manifest.exists()


def test_a_folder_behind_a_link_that_leads_nowhere_is_named(tmp_path: Path) -> None:
    link, disk = tmp_path / "backups", tmp_path / "disk"
    link.symlink_to(disk)
    with opened(tmp_path / "agent.db", settings={"lifecycle": {"backup_folder": link}}) as memory:
        memory.remember("Ana likes tea.")
        (problem,) = memory.store.maintain(memory.scope).problems
        assert f"a link to {disk}, which is not there" in problem
        disk.mkdir()
        assert memory.store.maintain(memory.scope).problems == ()
        assert len(names(disk)) == 1


@pytest.mark.parametrize("folder", ["file", "file/backups", "n" * 300])
def test_a_folder_that_cannot_be_made_stops_no_other_pass(tmp_path: Path, clock: SetClock, folder: str) -> None:
    tmp_path.joinpath("file").write_text("not a folder")
    with opened(
        tmp_path / "agent.db", clock=clock, settings={"lifecycle": {"backup_folder": str(tmp_path / folder)}}
    ) as memory:
        memory.episodic.record("Hello.", session="s")
        clock.advance(24 * HOUR)
        done = memory.store.maintain(memory.scope)
        assert done.counts["expired"] == 1
        (problem,) = done.problems
        assert "the folder of backups" in problem
        for wrong in (tmp_path / folder / "b.db", "a\x00b"):
            with pytest.raises(InvalidInput):
                memory.store.backup(wrong)


# The commands


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Callable[..., tuple[int, str]]:
    monkeypatch.chdir(tmp_path)

    def call(*args: str) -> tuple[int, str]:
        result = CliRunner().invoke(root, [*args])
        return result.exit_code, result.output

    return call


def test_the_commands_take_a_backup_and_bring_it_back(
    run: Callable[..., tuple[int, str]], store: Path, tmp_path: Path
) -> None:
    code, said = run("--store", str(store), "backup", "b.db")
    assert (code, "items" in said and "checked" in said) == (0, True), said
    code, said = run("restore", "b.db", "new.db")
    assert (code, "kept out: nothing" in said, "may be back: no readable store" in said) == (0, True, True), said
    code, said = run("replay", "new.db", "--against", str(store))
    assert code == 0, said
    tmp_path.joinpath("engrain.toml").write_text('[stores]\ndefault = "other.db"\n')
    code, said = run("restore", "b.db", "engrain.toml", "--json")
    assert (code, json.loads(said)["may_hold_forgotten"], (tmp_path / "other.db").exists()) == (0, True, True), said
    code, said = run("restore", "b.db", str(store))
    assert (code, "--force" in said) == (1, True), said
    code, said = run("restore", "b.db", str(store), "--force")
    assert (code, "Add --yes" in said) == (2, True), said
    code, said = run("restore", "b.db", str(store), "--force", "--yes")
    assert (code, "may be back" in said) == (0, False), said
    code, said = run("--store", str(store), "backup", "sealed.db", "--encrypt")
    assert (code, "ENGRAIN_BACKUP_KEY" in said) == (1, True), said
