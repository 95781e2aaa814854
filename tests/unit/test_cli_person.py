"""The copy of all that is kept of a person, as somebody takes it who was asked for it."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from engrain_conformance.embedder import HashEmbedder

from engrain import DiskFull, Memory
from engrain.cli.main import root


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "agent.db"
    for agent in (None, "support", "a/b", "A/B"):
        with Memory(path, user="ana", agent=agent, embedder=HashEmbedder()) as memory:
            memory.remember(f"Ana is known to {agent}.")
    return path


def run(store: Path, *words: str) -> Result:
    return CliRunner().invoke(root, ["--store", str(store), *words])


def test_an_export_says_which_memories_of_the_user_are_not_in_it(store: Path, tmp_path: Path) -> None:
    done = run(store, "export", str(tmp_path / "ana.jsonl"), "--user", "ana")
    assert done.exit_code == 0
    assert "ana has 3 more memories here: agent=A/B, agent=a/b, agent=support." in done.stderr
    with Memory(store, user="ben", embedder=HashEmbedder()) as memory:
        memory.remember("Ben lives in Oslo.")
    assert run(store, "export", str(tmp_path / "ben.jsonl"), "--user", "ben").stderr == ""


@pytest.mark.parametrize("form", ["jsonl", "markdown"])
def test_all_agents_gives_a_file_for_each_memory_that_an_erasure_takes(store: Path, tmp_path: Path, form: str) -> None:
    folder = tmp_path / "copy"
    folder.mkdir()
    done = run(store, "export", str(folder / "ana.txt"), "--user", "ana", "--all-agents", "--format", form, "--json")
    files = [json.loads(line)["file"] for line in done.stdout.splitlines()]
    assert sorted(files) == sorted(map(str, folder.iterdir()))
    assert len({file.lower() for file in files}) == 4
    whole = "".join(Path(file).read_text() for file in files)
    assert all(f"Ana is known to {agent}." in whole for agent in (None, "support", "a/b", "A/B"))


def test_a_mistyped_user_gets_no_file(store: Path, tmp_path: Path) -> None:
    for words in ((), ("--all-agents",), ("--format", "markdown")):
        done = run(store, "export", str(tmp_path / "anna.jsonl"), "--user", "anna", *words)
        assert done.exit_code == 1
        assert "nothing is kept for the user 'anna' here. Did you mean 'ana'?" in done.stderr
    assert not list(tmp_path.glob("*anna*"))


def test_a_memory_that_is_there_and_empty_is_exported(store: Path, tmp_path: Path) -> None:
    with Memory(store, user="eve", embedder=HashEmbedder()) as memory:
        memory.forget(memory.remember("Eve lives in Bonn."))
    done = run(store, "export", str(tmp_path / "eve.jsonl"), "--user", "eve")
    assert (done.exit_code, (tmp_path / "eve.jsonl").exists()) == (0, True)


def test_a_user_whom_only_other_agents_know_gets_no_empty_file(tmp_path: Path) -> None:
    path, file = tmp_path / "agent.db", tmp_path / "ana.jsonl"
    with Memory(path, user="ana", agent="support", embedder=HashEmbedder()) as memory:
        memory.remember("Ana is known to support.")
        memory.store.hold("ana", reason="case-7")
    for words in ((), ("--agent", "suport"), ("--format", "markdown")):
        done = run(path, "export", str(file), "--user", "ana", *words)
        assert (done.exit_code, file.exists()) == (1, False)
        assert "agent=support" in done.stderr
        assert "--all-agents" in done.stderr
    assert run(path, "export", str(file), "--user", "ana", "--agent", "support").exit_code == 0
    assert run(path, "export", str(file), "--user", "ana", "--all-agents").exit_code == 0
    assert (tmp_path / "ana.support.jsonl").stat().st_size


def test_what_an_agent_has_only_as_a_task_is_exported(store: Path, tmp_path: Path) -> None:
    with Memory(store, user="ana", agent="worker", embedder=HashEmbedder()) as memory:
        memory.tasks.checkpoint("order", {"cart": ["tea"]})
    done = run(store, "export", str(tmp_path / "ana.jsonl"), "--user", "ana", "--agent", "worker")
    assert (done.exit_code, "tea" in (tmp_path / "ana.jsonl").read_text()) == (0, True)


def test_the_page_says_what_it_is_and_nothing_of_the_machine(tmp_path: Path) -> None:
    path = tmp_path / "told.db"
    with Memory(path, user="ana", embedder=HashEmbedder(), background=False) as memory:
        memory.start_session("monday")
        memory.add_message("user", "My name is Ana. I live in Lima.")
        memory.remember("Ana has a dog.", metadata={"seen": [1, True], "by": "gate"})
        memory.working.start("Deploy release 4")
        memory.working.step("think", "act", {"count": 1, "done": True})
        memory.tasks.checkpoint("order", {"cart": ["tea", {"count": 1}], "paid": False})
    run(path, "export", str(tmp_path / "ana.md"), "--user", "ana", "--format", "markdown")
    page = (tmp_path / "ana.md").read_text()
    opening = page.split("## ")[0]
    assert re.search(r"made on \d{4}-\d\d-\d\d", opening)
    assert all(word in opening for word in ("1 message, 1 conversation", "told by", "Importance"))
    assert not any(word in page for word in ("gate", "trust", '{"', '":'))
    assert "- seen: 1, yes" in page
    assert page.split("## Conversation monday")[1].count("I live in Lima.") == 1


def test_an_export_without_a_user_says_to_name_one(store: Path, tmp_path: Path) -> None:
    for form in ("jsonl", "markdown"):
        done = run(store, "export", str(tmp_path / "copy"), "--format", form)
        assert (done.exit_code, (tmp_path / "copy").exists()) == (1, False)
        assert "--user" in done.stderr
        assert "`engrain memories` lists them" in done.stderr


def test_the_page_of_a_memory_without_a_user_is_not_said_to_be_everybodys(store: Path, tmp_path: Path) -> None:
    with Memory(store, embedder=HashEmbedder()) as memory:
        memory.remember("The office opens at 9.")
    assert run(store, "export", str(tmp_path / "copy.md"), "--format", "markdown").exit_code == 0
    page = (tmp_path / "copy.md").read_text()
    assert "everything in the memory of nobody in particular (no user)" in page
    assert "everybody" not in page


def test_if_one_of_the_files_of_all_agents_is_there_none_is_written(store: Path, tmp_path: Path) -> None:
    (tmp_path / "copy.support.md").write_text("mine")
    words = ("export", str(tmp_path / "copy.md"), "--user", "ana", "--all-agents")
    done = run(store, *words)
    assert done.exit_code == 1
    assert "copy.support.md exists already" in done.stderr
    assert [one.name for one in tmp_path.glob("copy*")] == ["copy.support.md"]
    assert (tmp_path / "copy.support.md").read_text() == "mine"
    assert run(store, *words, "--overwrite").exit_code == 0


def test_an_export_that_fails_midway_says_which_files_are_written(
    store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written, real = [], Memory.export

    def failing(memory: Memory, path: str, **how: Any) -> Any:
        if len(written) == 2:
            raise DiskFull("the disk is full.")
        written.append(path)
        return real(memory, path, **how)

    monkeypatch.setattr(Memory, "export", failing)
    done = run(store, "export", str(tmp_path / "copy.md"), "--user", "ana", "--all-agents")
    assert done.exit_code == 1
    assert "written before the error: " in done.stderr
    assert all(path in done.stderr for path in written)


def test_the_answer_as_json_names_the_file(store: Path, tmp_path: Path) -> None:
    file = str(tmp_path / "ana.jsonl")
    told = json.loads(run(store, "export", file, "--user", "ana", "--json").stdout)
    assert (told["file"], told["rows"]["item"], bool(told["hash"])) == (file, 1, True)


def test_one_is_not_counted_as_several(store: Path, tmp_path: Path) -> None:
    with Memory(store, user="ben", embedder=HashEmbedder(), background=False) as memory:
        memory.add_message("user", "Hello.", session="monday")
    shown = run(store, "export", str(tmp_path / "ben.jsonl"), "--user", "ben").stdout
    assert "1 item," in shown
    assert "1 session" in shown
    assert not re.search(r"\b1 \w+s\b", shown)
