"""A restore or a replay at the same time as another restore or an erasure, and next to files that look like ours."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from engrain_conformance.embedder import HashEmbedder
from erasing_kit import replace_copy

from engrain import Memory
from engrain.cli.main import root
from engrain.core.errors import Conflict, StoreBusy
from engrain.core.secrets.urls import hide_secrets
from engrain.memory import transfer
from engrain.memory.transfer import replay_erasures, restore_backup
from engrain.privacy import tombstones

ANA = "Ana lives in the city of Lima since 2019."


def opened(path: Path, user: str) -> Memory:
    return Memory(path, user=user, embedder=HashEmbedder(), background=False)


def texts(path: Path, user: str) -> list[str]:
    with opened(path, user) as memory:
        return [item.text for item in memory.list()]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """With a backup from before Ana was erased."""
    path = tmp_path / "agent.db"
    with opened(path, "bob") as memory:
        memory.remember("Bob stays.")
    with opened(path, "ana") as memory:
        memory.remember(ANA)
        memory.store.backup(tmp_path / "backup.db")
    return path


def test_of_two_restores_to_one_place_one_waits(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with opened(store, "ana") as memory:
        assert memory.store.erase(user="ana").receipt
    backup, clean = store.with_name("backup.db"), transfer._clean
    told: list[BaseException] = []

    def meanwhile() -> None:
        try:
            restore_backup(backup, store, force=True)
        except StoreBusy as exc:
            told.append(exc)

    def clean_while_another_begins(*given: Any) -> Any:
        monkeypatch.setattr(transfer, "_clean", clean)
        other = threading.Thread(target=meanwhile)
        other.start()
        other.join()
        return clean(*given)

    monkeypatch.setattr(transfer, "_clean", clean_while_another_begins)
    assert restore_backup(backup, store, force=True).items == 1
    assert "another restore" in str(told[0])
    assert texts(store, "ana") == []
    assert restore_backup(backup, store, force=True).items == 1


@pytest.mark.skipif(sys.platform == "win32", reason="a folder is not locked there")
def test_a_restore_that_was_killed_is_in_nobody_s_way(store: Path) -> None:
    code = (
        "import os, sys\n"
        "from engrain.memory import transfer\n"
        "transfer._clean = lambda *given: os.kill(os.getpid(), 9)\n"
        "transfer.restore_backup(sys.argv[1], sys.argv[2], force=True)\n"
    )
    backup = store.with_name("backup.db")
    assert subprocess.run([sys.executable, "-c", code, backup, store], check=False).returncode == -9
    assert store.with_name("agent.db.restoring").exists()
    assert restore_backup(backup, store, force=True).items == 2
    assert sorted(os.listdir(store.parent)) == ["agent.db", "agent.db-lock", "backup.db", "backup.db.json"]


def test_an_erasure_in_the_present_store_during_a_replay_is_noticed(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    older = store.with_name("older.db")
    with opened(store, "bob") as memory:
        memory.forget(memory.list()[0].id)
    restore_backup(store.with_name("backup.db"), older)
    carry = tombstones._copy_records

    def carry_then_erase(*given: Any) -> None:
        carry(*given)
        with opened(store, "ana") as memory:
            assert memory.store.erase(user="ana").receipt

    monkeypatch.setattr(tombstones, "_copy_records", carry_then_erase)
    with pytest.raises(Conflict, match="meanwhile"):
        replay_erasures(older, store)
    monkeypatch.undo()
    assert texts(older, "bob") == ["Bob stays."]  # nothing was done
    replay_erasures(older, store)
    assert texts(older, "bob") == texts(older, "ana") == []


def test_forgetting_removes_our_own_copies_and_no_file_that_begins_like_them(store: Path) -> None:
    ours = ["-before-v3", "-before-v3.part", ".restoring", ".restoring-wal", ".restoring-before-v4"]
    theirs = ["-before-vacuum", "-before-v3.bak", ".restoring-plan.txt", "-before-v", ".restoring.md"]
    for end in (*ours, *theirs):
        store.with_name(store.name + end).write_text(ANA)
    with opened(store, "ana") as memory:
        assert not memory.forget(memory.list()[0].id).pending
    left = [one.name.removeprefix("agent.db") for one in store.parent.iterdir() if one.name.startswith("agent.db")]
    assert set(left) - {"", "-lock", "-wal", "-shm"} == set(theirs)


def test_an_address_is_shown_without_what_it_keeps_secret() -> None:
    assert hide_secrets("postgresql://ana:geheim@host/db?sslpassword=x&schema=y") == (
        "postgresql://ana@host/db?sslpassword=…&schema=y"
    )
    assert hide_secrets("/srv/what?/ana:x@y.db") == "/srv/what?/ana:x@y.db"


@pytest.mark.parametrize("way", ["restore", "receipt", "replay", "copy"])
def test_who_was_erased_since_may_come_back_to_what_is_restored(store: Path, way: str) -> None:
    older, backup = store.with_name("older.db"), store.with_name("before.db")
    with opened(store, "bob") as memory:
        memory.store.backup(backup)
    with opened(store, "cleo") as memory:
        memory.remember("Cleo lives in the city of Quito since 2020.")
        receipt = memory.store.erase(user="cleo").receipt
    assert receipt
    if way == "restore":
        replace_copy(store, backup, older)
    elif way == "receipt":
        restore_backup(backup, older, receipts=[receipt])
    elif way == "replay":
        restore_backup(backup, older)
        replay_erasures(older, store)
    else:
        done = CliRunner().invoke(root, ["copy", str(store), str(older)])
        assert done.exit_code == 0, done.output
    with opened(older, "cleo") as memory:
        memory.remember("Cleo is back.")
    assert texts(older, "cleo") == ["Cleo is back."]
