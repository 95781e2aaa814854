"""What the command line says to somebody who does not know its words yet."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner
from engrain_conformance.embedder import HashEmbedder

from engrain import Memory
from engrain.cli.main import ALIASES, COMMANDS, root
from engrain.transfer.copy import CopyResult


@pytest.fixture
def store(tmp_path: Path) -> Path:
    with Memory(tmp_path / "agent.db", embedder=HashEmbedder()) as memory:
        memory.remember("Ana likes tea.")
    return tmp_path / "agent.db"


@pytest.mark.parametrize(
    ("typed", "meant"),
    [("recal", "recall"), ("forgt", "forget"), ("search", "recall"), ("delete", "forget"), ("import", "load")],
)
def test_a_word_that_is_no_command_is_answered_with_the_one_that_may_be_meant(typed: str, meant: str) -> None:
    shown = CliRunner().invoke(root, [typed, "x"])
    assert shown.exit_code == 2
    assert f"No such command {typed!r}. Did you mean 'engrain {meant}'?" in shown.stderr
    assert "Did you mean" not in CliRunner().invoke(root, ["xyzzy"]).stderr


def test_every_word_of_elsewhere_leads_to_a_command() -> None:
    assert not set(ALIASES) & set(COMMANDS)
    assert {meant.split()[0] for meant in ALIASES.values()} <= {*COMMANDS, "--help"}


@pytest.mark.parametrize("command", ["get", "explain", "pin", "forget"])
def test_a_beginning_that_is_too_short_is_not_called_an_item_that_is_missing(tmp_path: Path, command: str) -> None:
    with Memory(tmp_path / "agent.db", embedder=HashEmbedder()) as memory:
        id = memory.remember("Ana likes tea.")
    shown = CliRunner().invoke(root, ["--store", str(tmp_path / "agent.db"), command, id[:5]])
    assert shown.exit_code == 1
    assert f"'{id[:5]}' is too short for the beginning of an id: write 6 letters or more." in shown.stderr


@pytest.mark.parametrize("group", ["tasks", "erase", "audit", "files"])
def test_no_line_of_a_list_of_commands_is_cut_off(group: str) -> None:
    assert "..." not in CliRunner().invoke(root, [group, "--help"]).output.partition("Commands:")[2]


def test_one_of_a_kind_is_told_as_one(tmp_path: Path) -> None:
    one = CopyResult({"item": 1, "request": 1, "summary": 1, "audit": 1}, 1, "ab")
    assert (
        str(one) == "1 item, 1 answered request, 1 summary, 1 row of the audit log; 1 row written by this run; hash ab"
    )
    assert str(CopyResult({"item": 2}, 0, "ab")) == "2 items; 0 rows written by this run; hash ab"
    with Memory(tmp_path / "agent.db", embedder=HashEmbedder()) as memory:
        memory.remember("Ana likes tea.")
        memory.recall("Ana likes tea.")
        assert str(memory.explain(memory.list()[0].id)).endswith("used 1 time")
        assert ": 1 item, " in str(memory.store.backup(tmp_path / "copy.db"))
        memory.add_message("user", "Hello.", session="monday")
    shown = CliRunner().invoke(root, ["--store", str(tmp_path / "agent.db"), "sessions"]).stdout
    assert shown.startswith("monday  1 message, last ")


def test_whoever_asks_for_a_hold_that_is_not_there_learns_how_to_set_one(store: Path) -> None:
    shown = CliRunner().invoke(root, ["--store", str(store), "hold", "--user", "ana"])
    assert shown.stdout == "There is no hold on ana. --reason CODE sets one.\n"


def test_what_is_true_or_not_is_told_in_words(store: Path) -> None:
    lines = CliRunner().invoke(root, ["--store", str(store), "status"]).stdout.splitlines()
    assert [line.split()[-1] for line in lines if line.startswith("encrypted")] == ["no"]


def test_doctor_counts_its_points_for_programs(store: Path) -> None:
    told = json.loads(CliRunner().invoke(root, ["--store", str(store), "doctor", "--json"]).stdout)
    states = [one["state"] for one in told["findings"]]
    assert told["counts"] == {state: states.count(state) for state in ("pass", "warn", "fail", "unknown")}
    assert sum(told["counts"].values()) == 35


def test_the_doctor_finds_no_fault_in_the_folder_of_backups_that_maintain_made(store: Path) -> None:
    settings = store.with_name("engrain.toml")
    settings.write_text('[stores]\ndefault = "agent.db"\n[lifecycle]\nbackup_folder = "backups"\n')
    with Memory(settings, embedder=HashEmbedder()) as memory:
        assert memory.store.maintain().counts["backed_up"] == 1
        assert [one.state for one in memory.store.doctor(memory.scope) if one.name == "rights"] == ["pass"]
    assert (store.parent / "backups").stat().st_mode & 0o777 == 0o700


@pytest.mark.parametrize("option", ["--user", "--agent", "--tenant"])
def test_a_command_for_whole_stores_does_not_look_as_if_it_took_one_memory(
    store: Path, option: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    goal = store.with_name("copy.db")
    for words in (["copy", str(store), str(goal), option, "ana"], [option, "ana", "copy", str(store), str(goal)]):
        shown = CliRunner().invoke(root, words)
        assert shown.exit_code == 2
        assert f"copy works on whole stores, with every memory in them: omit {option}." in shown.stderr
    assert not goal.exists()
    monkeypatch.setenv("ENGRAIN_USER", "ana")
    assert CliRunner().invoke(root, ["copy", str(store), str(goal)]).exit_code == 0


def test_a_page_for_a_person_names_each_source_once(tmp_path: Path) -> None:
    with Memory(tmp_path / "agent.db", embedder=HashEmbedder()) as memory:
        memory.add_message("user", "I prefer Spanish.")
        memory.add_message("user", "I prefer Spanish.")
        memory.export(tmp_path / "page.md", format="markdown")
    assert "told by the user; " in (tmp_path / "page.md").read_text()


@pytest.mark.parametrize(
    ("typed", "example"),
    [
        (["recall", "what", "does", "Ana", "drink"], 'engrain recall "what does Ana drink"'),
        (["remember", "Ana", "likes tea.", "--importance", "0.8"], 'engrain remember "Ana likes tea."'),
        (["recall", "it's", "$HOME", "-n", "2"], "engrain recall 'it'\"'\"'s $HOME'"),
    ],
)
def test_a_text_without_quotes_is_answered_with_the_command_in_quotes(typed: list[str], example: str) -> None:
    shown = CliRunner().invoke(root, typed)
    assert shown.exit_code == 2
    assert f"Put a text of several words in quotes: {example}" in shown.stderr.replace("root ", "engrain ")


@pytest.mark.parametrize("group", ["tasks", "audit"])
def test_a_group_that_lists_by_itself_says_so(group: str) -> None:
    for word in ("list", "ls"):
        shown = CliRunner().invoke(root, [group, word])
        assert shown.exit_code == 2
        assert f"No such command {word!r}. Did you mean 'engrain {group}'?" in shown.stderr
    assert "Did you mean" not in CliRunner().invoke(root, [group, "xyzzy"]).stderr


@pytest.mark.parametrize(
    ("typed", "says"),
    [
        (["load", "{folder}"], "{folder} is a folder. Give the path of a file."),
        (["list", "--where", "importance > high"], "importance takes a number, not 'high'."),
        (["files", "sync", "{file}"], "{file} is a file. Give the path of a folder."),
        (["tasks", "show", "order-42"], "there is no task 'order-42' in this memory. `engrain tasks` lists them."),
        (["undo", "nothing"], "Nothing came from 'nothing'."),
        (["keys", "revoke", "phone"], "there is no key 'phone'"),
    ],
)
def test_a_typical_mistake_is_named_in_plain_words(store: Path, tmp_path: Path, typed: list[str], says: str) -> None:
    names = {"folder": tmp_path / "folder", "file": tmp_path / "notes.txt"}
    names["folder"].mkdir()
    names["file"].write_text("tea")
    shown = CliRunner().invoke(root, ["--store", str(store), *(word.format(**names) for word in typed)])
    assert shown.exit_code == 1
    assert says.format(**names) in shown.stderr


def test_a_value_of_the_wrong_type_in_a_settings_file_is_named_in_plain_words(tmp_path: Path) -> None:
    settings = tmp_path / "engrain.toml"
    for line, says in (
        ("default = 3", "'default' in [stores] must be a text, not 3."),
        ('cache_bytes = "big"', "'cache_bytes' in [stores] must be a whole number, not 'big'."),
        ('read_only = "yes"', "'read_only' in [stores] must be true or false, not 'yes'."),
    ):
        settings.write_text(f"[stores]\n{line}\n")
        assert says in CliRunner().invoke(root, ["--store", str(settings), "list"]).stderr


def test_help_breaks_no_path_and_no_option_at_a_hyphen() -> None:
    for command in COMMANDS:
        shown = CliRunner().invoke(root, [command, "--help"]).output
        assert not [line for line in shown.splitlines() if re.search(r"\w-$", line)], command
