"""`engrain files`: sync, watch and status, for people and for programs."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from engrain_conformance.embedder import HashEmbedder

from engrain import Memory
from engrain.cli.main import root

Run = Callable[..., Result]
CLEAN = {key: value for key, value in os.environ.items() if not key.startswith("ENGRAIN_")}


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "agent.db"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "notes"


@pytest.fixture
def run(store: Path, folder: Path) -> Run:
    def call(verb: str, *args: str, code: int = 0) -> Result:
        given = ["--store", str(store), "--user", "ana", "files", verb, str(folder), *args]
        result = CliRunner().invoke(root, given)
        assert result.exit_code == code, (result.output, result.exception)
        return result

    return call


@pytest.fixture
def ten(store: Path, run: Run) -> Path:
    with Memory(store, user="ana", embedder=HashEmbedder()) as memory:
        memory.remember_many([f"Number {n} is a fact of its own, {n * 7919}." for n in range(10)])
    run("sync")
    return store


def told(result: Result) -> Any:
    return json.loads(result.stdout)


def test_a_first_sync_makes_folder_and_store(run: Run, store: Path, folder: Path) -> None:
    assert "wrote MEMORY.md" in run("sync").output
    assert store.exists()
    with (folder / "MEMORY.md").open("a") as page:
        page.write("- Ana likes tea.\n")
    assert "would write" not in run("sync", "--dry-run").output
    (one,) = told(run("sync", "--json"))["taken"]
    assert (one["action"], one["file"], one["text"]) == ("added", "MEMORY.md", "Ana likes tea.")
    assert "Files and memory agree" in run("sync").output


def test_held_back_deletions_say_what_to_do(run: Run, ten: Path, folder: Path) -> None:
    (folder / "MEMORY.md").write_text("")
    shown = run("sync").output
    assert "10 deletions wait for confirmation" in shown
    assert "--accept-deletions" in shown
    assert len(told(run("status", "--json"))["pending"]["pending_deletions"]) == 10
    run("sync", "--restore-deletions")
    assert (folder / "MEMORY.md").read_text().count("Number") == 10
    (folder / "MEMORY.md").write_text("")
    assert len(told(run("sync", "--accept-deletions", "--json"))["taken"]) == 10


def test_status_shows_budget_conflicts_and_what_waits(run: Run, ten: Path, folder: Path) -> None:
    with Memory(ten, user="ana", embedder=HashEmbedder()) as memory:
        item = memory.list({"text": {"starts with": "Number 3"}})[0]
        memory.correct(item.id, "Number 3 is a trick.")
    page = folder / "MEMORY.md"
    page.write_text(page.read_text().replace("Number 3 is a fact", "Number 3 is a hoax"))
    run("sync")
    page.write_text(page.read_text() + "- New.\n")
    shown = run("status").output
    assert "11 entries" in shown
    assert "of 200 lines" in shown
    assert "1 in memory/conflicts.md" in shown
    assert 'added: "New."' in shown
    assert "New." not in [item.text for item in Memory(ten, user="ana", embedder=HashEmbedder()).list()]


def test_errors_are_one_calm_line(run: Run, ten: Path, folder: Path) -> None:
    (folder / "MEMORY.md").write_bytes(b"- caf\xe9\n")
    result = subprocess.run(
        [sys.executable, "-m", "engrain", "--store", str(ten), "--user", "ana", "files", "sync", str(folder)],
        capture_output=True, text=True, env=CLEAN, timeout=180,
    )  # fmt: skip
    assert result.returncode == 1
    assert "Error: MEMORY.md, line 1" in result.stderr
    assert "Traceback" not in result.stderr


def test_status_of_a_store_that_is_not_there_makes_none(run: Run, store: Path) -> None:
    assert run("status", code=1).exception is not None
    assert not store.exists()


def test_watching_ends_with_ctrl_c(ten: Path, folder: Path) -> None:
    given = ["--store", str(ten), "--user", "ana", "files", "watch", str(folder), "--every", "0.05", "--json"]
    process = subprocess.Popen(
        [sys.executable, "-m", "engrain", *given], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=CLEAN
    )
    try:
        page = folder / "MEMORY.md"
        page.write_text(page.read_text() + "- Typed while watched.\n")
        assert process.stdout is not None
        line = json.loads(process.stdout.readline())
        assert line["taken"][0]["text"] == "Typed while watched."
        time.sleep(0.2)
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=180)
    finally:
        process.kill()
    assert process.returncode == 130
    assert b"Traceback" not in errors
