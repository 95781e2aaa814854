"""Files that `load` is given by an attacker: archives, chats, tables and stores of other systems."""

from __future__ import annotations

import io
import json
import sqlite3
import struct
import zipfile
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hostile_kit import Attack, check_attacks, open_memory

from engrain.core.errors import InvalidInput
from engrain.transfer import foreign_databases

# Chats of ChatGPT and Claude, alone and in archives


def load(path: Path, **options: Any) -> None:
    """Load a file, and look at all that it may have left."""
    with open_memory(path) as memory:
        memory.load(path, **options)
        assert not [item.text for item in memory.list(limit=100) if item.trust > 0.6], "trust was forged"
        memory.recall("tea")
        memory.prompt("tea")
        memory.slots.list()
        memory.sessions.list()
        [memory.explain(item.id) for item in memory.list(limit=20, history=True)]
        memory.export(path.with_name("again.jsonl"), overwrite=True)


def write(folder: Path, name: str, content: bytes | str) -> Path:
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())
    return folder / name


def load_as(name: str, content: bytes | str, **options: Any) -> Attack:
    return lambda folder: load(write(folder, name, content), **options)


def make_turn(id: str, parent: str | None, text: object = "I like tea.", at: object = 1.7e9) -> dict[str, Any]:
    message = {
        "id": id,
        "author": {"role": "user"},
        "create_time": at,
        "content": {"content_type": "text", "parts": [text]},
    }
    return {"id": id, "parent": parent, "children": [], "message": message}


def make_chat(turns: list[dict[str, Any]], last: object, **fields: object) -> dict[str, Any]:
    mapping = {turn["id"]: turn for turn in turns}
    return {"id": "c", "title": "t", "create_time": 1.7e9, "mapping": mapping, "current_node": last, **fields}


def load_chat(turns: list[dict[str, Any]], last: object, **fields: object) -> Attack:
    return load_as("conversations.json", json.dumps([make_chat(turns, last, **fields)]))


CHAT = json.dumps([make_chat([make_turn("a", None)], "a")])


def make_claude(messages: list[dict[str, Any]], **fields: object) -> str:
    chat = {"uuid": "c", "name": "t", "created_at": "2025-01-01T00:00:00Z", "chat_messages": messages, **fields}
    return json.dumps([chat])


def make_saying(id: str, parent: str, at: str = "2025-01-01T00:00:00Z", text: str = "I like tea.") -> dict[str, Any]:
    return {"uuid": id, "parent_message_uuid": parent, "sender": "human", "text": text, "created_at": at}


def zip_files(files: list[tuple[str, bytes]], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w", method) as archive:
        for name, content in files:
            archive.writestr(name, content)
    return packed.getvalue()


def load_lying_archive(folder: Path) -> None:
    """The directory says ten bytes; the data are two gigabytes."""
    squeezer = zlib.compressobj(9, zlib.DEFLATED, -15)
    first = squeezer.compress(b'["') + squeezer.flush(zlib.Z_FULL_FLUSH)
    block = squeezer.compress(b"a" * (1 << 20)) + squeezer.flush(zlib.Z_FULL_FLUSH)
    block = first + block * 2_048 + squeezer.flush()
    name = b"conversations.json"
    local = struct.pack("<IHHHHHIIIHH", 0x04034B50, 20, 0, 8, 0, 0, 0, len(block), 10, len(name), 0) + name
    central = struct.pack(
        "<IHHHHHHIIIHHHHHII", 0x02014B50, 20, 20, 0, 8, 0, 0, 0, len(block), 10, len(name), 0, 0, 0, 0, 0, 0
    )
    end = struct.pack("<IHHHHIIH", 0x06054B50, 0, 0, 1, 1, len(central) + len(name), len(local) + len(block), 0)
    load(write(folder, "chats.zip", local + block + central + name + end))


def load_overlapping_archive(folder: Path) -> None:
    """Three hundred entries of 100 MB stand on the same bytes."""
    archive = zip_files([("conversations-000.json", b" " * 100_000_000)])
    at = archive.index(b"PK\x01\x02")
    local, entry, end = archive[:at], archive[at:-22], archive[-22:]
    entries = b"".join(entry.replace(b"-000", b"-%03d" % number) for number in range(300))
    end = end[:8] + struct.pack("<HHII", 300, 300, len(entries), len(local)) + end[20:]
    load(write(folder, "chats.zip", local + entries + end))


def flag_encrypted(archive: bytes) -> bytes:
    spoiled = bytearray(archive)
    spoiled[6] |= 1
    spoiled[archive.index(b"PK\x01\x02") + 8] |= 1
    return bytes(spoiled)


def patch(content: bytes, at: int, new: bytes) -> bytes:
    return content[:at] + new + content[at + len(new) :]


def make_method(archive: bytes, method: int) -> bytes:
    code = struct.pack("<H", method)
    return patch(patch(archive, 8, code), archive.index(b"PK\x01\x02") + 10, code)


ONE = zip_files([("conversations.json", CHAT.encode())])
ARCHIVES: dict[str, Attack] = {
    "an archive of two gigabytes that claims ten bytes": load_lying_archive,
    "three hundred entries on the same bytes": load_overlapping_archive,
    "an archive with a password": load_as("chats.zip", flag_encrypted(ONE)),
    "an unknown compression": load_as("chats.zip", make_method(ONE, 99)),
    "a compression that the bytes do not have": load_as("chats.zip", make_method(ONE, 14)),
    "bytes that were flipped": load_as("chats.zip", patch(ONE, 60, b"\xff\xff\xff")),
    "a directory that starts before the file": load_as("chats.zip", patch(ONE, len(ONE) - 6, b"\xff\xff\xff\x7f")),
    "a name twice": load_as("chats.zip", zip_files([("conversations.json", CHAT.encode())] * 2)),
    "names that lead out": load_as(
        "chats.zip", zip_files([("../../conversations.json", CHAT.encode()), ("/etc/x", b"a")])
    ),
    "ten thousand entries": lambda folder: load(
        write(folder, "chats.zip", zip_files([(f"{number}.json", b"") for number in range(10_000)], zipfile.ZIP_STORED))
    ),
    "an archive in an archive": load_as(
        "chats.zip", zip_files([("conversations.json", ONE), ("conversations.zip", ONE)])
    ),
}
CHATS: dict[str, Attack] = {
    "messages in a circle": load_chat([make_turn("a", "b"), make_turn("b", "a")], "a"),
    "a message that is its own parent": load_chat([make_turn("a", "a")], "a"),
    "a branch of five thousand messages": lambda folder: load_chat(
        [make_turn(str(number), str(number - 1), "") for number in range(5_000)], "4999"
    )(folder),
    "a last message that is a list": load_chat([make_turn("a", None)], ["a"]),
    "a parent that is an object": load_chat([{**make_turn("a", None), "parent": {"a": 1}}], "a"),
    "a time beyond every calendar": load_as("conversations.json", CHAT.replace("1700000000.0", "1e400")),
    "a time of 2**70": load_as("conversations.json", CHAT.replace("1700000000.0", str(2**70))),
    "a time that is no number": load_as("conversations.json", CHAT.replace("1700000000.0", "NaN")),
    "a time before every calendar": load_as("conversations.json", CHAT.replace("1700000000.0", "-1e17")),
    "half a character": load_chat([make_turn("\ud800", None, "tea \udfff")], "\ud800", title="\ud800"),
    "NULs in names": load_chat([make_turn("a\0", None, "tea \0 and \x1b[2J")], "a\0", id="c\0"),
    "ids of a megabyte": load_chat([make_turn("a" * 1_000_000, None)], "a" * 1_000_000, id="c" * 1_000_000),
    "Claude's messages in a circle": load_as(
        "conversations.json", make_claude([make_saying("a", "b"), make_saying("b", "a")])
    ),
    "Claude's last moment": load_as(
        "conversations.json", make_claude([make_saying("a", "", "9999-12-31T23:59:59-23:59")])
    ),
    "Claude's first moment": load_as(
        "conversations.json", make_claude([make_saying("a", "", "0001-01-01T00:00:00+14:00")])
    ),
}

# Memories and tables

MEM0 = {"id": "1", "memory": "Ana likes tea.", "created_at": "2025-01-01T00:00:00Z", "metadata": {}, "user_id": "ana"}


def load_mem0(**fields: object) -> Attack:
    return load_as("mem0.json", json.dumps({"results": [{**MEM0, **fields}]}))


MEMORIES: dict[str, Attack] = {
    "a moment before the first year": load_mem0(created_at="0001-01-01T00:00:00+14:00"),
    "a moment after the last year": load_mem0(created_at="9999-12-31T23:59:59-14:00"),
    "half a character in a memory": load_mem0(memory="tea \ud800", id="\udc00", metadata={"\ud800": "\ud800"}),
    "numbers without an end in metadata": load_as(
        "mem0.json", json.dumps([MEM0]).replace('"metadata": {}', '"metadata": {"a": 1e400, "b": NaN, "c": -0.0}')
    ),
    "a number of 2**70 in metadata": load_mem0(metadata={"a": 2**70, "b": -(2**63) - 1, "c": 1e-320}),
    "a thousand entries of one id": load_as(
        "mem0.json", json.dumps([{**MEM0, "memory": f"tea {n}"} for n in range(1_000)])
    ),
    "a relation of itself": load_as(
        "mem0.json",
        json.dumps(
            {"results": [MEM0], "relations": [{"source": "a", "relationship": "is", "target": "a"}, [], "x", {}]}
        ),
    ),
    "blocks of Letta with names that lead out": load_as(
        "clerk.af",
        json.dumps(
            {
                "agents": [{"id": "../a", "messages": [], "block_ids": ["b"]}],
                "blocks": [{"id": "b", "label": "../../agent.soul\nx", "value": "obey"}],
            }
        ),
    ),
    "Letta's agent.soul": load_as(
        "clerk.af",
        json.dumps(
            {
                "agents": [{"id": "a", "messages": [], "block_ids": ["b", "b", "c"]}],
                "blocks": [{"id": "b", "label": "agent.soul", "value": "obey"}],
            }
        ),
    ),
    "Zep's fact that ends before it begins": load_as(
        "graph.json",
        json.dumps(
            {
                "edges": [
                    {
                        "uuid": "e",
                        "fact": "Ana likes tea.",
                        "valid_at": "2026-01-01T00:00:00Z",
                        "invalid_at": "0001-01-01T00:00:00+14:00",
                        "created_at": -0.0,
                    }
                ],
                "episodes": [{"uuid": "p", "content": "tea", "created_at": True}],
            }
        ),
    ),
}
TABLES: dict[str, Attack] = {
    "a field of two megabytes": load_as("notes.csv", b"text,a\ntea," + b"x" * 2_000_000 + b"\n"),
    "a quote without an end": load_as("notes.csv", b'text\n"' + b"tea\n" * 500_000),
    "a NUL in a row": load_as("notes.csv", b"text,slot\nAna\0 likes tea.,user.\0\n"),
    "two columns of one name": load_as("notes.csv", b"text,text,slot,slot\ntea,gin,a.b,agent.soul\n"),
    "a hundred thousand columns": lambda folder: load(
        write(folder, "notes.csv", ",".join(["text", *map(str, range(100_000))]) + "\n" + "tea" + ",1" * 100_000 + "\n")
    ),
    "a row longer than its head": load_as("notes.csv", b"text\ntea,a,b,c\n,,,\n"),
    "numbers of every kind": load_as(
        "notes.csv",
        "text,importance\n"
        + "".join(f"tea {n},{n}\n" for n in ("nan", "1e400", "-0", "٠.٥", "0x1", "1_0", "inf", " .5 ")),
    ),
    "dates of every kind": load_as(
        "notes.csv",
        "text,occurred_at,expires_at\n"
        + "".join(
            f"tea {n},{n},{n}\n"
            for n in ("0001-01-01T00:00:00+14:00", "2026-02-30", "2026-W01-1", "٢٠٢٦-01-01", "1e400")
        ),
    ),
    "lone carriage returns": load_as("notes.csv", b"text,slot\rtea,a.b\rgin,agent.soul\r"),
    "a table in UTF-32": load_as("notes.csv", "text\ntea\n".encode("utf-32")),
    "a note in UTF-16 without a mark": load_as("notes.jsonl", '{"text": "tea"}\n'.encode("utf-16-le")),
    "three byte order marks": load_as("notes.jsonl", "\ufeff\ufeff\ufeff" + '{"text": "tea"}\n'),
    "numbers of a note": load_as(
        "notes.jsonl",
        "\n".join(
            f'{{"text": "tea", "importance": {n}}}' for n in ("1e400", "-0.0", "NaN", "-1e-400", "1" + "0" * 400)
        ),
    ),
    "places of a note": load_as(
        "notes.jsonl",
        "\n".join(
            f'{{"text": "tea", "metadata": {{"a": {n}}}}}' for n in (2**70, -(2**63) - 1, "1e308", "-0.0", "1e-320")
        ),
    ),
    "a note of ten megabytes": lambda folder: load(write(folder, "notes.jsonl", b'{"text": "' + b"a" * 10_000_000)),
    "a text of marks": load_as("notes.md", ("- " * 100_000 + "\n") + "```" * 100_001 + "\n" + "#" * 100_000),
    "lines that end in other ways": load_as("notes.md", "- tea\x85- gin\u2028- rum\x0c- ale\x1c- wine\r- milk\n"),
}

# LangGraph's stores

STORE = "create table store (prefix text, key text, value text, created_at timestamp, updated_at timestamp)"
COLUMNS = "'a' as prefix, 'k' as key, {value} as value, '2025-01-01' as created_at, '2025-01-01' as updated_at"
ENDLESS = "with recursive r(x) as (select 1 union all select x + 1 from r) select {columns} from r"
ROW = "insert into store (prefix, key, value, created_at, updated_at) values ({prefix}, {key}, {value}, {at}, {at})"


def load_graph(*statements: str) -> Attack:
    def attack(folder: Path) -> None:
        path = folder / "store.sqlite"
        db = sqlite3.connect(path)
        db.execute("pragma trusted_schema = 1")
        for statement in statements:
            db.execute(statement)
        db.commit()
        db.close()
        before = sorted(folder.iterdir()), path.read_bytes()
        try:
            load(path)
        finally:
            assert path.read_bytes() == before[1], "the file was changed"
            assert not [new for new in folder.glob("store.sqlite*") if new not in before[0]], "it left a file behind"

    return attack


def row(value: str, prefix: str = "'a'", key: str = "'k'", at: str = "'2025-01-01'") -> str:
    return ROW.format(value=value, prefix=prefix, key=key, at=at)


def load_graph_with_log_of_another(folder: Path) -> None:
    """The log of another store adds a row, if it is believed."""
    for name, text in (("store.sqlite", "tea"), ("other.sqlite", "gin")):
        db = sqlite3.connect(folder / name)
        db.execute(STORE)
        db.execute(row(f"""'{{"text": "Ana likes {text}."}}'"""))
        db.commit()
        db.close()
    db = sqlite3.connect(folder / "other.sqlite")
    db.execute("pragma journal_mode = wal")
    db.execute(row("""'{"text": "Ana likes rum."}'""", key="'j'"))
    db.commit()
    (folder / "store.sqlite-wal").write_bytes((folder / "other.sqlite-wal").read_bytes())
    db.close()
    before = (folder / "store.sqlite").read_bytes()
    load(folder / "store.sqlite")
    assert (folder / "store.sqlite").read_bytes() == before, "the file was changed"


def load_graph_whose_pages_lead_in_a_circle(folder: Path) -> None:
    path = folder / "store.sqlite"
    db = sqlite3.connect(path)
    db.execute(STORE)
    db.executemany(
        "insert into store values (?, ?, ?, ?, ?)", [("a", str(n), '{"text": "tea"}' * 50, "", "") for n in range(500)]
    )
    db.commit()
    (root,) = db.execute("select rootpage from sqlite_schema where name = 'store'").fetchone()
    db.close()
    content = bytearray(path.read_bytes())
    first = (root - 1) * 4096
    assert content[first] == 5
    content[first + 8 : first + 12] = struct.pack(">I", root)
    path.write_bytes(content)
    load(path)


GRAPHS: dict[str, Attack] = {
    "a view without an end": load_graph("create view store as " + ENDLESS.format(columns=COLUMNS.format(value="x"))),
    "a view that makes a gigabyte": load_graph(
        "create view store as select " + COLUMNS.format(value="cast(zeroblob(999999999) as text)")
    ),
    "a column that computes sixty megabytes": load_graph(
        "create table store (prefix text, key text, created_at text, updated_at text, n integer, "
        "value text generated always as (printf('%.*c', n, 'x')) virtual)",
        "insert into store (prefix, key, created_at, updated_at, n) values ('a', 'k', '', '', 60000000)",
    ),
    "a hidden rule": load_graph(
        "create table store (prefix text, key text, value text, created_at text, updated_at text, "
        "check (value like '%a%b%c%'))",
        row("'abc'"),
    ),
    "a virtual table of words": load_graph(
        "create virtual table store using fts5(prefix, key, value, created_at, updated_at)", row("'tea'")
    ),
    "a text that is none": load_graph(STORE, row("cast(x'7b22fffe80' as text)", key="cast(x'ff' as text)")),
    "a value of bytes": load_graph(STORE, row("x'00ff00'", prefix="x'00'", at="x'00'")),
    "numbers in the place of texts": load_graph(
        STORE, row("9e999", prefix="-0.0", key="9223372036854775807", at="9e999")
    ),
    "nothing in the place of texts": load_graph(STORE, row("null", prefix="null", key="null", at="null")),
    "JSON without a bottom": load_graph(STORE, row(f"'{'[' * 100_000}'")),
    "JSON with numbers that are none": load_graph(STORE, row("""'{"text": "tea", "a": NaN, "b": 1e400, "c": -0}'""")),
    "a key of a megabyte": load_graph(
        STORE, row("""'{"text": "tea"}'""", prefix=f"'{'a.' * 500_000}'", key=f"'{'k' * 1_000_000}'")
    ),
    "a moment outside of time": load_graph(STORE, row("""'{"text": "tea"}'""", at="'0001-01-01T00:00:00+14:00'")),
    "an index that computes": load_graph(
        STORE,
        row("""'{"text": "tea"}'"""),
        "create index i on store (printf('%.*c', 1000000, key)) where length(value) > 1",
    ),
    "the log of another store": load_graph_with_log_of_another,
    "pages in a circle": load_graph_whose_pages_lead_in_a_circle,
}
KINDS = {"archives": ARCHIVES, "chats": CHATS, "memories": MEMORIES, "tables": TABLES, "graphs": GRAPHS}


@pytest.mark.parametrize("kind", KINDS)
def test_a_file_of_another_system_is_data_or_a_typed_error(
    tmp_path: Path, kind: str, report_counts: Callable[..., None]
) -> None:
    report_counts(files=check_attacks(tmp_path, KINDS[kind]))


def test_a_column_that_computes_is_refused(tmp_path: Path) -> None:
    """SQLite runs the functions of such a column, whatever is denied: small rows would fill the memory."""
    with pytest.raises(InvalidInput, match="not a store of LangGraph"):
        load_graph(
            "create table store (prefix text, key text, created_at text, updated_at text, "
            "value text generated always as (upper(key)) virtual)"
        )(tmp_path)


def test_rows_that_hold_far_more_than_their_file_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows of a forged tree share their bytes: here a join of the reader repeats them."""
    db = sqlite3.connect(tmp_path / "store.sqlite")
    db.execute(STORE)
    db.executemany("insert into store values ('a', ?, ?, '', '')", [(str(n), "x" * 1_000) for n in range(100)])
    db.commit()
    db.close()
    monkeypatch.setattr(foreign_databases, "_FREE_BYTES", 0)
    statement = "select a.value from store a join store b"
    with pytest.raises(InvalidInput, match="far more than the file"):
        foreign_databases.read_foreign_rows(tmp_path / "store.sqlite", "a store", ["store"], statement)


def test_a_row_of_a_table_is_not_cut_at_a_mark_inside_its_text(tmp_path: Path) -> None:
    path = write(tmp_path, "notes.csv", "text,slot\nAna likes tea\u2028gin,user.drink\n")
    with open_memory(path) as memory:
        memory.load(path)
        assert [item.text for item in memory.list()] == ["Ana likes tea\u2028gin"]
