"""A memory that was named wrongly is not taken for one in which nothing was kept."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from engrain_conformance.embedder import HashEmbedder

from engrain import Memory
from engrain.cli.main import root


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "agent.db"
    with Memory(path, user="ana", agent="support", embedder=HashEmbedder()) as memory:
        memory.remember("Ana likes tea.", slot="user.drink")
    return path


def run(store: Path, *words: str) -> Result:
    return CliRunner().invoke(root, ["--store", str(store), *words])


LOOKS = (["list"], ["slots"], ["slot", "user.drink"], ["about", "Ana"], ["get", "cr2pvv0vpt"], ["sessions"])


@pytest.mark.parametrize("look", [*LOOKS, ["episodes"], ["procedures"], ["tasks"]], ids=" ".join)
def test_whoever_leaves_the_agent_out_is_told_where_the_items_are(store: Path, look: list[str]) -> None:
    said = (
        "note: this memory (user=ana) is empty. The store has agent=support, user=ana (1 item): choose it with --agent"
    )
    assert said in run(store, "--user", "ana", *look).stderr


@pytest.mark.parametrize(
    ("named", "told"),
    [
        (["--user", "anna", "--agent", "support"], " Did you mean 'ana'? `engrain memories` lists all."),
        (["--user", "zoe"], " The store has 1 other memory. `engrain memories` lists all."),
        ([], " The store has 1 other memory. `engrain memories` lists all."),
    ],
)
def test_no_other_user_is_named_but_one_that_is_spelled_alike(store: Path, named: list[str], told: str) -> None:
    shown = run(store, *named, "list", "--json")
    assert shown.stdout == ""
    assert f"is empty.{told}\n" in shown.stderr
    assert ("ana" in told) == ("ana" in shown.stderr)


def test_another_tenant_s_user_of_the_same_name_is_somebody_else(store: Path) -> None:
    assert "support" not in run(store, "--tenant", "acme", "--user", "ana", "list").stderr


def test_many_agents_of_a_user_are_counted(store: Path) -> None:
    for number in range(4):
        with Memory(store, user="ana", agent=f"agent {number}", embedder=HashEmbedder()) as memory:
            memory.remember("Ana likes tea.")
    shown = run(store, "--user", "ana", "list").stderr
    assert shown.count("agent=") == 3
    assert "and 2 more: choose it" in shown


def test_the_right_name_and_an_emptied_memory_say_nothing_of_others(store: Path, tmp_path: Path) -> None:
    assert run(store, "--user", "ana", "--agent", "support", "list").stderr == ""
    with Memory(store, user="bo", embedder=HashEmbedder()) as memory:
        memory.forget(memory.remember("Bo likes coffee."))
    assert "note" not in run(store, "--user", "bo", "list").stderr
    Memory(tmp_path / "new.db", embedder=HashEmbedder()).close()
    assert "note" not in run(tmp_path / "new.db", "--user", "bo", "list").stderr
