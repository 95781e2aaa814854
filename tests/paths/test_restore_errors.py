"""The error of a restore says which store stands now, and a killed one leaves nothing that was erased."""

from __future__ import annotations

import errno
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from engrain import Memory, Store
from engrain.core.errors import StoreError
from engrain.memory.transfer import restore_backup
from engrain.stores.sqlite import backup

OLD, NEW = "Ana lives in Quito.", "Ana lives in Lima."


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store with a newer text than its backup."""
    with Memory(tmp_path / "agent.db", user="ana") as memory:
        memory.remember(OLD)
        memory.store.backup(tmp_path / "backup.db")
        memory.remember(NEW)
    return tmp_path / "agent.db"


def texts(store: Path) -> list[str]:
    with Memory(store, user="ana") as memory:
        return sorted(item.text for item in memory.list())


def fail_rename(patch: pytest.MonkeyPatch, after: bool) -> None:
    rename = Path.replace

    def fail(path: Path, target: Any) -> Any:
        if path.name.endswith(".restoring"):
            if after:
                rename(path, target)
            raise OSError(errno.EIO, "Input/output error")
        return rename(path, target)

    patch.setattr(Path, "replace", fail)


def fail_unlink(patch: pytest.MonkeyPatch, end: str) -> None:
    unlink = Path.unlink

    def fail(path: Path, missing_ok: bool = False) -> None:
        if path.name == f"agent.db{end}":
            raise OSError(errno.EIO, "Input/output error")
        unlink(path, missing_ok)

    patch.setattr(Path, "unlink", fail)


def fail_sync(patch: pytest.MonkeyPatch) -> None:
    def fail(_: Path) -> None:
        raise OSError(errno.EIO, "Input/output error")

    patch.setattr(backup, "sync_folder", fail)


FAULTS: dict[str, Callable[[pytest.MonkeyPatch], None]] = {
    "the rename": lambda patch: fail_rename(patch, after=False),
    "the answer of a rename that was done": lambda patch: fail_rename(patch, after=True),
    "the removal of the log": lambda patch: fail_unlink(patch, "-wal"),
    "the removal of the shared memory": lambda patch: fail_unlink(patch, "-shm"),
    "the removal of the journal": lambda patch: fail_unlink(patch, "-journal"),
    "the sync of the folder": fail_sync,
}


@pytest.mark.parametrize("fault", FAULTS)
def test_the_error_says_which_store_stands_now(store: Path, fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        FAULTS[fault](patch)
        with pytest.raises(StoreError) as failed:
            restore_backup(store.with_name("backup.db"), store, force=True)
    said_old, said_new = "It is as it was." in str(failed.value), "the restored store" in str(failed.value)
    assert (said_old, said_new) == ((True, False) if texts(store) == [NEW, OLD] else (False, True)), failed.value
    assert not list(store.parent.glob("*.restoring*"))


@pytest.mark.parametrize("fault", FAULTS)
def test_the_error_of_a_restore_to_a_new_path_says_so_too(
    store: Path, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    new = store.with_name("new.db")
    with monkeypatch.context() as patch:
        FAULTS[fault](patch)
        try:
            restore_backup(store.with_name("backup.db"), new)
        except StoreError as exc:
            assert ("It is as it was." in str(exc)) != new.exists()  # noqa: PT017
    assert not new.exists() or texts(new) == [OLD]


def test_a_backup_that_cannot_be_removed_is_named(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object, **__: object) -> None:
        raise OSError(errno.EIO, "Input/output error")

    with Store(store) as opened, monkeypatch.context() as patch:
        patch.setattr(backup, "write_file", fail)
        patch.setattr(Path, "unlink", fail)
        with pytest.raises(StoreError, match=r"Remove it: .*monday\.db"):
            opened.backup(store.with_name("monday.db"))


def kill_restore(store: Path) -> Path:
    code = (
        "import os, sys\n"
        "from engrain.memory import transfer\n"
        "transfer._clean = lambda *given: os.kill(os.getpid(), 9)\n"
        "transfer.restore_backup(sys.argv[1], sys.argv[2], force=True)\n"
    )
    command = [sys.executable, "-c", code, str(store.with_name("backup.db")), str(store)]
    assert subprocess.run(command, check=False).returncode == -9
    left = store.with_name("agent.db.restoring")
    assert OLD.encode() in left.read_bytes()
    return left


@pytest.mark.skipif(sys.platform == "win32", reason="a folder is not locked there")
def test_the_rest_of_a_killed_restore_is_removed_at_open(store: Path) -> None:
    left = kill_restore(store)
    with Store(store):
        assert not left.exists()


@pytest.mark.skipif(sys.platform == "win32", reason="a folder is not locked there")
def test_doctor_names_the_rest_of_a_killed_restore(store: Path) -> None:
    with Store(store) as opened:
        kill_restore(store)
        (point,) = [one for one in opened.doctor() if one.name == "forgotten"]
    assert point.state == "warn"
    assert "agent.db.restoring" in point.why


@pytest.mark.skipif(sys.platform == "win32", reason="a folder is not locked there")
def test_a_running_restore_keeps_its_copy(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from engrain.memory import transfer

    clean = transfer._clean

    def open_and_clean(copy: Path, *given: Any) -> Any:
        Store(store).close()
        assert copy.exists()
        return clean(copy, *given)

    monkeypatch.setattr(transfer, "_clean", open_and_clean)
    assert restore_backup(store.with_name("backup.db"), store, force=True).items == 1


@pytest.mark.skipif(sys.platform == "win32", reason="Windows does not tell who holds a lock")
def test_busy_names_the_process_that_holds_the_store(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code = (
        "import sys\n"
        "from pathlib import Path\n"
        "from engrain.stores.sqlite.lock import FileLock\n"
        "lock = FileLock(Path(sys.argv[1] + '-lock'))\n"
        "lock.acquire(1)\n"
        "print('held', flush=True)\n"
        "sys.stdin.readline()\n"
    )
    command = [sys.executable, "-c", code, str(store)]
    holder = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert holder.stdout
        assert holder.stdout.readline() == "held\n"
        monkeypatch.setattr(backup, "_LOCK_SECONDS", 0.2)
        with pytest.raises(StoreError, match=rf"process {holder.pid} held the store"):
            restore_backup(store.with_name("backup.db"), store, force=True)
    finally:
        holder.communicate("\n")
    assert texts(store) == [NEW, OLD]


def test_busy_says_so_if_this_process_holds_the_store_itself(store: Path) -> None:
    from engrain.stores.sqlite.lock import FileLock

    one, two = (FileLock(store.with_name("agent.db-lock")) for _ in range(2))
    with one.hold(1.0), pytest.raises(StoreError, match=re.compile(rf"this process \({os.getpid()}\)")):
        two.acquire(0.05)
    one.close()
    two.close()
