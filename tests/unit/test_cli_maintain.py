"""`engrain maintain` at a shell: for whom it cares, and what it says."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from engrain_conformance.embedder import HashEmbedder

from engrain import Memory
from engrain.cli.commands.status import _format_status
from engrain.cli.main import root

Run = Callable[..., Result]


@pytest.fixture
def settings(tmp_path: Path) -> Path:
    path = tmp_path / "engrain.toml"
    path.write_text(f'[stores]\ndefault = "{tmp_path / "agent.db"}"\n[lifecycle]\nconsolidate_days = 0\n')
    for user in ("ana", "bruno"):
        with Memory(path, user=user, background=False) as memory:
            memory.remember(f"{user} wore a hat.", importance=0.1)
    return path


@pytest.fixture
def run(settings: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    for name in ("ENGRAIN_USER", "ENGRAIN_AGENT", "ENGRAIN_TENANT"):
        monkeypatch.delenv(name, raising=False)

    def call(*args: str, code: int = 0, **variables: str) -> Result:
        result = CliRunner().invoke(root, ["--store", str(settings), *args], env=variables)
        assert result.exit_code == code, (result.output, result.exception)
        return result

    return call


def counted(result: Result) -> int:
    return int(json.loads(result.stdout)["counts"]["consolidated"])


def test_without_an_owner_every_memory_is_cared_for(run: Run) -> None:
    assert counted(run("maintain", "--dry-run", "--json")) == 2
    assert counted(run("--user", "ana", "maintain", "--dry-run", "--json")) == 1
    assert counted(run("maintain", "--dry-run", "--json", ENGRAIN_USER="bruno")) == 1
    assert counted(run("maintain", "--everyone", "--dry-run", "--json", ENGRAIN_USER="bruno")) == 2
    assert run("maintain").stdout.splitlines() == [
        "Maintenance in 2 memories:",
        "removed 2 items of little importance and rarely used",
    ]


def test_each_thing_says_whose_it_is(run: Run) -> None:
    lines = run("maintain", "--dry-run", "--each").stdout.splitlines()
    told = [line.split()[0] for line in lines if "wore a hat" in line]
    assert told == ["user=ana:", "user=bruno:"]
    each = json.loads(run("maintain", "--json").stdout)["each"]
    assert [one["scope"] for one in each] == [
        {"tenant": None, "agent": None, "user": user} for user in ("ana", "bruno")
    ]


def test_where_there_is_nothing_to_do_it_says_so_in_a_line(run: Run) -> None:
    run("maintain")
    assert run("maintain").stdout == "Nothing to do in 2 memories.\n"
    assert run("--user", "ana", "maintain", "--dry-run").stdout == "Nothing to do.\n"
    assert "removed 0 tasks" in run("maintain", "--each").stdout
    assert json.loads(run("maintain", "--json").stdout)["counts"]["pruned"] == 0


def test_what_cannot_be_done_for_one_is_said_and_the_rest_is_done(run: Run, settings: Path, tmp_path: Path) -> None:
    settings.write_text(settings.read_text() + f'mirror = "{tmp_path / "notes"}"\n')
    run("--user", "ana", "maintain")
    told = run("--user", "bruno", "maintain", code=1).stdout
    assert "removed 1 item of little importance" in told
    assert "not done: mirrored:" in told


def test_a_mistyped_owner_is_not_cared_for(run: Run, settings: Path, tmp_path: Path) -> None:
    settings.write_text(settings.read_text() + 'mirror = "files/{user}"\n')
    for words in ((), ("--dry-run",), ("--json",)):
        told = run("--user", "anna", "maintain", *words, code=1)
        assert "nothing is kept for user=anna here. Did you mean 'ana'?" in told.output
    assert "nothing is kept for agent=x here." in run("--agent", "x", "maintain", code=1).output
    assert not (tmp_path / "files").exists()
    assert run("maintain", "--each").stdout.splitlines()[0] == "Maintenance in 2 memories:"


def test_two_agents_of_one_user_are_told_of_a_folder_for_each(run: Run, settings: Path) -> None:
    settings.write_text(settings.read_text() + 'mirror = "files/{user}"\n')
    with Memory(settings, user="ana", agent="h1", background=False) as memory:
        memory.remember("Ana likes tea.")
    told = run("maintain", code=1).stdout
    assert "2 more would use it" in told
    assert 'mirror = "files/{user}/{agent}"' in told
    run("--user", "ana", "maintain")
    assert 'mirror = "files/{user}/{agent}"' in run("--user", "ana", "--agent", "h1", "maintain", code=1).stdout


def test_what_is_synced_is_told_in_words(run: Run, settings: Path) -> None:
    settings.write_text(settings.read_text() + 'mirror = "files/{user}"\n')
    assert "would sync 2 folders of files" in run("maintain", "--dry-run").stdout.splitlines()
    assert "synced 2 folders of files" in run("maintain").stdout.splitlines()


def rows(memory: Memory) -> dict[str, str]:
    return dict(_format_status(memory.store.status(memory.scope)))


def test_status_shows_how_far_a_change_of_the_model_is(tmp_path: Path) -> None:
    store = tmp_path / "agent.db"
    with Memory(store, user="ana", embedder=HashEmbedder("old"), background=False) as memory:
        memory.remember_many([f"Note {n}." for n in range(5)])
        assert "changing to" not in rows(memory)
    chosen: dict[str, Any] = {
        "embedder": HashEmbedder("new"),
        "settings": {"embedder": {"before": HashEmbedder("old")}},
    }
    with Memory(store, user="ana", background=False, **chosen) as memory:
        assert rows(memory)["changing to"] == "new: 0 of 5"
        assert memory.store.status(memory.scope).background["changing"] == {"to": "new", "embedded": 0, "of": 5}
        memory.store.maintain(memory.scope, reembed=True)
        assert "changing to" not in rows(memory)


def test_status_says_every_minute(tmp_path: Path) -> None:
    for every, told in ((1, "every minute, not yet"), (5, "every 5 minutes, not yet")):
        rules = {"every_minutes": every}
        with Memory(
            tmp_path / "a.db", embedder=HashEmbedder(), background=False, settings={"lifecycle": rules}
        ) as memory:
            assert rows(memory)["maintenance"] == told
