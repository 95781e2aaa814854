"""What was erased or is held stays so, whatever way it might come back or go."""

from __future__ import annotations

import json
from collections.abc import Callable
from datetime import timedelta
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from engrain_conformance.clock import SetClock
from erasing_kit import WORD, fill, found, opened, replace_copy

from engrain import Memory, Source
from engrain.cli.main import root
from engrain.core.errors import Conflict, OnHold
from engrain.core.model.erasure import Subject
from engrain.memory.transfer import replay_erasures, restore_backup
from engrain.privacy.erasure_requests import make_user_subject
from engrain.stores.sqlite import SqliteStore, backup

TEXT = f"A text with {WORD}-text in it."


@pytest.fixture
def store(tmp_path: Path) -> Path:
    (tmp_path / "store").mkdir()
    return tmp_path / "store" / "agent.db"


def run(*args: str, code: int = 0) -> Any:
    result = CliRunner().invoke(root, list(args))
    assert result.exit_code == code, (result.output, result.exception)
    return result


def recorded(store: Path) -> list[str]:
    with opened(store) as memory:
        assert memory.store.verify_audit()
        return [entry.what for entry in memory.store.audit()]


# The ways back


def test_an_export_from_before_brings_nothing_back(store: Path, tmp_path: Path) -> None:
    file = tmp_path / "ana.jsonl"
    with opened(store) as memory:
        fill(memory)
        rows = sum(memory.export(file).rows.values())
        memory.store.erase(user="ana")
        loaded = memory.load(file)
        assert (loaded.kept_out, loaded.rows.get("item", 0)) == (rows, 0)
        assert loaded.kept_out_lines == tuple(range(2, rows + 2))
        assert memory.list() == []
    assert found(store.parent) == {}


def test_an_export_brings_nothing_back_under_another_name(store: Path, tmp_path: Path) -> None:
    file = tmp_path / "ana.jsonl"
    with opened(store) as memory, opened(store, user="ben") as ben:
        fill(memory)
        rows = sum(memory.export(file).rows.values())
        memory.store.erase(user="ana")
        foretold = ben.load(file, other_scope=True, dry_run=True)
        loaded = ben.load(file, other_scope=True)
        assert (foretold.kept_out, loaded.kept_out) == (rows, rows)
        assert ben.list() == []
    assert found(store.parent) == {}


ERASED: dict[str, Callable[[Memory], object]] = {
    "user": lambda memory: memory.remember("Old.") and memory.store.erase(user="ana").receipt,
    "session": lambda memory: memory.add_message("user", "Old.", session=WORD) and memory.erase(session=WORD).receipt,
    "source": lambda memory: memory.remember("Old.", source=WORD) and memory.erase(source=WORD).receipt,
    "text": lambda memory: memory.forget(memory.remember(TEXT)),
}


@pytest.mark.parametrize("by", ERASED)
def test_what_is_erased_while_a_file_is_loaded_stays_out(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    file, restore = tmp_path / "ana.jsonl", SqliteStore.restore
    with opened(tmp_path / "first.db") as memory:
        memory.remember(TEXT, source=WORD)
        memory.add_message("user", TEXT, session=WORD)
        memory.export(file)
    erasing: list[Callable[[Memory], object]] = [ERASED[by]]

    def erased_first(self: SqliteStore, *rest: Any) -> None:
        # All is decided by now, and the transaction has not begun.
        while erasing:
            with opened(store) as other:
                assert erasing.pop()(other)
        restore(self, *rest)

    with opened(store) as memory:
        monkeypatch.setattr(SqliteStore, "restore", erased_first)
        assert memory.load(file).kept_out
        there = {item.kind for item in memory.list()} | {"message" for _ in memory.sessions.messages(WORD, 9)}
        assert there == {"session": {"fact"}, "source": {"message"}}.get(by, set())


def test_a_memory_that_is_forgotten_from_all_the_while_is_not_loaded_into(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file, restore = tmp_path / "ana.jsonl", SqliteStore.restore
    with opened(tmp_path / "first.db") as memory:
        memory.remember(TEXT)
        memory.export(file)
    number = count()

    def forgotten_first(self: SqliteStore, *rest: Any) -> None:
        with opened(store) as other:
            other.forget(other.remember(f"Word {next(number)}."))
        restore(self, *rest)

    with opened(store) as memory:
        monkeypatch.setattr(SqliteStore, "restore", forgotten_first)
        with pytest.raises(Conflict, match="three times"):
            memory.load(file)
        assert memory.list() == []


def test_a_restore_does_not_undo_an_erasure_that_was_made_meanwhile(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = backup.replace_store
    with opened(store) as memory:
        fill(memory)
        memory.store.backup(tmp_path / "backup.db")

    def erased_first(*given: Any) -> None:
        with opened(store) as other:
            assert other.store.erase(user="ana").receipt
        place(*given)

    monkeypatch.setattr(backup, "replace_store", erased_first)
    with pytest.raises(Conflict, match="meanwhile"):
        restore_backup(tmp_path / "backup.db", store, force=True)
    monkeypatch.undo()
    assert recorded(store) == ["backup_begun", "backup", "erase"]
    assert restore_backup(tmp_path / "backup.db", store, force=True).kept_out
    with opened(store) as memory:
        assert memory.list() == []
    assert found(store.parent) == {}


def test_a_backup_from_halfway_through_an_erasure_does_not_go_on_with_it(store: Path, tmp_path: Path) -> None:
    with opened(store, user=WORD) as memory:
        fill(memory)
        port = memory.store.services.erasing
        assert port
        port.begin("e-1", Subject(memory.scope, "user", WORD))
        memory.store.backup(tmp_path / "backup.db")
        assert memory.store.resume_erasures()[0].receipt
    (tmp_path / "new").mkdir()
    replace_copy(store, tmp_path / "backup.db", tmp_path / "new" / "agent.db")
    with opened(tmp_path / "new" / "agent.db", user=WORD) as memory:
        port = memory.store.services.erasing
        assert port
        assert port.running() == []
        assert found(tmp_path / "new") == {}
        memory.remember("This one came back.")


def test_what_a_restore_that_was_killed_has_left_goes_too(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with opened(store) as memory:
        fill(memory)
        memory.store.backup(tmp_path / "backup.db")
    with monkeypatch.context() as killed:
        killed.setattr(backup, "replace_store", lambda *_: None)
        killed.setattr(backup, "_remove_copy", lambda _: None)
        restore_backup(tmp_path / "backup.db", store, force=True)
    with opened(store) as memory:
        assert list(found(store.parent)) == [store.name], "opening the store removes the copy"
        assert memory.store.erase(user="ana").receipt
    assert found(store.parent) == {}


def test_notes_and_other_systems_bring_nothing_back(store: Path, tmp_path: Path) -> None:
    notes, mem0 = tmp_path / "notes.jsonl", tmp_path / "mem0.json"
    notes.write_text(json.dumps({"text": TEXT}) + "\n")
    mem0.write_text(json.dumps({"results": [{"id": "1", "memory": TEXT}]}))
    with opened(store) as memory:
        fill(memory)
        memory.store.erase(user="ana")
        for file in (notes, mem0):
            loaded = memory.load(file)
            assert (loaded.kept_out, loaded.added) == (1, 0), file
        assert memory.list() == []
    assert found(store.parent) == {}


def test_a_backup_from_before_brings_no_byte_back(store: Path, tmp_path: Path) -> None:
    backup, new = tmp_path / "backup.db", tmp_path / "new" / "agent.db"
    new.parent.mkdir()
    with opened(store) as memory, opened(store, user="ben") as ben:
        ben.remember("Ben takes the train.")
        fill(memory)
        memory.store.backup(backup)
        receipt = memory.store.erase(user="ana").receipt
    done = replace_copy(store, backup, new)
    assert done.kept_out
    assert done.kept_out["item"] > 0
    assert found(new.parent) == {}
    with opened(new) as memory, opened(new, user="ben") as ben:
        assert [item.text for item in ben.list()] == ["Ben takes the train."]
        assert memory.list() == []
        # The record of it came along, and the receipt still fits.
        assert memory.store.verify_erasure(str(receipt))
        assert [entry.what for entry in memory.store.audit()] == ["backup_begun", "backup", "erase", "restore"]
        assert memory.store.services.erasing.find_tombstoned(memory.scope, [TEXT]) == [True]  # type: ignore[union-attr]


def test_a_copy_keeps_out_what_its_source_did(store: Path, tmp_path: Path) -> None:
    before, after, file = tmp_path / "before.db", tmp_path / "after" / "agent.db", tmp_path / "ana.jsonl"
    after.parent.mkdir()
    with opened(store) as memory, opened(store, user="ben") as ben:
        ben.remember("Ben takes the train.")
        fill(memory)
        memory.export(file)
    run("copy", str(store), str(before))
    with opened(store) as memory:
        receipt = memory.store.erase(user="ana").receipt
    assert "Copy into a new store" in run("copy", str(store), str(before), code=1).output
    run("copy", str(store), str(after))
    assert found(after.parent) == {}
    with opened(after) as memory:
        assert memory.store.verify_erasure(str(receipt))
        loaded = memory.load(file)
        assert (loaded.added, memory.list()) == (0, [])
    assert found(after.parent) == {}


def test_nothing_is_copied_or_restored_while_somebody_is_being_erased(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from engrain.privacy import erase

    with opened(store) as memory:
        fill(memory)
        memory.store.backup(tmp_path / "backup.db")
        monkeypatch.setattr(
            erase, "_clean_side_stores", lambda *_: (_ for _ in ()).throw(erase._ErasurePending("not now."))
        )
        assert memory.store.erase(user="ana").pending
    told = run("copy", str(store), str(tmp_path / "copy.db"), code=1).output
    assert "engrain erase --resume" in told
    with pytest.raises(Conflict, match="engrain erase --resume"):
        restore_backup(tmp_path / "backup.db", store, force=True)
    with opened(store) as memory:
        assert memory.store.services.erasing.running()  # type: ignore[union-attr]


def test_a_store_that_is_replayed_against_itself_by_another_name_loses_nothing(store: Path) -> None:
    with opened(store) as memory:
        memory.forget(memory.remember("Ana lives in Lima."))
        memory.remember("Ana lives in Lima.")
    for name in (f"sqlite://{store}", str(store.parent / ".." / store.parent.name / store.name)):
        assert run("replay", str(store), "--against", name).output.startswith("Nothing")
    with opened(store) as memory:
        assert [item.text for item in memory.list()] == ["Ana lives in Lima."]


# Legal holds


def test_a_hold_made_since_is_in_the_restored_store(store: Path, tmp_path: Path) -> None:
    new = tmp_path / "new.db"
    with opened(store) as memory:
        memory.remember("Ana drinks tea.")
        memory.store.backup(tmp_path / "backup.db")
        memory.store.hold("ana", reason="case-7")
        with pytest.raises(OnHold):
            memory.store.erase(user="ana")
    restore_backup(tmp_path / "backup.db", new)
    replay_erasures(new, store)
    with opened(new) as memory:
        assert [(hold.reason, hold.hidden) for hold in memory.store.holds()] == [("case-7", True)]
        assert memory.list() == []
        memory.store.release("ana")
        assert [item.text for item in memory.list()] == ["Ana drinks tea."]


@pytest.mark.parametrize("hidden", ["in the present store", "in the backup"])
def test_what_was_forgotten_of_a_hidden_user_stays_out(store: Path, tmp_path: Path, hidden: str) -> None:
    def hide() -> None:
        memory.store.hold("ana", reason="case-7")
        with pytest.raises(OnHold):
            memory.store.erase(user="ana")

    with opened(store) as memory:
        gone, again = memory.remember("Ana drinks tea."), memory.remember("Ana lives in Lima.")
        if hidden == "in the backup":
            hide()
        else:  # what was told anew stays
            memory.forget(again)
            memory.remember("Ana lives in Lima.")
        memory.store.backup(tmp_path / "backup.db")
        memory.store.release("ana")
        memory.forget(gone)
        if hidden == "in the present store":
            hide()
    restore_backup(tmp_path / "backup.db", tmp_path / "new.db")
    replay_erasures(tmp_path / "new.db", store)
    with opened(tmp_path / "new.db") as memory:
        assert memory.list() == []
        assert memory.store.release("ana")
        assert [item.text for item in memory.list()] == ["Ana lives in Lima."]


def test_a_store_with_somebody_on_hold_is_not_replaced(store: Path, tmp_path: Path) -> None:
    with opened(store) as memory:
        memory.store.backup(tmp_path / "backup.db")
        memory.remember("Said since.")
        memory.store.hold("ana", reason="case-7")
    with pytest.raises(OnHold, match="case-7"):
        restore_backup(tmp_path / "backup.db", store, force=True)
    with opened(store) as memory:
        assert [item.text for item in memory.list()] == ["Said since."]


@pytest.mark.parametrize("form", ["jsonl", "markdown"])
def test_what_a_hold_hides_is_not_exported_as_an_empty_memory(store: Path, tmp_path: Path, form: Any) -> None:
    file = tmp_path / "ana.out"
    with opened(store) as memory:
        memory.remember(TEXT)
        memory.store.hold("ana", reason="case-7")
        with pytest.raises(OnHold):
            memory.store.erase(user="ana")
        with pytest.raises(OnHold, match="exported"):
            memory.export(file, format=form)
        assert not file.exists()
        assert "export" not in [entry.what for entry in memory.store.audit()]
        memory.store.release("ana")
        assert memory.export(file, format=form).rows["item"] == 1


def test_what_a_hold_hides_is_not_copied_but_backed_up(store: Path, tmp_path: Path) -> None:
    with opened(store) as memory:
        memory.remember("Ana drinks tea.")
        memory.store.hold("ana", reason="case-7")
        with pytest.raises(OnHold):
            memory.store.erase(user="ana")
        memory.store.backup(tmp_path / "backup.db")
    assert "engrain backup" in run("copy", str(store), str(tmp_path / "copy.db"), code=1).output
    restore_backup(tmp_path / "backup.db", tmp_path / "new.db")
    replay_erasures(tmp_path / "new.db", store)
    with opened(tmp_path / "new.db") as memory:
        memory.store.release("ana")
        assert [item.text for item in memory.list()] == ["Ana drinks tea."]


def test_care_removes_nothing_of_a_held_user(store: Path) -> None:
    clock = SetClock()
    with opened(store, clock=clock) as memory:
        memory.remember("Of no importance.", importance=0.1, source=Source("page", "web"))
        memory.episodic.record_decision("We take the train.", session="monday")
        with memory.task("order", goal="ship it") as task:
            task.step("one", lambda: 1)
        memory.store.hold("ana", reason="case-7")
        clock.advance(60 * 86_400)
        foretold = memory.store.maintain(memory.scope, dry_run=True)
        done = memory.store.maintain(memory.scope)
        assert (foretold.counts, done.problems) == (done.counts, ())
        assert not any(done.counts[name] for name in ("expired", "trimmed", "consolidated", "pruned"))
        assert memory.semantic.consolidate(dry_run=False).items == ()
        assert memory.tasks.prune(timedelta(0)) == 0
        (item,) = [one for one in memory.list() if one.kind == "fact"]
        for refused in (
            lambda: memory.tasks.remove("order"),
            lambda: memory.store.undo("page", user="ana", dry_run=False),
            lambda: memory.forget(item.id),
        ):
            with pytest.raises(OnHold):
                refused()
        assert memory.tasks.list()
        memory.store.release("ana")
        assert memory.store.maintain(memory.scope).counts["consolidated"] == 1
        assert memory.tasks.list() == []


# The record


def test_what_is_done_with_a_memory_as_a_whole_is_recorded(store: Path, tmp_path: Path) -> None:
    clock = SetClock()
    (tmp_path / "mem0.json").write_text(json.dumps({"results": [{"id": "1", "memory": "Ana likes chess."}]}))
    with opened(store, clock=clock) as memory:
        memory.remember("Of no importance.", importance=0.1)
        memory.export(tmp_path / "ana.jsonl")
        memory.load(tmp_path / "ana.jsonl", dry_run=True)
        memory.load(tmp_path / "ana.jsonl")
        memory.load(tmp_path / "mem0.json")
        memory.store.backup(tmp_path / "backup.db")
        memory.store.maintain(memory.scope)
        clock.advance(60 * 86_400)
        memory.store.maintain(memory.scope, dry_run=True)
        memory.store.maintain(memory.scope)
        whats = [entry.what for entry in memory.store.audit()]
        assert whats == ["export_begun", "export", "load", "import", "backup_begun", "backup", "forget", "maintain"]
        assert {
            entry.subject
            for entry in memory.store.audit()
            if entry.what in ("export_begun", "export", "load", "import")
        } == {
            memory.store.services.erasing.hash_subject(make_user_subject(memory.scope.tenant, "ana"))  # type: ignore[union-attr]
        }
        with memory.task("order") as task:
            task.step("one", lambda: 1)
        memory.tasks.remove("order")
    run("copy", str(store), str(tmp_path / "copy.db"))
    for path in (store, tmp_path / "copy.db"):
        assert recorded(path)[8:] == ["remove_task", "copy_begun", "copy"]
    shown = run("--store", str(store), "--user", "ana", "audit").output
    assert "export" in shown
    assert "chess" not in shown


def test_reading_alone_records_nothing(store: Path, tmp_path: Path) -> None:
    with opened(store) as memory:
        memory.remember("Ana drinks tea.")
    with Memory(store, user="ana", settings={"stores": {"read_only": True}}) as memory:
        memory.export(tmp_path / "ana.jsonl")
    assert recorded(store) == []
