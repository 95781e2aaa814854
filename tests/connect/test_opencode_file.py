"""The database of opencode is read as data: whatever it holds, nothing in it is run."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from engrain.connect.transcripts import read_transcript
from engrain.core.errors import InvalidInput
from engrain.transfer.foreign_databases import read_foreign_rows

TABLES = (
    "create table session (id text, parent_id text, directory text, time_created integer)",
    "create table message (id text, session_id text, data text, time_created integer)",
    "create table part (id text, message_id text, data text, time_created integer)",
)
PARTS = [
    ("user", {"type": "text", "text": "we never use tabs here"}),
    ("assistant", {"type": "tool", "tool": "bash", "callID": "c1",
                   "state": {"input": {"command": "make"}, "output": "ok", "metadata": {"exit": 0}}}),
    ("assistant", {"type": "text", "text": "Done."}),
]  # fmt: skip


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "open code?mode=rwc#.db"
    with closing(sqlite3.connect(path)) as db:
        for statement in TABLES:
            db.execute(statement)
        db.execute("insert into session values ('s1', null, '/project', 1000)")
        for number, (role, part) in enumerate(PARTS):
            db.execute("insert into message values (?, 's1', ?, ?)", (f"m{number}", json.dumps({"role": role}), number))
            db.execute("insert into part values (?, ?, ?, ?)", (f"p{number}", f"m{number}", json.dumps(part), number))
        db.commit()
    return path


def read(path: Path) -> list[tuple[str, str]]:
    return [(event.kind, event.text or event.command) for event in read_transcript("opencode", path)]


WHOLE = [("prompt", "we never use tabs here"), ("tool", "make"), ("answer", "Done.")]


def test_prompts_commands_and_answers_are_read_and_the_file_stays_as_it_is(file: Path) -> None:
    before = file.read_bytes()
    assert read(file) == WHOLE
    assert file.read_bytes() == before
    assert [path.name for path in file.parent.iterdir()] == [file.name]


@pytest.mark.parametrize(
    "bad", ["nonsense", "[1]", "7", '"text"', "null", "[" * 100_000, '{"type": "tool", "tool": "bash"}', b"\xff", None]
)
def test_a_row_of_another_shape_is_left_out(file: Path, bad: object) -> None:
    with closing(sqlite3.connect(file)) as db:
        db.execute("insert into message values ('m9', 's1', ?, 9)", (json.dumps({"role": "user"}),))
        db.execute("insert into part values ('p9', 'm9', ?, 9)", (bad,))
        db.execute("update message set data = '[]' where id = 'none'")
        db.commit()
    assert read(file) == WHOLE


def replace_table(db: sqlite3.Connection, statement: str) -> None:
    db.execute("alter table part rename to other")
    db.execute(statement)


FOREIGN: dict[str, Callable[[sqlite3.Connection], object]] = {
    "a view": lambda db: replace_table(db, "create view part as select * from other"),
    "a virtual table": lambda db: replace_table(
        db, "create virtual table part using fts5 (id, message_id, data, time_created)"
    ),
    "no table": lambda db: db.execute("drop table part"),
    "a generated column": lambda db: (
        db.execute("drop table part"),
        db.execute("create table part (id, message_id text, time_created, data as (hex(zeroblob(100000000))))"),
        db.execute("insert into part values ('p9', 'm0', 1)"),
    ),
    "a column less": lambda db: db.execute("alter table part drop column data"),
    "a text that is none": lambda db: db.execute("update part set data = cast(x'ff' as text)"),
}


@pytest.mark.parametrize("what", FOREIGN)
def test_a_file_of_another_make_is_refused(file: Path, what: str) -> None:
    with closing(sqlite3.connect(file)) as db:
        FOREIGN[what](db)
        db.commit()
    before = file.read_bytes()
    with pytest.raises(InvalidInput):
        read(file)
    assert file.read_bytes() == before


def test_triggers_and_further_tables_of_the_file_change_nothing(file: Path, tmp_path: Path) -> None:
    with closing(sqlite3.connect(file)) as db:
        db.execute('create table "x"";attach \'w\' as w" (a)')
        db.execute("create trigger t after insert on part begin delete from session; end")
        db.commit()
    assert read(file) == WHOLE
    assert [path.name for path in tmp_path.iterdir()] == [file.name]


@pytest.mark.parametrize("end", ["-wal", "-shm", "-journal"])
def test_a_pipe_or_link_beside_the_file_is_refused(file: Path, end: str) -> None:
    beside = file.with_name(file.name + end)
    os.mkfifo(beside)
    with pytest.raises(InvalidInput, match="not a plain file"):
        read(file)
    beside.unlink()
    beside.symlink_to("/dev/zero")
    with pytest.raises(InvalidInput, match="not a plain file"):
        read(file)


def test_pages_that_lead_to_each_other_end(tmp_path: Path) -> None:
    """Each inner page names the one below many times: ten levels would give more rows than anybody can read."""
    path = tmp_path / "bomb.db"
    with closing(sqlite3.connect(path)) as db:
        db.execute("pragma page_size = 4096")
        db.execute("create table session (id text)")
        db.executemany("insert into session values (?)", [("x" * 400,) for _ in range(200)])
        db.commit()
        (root,) = db.execute("select rootpage from sqlite_master").fetchone()
    content = bytearray(path.read_bytes())
    pages = [page for page in range(3, 12) if content[(page - 1) * 4096] == 13]
    leaf = pages[0]
    above = leaf
    for page in [*pages[1:], root]:
        at = (page - 1) * 4096
        content[at : at + 12] = b"\5\0\0\1\x2c\0\0\0" + above.to_bytes(4, "big")
        content[at + 3 : at + 5] = (300).to_bytes(2, "big")
        content[at + 5 : at + 7] = (1_000).to_bytes(2, "big")
        for cell in range(300):
            place = 1_000 + cell * 6
            content[at + 12 + cell * 2 : at + 14 + cell * 2] = place.to_bytes(2, "big")
            content[at + place : at + place + 6] = above.to_bytes(4, "big") + bytes([0x81, cell % 128])
        above = page
    path.write_bytes(content)
    with pytest.raises(InvalidInput):
        read_foreign_rows(path, "a database", ["session"], "select id from session order by id")


def test_a_damaged_file_is_a_typed_error_or_read_as_far_as_it_is_whole(file: Path, tmp_path: Path) -> None:
    whole = file.read_bytes()
    damaged = tmp_path / "damaged.db"
    for place in range(0, len(whole), 97):
        damaged.write_bytes(whole[:place] + bytes([whole[place] ^ 0xFF]) + whole[place + 1 :])
        try:
            found = read(damaged)
        except InvalidInput:
            continue
        assert len(found) <= len(WHOLE) + 1
    shutil.copy(file, damaged)
    assert read(damaged) == WHOLE
