"""engrain export and engrain load, as typed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from engrain import Memory
from engrain.cli.main import root


@pytest.fixture
def store(tmp_path: Path) -> str:
    path = str(tmp_path / "agent.db")
    with Memory(path, user="ana", background=False) as memory:
        memory.remember("Ana likes tea.")
        memory.add_message("user", "My city is Lima.", session="monday")
    return path


def run(store: str, *args: str, code: int = 0) -> str:
    result = CliRunner().invoke(root, ["--store", store, *args])
    assert result.exit_code == code, (result.output, result.exception)
    return result.output


def told(store: str, *args: str, code: int = 0) -> Any:
    return json.loads(run(store, *args, "--json", code=code))


def test_a_memory_goes_to_a_file_and_into_another_store(store: str, tmp_path: Path) -> None:
    first, second, new = (str(tmp_path / name) for name in ("one.jsonl", "two.jsonl", "new.db"))
    assert "items" in run(store, "export", first, "--user", "ana")
    assert told(new, "load", first, "--trusted", "--user", "ana")["written"]
    run(new, "export", second, "--user", "ana")
    assert Path(first).read_bytes() == Path(second).read_bytes()
    assert "already known" in run(new, "load", first, "--user", "ana")
    assert "Ana likes tea." in run(new, "recall", "tea", "--user", "ana")


def test_a_dry_run_into_a_store_that_is_not_there_makes_none(tmp_path: Path) -> None:
    file = tmp_path / "notes.jsonl"
    file.write_text('{"text": "One."}\n')
    assert "Would load 1 note" in run(str(tmp_path / "new.db"), "load", str(file), "--dry-run")
    assert [one.name for one in tmp_path.iterdir()] == ["notes.jsonl"]


def test_a_dry_run_writes_nothing(store: str, tmp_path: Path) -> None:
    file = tmp_path / "notes.jsonl"
    file.write_text('{"text": "Ana likes tea."}\n{"text": "Bo likes coffee."}\n')
    answer = told(store, "load", str(file), "--dry-run", "--user", "ana")
    assert (answer["added"], answer["repeated"], answer["written"]) == (1, 1, False)
    assert "Would load 2 notes" in run(store, "load", str(file), "--dry-run", "--user", "ana")
    assert "Bo" not in run(store, "list", "--user", "ana")


def test_a_file_of_which_nothing_comes_in_is_not_said_to_be_loaded(store: str, tmp_path: Path) -> None:
    file = str(tmp_path / "ana.jsonl")
    run(store, "export", file, "--user", "ana")
    assert "Nothing was loaded: " in run(store, "load", file, "--user", "ana")
    run(store, "erase", "--user", "ana", "--yes")
    count = told(store, "load", file, "--user", "ana", "--dry-run")["kept_out"]
    wanted = f"loaded: {count} rows rejected as forgotten or erased here."
    assert f"Nothing would be {wanted}" in run(store, "load", file, "--user", "ana", "--dry-run")
    shown = run(store, "load", file, "--user", "ana")
    assert f"Nothing was {wanted}" in shown
    assert "Loaded" not in shown


def test_the_memory_of_another_is_taken_only_if_said(store: str, tmp_path: Path) -> None:
    file, new = str(tmp_path / "one.jsonl"), str(tmp_path / "new.db")
    run(store, "export", file, "--user", "ana")
    assert "other-scope" in run(new, "load", file, "--user", "ben", code=1)
    assert told(new, "load", file, "--user", "ben", "--other-scope")["added"]


def test_a_bad_line_is_shown_with_its_number(store: str, tmp_path: Path) -> None:
    file = tmp_path / "one.jsonl"
    run(store, "export", str(file), "--user", "ana")
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join([lines[0], lines[1].replace('"kind":"fact"', '"kind":"poem"'), *lines[2:]]))
    answer = told(store, "load", str(file), "--user", "ana", code=1)
    assert (answer["written"], answer["bad"][0]["line"]) == (False, 2)
    shown = run(store, "load", str(file), "--user", "ana", code=1)
    assert "line 2" in shown
    assert "Nothing was written" in shown
    assert "export again" in " ".join(shown.split())
    file.write_text("Ana likes tea.\n")
    assert "--skip-bad" in run(store, "load", str(file), "--user", "ana", code=1)


def test_a_file_that_is_there_is_not_overwritten_unasked(store: str, tmp_path: Path) -> None:
    file = tmp_path / "one.md"
    run(store, "export", str(file), "--user", "ana", "--format", "markdown")
    assert "Ana likes tea." in file.read_text()
    assert "exists" in run(store, "export", str(file), "--user", "ana", code=1)
    run(store, "export", str(file), "--user", "ana", "--overwrite")


def test_chats_come_in_by_their_form(store: str, tmp_path: Path) -> None:
    file = tmp_path / "conversations.json"
    said = [{"uuid": "m", "sender": "human", "text": "Hello there.", "created_at": "2025-01-01T00:00:00Z"}]
    file.write_text(json.dumps([{"uuid": "c", "name": "x", "chat_messages": said}]))
    assert "from claude" in run(store, "load", str(file), "--user", "ana")
    assert told(store, "load", str(file), "--format", "claude", "--user", "ana")["repeated"] == 1


def test_an_export_to_a_pipe_is_refused_before_anything_is_written(store: str, tmp_path: Path) -> None:
    shown = CliRunner().invoke(root, ["--store", store, "export", "-"])
    assert (shown.exit_code, "give a file name" in shown.output) == (2, True)
    assert not Path("-").exists()
