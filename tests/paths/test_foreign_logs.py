"""A write-ahead log that is not of this store is refused before SQLite plays it into the file; our own never is."""

from __future__ import annotations

import hashlib
import os
import shutil
import signal
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from engrain_conformance.embedder import HashEmbedder
from forked import run_forked

from engrain import Memory, NotADatabase, Store, StoreCorrupt, restore_backup

REFUSED = (NotADatabase, StoreCorrupt)  # corrupt: no pages of ours are left where the log puts its own
OWN, NEWER = "Ana lives in Quito.", "Ana likes tea."


def opened(path: Path) -> Memory:
    return Memory(path, user="ana", embedder=HashEmbedder(), background=False)


def log_of(path: Path) -> Path:
    return path.with_name(path.name + "-wal")


def texts(path: Path) -> set[str]:
    with opened(path) as memory:
        return {item.text for item in memory.list()}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with opened(tmp_path / "agent.db") as memory:
        memory.remember(OWN)
    return tmp_path / "agent.db"


def take_log(path: Path, *said: str) -> bytes:
    """The log of a store in use."""
    with opened(path) as memory:
        for text in said:
            memory.remember(text)
        return log_of(path).read_bytes()


def of_another(store: Path) -> bytes:
    return take_log(store.with_name("other.db"), "Mallory is Ana's friend.")


def of_another_with_more_commits(store: Path) -> bytes:
    return take_log(store.with_name("other.db"), *(f"Text {number}." for number in range(40)))


def of_an_earlier_time(store: Path) -> bytes:
    before = take_log(store, NEWER)
    take_log(store, "Ana moved.", "Ana moved again.")
    return before


def of_a_store_whose_file_is_a_backup_now(store: Path) -> bytes:
    """Somebody copied the backup over the store by hand, and left the log."""
    with opened(store) as memory:
        memory.store.backup(store.with_name("backup.db"))
        memory.remember(NEWER)
        log = log_of(store).read_bytes()
    shutil.copy(store.with_name("backup.db"), store)
    return log


FOREIGN = [of_another, of_another_with_more_commits, of_an_earlier_time, of_a_store_whose_file_is_a_backup_now]


def open_read_only(path: Path) -> None:
    Store(path, embedder=HashEmbedder(), background=False, read_only=True).close()


def check_health(path: Path) -> None:
    with Store(path, embedder=HashEmbedder(), background=False) as store:
        store.doctor()


@pytest.mark.filterwarnings("ignore:engrain. the last")
@pytest.mark.parametrize("use", [texts, open_read_only, check_health])
@pytest.mark.parametrize("make", FOREIGN)
def test_a_log_that_is_not_of_this_store_is_refused(
    store: Path, make: Callable[[Path], bytes], use: Callable[[Path], object]
) -> None:
    log = make(store)
    kept = texts(store)
    before = hashlib.sha256(store.read_bytes()).digest()
    log_of(store).write_bytes(log)
    for _ in range(2):
        with pytest.raises(REFUSED, match=r"agent\.db-wal is not of this store.*Move it away"):
            use(store)
    assert hashlib.sha256(store.read_bytes()).digest() == before
    assert log_of(store).read_bytes() == log
    log_of(store).unlink()
    assert texts(store) == kept


def test_a_store_copied_with_its_log_opens(store: Path) -> None:
    with opened(store) as memory:
        memory.remember(NEWER)
        for end in ("", "-wal"):
            shutil.copy(f"{store}{end}", store.with_name("copy.db" + end))
    assert texts(store.with_name("copy.db")) == {OWN, NEWER}


def die_with_log(path: Path) -> None:
    memory = opened(path)
    for number in range(40):
        memory.remember(f"Text {number}.")
    os.kill(os.getpid(), signal.SIGKILL)


def test_the_log_of_a_killed_process_opens(store: Path) -> None:
    for _ in range(3):
        assert run_forked(die_with_log, store) == -signal.SIGKILL
        assert log_of(store).stat().st_size > 0
    assert len(texts(store)) == 41


def test_a_store_that_others_have_open_opens(store: Path) -> None:
    program = f"""
        import sys
        from engrain import Memory
        from engrain_conformance.embedder import HashEmbedder
        with Memory({str(store)!r}, user="ana", embedder=HashEmbedder(), background=False) as memory:
            memory.remember({NEWER!r})
            print("ready", flush=True)
            for number, _ in enumerate(sys.stdin):
                memory.remember(f"Text {{number}}.")
                print("written", flush=True)
    """
    command = [sys.executable, "-c", textwrap.dedent(program)]
    other = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    with other:
        assert other.stdin
        assert other.stdout
        assert other.stdout.readline() == "ready\n"
        for number in range(4):
            assert len(texts(store)) == 2 + number
            other.stdin.write("\n")
            other.stdin.flush()
            assert other.stdout.readline() == "written\n"
        other.stdin.close()
    assert len(texts(store)) == 6


def test_a_restored_store_opens_with_the_log_of_its_new_writes(store: Path) -> None:
    with opened(store) as memory:
        memory.store.backup(store.with_name("backup.db"))
    restore_backup(store.with_name("backup.db"), store, force=True)
    assert run_forked(die_with_log, store) == -signal.SIGKILL
    assert len(texts(store)) == 41
