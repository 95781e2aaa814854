"""What an attacker puts beside a store or into its file, and how its path may be called."""

from __future__ import annotations

import os
import sqlite3
import struct
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

from engrain_conformance.embedder import HashEmbedder
from hostile_kit import Attack, check_attacks

from engrain import Memory, Store
from engrain.core.errors import EngrainError
from engrain.memory.transfer import restore_backup

TEXT = "Ana likes tea."
FOREIGN = "Ana owes Mallory money."


def make_store(path: Path, text: str = TEXT) -> None:
    with Memory(path, user="ana", embedder=HashEmbedder(), background=False) as memory:
        memory.remember(text)


def check_texts(path: Path, *texts: str) -> None:
    """What is read was written there. Otherwise the doctor says that rows are missing, or of another store."""
    with Memory(path, user="ana", embedder=HashEmbedder(), background=False) as memory:
        memory.recall("tea")
        sound = all(check.state != "fail" for check in memory.store.doctor())
        assert not sound or {item.text for item in memory.list()} <= set(texts), (
            "another text is read, and nobody sees it"
        )


def make_log(path: Path) -> bytes:
    """The write-ahead log of another store of ours."""
    make_store(path, FOREIGN)
    with Memory(path, user="ana", embedder=HashEmbedder(), background=False) as memory:
        memory.remember("Mallory is Ana's friend.")
        return path.with_name(path.name + "-wal").read_bytes()


# Beside a store


def open_with_log_of_another(folder: Path) -> None:
    make_store(folder / "store.db")
    log = make_log(folder / "other.db")
    (folder / "store.db-wal").write_bytes(log)
    check_texts(folder / "store.db", TEXT)


def open_new_with_log_of_another(folder: Path) -> None:
    log = make_log(folder / "other.db")
    (folder / "store.db-wal").write_bytes(log)
    check_texts(folder / "store.db")


def restore_beside_log(folder: Path) -> None:
    """The log waits where the restored store will stand."""
    make_store(folder / "store.db")
    with Store(folder / "store.db", embedder=HashEmbedder(), background=False) as store:
        store.backup(folder / "backup.db")
    (folder / "new.db-wal").write_bytes(make_log(folder / "other.db"))
    restore_backup(folder / "backup.db", folder / "new.db")
    check_texts(folder / "new.db", TEXT)


def restore_with_log(folder: Path) -> None:
    """The backup has a log of its own, of which its manifest says nothing."""
    make_store(folder / "store.db")
    with Store(folder / "store.db", embedder=HashEmbedder(), background=False) as store:
        store.backup(folder / "backup.db")
    (folder / "backup.db-wal").write_bytes(make_log(folder / "other.db"))
    restore_backup(folder / "backup.db", folder / "new.db")
    check_texts(folder / "new.db", TEXT)


def back_up_beside_log(folder: Path) -> None:
    make_store(folder / "store.db")
    (folder / "backup.db-wal").write_bytes(make_log(folder / "other.db"))
    with Store(folder / "store.db", embedder=HashEmbedder(), background=False) as store:
        store.backup(folder / "backup.db")
    restore_backup(folder / "backup.db", folder / "new.db")
    check_texts(folder / "new.db", TEXT)


def open_with_shared_memory(content: bytes) -> Attack:
    def attack(folder: Path) -> None:
        make_store(folder / "store.db")
        (folder / "store.db-shm").write_bytes(content)
        check_texts(folder / "store.db", TEXT)

    return attack


def open_with_lock(content: bytes) -> Attack:
    def attack(folder: Path) -> None:
        make_store(folder / "store.db")
        (folder / "store.db-lock").write_bytes(content)
        check_texts(folder / "store.db", TEXT)

    return attack


def alter_store(*statements: str) -> Attack:
    """A store whose file was altered by statements stays what it was, or is refused."""

    def attack(folder: Path) -> None:
        make_store(folder / "store.db")
        db = sqlite3.connect(folder / "store.db", isolation_level=None)
        for statement in statements:
            db.execute(statement)
        db.close()
        check_texts(folder / "store.db", TEXT)
        with Store(folder / "store.db", embedder=HashEmbedder(), background=False) as store:
            store.backup(folder / "backup.db")
            store.erase(user="ana")
        restore_backup(folder / "backup.db", folder / "new.db")
        check_texts(folder / "new.db", TEXT)

    return attack


def alter_meta(value: str) -> Attack:
    return alter_store(f"update meta set value = {value}")


def open_named(name: str | bytes) -> Attack:
    """A name is a name: it opens no other file and sets no option of SQLite."""

    def attack(folder: Path) -> None:
        path = os.path.join(os.fsencode(folder), name) if isinstance(name, bytes) else os.path.join(folder, name)
        before = set(os.listdir(folder))
        texts = []
        for _ in range(2):
            with Memory(os.fsdecode(path), user="ana", embedder=HashEmbedder(), background=False) as memory:
                memory.remember(TEXT)
                texts = [item.text for item in memory.list()]
                memory.store.doctor()
        new = {
            made
            for made in set(os.listdir(folder)) - before
            if not made.startswith(os.path.basename(os.fsdecode(path)))
        }
        assert not new, f"it made {new}"
        assert texts, "nothing was kept"

    return attack


def swap_while_opened(folder: Path) -> None:
    """A link takes turns with the store, while it is opened and backed up."""
    make_store(folder / "store.db")
    make_store(folder / "other.db", FOREIGN)
    done = threading.Event()

    def swap() -> None:
        while not done.is_set():
            with suppress(OSError):
                os.symlink(folder / "other.db", folder / "link")
                os.rename(folder / "store.db", folder / "aside")
                os.rename(folder / "link", folder / "store.db")
                os.rename(folder / "aside", folder / "store.db")

    thread = threading.Thread(target=swap)
    thread.start()
    try:
        for _ in range(10):
            with suppress(EngrainError):
                check_texts(folder / "store.db", TEXT, FOREIGN)
    finally:
        done.set()
        thread.join()


STORES: dict[str, Attack] = {
    "the log of another store": open_with_log_of_another,
    "the log of another store, and no store": open_new_with_log_of_another,
    "a log where a store is restored to": restore_beside_log,
    "a log beside the backup": restore_with_log,
    "a log where a backup is written": back_up_beside_log,
    "shared memory of zeros": open_with_shared_memory(bytes(32_768)),
    "shared memory of ones": open_with_shared_memory(b"\xff" * 32_768),
    "shared memory of a byte": open_with_shared_memory(b"\x00"),
    "shared memory of a gigabyte": lambda folder: (
        open_with_shared_memory(b"")(folder),
        os.truncate(folder / "store.db-lock", 1 << 40),
        check_texts(folder / "store.db", TEXT),
    ),
    "a lock that says everybody": open_with_lock(struct.pack("<q", -1) * 16),
    "a lock of text": open_with_lock(b"-1\n" * 100),
    "a lock of digits": open_with_lock(b"9" * 10_000),
    "another application's number": alter_store("pragma application_id = 1196444487"),
    "no application's number": alter_store("pragma application_id = 0"),
    "a version of the schema beyond all": alter_store("pragma user_version = 2147483647"),
    "a version of the schema below zero": alter_store("pragma user_version = -2147483648"),
    "pages of 512 bytes": alter_store("pragma journal_mode = delete", "pragma page_size = 512", "vacuum"),
    "pages of 64 kB": alter_store("pragma journal_mode = delete", "pragma page_size = 65536", "vacuum"),
    "pages that move by themselves": alter_store("pragma journal_mode = delete", "pragma auto_vacuum = 1", "vacuum"),
    "a cookie of the schema at its end": alter_store("pragma schema_version = 2147483647"),
    "a key that is empty": alter_meta("''"),
    "a key that is no text": alter_meta("x'00ff'"),
    "a key of a number": alter_meta("9e999"),
    "a key of a megabyte": alter_meta("printf('%.*c', 1000000, 'a')"),
    "no key": alter_store("delete from meta"),
    "a row that is a million times there": alter_store(
        "with recursive r(x) as (select 1 union all select x + 1 from r where x < 100000) "
        "insert into meta select 'k' || x, 1, zeroblob(100) from r"
    ),
    "a folder with a question mark": open_named("a?mode=memory&cache=shared"),
    "a URI of SQLite": open_named("file:x.db?vfs=unix-none"),
    "a fragment and a percent": open_named("a#b%00c%2e.db"),
    "a name that is no UTF-8": open_named(b"\xff\xfe.db"),
    "a name with line breaks and marks": open_named("a\n\u202e\x1b[2J.db"),
    "a name with a NUL": open_named("a\0b.db"),
    "a name of 255 bytes": open_named("a" * 252 + ".db"),
    "a name that is too long": open_named("a" * 300),
    "a name of dots": open_named(".."),
    "a name like a log": open_named("store.db-wal"),
    "a link that takes turns": swap_while_opened,
}


def test_what_stands_beside_a_store_or_in_it_is_data_or_a_typed_error(
    tmp_path: Path, report_counts: Callable[..., None]
) -> None:
    report_counts(files=check_attacks(tmp_path, STORES))


def test_the_doctor_of_a_store_whose_file_is_gone_says_so(tmp_path: Path) -> None:
    with Memory(tmp_path / "store.db", user="ana", embedder=HashEmbedder(), background=False) as memory:
        memory.remember(TEXT)
        (tmp_path / "store.db").rename(tmp_path / "aside.db")
        assert {check.state for check in memory.store.doctor() if "was removed or renamed" in check.why} == {"fail"}
        (tmp_path / "aside.db").rename(tmp_path / "store.db")
