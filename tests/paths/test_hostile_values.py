"""Files of the right shape with a value that does not belong there: a typed error, or data that is read as data."""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from counting import choose_points
from engrain_conformance.embedder import HashEmbedder

from engrain import Memory, Store
from engrain.config import load_settings
from engrain.connect import clients
from engrain.core.errors import BadFile, ConfigError, EngrainError
from engrain.core.formats.manifests import MANIFEST_SUFFIX, LineSums
from engrain.memory.transfer import restore_backup

FEW = 40  # files of each reader by default; all of them in the long suites
SEED = 13
# Raw JSON, since some of it cannot be written from Python.
VALUES = [
    "null", "true", "-1", "9223372036854775808", "1.5", '""', "[]", "[[]]", "{}", "[null]", "NaN", "Infinity", "1e999",
    '"NaN"', '"\\u0000"', '"\\ud800"', '{"a":{"b":[1]}}', '[{"x":1}]', '"2026-13-45T99:99:99Z"', '"__class__"',
    '"0001-01-01T00:00:00-23:59"', '"9999-12-31T23:59:59+23:59"', '{"$ref":"file:///etc/passwd"}', "1" * 5_000,
    json.dumps("x" * 70_000),
]  # fmt: skip
GAP = "@@@"
NOTES: list[dict[str, Any]] = [
    {"text": "Ana likes tea.", name: value}
    for name, value in {
        "importance": 0.5, "slot": "user.tea", "metadata": {"a": 1}, "source": {"kind": "web", "name": "x"},
        "occurred_at": "2026-01-01T00:00:00Z", "position": {"session": "s", "number": 3}, "derived": False,
        "relation": {"subject": "Ana", "relation": "likes", "object": "tea"}, "request_id": "r",
        "expires_at": "2030-01-01T00:00:00Z",
    }.items()
]  # fmt: skip
MEM0 = [{"id": "1", "memory": "Ana likes tea.", "created_at": "2025-01-01T00:00:00Z", "metadata": {"a": 1}}]
LETTA = {
    "agents": [{"id": "a", "name": "clerk", "messages": [
        {"id": "m1", "role": "user", "content": [{"type": "text", "text": "Hi."}], "created_at": "2025-05-01T10:00:00Z"}
    ]}],
    "blocks": [{"id": "b0", "label": "human", "value": "Name: Ana"}],
}  # fmt: skip
SETTINGS = ("store", "model", "redact", "embedder", "lifecycle", "recall", "unknown")


def list_places(value: object, place: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    entries = value.items() if isinstance(value, dict) else enumerate(value[:2]) if isinstance(value, list) else ()
    for key, inner in entries:
        yield (*place, key)
        yield from list_places(inner, (*place, key))


def spoil(document: Any) -> Iterator[str]:
    """Yield the document as JSON, once for each place and value."""
    for *way, last in list_places(document):
        spoiled = copy.deepcopy(document)
        inner = spoiled
        for key in way:
            inner = inner[key]
        right, inner[last] = json.dumps(inner[last]), GAP
        yield from (json.dumps(spoiled).replace(json.dumps(GAP), value) for value in VALUES if value != right)


def fill(path: Path) -> Memory:
    """Open a memory with a row of every kind."""
    memory = Memory(path, user="ana", embedder=HashEmbedder(), background=False)
    memory.remember("I live in Quito.", slot="user.city", metadata={"page": 7})
    memory.relations.add("Quito", "lies in", "a valley")
    memory.procedural.learn("bake bread", ["knead", "bake"])
    memory.start_session("monday")
    memory.add_message("user", "My sister is called Zoe.", session="monday")
    memory.episodic.record_tool_call("search", {"q": "x"}, "pages " * 200, session="monday")
    with memory.task("baking", goal="bread") as run:
        run.step("weigh", lambda: {"flour": 500})
    memory.procedural.used(memory.procedural.require("bake bread").id, "baking", success=True)
    return memory


def load(path: Path, **options: Any) -> None:
    """Load a file, and look at all that it may have left."""
    with Memory(":memory:", user="ana", embedder=HashEmbedder(), background=False) as memory:
        memory.load(path, **options)
        assert options or {item.trust <= 0.6 for item in memory.list(limit=100)} <= {True}, "trust was forged"
        memory.recall("tea")
        memory.prompt("tea")
        memory.slots.list()
        memory.sessions.list()
        memory.episodic.recent(100)
        memory.procedural.versions("bake bread")
        [memory.tasks.timeline(task.task) for task in memory.tasks.list()]
        [memory.explain(item.id) for item in memory.list(limit=100, history=True)]
        memory.export(path.with_name("again.jsonl"), overwrite=True)


def seal(manifest: dict[str, Any], lines: list[str]) -> str:
    """Write an export whose manifest fits, as its forger would."""
    sums = LineSums()
    for line in lines:
        kind = json.loads(line, parse_int=float).get("row")
        sums.add(kind if isinstance(kind, str) else "item", line.encode() + b"\n")
    return "\n".join(
        [json.dumps({**manifest, "rows": sums.rows, "hashes": sums.hashes, "hash": sums.hash}), *lines, ""]
    )


def spoil_export(folder: Path) -> Iterator[str]:
    with fill(folder / "export.db") as memory:
        memory.export(folder / "whole.jsonl", vectors=True)
    manifest, *lines = (folder / "whole.jsonl").read_text().splitlines()
    for number, line in enumerate(lines):
        for spoiled in spoil(json.loads(line)):
            yield seal(json.loads(manifest), [*lines[:number], spoiled, *lines[number + 1 :]])


def make_backup(folder: Path) -> Path:
    path = folder / "backup.db"
    if not path.exists():
        with fill(folder / "saved.db") as memory:
            memory.store.backup(path)
    return path


def restore_by(folder: Path, manifest: str) -> None:
    backup = make_backup(folder)
    backup.with_name(backup.name + MANIFEST_SUFFIX).write_text(manifest)
    for old in folder.glob("new.db*"):
        old.unlink()
    restore_backup(backup, folder / "new.db")


def spoil_manifest(folder: Path) -> Iterator[str]:
    backup = make_backup(folder)
    yield from spoil(json.loads(backup.with_name(backup.name + MANIFEST_SUFFIX).read_text()))


def spoil_receipt(folder: Path) -> Iterator[str]:
    with fill(folder / "erased.db") as memory:
        receipt = memory.store.erase(user="ana").receipt
    yield from spoil(json.loads(str(receipt)))


def verify(folder: Path, receipt: str) -> None:
    with closing(Store(folder / "erased.db", embedder=HashEmbedder(), background=False)) as store:
        assert not store.verify_erasure(receipt), "a forged receipt was believed"


def write(folder: Path, name: str, content: str) -> Path:
    path = folder / name
    path.write_text(content)
    return path


Reader = tuple[Callable[[Path], Iterator[str]], Callable[[Path, str], object]]
READERS: dict[str, Reader] = {
    "notes": (
        lambda folder: (text for note in NOTES for text in spoil(note)),
        lambda folder, text: load(write(folder, "notes.jsonl", text + "\n")),
    ),
    "export": (spoil_export, lambda folder, text: load(write(folder, "export.jsonl", text), trusted=True)),
    "mem0": (lambda folder: spoil(MEM0), lambda folder, text: load(write(folder, "mem0.json", text))),
    "letta": (lambda folder: spoil(LETTA), lambda folder, text: load(write(folder, "letta.af", text))),
    "manifest": (spoil_manifest, restore_by),
    "receipt": (spoil_receipt, verify),
    "settings": (
        lambda folder: (form.format(name, value) for name in SETTINGS for value in VALUES for form in
                        ("{} = {}", "[{}]\nx = {}", "[[{}]]\nx = {}")),
        lambda folder, text: load_settings(write(folder, "engrain.toml", text)),
    ),
}  # fmt: skip


@pytest.mark.parametrize("every", [False, pytest.param(True, marks=pytest.mark.slow)])
@pytest.mark.parametrize("reader", READERS)
def test_a_value_that_does_not_belong_there_is_a_typed_error_or_data(
    tmp_path: Path, reader: str, every: bool, report_counts: Callable[..., None]
) -> None:
    make, use = READERS[reader]
    files = list(make(tmp_path))
    tried = choose_points(files) if every else random.Random(SEED).sample(files, FEW)
    refused = 0
    for file in tried:
        try:
            use(tmp_path, file)
        except EngrainError:
            refused += 1
        except Exception as exc:  # noqa: BLE001  (the point of this test)
            pytest.fail(f"{type(exc).__name__}: {exc}\n{file[:2_000]}")
    assert refused > len(tried) // 8, "the readers look at hardly anything"
    report_counts(files=len(tried), of=len(files))


@pytest.mark.parametrize("value", ["true", '"likes"', "[1]", "3"])
def test_a_note_whose_relation_is_none_is_refused(tmp_path: Path, value: str) -> None:
    path = write(tmp_path, "notes.jsonl", f'{{"text": "Ana likes tea.", "relation": {value}}}\n')
    with pytest.raises(BadFile, match="relation"):
        load(path)


def test_a_line_whose_kind_is_a_list_is_refused(tmp_path: Path) -> None:
    path = write(tmp_path, "export.jsonl", '{"row": [[]], "text": "Ana likes tea."}\n')
    with pytest.raises(EngrainError):
        load(path)


@pytest.mark.parametrize("content", ["port = " + "1" * 5_000, "a = " + "[" * 5_000])
def test_settings_of_a_client_that_python_cannot_read_are_a_typed_error(tmp_path: Path, content: str) -> None:
    with pytest.raises(ConfigError):
        load_settings(write(tmp_path, "engrain.toml", content))
    with pytest.raises(ConfigError):
        clients._read_toml(tmp_path / "config.toml", content)


def forge_row(folder: Path, change: Callable[[dict[str, Any]], object], **kinds: str) -> Path:
    """Write an export whose manifest fits, with a change in its first row of these kinds."""
    with fill(folder / "export.db") as memory:
        memory.export(folder / "whole.jsonl", vectors=True)
    manifest, *rows = (json.loads(line) for line in (folder / "whole.jsonl").read_text().splitlines())
    change(next(row for row in rows if kinds.items() <= row.items()))
    return write(folder, "forged.jsonl", seal(manifest, [json.dumps(row) for row in rows]))


def test_an_event_with_wrong_parts_of_its_importance_is_refused(tmp_path: Path) -> None:
    path = forge_row(tmp_path, lambda row: row["data"].update(why=[None]), row="episode")
    with pytest.raises(BadFile, match="why"):
        load(path, trusted=True)


def test_a_procedure_with_a_version_that_is_no_number_is_refused(tmp_path: Path) -> None:
    path = forge_row(tmp_path, lambda row: row["metadata"]["engrain"].update(version="2"), kind="procedure")
    with pytest.raises(BadFile, match="version"):
        load(path, trusted=True)
