"""A file that cannot be loaded is refused with words that say what it is and what to do, and loses nothing."""

from __future__ import annotations

import gzip
import io
import json
import zipfile
from collections.abc import Callable
from typing import Any

import click
import pytest
from engrain_conformance.embedder import HashEmbedder
from examples import for_each
from export_kit import exported
from memory_kit import Open

from engrain import InvalidInput, Memory
from engrain.cli.main import get_exit_code
from engrain.ingest import write


@pytest.fixture
def memory(open_memory: Open) -> Memory:
    return open_memory(background=False, embedder=HashEmbedder())


@pytest.fixture
def whole(open_memory: Open, tmp_path: Any) -> bytes:
    source = open_memory(store=f"{tmp_path}/source.db", background=False, embedder=HashEmbedder())
    source.remember("Ana likes tea.")
    source.remember("Ana lives in Lima.", slot="city")
    return exported(source)


def loaded(memory: Memory, raw: bytes, **terms: Any) -> Any:
    return memory.load(io.BytesIO(raw), **terms)


def zipped(raw: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("conversations.json", raw)
    return out.getvalue()


BAD: dict[str, tuple[Callable[[bytes], bytes], str]] = {
    "nothing in it": (lambda raw: b"", "the file is empty"),
    "only empty lines": (lambda raw: b"\n \n", "the file is empty"),
    "an empty list": (lambda raw: b"[]", "the file has an empty list"),
    "packed": (gzip.compress, "gzip.*Unpack"),
    "an archive that is no export": (zipped, "not JSON"),
    "a picture": (lambda raw: b"\x89PNG\r\n\x1a\n\x00\x00\x00\rIHDR" + bytes(range(256)), "not a text file"),
    "a database": (lambda raw: b"SQLite format 3\x00" + bytes(100), "a store of LangGraph"),
    "UTF-16": (lambda raw: raw.decode().encode("utf-16"), "in UTF-16.*UTF-8"),
    "without its first line": (lambda raw: raw.partition(b"\n")[2], "the manifest, which is the first line"),
    "edited": (lambda raw: raw.replace(b"likes tea", b"likes ale"), "the lines of kind 'item' were changed"),
    "a line less": (lambda raw: b"".join(raw.splitlines(True)[:-1]), "counts 2 lines of kind 'item', and there is 1"),
    "a document cut off": (lambda raw: b'[\n {"memory": "x", "id": "1"},\n', "the file is not JSON.*cut off"),
    "a long document cut off": (lambda raw: b'[{"mapping": {"a": "' + b"x" * 7_000_000, "the file is not JSON"),
    "a list of something": (lambda raw: b'[{"a": 1}]', "none of the known forms"),
    "a note without text": (lambda raw: b'{"importance": 0.5}', "line 1: a note lacks its text"),
    "words": (lambda raw: b"Ana likes tea.\n", 'is one JSON object, such as {"text": "…"}'),
}  # fmt: skip


@for_each("how", BAD)
def test_a_file_that_is_not_what_it_should_be_says_so(memory: Memory, whole: bytes, how: str) -> None:
    change, words = BAD[how]
    memory.remember("I am here.")
    before = exported(memory)
    with pytest.raises(InvalidInput, match=f"(?s){words}"):
        loaded(memory, change(whole))
    assert exported(memory) == before


def test_no_notes_are_no_fault_where_notes_are_meant(memory: Memory) -> None:
    assert loaded(memory, b"", format="notes").read == 0


def test_a_large_export_of_chats_on_one_line_is_known_by_itself(memory: Memory) -> None:
    """As ChatGPT writes it."""
    said = {"id": "m", "author": {"role": "user"}, "content": {"content_type": "text", "parts": ["x" * 900_000]}}
    chats = [
        {"conversation_id": f"c{n}", "current_node": "a", "mapping": {"a": {"parent": None, "message": said}}}
        for n in range(8)
    ]
    raw = json.dumps(chats).encode()
    assert b"\n" not in raw
    assert loaded(memory, raw, dry_run=True).format == "chatgpt"


def test_whoever_stops_a_load_learns_what_stays(memory: Memory, whole: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write, "BATCH_SIZE", 10)
    notes = b"".join(json.dumps({"text": f"Note {n}."}).encode() + b"\n" for n in range(50))

    def stopping(*_: object) -> None:
        if len(memory.list(limit=99)) >= 20:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt) as stopped:
        loaded(memory, notes, progress=stopping)
    assert "at least 20 notes" in stopped.value.__notes__[0]
    assert 20 <= len(memory.list(limit=99)) < 50
    again = loaded(memory, notes)
    assert (again.added + again.repeated, again.repeated >= 20) == (50, True)
    assert len(memory.list(limit=99)) == 50


def test_a_load_that_was_stopped_says_so_in_one_line(capfd: pytest.CaptureFixture[str]) -> None:
    def stopped() -> None:
        stop = KeyboardInterrupt()
        stop.add_note("What was written by then stays.")
        raise click.Abort from stop

    assert get_exit_code(stopped, []) == 130
    assert capfd.readouterr().err == "Stopped. What was written by then stays.\n"
