"""What the command line says to somebody who does not know its words yet."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from engrain import Memory
from engrain.cli.root import COMMANDS, ELSEWHERE, root
from engrain.conformance.embedder import HashEmbedder


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
    assert not set(ELSEWHERE) & set(COMMANDS)
    assert {meant.split()[0] for meant in ELSEWHERE.values()} <= {*COMMANDS, "--help"}


@pytest.mark.parametrize("command", ["get", "why", "pin", "forget"])
def test_a_beginning_that_is_too_short_is_not_called_an_item_that_is_missing(tmp_path: Path, command: str) -> None:
    with Memory(tmp_path / "agent.db", embedder=HashEmbedder()) as memory:
        id = memory.remember("Ana likes tea.")
    shown = CliRunner().invoke(root, ["--store", str(tmp_path / "agent.db"), command, id[:5]])
    assert shown.exit_code == 1
    assert f"'{id[:5]}' is too short for the beginning of an id: write 6 letters or more." in shown.stderr


@pytest.mark.parametrize("group", ["tasks", "erase", "audit", "files"])
def test_no_line_of_a_list_of_commands_is_cut_off(group: str) -> None:
    assert "..." not in CliRunner().invoke(root, [group, "--help"]).output.partition("Commands:")[2]
