"""The command hold, as a person or a script calls it, and what the others say of a hold."""

from __future__ import annotations

import json
import shlex
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from engrain_conformance.embedder import HashEmbedder

from engrain import Memory
from engrain.cli.main import root


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "agent.db"
    with Memory(path, user="bruno", embedder=HashEmbedder()) as memory:
        memory.remember("Bruno lives in Lima, near the harbour.")
    return path


def run(store: Path, *words: str) -> Result:
    return CliRunner().invoke(root, ["--store", str(store), *words])


def test_a_hold_with_two_reasons_ends_with_the_second(store: Path) -> None:
    run(store, "hold", "--user", "bruno", "--reason", "case-7")
    assert "case-7, case-8" in run(store, "hold", "--user", "bruno", "--reason", "case-8").stdout
    asked = run(store, "hold", "--user", "bruno", "--release")
    assert asked.exit_code == 1
    assert "engrain hold --user bruno --release --reason case-7\n" in asked.stderr
    first = run(store, "hold", "--user", "bruno", "--release", "--reason", "case-7")
    assert first.stdout == "Released. Still held for case-8.\n"
    again = run(store, "hold", "--user", "bruno", "--release", "--reason", "case-7")
    assert (again.exit_code, "no hold on 'bruno' for case-7" in again.stderr) == (1, True)
    assert run(store, "hold", "--user", "bruno", "--release").stdout == "Released.\n"
    assert run(store, "hold").stdout == "There is no hold.\n"


def test_a_refused_erasure_names_the_command_that_releases_it_all(store: Path) -> None:
    run(store, "hold", "--user", "bruno", "--reason", "case-7", "--reason", "case-8")
    refused = run(store, "erase", "--user", "bruno", "--yes")
    command = "engrain hold --user bruno --release --reason case-7 --reason case-8\n"
    assert (refused.exit_code, command in refused.stderr) == (1, True)
    assert run(store, *command.split()[1:]).stdout.startswith("Released.\n")
    assert run(store, "erase", "--user", "bruno", "--yes").exit_code == 0


@pytest.mark.parametrize("slip", ["case-9", "case 9"])
def test_reasons_are_released_and_set_all_or_none(store: Path, slip: str) -> None:
    run(store, "hold", "--user", "bruno", "--reason", "case-7", "--reason", "case-8")
    failed = run(store, "hold", "--user", "bruno", "--release", "--reason", "case-7", "--reason", slip)
    assert (failed.exit_code, f"no hold on 'bruno' for {slip}" in failed.stderr) == (1, True)
    assert "case-7, case-8" in run(store, "hold", "--user", "bruno").stdout
    twice = run(store, "hold", "--user", "bruno", "--release", *("--reason", "case-7") * 2, "--reason", "case-8")
    assert (twice.exit_code, twice.stdout) == (0, "Released.\n")
    assert run(store, "hold", "--user", "bruno", "--reason", "case-7", "--reason", "case 9").exit_code == 1
    assert "no hold on bruno" in run(store, "hold", "--user", "bruno").stdout


def test_the_release_says_that_an_erasure_was_asked_for_meanwhile(store: Path) -> None:
    whose = ("--user", "bruno")
    run(store, "hold", *whose, "--reason", "case-7", "--reason", "case-8")
    days = [datetime.now(UTC)]
    run(store, "erase", *whose, "--yes")
    days.append(datetime.now(UTC))  # another, at midnight
    first = run(store, "hold", *whose, "--release", "--reason", "case-7", "--json")
    assert json.loads(first.stdout) == {"released": True, "left": ["case-8"], "erasure_asked": None}
    told = run(store, "hold", *whose, "--release").stdout
    asked = [f"An erasure was refused on {day:%Y-%m-%d}. The data is visible again." for day in days]
    assert any(one in told for one in asked)
    (command,) = (line for line in told.splitlines() if "engrain erase" in line)
    words = shlex.split(command.partition("engrain ")[2])
    assert words == ["erase", "--yes", "--receipt", "FILE", *whose, "--store", str(store)]
    receipt = store.with_name("r.json")
    done = CliRunner().invoke(root, [str(receipt) if word == "FILE" else word for word in words])
    assert (done.exit_code, receipt.exists()) == (0, True)


def test_a_program_is_told_of_an_erasure_that_was_asked_for(store: Path) -> None:
    run(store, "hold", "--user", "bruno", "--reason", "case-7")
    run(store, "erase", "--user", "bruno", "--yes")
    asked = json.loads(run(store, "hold", "--user", "bruno", "--release", "--json").stdout)["erasure_asked"]
    assert datetime.fromisoformat(asked["at"]) <= datetime.now(UTC)
    assert asked["command"].startswith("engrain erase --yes --receipt FILE")


def test_a_mistyped_user_is_held_with_a_warning(store: Path) -> None:
    known = run(store, "hold", "--user", "bruno", "--reason", "case-7")
    assert (known.exit_code, known.stderr) == (0, "")
    typo = run(store, "hold", "--user", "brunno", "--reason", "case-7")
    assert typo.exit_code == 0
    assert "nothing is kept for 'brunno' in this store yet. Did you mean 'bruno'?" in typo.stderr


def test_a_reason_with_a_space_is_told_what_a_reason_is(store: Path) -> None:
    bad = run(store, "hold", "--user", "bruno", "--reason", "case 9")
    assert (bad.exit_code, "a code word such as case-7" in bad.stderr) == (1, True)


def test_who_is_hidden_is_listed_by_name_and_told_by_status(store: Path) -> None:
    assert "legal hold" not in run(store, "status", "--user", "bruno").stdout
    run(store, "hold", "--user", "bruno", "--reason", "case-7")
    run(store, "erase", "--user", "bruno", "--yes")
    (listed,) = run(store, "hold").stdout.splitlines()
    assert listed.startswith("bruno ")
    assert "case-7, hidden" in listed
    told = json.loads(run(store, "hold", "--json").stdout)
    assert (told["user"], told["tenant"], told["reasons"]) == ("bruno", None, ["case-7"])
    status = run(store, "status", "--user", "bruno").stdout
    assert "for case-7; hidden because an erasure was requested" in " ".join(status.split())
    assert json.loads(run(store, "status", "--user", "bruno", "--json").stdout)["hold"]["hidden"]


@pytest.mark.parametrize(
    "words",
    [
        "recall Where",
        "recall Where --json",
        "list",
        "get cr2pvv0vpt",
        "explain cr2pvv0vpt",
        "slot user.city",
        "slots",
        "slots --json",
        "about Bruno",
        "sessions",
        "sessions monday",
        "episodes",
        "procedures",
        "tasks",
        "tasks show order-42",
        "undo scraper",
        "forget --where slot=user.city --yes",
    ],
)
def test_whoever_looks_into_what_a_hold_hides_is_told(store: Path, words: str) -> None:
    run(store, "hold", "--user", "bruno", "--reason", "case-7")
    assert "legal hold" not in run(store, *words.split(), "--user", "bruno").stderr
    run(store, "erase", "--user", "bruno", "--yes")
    assert run(store, *words.split(), "--user", "bruno").stderr.count("under a legal hold (case-7) and hidden") == 1
    assert "legal hold" not in run(store, *words.split(), "--user", "carla").stderr


def test_the_list_of_memories_says_how_many_are_hidden(store: Path) -> None:
    with Memory(store, user="carla", embedder=HashEmbedder()) as memory:
        memory.remember("Carla lives in Rome.")
    run(store, "hold", "--user", "bruno", "--reason", "case-7")
    run(store, "hold", "--user", "carla", "--reason", "case-7")
    assert run(store, "memories").stderr == ""
    run(store, "erase", "--user", "bruno", "--yes")
    for words in (("memories",), ("memories", "--json")):
        found = run(store, *words)
        assert ("carla" in found.stdout, "bruno" in found.stdout) == (True, False)
        assert "1 more user is hidden under a legal hold" in found.stderr
