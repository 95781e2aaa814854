"""A file is data: no SQL, trigger or name out of a store or a backup is ever executed."""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import shutil
import struct
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import apsw
import pytest

from engrain import Memory, Store
from engrain.core.errors import EngrainError, NotADatabase, SchemaMismatch, StoreCorrupt
from engrain.core.formats.manifests import MANIFEST_SUFFIX
from engrain.memory.transfer import restore_backup
from engrain.stores.sqlite import SqliteStore
from engrain.stores.sqlite.lock import FileLock
from engrain.stores.sqlite.opening import as_immutable, inspect_path, open_connection
from engrain.stores.sqlite.schema import open_outside

# SQL that its author hopes for us to run. {witness} is a database that appears if it ran.
ATTACK = "attach '{witness}' as w; create table w.ran (x); insert into w.ran select text from item"
EDIT = "update sqlite_schema set {change} where name = 'summary'"
FOREIGN: dict[str, tuple[str, ...]] = {
    "a table whose name ends the statement": (f'create table "x""; {ATTACK}; --" (scope integer)',),
    "a table whose name attaches a file": (f'create table "item""; {ATTACK}; select count(*) from ""item" (x)',),
    "a table whose name has a scope": (f'create table "item; {ATTACK}; --" (scope integer)',),
    "a table whose name drops another": ('create table "x""; drop table item; --" (x)',),
    "a table of a name with a line break": ('create table "item\n" (scope integer)',),
    "a table of a name that looks like ours": ('create table "іtem" (scope integer)',),
    "a table that engrain does not know": ("create table loot (text)",),
    "a trigger that copies each new text": (
        "create table loot (text)",
        "create trigger t after insert on item begin insert into loot values (new.text); end",
    ),
    "a trigger that keeps forgotten texts": (
        "create trigger t after delete on item begin insert into meta values ('loot', old.text); end",
    ),
    "a trigger that forgets nothing": ("create trigger t before delete on item begin select raise(ignore); end",),
    "a trigger that raises trust": ("create trigger t after insert on item begin update item set trust = 1; end",),
    "a trigger of ours with another body": (
        "drop trigger episode_added",
        "create trigger episode_added after insert on episode begin delete from item; end",
    ),
    "a trigger on the audit log": ("create trigger t after insert on audit begin delete from audit; end",),
    "a view": ("create view v as select text from item",),
    "a view in the place of a table": ("drop table summary", "create view summary as select * from session"),
    "a virtual table": ("create virtual table v using fts5(a)",),
    "a virtual table in the place of a table": ("drop table summary", "create virtual table summary using fts5(a)"),
    "a generated column": ("alter table summary add column g text as (upper(text))",),
    "a column more": ("alter table item add column copy text default 'x'",),
    "a default that computes": ("drop table progress", "create table progress (scope integer default (random()))"),
    "a rule that is not ours": ("pragma writable_schema = 1", EDIT.format(change="sql = replace(sql, 'not null', '')")),
    "an index on an expression": ("create index i on item (upper(text))",),
    "an index with a condition": ("create index i on item (text) where text like '%secret%'",),
    "no unique index of open slots": ("drop index item_open_slot",),
    "statistics for the planner": ("analyze",),
    "a table without its columns": ("drop table summary", "create table summary (x)"),
    "a table without its SQL": ("pragma writable_schema = 1", EDIT.format(change="sql = null")),
    "a table that stands on the schema": ("pragma writable_schema = 1", EDIT.format(change="rootpage = 1")),
    "two tables on one page": (
        "pragma writable_schema = 1",
        EDIT.format(change="rootpage = (select rootpage from sqlite_schema where name = 'item')"),
    ),
    "a table that calls itself an index": ("pragma writable_schema = 1", EDIT.format(change="type = 'index'")),
    "SQL that is none": ("pragma writable_schema = 1", EDIT.format(change="sql = 'create table'")),
    "a table of another name inside": (
        "pragma writable_schema = 1",
        EDIT.format(change="sql = replace(sql, 'summary', 'sqlite_schema')"),
    ),
}


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("template") / "store.db"
    with Memory(path, user="ana") as memory:
        memory.remember("Ana lives in Quito.")
        memory.remember("Ana's bank code is 4711.")
    return path


@pytest.fixture
def store(tmp_path: Path, template: Path) -> Path:
    return shutil.copytree(template.parent, tmp_path, dirs_exist_ok=True) / template.name


@pytest.fixture
def witness(tmp_path: Path) -> Path:
    """A database that a file from outside must not make."""
    return tmp_path / "witness.db"


def change_file(path: Path, statements: tuple[str, ...], witness: Path) -> None:
    with closing(apsw.Connection(str(path))) as db:
        for statement in statements:
            db.execute(statement.format(witness=witness))


def forge_manifest(backup: Path) -> None:
    """Make the manifest agree with the changed file, as an attacker would."""
    path = backup.with_name(backup.name + MANIFEST_SUFFIX)
    manifest = json.loads(path.read_text())
    content = backup.read_bytes()
    manifest["bytes"], manifest["sha256"] = len(content), hashlib.sha256(content).hexdigest()
    with closing(apsw.Connection(str(backup))) as db:
        tables = [name for (name,) in db.execute("select name from sqlite_schema where type = 'table' order by name")]
        own = [name for name in tables if not name.startswith("sqlite_")]
        count = {name: db.execute(f'select count(*) from "{name.replace(chr(34), chr(34) * 2)}"') for name in own}
        manifest["rows"] = {name: found.fetchall()[0][0] for name, found in count.items()}
    path.write_text(json.dumps(manifest))


@pytest.mark.parametrize("what", FOREIGN)
def test_a_store_with_a_foreign_schema_is_not_opened(store: Path, witness: Path, what: str) -> None:
    change_file(store, FOREIGN[what], witness)
    before = store.read_bytes()
    for use in (use_memory, copy_store, lambda path: Store(path).close()):
        with pytest.raises(StoreCorrupt):
            use(store)
    assert store.read_bytes() == before
    assert not witness.exists()


def use_memory(path: Path) -> None:
    with Memory(path, user="ana") as memory:
        memory.remember("Ana likes tea.")


def copy_store(path: Path) -> None:
    with Store(path) as opened:
        opened.copy(path.with_name("copy.db"))


@pytest.mark.parametrize("what", FOREIGN)
def test_a_backup_with_a_foreign_schema_is_not_restored(store: Path, tmp_path: Path, witness: Path, what: str) -> None:
    backup = tmp_path / "backup.db"
    with Store(store) as opened:
        opened.backup(backup)
    change_file(backup, FOREIGN[what], witness)
    with suppress(apsw.Error):  # the attacker may not be able to read it either
        forge_manifest(backup)
    before = store.read_bytes()
    for target in (tmp_path / "new.db", store):
        with pytest.raises(StoreCorrupt):
            restore_backup(backup, target, force=True)
    assert store.read_bytes() == before
    assert not (tmp_path / "new.db").exists()
    assert not witness.exists()
    assert not list(tmp_path.glob("*.restoring*"))


@pytest.mark.parametrize(
    "sql",
    [
        "attach '{witness}' as w",
        "create table t (x)",
        "insert into meta (name, value) values ('a', 'b')",
        "delete from item",
        "pragma writable_schema = 1",
        "pragma journal_mode = wal",
        "select load_extension('{witness}')",
        "vacuum into '{witness}'",
        "create temp trigger t after insert on item begin select 1; end",
        "select 1; select 2",
    ],
)
def test_a_file_from_outside_can_only_be_read(store: Path, tmp_path: Path, witness: Path, sql: str) -> None:
    with closing(SqliteStore(store)) as opened:
        opened.backup(tmp_path / "backup.db")
    file = as_immutable(inspect_path(tmp_path / "backup.db", read_only=True))
    before = (tmp_path / "backup.db").read_bytes()
    with open_outside(file) as (db, _):
        assert db.rows("select count(*) from item") == [(2,)]
        with pytest.raises(EngrainError):
            db.rows(sql.format(witness=witness))
    assert (tmp_path / "backup.db").read_bytes() == before
    assert not witness.exists()


def test_a_file_that_is_copied_is_copied_to_one_place(store: Path, tmp_path: Path, witness: Path) -> None:
    copy = tmp_path / "copy.db"
    with open_outside(inspect_path(store, read_only=True), copy) as (db, _):
        for place in (witness, f"{copy.as_uri()}.other", f"file:{witness}?{copy.as_uri()}"):
            with pytest.raises(EngrainError):
                db.rows("vacuum into ?", (str(place),))
            with pytest.raises(EngrainError):
                db.rows("attach ? as vacuum_a", (str(place),))
        db.rows("vacuum into ?", (copy.as_uri(),))
    assert sorted(path.name for path in tmp_path.iterdir() if path.name.startswith("copy")) == ["copy.db"]
    assert not witness.exists()


def test_no_connection_edits_a_schema_or_reads_a_view(store: Path) -> None:
    with closing(open_connection(inspect_path(store, read_only=False))) as db:
        db.rows("pragma writable_schema = on")
        with pytest.raises(EngrainError):
            db.run("update sqlite_schema set sql = sql || ' ' where name = 'item'")
        db.run("begin")
        db.run("create view v as select 1")
        with pytest.raises(EngrainError):
            db.rows("select * from v")


def test_the_error_names_what_is_foreign(store: Path, witness: Path) -> None:
    change_file(store, FOREIGN["a trigger that copies each new text"], witness)
    with pytest.raises(SchemaMismatch, match=r"the table 'loot'.*engrain did not make"):
        Store(store)


def test_the_error_names_what_is_missing(store: Path, witness: Path) -> None:
    change_file(store, FOREIGN["no unique index of open slots"], witness)
    with pytest.raises(SchemaMismatch, match="the index 'item_open_slot' is missing"):
        Store(store)


def test_the_error_names_what_is_changed(store: Path, witness: Path) -> None:
    change_file(store, FOREIGN["a trigger of ours with another body"], witness)
    with pytest.raises(SchemaMismatch, match="the trigger 'episode_added' is not as engrain makes it"):
        Store(store)


@pytest.mark.parametrize("what", ["a trigger that copies each new text", "a table whose name ends the statement"])
def test_a_trigger_put_into_an_open_store_is_found(store: Path, tmp_path: Path, witness: Path, what: str) -> None:
    with Store(store) as opened:
        memory = opened.memory(user="ana")
        change_file(store, FOREIGN[what], witness)
        failed = [point for point in opened.doctor() if point.state == "fail"]
        assert any("engrain did not make it" in point.why for point in failed), failed
        with pytest.raises(EngrainError):
            opened.backup(tmp_path / "backup.db")
        assert memory.forget(next(iter(memory.list())).id).pending, "its bytes may be elsewhere in the file"
    assert not witness.exists()


def test_a_restore_replaces_a_store_with_a_foreign_schema(store: Path, tmp_path: Path, witness: Path) -> None:
    with Store(store) as opened:
        opened.backup(tmp_path / "backup.db")
    change_file(store, FOREIGN["a trigger that copies each new text"], witness)
    assert restore_backup(tmp_path / "backup.db", store, force=True).may_hold_forgotten
    with Memory(store, user="ana") as memory:
        assert len(list(memory.list())) == 2


@pytest.mark.parametrize("what", ["a table whose name has a scope", "a table whose name ends the statement"])
def test_an_erasure_runs_no_name_out_of_the_file(store: Path, witness: Path, what: str) -> None:
    with Store(store) as opened:
        change_file(store, FOREIGN[what], witness)
        with suppress(EngrainError):
            opened.erase(user="ana")
    assert not witness.exists()


def make_journal(path: Path, names: Path) -> None:
    """A journal that SQLite takes for the rest of a transaction over several files, and that names one of them."""
    name = str(names).encode()
    magic = bytes.fromhex("d9d505f920a163d7")
    pages = path.stat().st_size // 4096
    head = magic + struct.pack(">IIIII", 0, 7, pages, 512, 4096)
    end = name + struct.pack(">II", len(name), sum(name)) + magic
    path.with_name(path.name + "-journal").write_bytes(head.ljust(512, b"\0") + end)


def test_a_journal_that_names_another_file_deletes_nothing(store: Path, tmp_path: Path) -> None:
    victim = tmp_path / "letters.txt"
    victim.write_text("Dear Ana")
    make_journal(store, victim)
    for use in (use_memory, copy_store):
        with pytest.raises(NotADatabase, match="names another file"):
            use(store)
    assert victim.read_text() == "Dear Ana"
    store.with_name("store.db-journal").write_bytes(b"")  # as a transaction leaves it that is over
    use_memory(store)


PAGE = 4096


def forge_pages(store: Path, witness: Path, what: str) -> list[tuple[int, bytes]]:
    """The pages that a store with a foreign schema has and this one has not, by their numbers."""
    foreign = store.with_name("foreign.db")
    shutil.copy(store, foreign)
    change_file(foreign, FOREIGN[what], witness)
    with closing(apsw.Connection(str(foreign))) as db:
        db.pragma("journal_mode", "delete")
    old, new = store.read_bytes(), foreign.read_bytes()
    pages = [(start // PAGE + 1, new[start : start + PAGE]) for start in range(0, len(new), PAGE)]
    return [(number, page) for number, page in pages if old[(number - 1) * PAGE : number * PAGE] != page]


def make_hot_journal(store: Path, pages: list[tuple[int, bytes]]) -> None:
    """A journal of a transaction that never ended: SQLite writes its pages back into the store."""
    count = max(store.stat().st_size // PAGE, *(number for number, _ in pages))
    head = bytes.fromhex("d9d505f920a163d7") + struct.pack(">IIIII", len(pages), 7, count, 512, PAGE)
    records = b"".join(
        struct.pack(">I", number) + page + struct.pack(">I", 7 + sum(page[at] for at in range(PAGE - 200, 0, -200)))
        for number, page in pages
    )
    store.with_name(store.name + "-journal").write_bytes(head.ljust(512, b"\0") + records)


def make_log(store: Path, pages: list[tuple[int, bytes]]) -> None:
    """A write-ahead log with one commit: SQLite reads its pages instead of the store's."""
    count = max(store.stat().st_size // PAGE, *(number for number, _ in pages))
    head = struct.pack(">IIIIII", 0x377F0683, 3007000, PAGE, 0, 1, 2)
    sums = sum_words(head, (0, 0))
    log = head + struct.pack(">II", *sums)
    for place, (number, page) in enumerate(pages, 1):
        start = struct.pack(">II", number, count if place == len(pages) else 0)
        sums = sum_words(start + page, sums)
        log += start + struct.pack(">IIII", 1, 2, *sums) + page
    store.with_name(store.name + "-wal").write_bytes(log)


def sum_words(content: bytes, sums: tuple[int, int]) -> tuple[int, int]:
    first, second = sums
    for left, right in struct.iter_unpack(">II", content):
        first = (first + left + second) & 0xFFFFFFFF
        second = (second + right + first) & 0xFFFFFFFF
    return first, second


def test_a_hot_journal_beside_a_store_with_a_log_is_not_played_back(store: Path, witness: Path) -> None:
    make_hot_journal(store, forge_pages(store, witness, "a trigger that copies each new text"))
    assert_journal_refused(store)


def make_cutting_journal(store: Path, pages: int) -> None:
    """A journal without a page, which cuts the store to the number of pages that it names."""
    head = bytes.fromhex("d9d505f920a163d7") + struct.pack(">IIIII", 0, 7, pages, 512, PAGE)
    store.with_name("store.db-journal").write_bytes(head.ljust(512, b"\0"))


def test_a_journal_that_would_empty_a_store_with_a_log_is_not_played_back(store: Path) -> None:
    make_cutting_journal(store, 0)
    assert_journal_refused(store)


def test_a_journal_that_would_empty_a_store_on_a_network_is_not_played_back(
    store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engrain.stores.sqlite.opening.detect_file_system", lambda path: "nfs4")
    use_memory(store)
    make_cutting_journal(store, 0)
    assert_journal_refused(store)


def test_a_journal_that_cuts_a_store_on_a_network_is_noticed(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("engrain.stores.sqlite.opening.detect_file_system", lambda path: "nfs4")
    use_memory(store)
    whole = store.read_bytes()
    count = len(whole) // PAGE
    for pages in (*range(1, count, 7), count - 1):
        store.write_bytes(whole)
        make_cutting_journal(store, pages)
        with suppress(StoreCorrupt), Store(store) as opened:
            assert [one for one in opened.doctor() if one.state == "fail"], f"{pages} of {count} pages, unseen"


def assert_journal_refused(store: Path) -> None:
    before = store.read_bytes()
    for use in (use_memory, copy_store):
        with pytest.raises(NotADatabase, match=r"-journal.*Move it away"):
            use(store)
    assert store.read_bytes() == before
    store.with_name("store.db-journal").unlink()
    use_memory(store)


@pytest.mark.parametrize("what", ["a trigger that copies each new text", "a table whose name ends the statement"])
@pytest.mark.parametrize("kind", ["journal", "log", "short journal"])
def test_pages_of_a_journal_or_log_are_checked_as_those_of_the_store(
    store: Path, witness: Path, what: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if kind == "journal":  # as a file on a network has it
        monkeypatch.setattr("engrain.stores.sqlite.opening.detect_file_system", lambda path: "nfs4")
        use_memory(store)
    pages = forge_pages(store, witness, what)
    if kind == "short journal":
        pages = [page for page in pages if page[0] == 1]
    (make_log if kind == "log" else make_hot_journal)(store, pages)
    with pytest.raises(StoreCorrupt):
        use_memory(store)
    assert not witness.exists()


BAD_JOURNALS: dict[str, bytes] = {
    "four billion records": struct.pack(">IIIII", 0xFFFFFFFF, 7, 1, 512, PAGE),
    "four billion pages": struct.pack(">IIIII", 1, 7, 0xFFFFFFFF, 512, PAGE),
    "a sector of two gigabytes": struct.pack(">IIIII", 1, 7, 1, 0x80000000, PAGE),
    "a sector of one byte": struct.pack(">IIIII", 1, 7, 1, 1, PAGE),
    "a page of two gigabytes": struct.pack(">IIIII", 1, 7, 1, 512, 0x80000000),
}


REFILL = """
import os, sys
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT, 0o600)
head = bytes.fromhex(sys.argv[2])
while True:
    os.pwrite(file, head, 0)
    os.ftruncate(file, 0)
"""


def test_a_journal_that_its_writer_empties_meanwhile_is_no_error(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each transaction of another process fills the journal of a store on a network and empties it again."""
    monkeypatch.setattr("engrain.stores.sqlite.opening.detect_file_system", lambda path: "nfs4")
    use_memory(store)
    make_cutting_journal(store, store.stat().st_size // PAGE)
    journal = store.with_name("store.db-journal")
    writer = subprocess.Popen([sys.executable, "-I", "-S", "-c", REFILL, str(journal), journal.read_bytes().hex()])
    try:
        sizes = set()
        until = time.monotonic() + 10
        for tried in itertools.count():
            inspect_path(store, read_only=False)
            sizes.add(journal.stat().st_size)
            if (tried >= 3_000 and len(sizes) == 2) or time.monotonic() > until:
                break
    finally:
        writer.kill()
        writer.wait()
    assert sizes == {0, 512}, "the writer did not run beside the checks"


@pytest.mark.parametrize("size", [600, 1 << 39])
@pytest.mark.parametrize("what", BAD_JOURNALS)
def test_a_journal_with_impossible_sizes_changes_nothing(
    store: Path, what: str, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engrain.stores.sqlite.opening.detect_file_system", lambda path: "nfs4")
    use_memory(store)
    journal = store.with_name("store.db-journal")
    journal.write_bytes(bytes.fromhex("d9d505f920a163d7") + BAD_JOURNALS[what])
    os.truncate(journal, size)
    with suppress(EngrainError):
        use_memory(store)
    journal.unlink(missing_ok=True)
    with suppress(StoreCorrupt), Memory(store, user="ana") as memory:
        assert len(memory.list()) >= 3


@pytest.mark.parametrize("end", ["-journal", "-wal", "-shm", "-lock"])
@pytest.mark.parametrize("kind", ["pipe", "link", "folder"])
def test_a_file_beside_a_store_that_is_none_is_refused(store: Path, tmp_path: Path, end: str, kind: str) -> None:
    beside = store.with_name(store.name + end)
    beside.unlink(missing_ok=True)
    if kind == "pipe":
        os.mkfifo(beside)
    elif kind == "link":
        beside.symlink_to(tmp_path / "elsewhere")
    else:
        beside.mkdir()
    with pytest.raises(NotADatabase, match="not a plain file"):
        use_memory(store)


def test_a_store_that_litestream_has_changed_says_so(store: Path, witness: Path) -> None:
    tables = ("_litestream_seq (id integer primary key, seq integer)", "_litestream_lock (id integer)")
    change_file(store, tuple(f"create table {table}" for table in tables), witness)
    with pytest.raises(SchemaMismatch, match=r"Litestream \(_litestream_lock, _litestream_seq\).*engrain backup"):
        use_memory(store)


def test_the_source_of_a_copy_can_only_be_read(store: Path, witness: Path) -> None:
    """Even if SQL out of the file ran, it could do nothing."""
    with closing(SqliteStore(store)) as opened:

        def read() -> None:
            rows = opened.snapshot(lambda db: db.rows("select count(*) from item"))
            assert rows == [(2,)]
            for sql in (f"attach '{witness}' as w", "delete from item", "create temp table t (x)"):
                with pytest.raises(EngrainError):
                    opened.snapshot(lambda db: db.run(sql))  # noqa: B023

        opened.on_snapshot(read)
        assert opened.snapshot(lambda db: db.rows("select count(*) from item")) == [(2,)]
    assert not witness.exists()


def patch_bytes(at: int, new: bytes) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        content = bytearray(path.read_bytes())
        content[at : at + len(new)] = new
        path.write_bytes(content)

    return change


def recode(path: Path) -> None:
    """The same rows in UTF-16: a search of the bytes for a forgotten text would find nothing."""
    with closing(apsw.Connection(str(path))) as db:
        script = [sql for (sql,) in db.execute("select sql from sqlite_schema where sql not like '%sqlite_%'")]
        number = db.pragma("user_version")
        rows = {name: db.execute(f"select * from {name}").fetchall() for name in ("meta", "counter")}
    path.unlink()
    with closing(apsw.Connection(str(path))) as db:
        db.execute("pragma encoding = 'UTF-16le'")
        for sql in script:
            db.execute(sql)
        for name, found in rows.items():
            db.executemany(f"insert into {name} values ({', '.join('?' * len(found[0]))})", found)
        db.execute(f"pragma application_id = {0x656E6772}; pragma user_version = {number}")


def nest(path: Path) -> None:
    path.write_bytes(b"[" * 100_000)


def make_fifo(path: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def link_to_device(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def link_to_itself(path: Path) -> None:
    path.unlink()
    path.symlink_to(path)


def make_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


BAD_FILES: dict[str, Callable[[Path], None]] = {
    "no database": lambda path: path.write_bytes(b"#!/bin/sh\n" * 400) and None,
    "a magic and nothing else": lambda path: path.write_bytes(b"SQLite format 3\x00") and None,
    "a cut file": lambda path: os.truncate(path, path.stat().st_size // 2 // 4096 * 4096),
    "a page of 1 byte": patch_bytes(16, b"\x00\x00"),
    "a page of 64 kB": patch_bytes(16, b"\x00\x01"),
    "four billion pages": patch_bytes(28, b"\xff\xff\xff\xff\x00\x00"),
    "a reserve larger than the page": patch_bytes(20, b"\xff"),
    "a schema of a future format": patch_bytes(44, b"\x00\x00\x00\x63"),
    "a free list that leads everywhere": patch_bytes(32, b"\x7f\xff\xff\xff\x7f\xff\xff\xff"),
    "a schema page of another kind": patch_bytes(100, b"\x02"),
    "a schema with cells beyond the page": patch_bytes(103, b"\xff\xff"),
    "texts in UTF-16": recode,
    "JSON that is nested": nest,
    "a pipe": make_fifo,
    "a device": link_to_device,
    "a link to itself": link_to_itself,
    "a folder": make_folder,
}


@pytest.mark.parametrize("what", BAD_FILES)
def test_a_store_that_is_no_store_is_a_typed_error(store: Path, what: str) -> None:
    BAD_FILES[what](store)
    with pytest.raises(EngrainError):
        use_memory(store)


@pytest.mark.parametrize("what", BAD_FILES)
def test_a_backup_that_is_no_store_is_a_typed_error(store: Path, tmp_path: Path, what: str) -> None:
    backup = tmp_path / "backup.db"
    with Store(store) as opened:
        opened.backup(backup)
    BAD_FILES[what](backup)
    with suppress(apsw.Error, OSError):
        if backup.is_file():
            forge_manifest(backup)
    before = store.read_bytes()
    with pytest.raises(EngrainError):
        restore_backup(backup, store, force=True)
    assert store.read_bytes() == before


BAD_MANIFESTS: dict[str, bytes] = {
    "empty": b"",
    "no JSON": b"\x00\xff",
    "nested": b"[" * 100_000,
    "a list": b"[]",
    "a key twice": b'{"engrain_backup": 1, "engrain_backup": 1}',
    "a huge number": b'{"engrain_backup": ' + b"9" * 5_000 + b"}",
    "a field of another type": b'{"engrain_backup": 1, "taken_at": {}, "schema": []}',
    "an unknown field": b'{"engrain_backup": 1, "taken_at": "2026-01-01T00:00:00+00:00", "path": "/etc/passwd"}',
}


@pytest.mark.parametrize("what", BAD_MANIFESTS)
def test_a_manifest_that_is_none_is_a_typed_error(store: Path, tmp_path: Path, what: str) -> None:
    with Store(store) as opened:
        opened.backup(tmp_path / "backup.db")
    (tmp_path / f"backup.db{MANIFEST_SUFFIX}").write_bytes(BAD_MANIFESTS[what])
    with pytest.raises(StoreCorrupt):
        restore_backup(tmp_path / "backup.db", tmp_path / "new.db")


@pytest.mark.parametrize("kind", ["pipe", "link", "folder"])
def test_a_lock_that_is_put_there_while_it_opens_is_not_followed(store: Path, tmp_path: Path, kind: str) -> None:
    """The files beside are looked at before. The open itself must refuse too."""
    target = tmp_path / "letters.txt"
    target.write_text("Dear Ana")
    beside = store.with_name(store.name + "-lock")
    beside.unlink()
    {"pipe": lambda: os.mkfifo(beside), "link": lambda: beside.symlink_to(target), "folder": beside.mkdir}[kind]()
    lock = FileLock(beside)
    with closing(lock), pytest.raises(NotADatabase, match="not a plain file"):
        lock.acquire(1)
    assert target.read_text() == "Dear Ana"


@pytest.mark.parametrize("end", ["-wal", "-lock"])
def test_a_new_store_does_not_write_through_a_link_beside_it(tmp_path: Path, end: str) -> None:
    target = tmp_path / "letters.txt"
    target.write_text("Dear Ana")
    (tmp_path / f"new.db{end}").symlink_to(target)
    with pytest.raises(NotADatabase, match="not a plain file"):
        use_memory(tmp_path / "new.db")
    assert target.read_text() == "Dear Ana"


BAD_INDEX_ROWS = (
    "update words set pairs = zeroblob(50)",
    "update words set pairs = x'00'",
    "update item set passages = 9223372036854775807",
    "update item set passages = -1",
    "update code set windows = zeroblob(3)",
    "update vector set windows = x'00'",
)


@pytest.mark.parametrize("change", BAD_INDEX_ROWS)
def test_a_row_of_the_index_with_a_wrong_size_is_damage(store: Path, witness: Path, change: str) -> None:
    change_file(store, (change,), witness)
    with Memory(store, user="ana") as memory, pytest.raises(StoreCorrupt):
        memory.recall("Where does Ana live?")


def test_an_audit_entry_with_the_last_number_is_damage(store: Path, witness: Path) -> None:
    with Store(store) as opened:
        opened.memory(user="ben").remember("Ben likes coffee.")
        opened.erase(user="ben")
    change_file(store, ("update audit set n = 9223372036854775807 where n = (select max(n) from audit)",), witness)
    with Store(store) as opened:
        memory = opened.memory(user="ana")
        with pytest.raises(StoreCorrupt, match="impossible number"):
            memory.forget(next(iter(memory.list())).id)
        assert opened.erase(user="ana").pending, "an erasure without its entry is not complete"


@pytest.mark.parametrize("sealed", [False, True])
@pytest.mark.parametrize(
    ("column", "value"),
    [("scopes", "[1,2"), ("scopes", "[1]"), ("counts", "{"), ("counts", "[1]"), ("ids", "["), ("notes", "[" * 100_000)],
)
def test_a_forged_erasure_is_damage(store: Path, column: str, value: str, sealed: bool) -> None:
    row = {"id": "x", "subject_hash": "x", "subject_kind": "user", "stage": "rows", "at": 1, column: value}
    with closing(SqliteStore(store)) as opened:
        insert = f"insert into erasure ({', '.join(row)}) values ({', '.join('?' * len(row))})"
        if sealed:
            opened.dialect.transaction(lambda db: db.run(insert, tuple(row.values())))
    if not sealed:
        with closing(apsw.Connection(str(store))) as db:
            db.execute(insert, tuple(row.values()))
    with pytest.raises(StoreCorrupt), Store(store) as opened_again:
        opened_again.resume_erasures()
