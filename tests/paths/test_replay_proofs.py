"""A store that comes back from a backup is without all that went since, and with all that stands."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from engrain_conformance.clock import SetClock
from erasing_kit import WORD, found, opened, replace_copy
from export_kit import body, exported
from held_read import held_read

from engrain import Memory, Source
from engrain.core.errors import Conflict, OnHold, StoreBusy, StoreCorrupt
from engrain.core.model.erasure import Erasure, Subject
from engrain.core.model.items import Citation
from engrain.core.model.sessions import Episode
from engrain.memory import transfer
from engrain.memory.transfer import replay_erasures, restore_backup
from engrain.privacy import erase as run
from engrain.privacy.receipts import Receipt
from engrain.stores.sqlite import backup

TEXT = f"A text with {WORD}-text in it."


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "agent.db"


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    return tmp_path / "backup.db"


@pytest.fixture
def new(tmp_path: Path) -> Path:
    (tmp_path / "new").mkdir()
    return tmp_path / "new" / "agent.db"


@pytest.fixture
def clock() -> SetClock:
    return SetClock()


@pytest.fixture
def memory(store: Path, clock: SetClock) -> Iterator[Memory]:
    with opened(store, clock=clock, background=False) as memory:
        yield memory


@pytest.fixture
def restored(copy: Path, store: Path, new: Path, clock: SetClock) -> Iterator[Callable[..., Memory]]:
    """The memory that comes back: without receipts, in place of a copy of the present store, or of another one."""
    with ExitStack() as stack:

        def back(present: Path = store, receipts: Sequence[Receipt] = ()) -> Memory:
            if receipts:
                restore_backup(copy, new, receipts=receipts)
            else:
                replace_copy(present, copy, new)
            return stack.enter_context(opened(new, clock=clock, background=False))

        yield back


def happened(memory: Memory, text: str) -> None:
    """An episode by itself, in words that no item has: no tombstone keeps it out."""
    kit = memory.store.services
    assert kit.episodes
    kit.episodes.add(memory.scope, Episode(f"e-{text}", "monday", "turn", text, 0.5, kit.clock(), None), None)


def episodes(memory: Memory) -> list[str]:
    return [one.text for one in memory.episodic.recent(99)]


def texts(memory: Memory) -> list[str]:
    return [item.text for item in memory.list()]


def rows(memory: Memory) -> list[bytes]:
    """As an export has them. A summary counts how often it was made void, which is of no matter."""
    return [line for line in body(exported(memory)).splitlines() if b'"row":"summary"' not in line]


# What went


def test_what_was_told_and_forgotten_since_is_kept_out_of_an_import(
    memory: Memory, copy: Path, restored: Callable[..., Memory], tmp_path: Path
) -> None:
    memory.remember("The sea is near.")
    memory.store.backup(copy)
    memory.forget(memory.remember(TEXT))
    (tmp_path / "notes.jsonl").write_text(json.dumps({"text": TEXT}) + "\n")
    again = restored()
    assert again.load(tmp_path / "notes.jsonl").kept_out == 1
    assert texts(again) == ["The sea is near."]


def test_the_request_of_an_item_that_was_erased_since_is_not_answered_with_it(
    memory: Memory, copy: Path, new: Path, restored: Callable[..., Memory]
) -> None:
    item = memory.remember(TEXT, request_id=f"{WORD}-request")
    memory.store.backup(copy)
    assert memory.erase(id=item).receipt
    again = restored()
    assert found(new.parent) == {}
    again.remember("It is asked anew.", request_id=f"{WORD}-request")
    assert texts(again) == ["It is asked anew."]


def test_what_was_forgotten_without_its_source_leaves_that_whole(
    memory: Memory, copy: Path, restored: Callable[..., Memory]
) -> None:
    said = memory.add_message("user", "I prefer tea. My dog is called Rex.", session="monday").id
    facts = [item for item in memory.list({"kind": "fact"}) if "tea" in item.text]
    assert facts
    memory.store.backup(copy)
    for fact in facts:
        memory.forget(fact.id, keep_source=True)
    again = restored()
    assert again.get(said) == memory.get(said)
    assert not [item for item in again.list({"kind": "fact"}) if "tea" in item.text]


def test_tombstones_of_a_hidden_memory_are_told_by_its_own_name_alone(memory: Memory) -> None:
    erasing = memory.store.services.erasing
    assert erasing
    memory.forget(memory.remember(TEXT))
    told = list(erasing.tombstones())
    assert {scope for scope, _ in told} == {memory.scope.id}
    memory.store.hold("ana", reason="case-7")
    with pytest.raises(OnHold):
        memory.store.erase(user="ana")
    assert list(erasing.tombstones()) == told


# What stands


def test_what_was_told_anew_comes_back_with_all_that_hangs_on_it(
    memory: Memory, copy: Path, restored: Callable[..., Memory]
) -> None:
    def told() -> tuple[str, str]:
        said = memory.add_message("user", "The club is far from here.", session="monday").id
        memory.episodic.record_decision("We take the train.", session="monday")
        return said, memory.procedural.learn("deploy", ["Run the tests.", "Push."])

    told()
    while there := memory.list():
        memory.forget(there[0].id)
    said, procedure = told()
    memory.remember("Ana plays chess.", source=Source(kind="agent", cites=(Citation(said),)))
    memory.procedural.used(procedure, "Friday", False, "It went well.")
    secret = memory.remember(TEXT)
    memory.store.backup(copy)
    memory.forget(secret)
    assert rows(restored()) == rows(memory)


def test_what_was_said_after_an_erasure_that_the_backup_knows_comes_back(
    memory: Memory, copy: Path, clock: SetClock, restored: Callable[..., Memory]
) -> None:
    memory.remember(TEXT)
    assert memory.store.erase(user="ana").receipt
    clock.advance(60)
    happened(memory, "It rained.")
    secret = memory.remember("Nobody must know.")
    memory.store.backup(copy)
    memory.forget(secret)
    assert episodes(restored()) == ["It rained."]


def test_the_log_of_a_store_that_went_another_way_is_not_written_over(
    memory: Memory, copy: Path, tmp_path: Path, restored: Callable[..., Memory]
) -> None:
    secret = memory.remember(TEXT)
    memory.store.backup(tmp_path / "monday.db")
    memory.store.hold("ben", reason="case-7")
    memory.store.backup(copy)
    restore_backup(tmp_path / "monday.db", tmp_path / "other.db")
    with opened(tmp_path / "other.db", background=False) as other:
        other.forget(secret)
    again = restored(tmp_path / "other.db")
    assert texts(again) == []
    assert again.store.verify_audit().faults == ()
    kept = [entry.what for entry in again.store.audit()]
    assert kept == ["backup_begun", "backup", "hold", "backup_begun", "restore"]


# Receipts in the place of a lost store


def test_a_receipt_that_the_backup_knows_takes_nothing_out_whatever_the_file_says(
    memory: Memory, copy: Path, clock: SetClock, restored: Callable[..., Memory]
) -> None:
    memory.remember(TEXT)
    receipt = memory.store.erase(user="ana").receipt
    assert receipt
    clock.advance(60)
    memory.remember("Ana is back.")
    clock.advance(60)
    memory.store.backup(copy)
    later = Receipt.read(json.dumps({**json.loads(str(receipt)), "asked_at": clock().isoformat()}))
    assert texts(restored(receipts=[later])) == ["Ana is back."]


def test_a_receipt_of_a_session_names_what_was_said_while_it_was_erased(
    memory: Memory, copy: Path, clock: SetClock, new: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    take, file = run._delete_rows, tmp_path / "ana.jsonl"

    def said_first(*given: Any) -> Erasure:
        clock.advance(60)
        happened(memory, "It rained.")
        memory.store.backup(copy)
        memory.export(file)
        clock.advance(60)
        return take(*given)

    happened(memory, "It was said before.")
    monkeypatch.setattr(run, "_delete_rows", said_first)
    receipt = memory.erase(session="monday").receipt
    assert receipt
    done = restore_backup(copy, new, receipts=[receipt])
    assert list(done.receipts.values()) == [3], "two episodes, and the session"
    with opened(new, clock=clock, background=False) as again:
        assert (again.load(file).added, episodes(again)) == (0, [])


# The file in its place


def test_a_restored_store_that_still_has_the_bytes_is_not_put_in_its_place(
    memory: Memory, copy: Path, store: Path, new: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    item = memory.remember(TEXT)
    memory.store.backup(copy)
    memory.forget(item)
    remove = transfer._remove_forgotten
    with ExitStack() as readers:

        def while_one_reads(*given: Any) -> Any:
            readers.enter_context(held_read(new.with_name(f"{new.name}.restoring")))
            return remove(*given)

        monkeypatch.setattr(transfer, "_remove_forgotten", while_one_reads)
        with pytest.raises(StoreBusy):
            replace_copy(store, copy, new)
    assert found(new.parent) == {}, "the present store is still there"
    monkeypatch.undo()
    replace_copy(store, copy, new)
    assert found(new.parent) == {}


def test_a_store_in_which_an_erasure_has_just_begun_is_not_replaced(
    store: Path, copy: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(store, background=False) as memory:
        memory.remember(TEXT)
        memory.store.backup(copy)
    place = backup.replace_store

    def begun_first(*given: Any) -> None:
        with opened(store, background=False) as memory:
            assert memory.store.services.erasing
            memory.store.services.erasing.begin("e-1", Subject(memory.scope, "user", "ana"))
        place(*given)

    monkeypatch.setattr(backup, "replace_store", begun_first)
    with pytest.raises(Conflict, match="engrain erase --resume"):
        restore_backup(copy, store, force=True)
    with opened(store, background=False) as memory:
        (done,) = memory.store.resume_erasures()
        assert done.receipt
    assert set(found(store.parent)) == {copy.name}


def test_nothing_of_the_old_store_stays_beside_the_one_that_takes_its_place(
    memory: Memory, copy: Path, new: Path
) -> None:
    memory.remember("The sea is near.")
    memory.store.backup(copy)
    ready = new.with_name("ready.db")
    shutil.copy(copy, ready)
    with opened(new, background=False) as old:
        old.remember(TEXT)
    new.with_name("agent.db-wal").touch()
    new.with_name("agent.db-shm").write_bytes(b"of the old store")
    backup.replace_store(ready, new, lambda: None)
    assert sorted(os.listdir(new.parent)) == ["agent.db", "agent.db-lock"]
    with opened(new, background=False) as again:
        assert texts(again) == ["The sea is near."]


def test_a_restored_store_is_for_its_owner_alone(memory: Memory, copy: Path, new: Path) -> None:
    memory.store.backup(copy)
    restore_backup(copy, new)
    assert [one.stat().st_mode & 0o077 for one in (copy, new)] == [0, 0]


def test_a_backup_that_is_of_another_moment_is_none(
    memory: Memory, copy: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory.remember("The sea is near.")
    memory.store.backup(tmp_path / "older.db")
    memory.remember(TEXT)
    monkeypatch.setattr(backup, "write_copy", lambda _, target, __: shutil.copy(tmp_path / "older.db", target))
    with pytest.raises(StoreCorrupt, match="change"):
        memory.store.backup(copy)
    assert [one.name for one in tmp_path.iterdir() if one.name.startswith(copy.name)] == []


def test_an_older_copy_does_not_set_an_erasure_back(
    memory: Memory, copy: Path, clock: SetClock, tmp_path: Path, restored: Callable[..., Memory]
) -> None:
    for name in ("older.db", copy.name):
        happened(memory, f"It rained before {name}.")
        memory.export(tmp_path / "ana.jsonl", overwrite=True)
        clock.advance(60)
        assert memory.store.erase(user="ana").receipt
        memory.store.backup(tmp_path / name)
        clock.advance(60)
    restore_backup(tmp_path / "older.db", tmp_path / "other.db")
    again = restored(tmp_path / "other.db")
    assert (again.load(tmp_path / "ana.jsonl").added, episodes(again)) == (0, [])


def test_an_older_copy_takes_no_reason_from_a_hold(memory: Memory, copy: Path, new: Path, tmp_path: Path) -> None:
    memory.remember(TEXT)
    memory.store.hold("ana", reason="case-7")
    memory.store.backup(tmp_path / "older.db")
    memory.store.hold("ana", reason="case-8")
    memory.store.backup(copy)
    restore_backup(tmp_path / "older.db", tmp_path / "other.db")
    restore_backup(copy, new)
    replay_erasures(new, tmp_path / "other.db")
    with opened(new, background=False) as again:
        assert [one.reasons for one in again.store.holds()] == [("case-7", "case-8")]
