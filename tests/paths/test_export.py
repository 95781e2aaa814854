"""A memory goes out whole and comes back equal, into any store, and nothing is half loaded."""

from __future__ import annotations

import io
import json
import os
import random
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from engrain_conformance.clock import SetClock
from engrain_conformance.embedder import HashEmbedder
from examples import REFERENCE
from export_kit import body, exported, filled
from memory_kit import Open
from servers import postgres

from engrain import BadFile, Conflict, DiskFull, EngrainError, InvalidInput, Memory, NotFound
from engrain.core.formats.manifests import LineSums, Manifest
from engrain.core.model.items import Words
from engrain.core.model.rows import Row
from engrain.core.text.passages import index_words
from engrain.stores.relational import restore as row_restore
from engrain.transfer import copy, export, load_export

Lines = list[dict[str, Any]]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, SetClock]:
    """A store that is filled once, to be copied, and the time at its end."""
    path, clock = tmp_path_factory.mktemp("template") / "agent.db", SetClock()
    with Memory(path, user="ana", clock=clock, background=False, embedder=HashEmbedder()) as memory:
        filled(memory, clock)
    return path, clock


@pytest.fixture
def full(template: tuple[Path, SetClock], store: str, open_memory: Open, clock: SetClock) -> Memory:
    path, end = template
    shutil.copy(path, store)
    clock.advance((end() - clock()).total_seconds())
    return open_memory(background=False, embedder=HashEmbedder())


@pytest.fixture(scope="module")
def whole() -> bytes:
    clock = SetClock()
    with Memory("reference://", user="ana", clock=clock, background=False, embedder=HashEmbedder()) as memory:
        return exported(filled(memory, clock))


@pytest.fixture(params=["sqlite", REFERENCE])
def fresh(request: pytest.FixtureRequest, open_memory: Open, tmp_path: Path) -> Callable[..., Memory]:
    count = iter(range(99))

    def made(**options: Any) -> Memory:
        store = f"{tmp_path}/fresh{next(count)}.db" if request.param == "sqlite" else "reference://"
        return open_memory(store=store, **{"background": False, "embedder": HashEmbedder(), **options})

    return made


def read(raw: bytes) -> Lines:
    return [json.loads(line) for line in raw.splitlines()]


def sealed(lines: Lines) -> bytes:
    """As if it had been exported so: with the counts and hashes of these lines."""
    sums = LineSums()
    rows = [json.dumps(line).encode() + b"\n" for line in lines[1:]]
    for line, row in zip(lines[1:], rows, strict=True):
        sums.add(line.get("row", "item"), row)
    known = {"rows": sums.rows, "hashes": sums.hashes, "hash": sums.hash}
    return json.dumps({**lines[0], **known}).encode() + b"\n" + b"".join(rows)


def changed(raw: bytes, row: str, change: Callable[[dict[str, Any]], object], number: int = 0) -> bytes:
    lines = read(raw)
    change([line for line in lines if line["row"] == row][number])
    return sealed(lines)


def loaded(memory: Memory, raw: bytes, **terms: Any) -> Any:
    return memory.load(io.BytesIO(raw), **{"trusted": True, **terms})


def test_export_load_export_is_the_same_to_the_byte(full: Memory, fresh: Callable[..., Memory]) -> None:
    raw = exported(full)
    there = fresh()
    answer = loaded(there, raw)
    assert exported(there) == raw
    assert (answer.added, answer.read, answer.repeated, answer.kept_out) == (len(read(raw)) - 1, answer.added, 0, 0)


def test_a_memory_with_a_folder_of_files_is_loaded_elsewhere(
    full: Memory, fresh: Callable[..., Memory], tmp_path: Path
) -> None:
    full.mirror(tmp_path / "notes").sync()
    raw = exported(full)
    there = fresh()
    loaded(there, raw)
    assert exported(there) == raw


def test_another_scope_holds_the_same_under_another_name(full: Memory, fresh: Callable[..., Memory]) -> None:
    raw = exported(full)
    there = fresh(user="ben", tenant="acme")
    with pytest.raises(Conflict, match="other_scope"):
        loaded(there, raw)
    assert loaded(there, raw, other_scope=True).added
    assert body(exported(there)) == body(raw)
    assert read(exported(there))[0]["scope"] == {"tenant": "acme", "user": "ben"}


def test_vectors_travel_along_if_asked(full: Memory, fresh: Callable[..., Memory]) -> None:
    raw = exported(full, vectors=True)
    there = fresh()
    loaded(there, raw)
    assert exported(there, vectors=True) == raw
    assert exported(there) == exported(full)


def test_what_was_loaded_works(full: Memory, fresh: Callable[..., Memory], clock: SetClock) -> None:
    there = fresh()
    loaded(there, exported(full))
    assert there.recall("Does Ana like tea?").hits[0].item.text == "Ana likes tea."
    assert [one.id for one in there.list(history=True, limit=999)] == [
        one.id for one in full.list(history=True, limit=999)
    ]
    assert [one.text for one in there.sessions.messages("monday", 9)] == [
        one.text for one in full.sessions.messages("monday", 9)
    ]
    assert there.sessions.list() == full.sessions.list()
    assert str(there.procedural.get("deploy")) == str(full.procedural.get("deploy"))
    assert there.slots.get("user.city") == full.slots.get("user.city")
    clock.advance(60)
    there.remember("Tacna", slot="user.city")
    assert there.slots.get("user.city").text == "Tacna"  # type: ignore[union-attr]
    assert there.remember("Ana likes tea.") == full.remember("Ana likes tea.")
    fact = there.list({"text": "xyzzy"})[0]
    assert there.forget(fact.id).marked
    assert "xyzzy" not in there.sessions.messages("monday", 9)[0].text


def test_a_task_that_had_not_ended_is_parked(full: Memory, fresh: Callable[..., Memory]) -> None:
    there = fresh()
    loaded(there, exported(full))
    assert {one.task: one.status for one in there.tasks.list()} == {"order": "done", "half": "parked"}
    with there.task("half") as run:
        assert run.step("one", lambda: 2) == 1


def test_loading_again_adds_nothing(full: Memory, fresh: Callable[..., Memory]) -> None:
    raw = exported(full)
    there = fresh()
    first = loaded(there, raw)
    again = loaded(there, raw)
    assert (again.added, again.repeated) == (0, first.added)
    assert loaded(full, raw).added == 0
    assert exported(there) == exported(full) == raw


def test_a_dry_run_says_what_a_run_then_does(full: Memory, fresh: Callable[..., Memory]) -> None:
    raw = exported(full)
    there = fresh()
    there.remember("Ana likes tea.")
    before = exported(there)
    dry = loaded(there, raw, dry_run=True)
    assert exported(there) == before
    assert not dry.written
    done = loaded(there, raw)
    assert done.written
    assert (dry.added, dry.repeated, dry.rows) == (done.added, done.repeated, done.rows)


def test_a_dry_run_of_notes_says_what_a_run_then_does(fresh: Callable[..., Memory]) -> None:
    notes = [
        {"text": "Ana likes tea."}, {"text": "Ana likes tea."}, {"text": "Lima", "slot": "c"},
        {"text": "Quito", "slot": "c"}, {"text": "Quito", "slot": "c"},
        {"text": "Ica", "slot": "c", "occurred_at": "2020-01-01"},
        {"text": "Gone."}, {"text": "Known."}, {"text": "Hi.", "position": {"session": "s"}},
        {"text": "a b c", "relation": {"subject": "a", "relation": "b", "object": "c"}},
    ]  # fmt: skip
    raw = b"".join(json.dumps(one).encode() + b"\n" for one in notes)
    there = fresh()
    there.remember("Known.")
    there.forget(there.remember("Gone."))
    dry, done = loaded(there, raw, dry_run=True), loaded(there, raw)
    names = ("added", "repeated", "replaced", "behind", "kept_out")
    assert [getattr(dry, name) for name in names] == [getattr(done, name) for name in names]
    again = loaded(there, raw, dry_run=True)
    assert (again.added, again.replaced) == (0, 0)


@pytest.mark.parametrize("redact", [False, True])
@pytest.mark.parametrize("source", [None, "elsewhere"])
def test_a_dry_run_knows_what_was_loaded_and_forgotten_since(
    fresh: Callable[..., Memory], redact: bool, source: str | None
) -> None:
    there = fresh(settings={"privacy": {"redact": ["mails"]}}) if redact else fresh()
    raw = b'{"text": "Write to ana.perez@example.com about the flat."}\n{"text": "Ana likes tea."}\n'
    loaded(there, raw)
    (mail,) = [one for one in there.list() if "flat" in one.text]
    there.forget(mail.id)
    told = [loaded(there, raw, source=source, dry_run=dry_run) for dry_run in (True, False)]
    assert [(one.added, one.repeated, one.kept_out) for one in told] == [(0, 1, 1)] * 2
    assert [one.text for one in there.list()] == ["Ana likes tea."]


CLASHING: dict[str, list[dict[str, Any]]] = {
    "a place that is taken": [{"text": "x", "position": {"session": "s", "number": 0}}],
    "a place twice": [{"text": text, "position": {"session": "q", "number": 3}} for text in "xy"],
    "a place after one without a number": [
        {"text": "x", "position": {"session": "q"}},
        {"text": "y", "position": {"session": "q", "number": 0}},
    ],
    "a cite of nobody": [{"text": "x", "source": {"name": "d", "cites": [{"item": "nobody"}]}}],
}


@pytest.mark.parametrize("how", CLASHING)
def test_notes_that_the_store_would_refuse_are_named_and_none_is_written(
    fresh: Callable[..., Memory], how: str
) -> None:
    memory = fresh()
    memory.add_message("user", "I am here.", session="s")
    before = exported(memory)
    # More than a batch before it.
    lines = [{"text": f"Note {number}."} for number in range(300)] + CLASHING[how]
    raw = "\n".join(map(json.dumps, lines)).encode()
    for dry_run in (True, False):
        with pytest.raises(BadFile) as caught:
            loaded(memory, raw, dry_run=dry_run)
        assert [one.line for one in caught.value.lines] == [len(lines)]
    assert exported(memory) == before
    assert loaded(memory, raw, skip_bad=True).added == len(lines) - 1


def test_what_was_forgotten_here_stays_forgotten_with_what_rests_on_it(full: Memory) -> None:
    raw = exported(full)
    full.forget({"text": "xyzzy"})
    full.forget({"text": "Ana likes tea."})
    before = exported(full)
    answer = loaded(full, raw)
    assert answer.kept_out >= 2
    assert exported(full) == before
    assert b"xyzzy" not in before


def test_what_changed_here_since_is_left_as_it_is(full: Memory, clock: SetClock) -> None:
    raw = exported(full)
    clock.advance(60)
    full.remember("Tacna", slot="user.city")
    full.update(full.list({"text": "Ana likes tea."})[0].id, importance=0.1)
    full.add_message("user", "And more.", session="monday")
    before = exported(full)
    assert loaded(full, raw).added == 0
    assert exported(full) == before


def test_a_later_export_brings_an_older_copy_up_to_date(
    full: Memory, fresh: Callable[..., Memory], clock: SetClock
) -> None:
    there = fresh()
    loaded(there, exported(full))
    clock.advance(60)
    full.remember("Tacna", slot="user.city")
    full.correct(full.list({"text": "The sea is near."})[0].id, "The sea is far.")
    full.add_message("user", "One more.", session="monday")
    raw = exported(full)
    loaded(there, raw)
    assert there.slots.get("user.city").text == "Tacna"  # type: ignore[union-attr]
    assert body(exported(there)).count(b"\n") == body(raw).count(b"\n")
    assert [one.text for one in there.sessions.messages("monday", 1)] == ["One more."]
    assert not there.list({"text": "The sea is near."})


@pytest.mark.parametrize(
    ("row", "change", "number"),
    [
        ("item", lambda line: line.update(text="Ana hates tea."), 0),
        ("item", lambda line: line.update(recorded_at="2001-01-01T00:00:00+00:00"), 0),
    ],
)
def test_another_content_under_an_id_is_a_conflict_and_nothing_is_loaded(
    full: Memory, row: str, change: Callable[[dict[str, Any]], object], number: int
) -> None:
    lines = read(changed(exported(full), row, change, number))
    lines.insert(2, {**lines[1], "id": lines[1]["id"] + "z", "text": "Something new."})
    before = exported(full)
    with pytest.raises(BadFile) as caught:
        loaded(full, sealed(lines))
    assert [(one.line, one.type) for one in caught.value.lines] == [(2, "Conflict")]
    assert exported(full) == before


def test_a_place_or_slot_that_is_held_by_another_is_a_conflict(full: Memory, fresh: Callable[..., Memory]) -> None:
    there = fresh()
    there.remember("Arica", slot="user.city")
    there.add_message("user", "Something else.", session="monday")
    before = exported(there)
    with pytest.raises(BadFile) as caught:
        loaded(there, exported(full))
    assert {one.type for one in caught.value.lines} == {"Conflict"}
    assert len(caught.value.lines) == 2
    assert exported(there) == before


def test_ids_of_another_memory_in_the_same_store_are_not_taken_over(full: Memory, open_memory: Open) -> None:
    ben = open_memory(user="ben", background=False)
    before = exported(full)
    with pytest.raises(Conflict, match="store of its own"):
        loaded(ben, before, other_scope=True)
    assert exported(full) == before
    assert body(exported(ben)) == b""


def drop(line: dict[str, Any], name: str) -> None:
    del line[name]


HARMLESS: dict[str, Callable[[bytes], bytes]] = {
    "line ends of Windows": lambda raw: raw.replace(b"\n", b"\r\n"),
    "no last line end": lambda raw: raw.removesuffix(b"\n"),
    "a byte order mark": lambda raw: b"\xef\xbb\xbf" + raw,
}


@pytest.mark.parametrize("how", HARMLESS)
def test_what_an_editor_or_a_transfer_does_to_line_ends_is_no_damage(
    whole: bytes, fresh: Callable[..., Memory], how: str
) -> None:
    there = fresh()
    loaded(there, HARMLESS[how](whole))
    assert exported(there) == whole


BROKEN: dict[str, Callable[[bytes], bytes]] = {
    "nothing": lambda raw: raw.partition(b"\n")[0][:50],
    "cut off in a line": lambda raw: raw[:-20],
    "cut off after a line": lambda raw: raw[: raw.rstrip().rindex(b"\n") + 1],
    "a line twice": lambda raw: raw + raw.splitlines(keepends=True)[-1],
    "a line too few": lambda raw: b"".join([*raw.splitlines(keepends=True)[:3], *raw.splitlines(keepends=True)[4:]]),
    "two lines turned round": lambda raw: b"".join(
        [(lines := raw.splitlines(keepends=True))[0], lines[2], lines[1], *lines[3:]]
    ),
    "an empty line": lambda raw: raw + b"\n",
    "another text": lambda raw: raw.replace(b"Ana likes tea.", b"Ana likes ale."),
    "not UTF-8": lambda raw: raw.replace("ü".encode(), b"\xfc"),
    "a lone surrogate": lambda raw: raw.replace("ü".encode(), b"\\ud800"),
    "NaN": lambda raw: raw.replace(b'"importance":0.8', b'"importance":NaN'),
    "a newer version": lambda raw: raw.replace(b'"version":1}', b'"version":2}', 1),
}
HOSTILE: dict[str, tuple[str, Callable[[dict[str, Any]], object]]] = {
    "an unknown kind": ("item", lambda line: line.update(row="weapon")),
    "an unknown field": ("item", lambda line: line.update(color="red")),
    "a scope smuggled in": ("item", lambda line: line.update(scope=[None, None, "ben"])),
    "a hash smuggled in": ("item", lambda line: line.update(hash="00")),
    "no id": ("item", lambda line: drop(line, "id")),
    "an id that is a number": ("item", lambda line: line.update(id=7)),
    "an id of a plan's own": ("item", lambda line: line.update(id="#0")),
    "a text that is none": ("item", lambda line: line.update(text=["x"])),
    "an empty text": ("item", lambda line: line.update(text=" ")),
    "a NUL": ("item", lambda line: line.update(text="a\x00b")),
    "too much trust": ("item", lambda line: line.update(sources=[{"kind": "web"}], trust=1.0)),
    "an importance out of range": ("item", lambda line: line.update(importance=7)),
    "a time that is none": ("item", lambda line: line.update(recorded_at="yesterday")),
    "a time as a number": ("item", lambda line: line.update(recorded_at=5)),
    "a time in the future": ("item", lambda line: line.update(recorded_at="9999-01-01T00:00:00+00:00")),
    "a place without a session": ("item", lambda line: line.update(place=3)),
    "metadata that is no object": ("item", lambda line: line.update(metadata=[1])),
    "metadata of ours that is no object": ("item", lambda line: line.update(metadata={"engrain": 7})),
    "a place beyond its session": ("session", lambda line: line.update(length=1)),
    "a cite of an unknown item": ("cites", lambda line: line["cites"][0].update(item="nobody")),
    "a cite beyond the text": ("cites", lambda line: line["cites"][0].update(start=0, end=10**6)),
    "a cite of itself": ("cites", lambda line: line["cites"][0].update(item=line["item"])),
    "a cite of no source": ("cites", lambda line: line["cites"][0].update(source=9)),
    "a cite by an unknown item": ("cites", lambda line: line.update(item="zzzzzzzzzzzzzzzzzzzzzzzzzz")),
    "a summary beyond its session": ("summary", lambda line: line.update(upto=999)),
    "work beyond its session": ("progress", lambda line: line.update(upto=999)),
    "an episode over an unknown item": ("episode", lambda line: line.update(item="nobody")),
    "a trial of an unknown procedure": ("trial", lambda line: line.update(procedure="nobody")),
    "a task that runs": ("task", lambda line: line.update(status="running")),
    "a task with a worker": ("task", lambda line: line.update(worker="me")),
    "a step of no task": ("step", lambda line: line.update(task="a")),
    "a step out of turn": ("step", lambda line: line.update(number=7)),
    "a payload that is no text": ("event", lambda line: line.update(payload={})),
    "a success that is no flag": ("trial", lambda line: line.update(success="yes")),
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_broken_file_is_refused_and_loses_nothing(whole: bytes, fresh: Callable[..., Memory], how: str) -> None:
    there = fresh()
    there.remember("I am here.")
    before = exported(there)
    raw = BROKEN[how](whole)
    assert raw != whole
    with pytest.raises((BadFile, InvalidInput)):
        loaded(there, raw)
    assert exported(there) == before


@pytest.mark.parametrize("how", HOSTILE)
def test_a_hostile_line_is_named_and_nothing_is_loaded(whole: bytes, fresh: Callable[..., Memory], how: str) -> None:
    there = fresh()
    row, change = HOSTILE[how]
    with pytest.raises(BadFile) as caught:
        loaded(there, changed(whole, row, change))
    assert all(one.line >= 1 and one.message for one in caught.value.lines)
    assert body(exported(there)) == b""


def test_a_circle_of_corrections_is_refused(full: Memory, fresh: Callable[..., Memory]) -> None:
    lines = read(exported(full))
    first, second = (line for line in lines if line.get("text") in ("Ana is tall.", "Ana is small."))
    second["replaced_by"] = first["id"]
    with pytest.raises(BadFile, match="leads back to itself"):
        loaded(fresh(), sealed(lines))


def test_a_huge_line_is_refused_without_being_read_whole(
    full: Memory, fresh: Callable[..., Memory], monkeypatch: pytest.MonkeyPatch
) -> None:
    raw = exported(full)
    monkeypatch.setattr("engrain.transfer.export.MAX_LINE_BYTES", 2_000)
    with pytest.raises(BadFile) as caught:
        loaded(fresh(), raw)
    assert {one.type for one in caught.value.lines} == {"TooLarge"}


LOADER = """
import sys
from engrain import Memory
from engrain_conformance.embedder import HashEmbedder
from engrain.stores.relational.restore import RestoreRun
def write_page(self, page, write_page=RestoreRun.write_page):
    write_page(self, page)
    print(len(page.rows), flush=True)
    sys.stdin.readline()
RestoreRun.write_page = write_page
with Memory(sys.argv[1], user="ana", background=False, embedder=HashEmbedder()) as memory:
    memory.load(sys.argv[2], trusted=True)
"""


@pytest.mark.parametrize("pages", [1, pytest.param(3, marks=pytest.mark.slow)])
def test_a_load_that_is_killed_has_written_nothing(tmp_path: Path, pages: int) -> None:
    file, store = tmp_path / "ana.jsonl", tmp_path / "there.db"
    with Memory(tmp_path / "whole.db", user="ana", background=False, embedder=HashEmbedder()) as whole:
        whole.remember_many([f"Fact number {number}." for number in range(1_400)])
        whole.export(file)
    loading = subprocess.Popen(
        [sys.executable, "-c", LOADER, store, file], stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0
    )
    assert loading.stdin
    assert loading.stdout
    for _ in range(pages - 1):
        assert int(loading.stdout.readline())
        loading.stdin.write(b"\n")
    # These rows are written and not committed: the process waits to be told to go on.
    assert int(loading.stdout.readline())
    loading.kill()
    loading.wait()
    with Memory(store, user="ana", background=False, embedder=HashEmbedder()) as there:
        assert there.list() == []
        there.load(file, trusted=True)
        assert exported(there) == file.read_bytes()


def test_the_file_is_private_whole_and_never_overwritten_unasked(full: Memory, tmp_path: Path) -> None:
    path = tmp_path / "out.jsonl"
    answer = full.export(path)
    assert path.read_bytes() == exported(full)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert answer.hash == read(path.read_bytes())[0]["hash"]
    with pytest.raises(Conflict):
        full.export(path)
    full.export(path, overwrite=True)
    for wrong in (tmp_path, tmp_path / "no" / "folder.jsonl", "", "a\x00b"):
        with pytest.raises(EngrainError):
            full.export(wrong)
    assert sorted(one.name for one in tmp_path.iterdir() if "part" in one.name) == []
    assert full.load(path).added == 0
    with pytest.raises(NotFound):
        full.load(tmp_path / "nothing.jsonl")
    with pytest.raises(InvalidInput):
        full.load(tmp_path)


def test_what_is_no_file_is_never_replaced_by_one(full: Memory, tmp_path: Path) -> None:
    pipe, link = tmp_path / "pipe", tmp_path / "link"
    os.mkfifo(pipe)
    link.symlink_to(tmp_path / "nowhere")
    for place in (pipe, tmp_path):
        for overwrite in (False, True):
            with pytest.raises(InvalidInput, match="not a file"):
                full.export(place, overwrite=overwrite)
    assert stat.S_ISFIFO(pipe.lstat().st_mode)
    with pytest.raises(Conflict):
        full.export(link)
    assert link.is_symlink()
    full.export(link, overwrite=True)
    assert not (tmp_path / "nowhere").exists()
    assert link.read_bytes() == exported(full)


def test_a_name_may_be_as_long_as_a_name_can_be(full: Memory, tmp_path: Path) -> None:
    full.export(tmp_path / ("x" * 255))
    with pytest.raises(EngrainError):
        full.export(tmp_path / ("x" * 256))
    assert [one.name for one in tmp_path.iterdir() if one.name.endswith(".part")] == []


@pytest.mark.parametrize("given", [5, None, b"out.jsonl", io.StringIO("{}")])
def test_what_is_neither_a_path_nor_a_file_of_bytes_is_refused(fresh: Callable[..., Memory], given: Any) -> None:
    with pytest.raises(InvalidInput):
        fresh().load(given)
    with pytest.raises(InvalidInput):
        fresh().export(given)


def test_a_file_that_was_closed_or_cannot_be_read_is_refused(fresh: Callable[..., Memory], tmp_path: Path) -> None:
    file, loop = tmp_path / "notes.jsonl", tmp_path / "loop"
    file.write_text('{"text": "x"}')
    loop.symlink_to(loop)
    with file.open("rb") as closed:
        pass
    for given in (closed, loop, tmp_path):
        with pytest.raises(InvalidInput):
            fresh().load(given)


def test_the_export_names_no_place_of_this_machine(full: Memory, tmp_path: Path) -> None:
    raw = exported(full)
    assert str(tmp_path).encode() not in raw
    assert b"worker" not in raw


def test_a_load_that_has_no_room_for_vectors_is_a_load(
    full: Memory, fresh: Callable[..., Memory], monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def no_room(*_: object) -> int:
        raise DiskFull("the disk is full.")

    there = fresh()
    monkeypatch.setattr("engrain.ingest.write.embed_missing", no_room)
    assert loaded(there, exported(full)).written
    assert exported(there) == exported(full)
    assert "without vectors for now: the disk is full" in caplog.text


def test_private_words_do_not_come_in_by_a_file(full: Memory, fresh: Callable[..., Memory]) -> None:
    full.add_message("user", "I prefer mails to ana@example.org, always.", session="monday")
    full.remember("Mine is ben@example.org.")
    full.remember("Mine is eva@example.org.")
    there = fresh(settings={"privacy": {"redact": ["mails"]}})
    loaded(there, exported(full))
    raw = exported(there)
    assert b"@example.org" not in raw
    assert raw.count("Mine is «mail».".encode()) == 1
    assert loaded(there, exported(full)).added == 0
    assert exported(there) == raw


def test_a_memory_moves_to_postgres_and_back_the_same(whole: bytes, open_memory: Open, tmp_path: Path) -> None:
    url = f"{postgres().url()}?schema=exported"
    there = open_memory(store=url, background=False, embedder=HashEmbedder())
    loaded(there, whole)
    assert exported(there) == whole
    assert loaded(there, whole).added == 0
    back = open_memory(store=f"{tmp_path}/back.db", background=False, embedder=HashEmbedder())
    loaded(back, exported(there))
    assert exported(back) == whole


def test_what_was_erased_does_not_come_back_by_a_file(full: Memory, open_memory: Open, clock: SetClock) -> None:
    raw = exported(full)
    clock.advance(60)
    full.store.erase(user="ana")
    full.close()
    again = open_memory(background=False, embedder=HashEmbedder())
    clock.advance(60)
    answer = loaded(again, raw)
    assert answer.kept_out > 0
    assert (answer.added, answer.kept_out) == (0, answer.read)
    assert body(exported(again)) == b""
    again.remember("A new beginning.")
    assert loaded(again, raw).rows.get("item", 0) == 0


def test_an_erased_session_does_not_come_back_by_a_file(full: Memory, clock: SetClock) -> None:
    raw = exported(full)
    clock.advance(60)
    full.erase(session="monday")
    before = exported(full)
    loaded(full, raw)
    assert b"monday" not in before
    assert b"monday" not in exported(full)


def test_what_happened_again_since_is_not_counted_twice(full: Memory, clock: SetClock) -> None:
    full.episodic.record_error("The disk is full.", session="monday")
    raw = exported(full)
    clock.advance(60)
    full.episodic.record_error("The disk is full.", session="monday")
    before = exported(full)
    assert loaded(full, raw).added == 0
    assert exported(full) == before
    assert [one.count for one in full.episodic.recent(99) if "disk" in one.text] == [2]


@pytest.mark.parametrize("cut_off", [False, True])
def test_what_happened_again_elsewhere_is_counted_once_here(
    full: Memory, fresh: Callable[..., Memory], clock: SetClock, monkeypatch: pytest.MonkeyPatch, cut_off: bool
) -> None:
    full.episodic.record_error("The disk is full.", session="monday")
    there = fresh()
    loaded(there, exported(full))
    clock.advance(60)
    full.episodic.record_error("The disk is full.", session="monday")
    raw = exported(full)
    if cut_off:
        with monkeypatch.context() as patched:
            patched.setattr(type(there.store.services.episodes), "remove", interrupted)
            with pytest.raises(KeyboardInterrupt):
                loaded(there, raw)
    loaded(there, raw)
    assert [one.count for one in there.episodic.recent(99) if "disk" in one.text] == [2]
    assert loaded(there, raw).added == 0


def interrupted(*_: object) -> None:
    raise KeyboardInterrupt


def test_a_memory_in_use_is_exported_as_it_was_at_one_moment(
    full: Memory, fresh: Callable[..., Memory], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = exported(full)
    (tea,) = full.list({"text": "Ana likes tea."})

    def use() -> None:
        full.remember("Ana likes coffee.")
        full.add_message("user", "Is it raining?", session="monday")
        assert full.recall(tea.text, min_relevance=0)

    def between(*given: Any) -> Manifest:
        beside.submit(use).result()
        return Manifest(*given)

    with ThreadPoolExecutor(1) as beside:
        monkeypatch.setattr(export, "Manifest", between)
        full.export(tmp_path / "live.jsonl", progress=lambda *_: beside.submit(use).result())
    assert (tmp_path / "live.jsonl").read_bytes() == before
    assert loaded(fresh(), before).added
    known = full.get(tea.id)
    assert known
    assert known.access_count > tea.access_count, "it was in use"


def test_an_export_has_nothing_that_was_forgotten_before_it_was_done(full: Memory, tmp_path: Path) -> None:
    tea = {"text": "Ana likes tea."}
    with ThreadPoolExecutor(1) as beside:
        full.export(tmp_path / "live.jsonl", progress=lambda *_: beside.submit(full.forget, tea).result())
    assert b"likes tea" not in (tmp_path / "live.jsonl").read_bytes()


def test_the_words_of_a_load_are_made_before_others_have_to_wait(
    open_memory: Open, tmp_path: Path, whole: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[str] = []
    began = row_restore.RestoreRun.__init__

    def made(*given: Any) -> Words:
        seen.append("words")
        return index_words(*given)

    def begun(work: row_restore.RestoreRun, *given: Any) -> None:
        seen.append("transaction")
        began(work, *given)

    monkeypatch.setattr(row_restore, "index_words", made)
    monkeypatch.setattr(row_restore.RestoreRun, "__init__", begun)
    open_memory(store=f"{tmp_path}/fresh.db", background=False, embedder=HashEmbedder()).load(io.BytesIO(whole))
    assert seen == ["words"] * whole.count(b'"row":"item"') + ["transaction"]


EXPORTER = """
import sys
from engrain import Memory
from engrain_conformance.embedder import HashEmbedder
def told(stage, more, total):
    print(more, flush=True)
    sys.stdin.readline()
with Memory(sys.argv[1], user="ana", background=False, embedder=HashEmbedder()) as memory:
    memory.export(sys.argv[2], progress=told)
"""


def exports_known(memory: Memory) -> int:
    receipt = memory.store.erase(user="ana").receipt
    assert receipt is not None
    return sum(one["known"] for one in receipt.values["remains"] if one["what"] == "exports_made_before")


def test_an_export_that_was_killed_is_known_to_the_receipt(tmp_path: Path) -> None:
    store, out = tmp_path / "agent.db", tmp_path / "out"
    out.mkdir()
    with Memory(store, user="ana", background=False, embedder=HashEmbedder()) as memory:
        memory.remember("The garden is a secret.")
    process = subprocess.Popen(
        [sys.executable, "-c", EXPORTER, store, out / "ana.jsonl"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        bufsize=0,
    )
    assert process.stdout
    # This much is read, and the process waits to be told to go on.
    assert int(process.stdout.readline())
    process.kill()
    process.wait()
    assert [one.suffix for one in out.iterdir()] == [".part"]
    with Memory(store, user="ana", background=False, embedder=HashEmbedder()) as memory:
        assert [entry.what for entry in memory.store.audit()] == ["export_begun"]
        assert exports_known(memory) == 1


def test_an_erasure_after_the_last_row_was_read_knows_of_the_export(
    full: Memory, open_memory: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other, known = open_memory(background=False, embedder=HashEmbedder()), list[int]()
    read = export.export

    def erased_after(*args: Any, **how: Any) -> Any:
        found = read(*args, **how)
        known.append(exports_known(other))
        return found

    monkeypatch.setattr(export, "export", erased_after)
    full.export(tmp_path / "ana.jsonl")
    assert known == [1]


@pytest.mark.parametrize("late", [False, True])
def test_an_export_that_failed_left_nothing_and_is_no_copy(
    full: Memory, tmp_path: Path, late: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full_disk(*_: object) -> None:
        raise OSError(28, "No space left on device")

    if late:
        monkeypatch.setattr(os, "replace", full_disk)
    with pytest.raises(DiskFull):
        full.export(tmp_path / "ana.jsonl", progress=None if late else full_disk)
    (tmp_path / "taken.jsonl").touch()
    with pytest.raises(Conflict):
        full.export(tmp_path / "taken.jsonl")
    assert [one.name for one in tmp_path.iterdir() if "ana" in one.name or "part" in one.name] == []
    told = [entry.what for entry in full.store.audit() if "export" in entry.what]
    assert told == ["export_begun", *(["export"] if late else []), "export_failed"]
    assert exports_known(full) == 0


class Counted(int):
    compared = 0

    def __lt__(self, other: int) -> bool:
        Counted.compared += 1
        return int(self) < int(other)

    def __gt__(self, other: int) -> bool:
        Counted.compared += 1
        return int(self) > int(other)


def test_what_happened_again_is_found_without_a_look_at_each_pair() -> None:
    chance = random.Random(7)
    values = [
        {
            "session": "monday",
            "key": "disk",
            "happened_at": Counted(at),
            "expires_at": chance.choice([None, at + 1, at + 9]),
        }
        for at in (chance.randrange(20_000) for _ in range(1_000))
    ]
    rows = [Row("episode", ("", str(number)), one) for number, one in enumerate(values)]
    times = [int(one["happened_at"]) for one in values]
    expected = [
        any(int(one["happened_at"]) < at and (one["expires_at"] is None or at < one["expires_at"]) for at in times)
        for one in values
    ]
    Counted.compared = 0
    repeats = load_export._group_repeats(rows)
    assert [load_export._was_counted(row, repeats) for row in rows] == expected
    assert 0 < sum(expected) < len(expected)
    assert Counted.compared < 40_000


def test_words_that_are_forgotten_once_more_beside_a_load_do_not_come_back(
    open_memory: Open, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    here, beside = (open_memory(background=False, embedder=HashEmbedder()) for _ in range(2))
    here.forget(here.remember("Lima", slot="city"))
    lima = here.remember("Lima", slot="city")
    there = open_memory(store=f"{tmp_path}/there.db", background=False, embedder=HashEmbedder())
    copy.copy(here.store.services.items, there.store.services.items, lambda _: None)  # type: ignore[arg-type]
    there.remember("Quito", slot="city")
    written = load_export._write_rows

    def late(*args: Any) -> bool:
        if beside.get(lima):
            beside.forget(lima)
        return written(*args)

    monkeypatch.setattr(load_export, "_write_rows", late)
    # Lima was replaced there: the load would end it here.
    loaded(here, exported(there))
    assert [item.text for item in here.list(history=True)] == ["Quito"]
