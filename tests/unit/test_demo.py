"""The demo is true, short and fits a small terminal."""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from engrain.cli.commands.demo import SCENES, Scene, Stage
from engrain.cli.main import root

# As a user sees it, with what it measured noted beside.
DEMO = """
import json, pathlib, sys
from engrain.cli.commands import demo
from engrain.cli.main import root
demo.ROUNDS, demo.WRITING_SECONDS = 2, 0  # nobody looks at these times
def shorten(scene):
    return demo.Scene(scene.title, [line.replace("range(1, 501)", f"range(1, {sys.argv[2]})") for line in scene.lines])
demo.SCENES = [shorten(scene) for scene in demo.SCENES]
close = demo.Stage.close
def left(stage):
    pathlib.Path(sys.argv[1]).write_text(json.dumps({"broken": stage.broken, "facts": stage.facts}))
    close(stage)
demo.Stage.close = left
root(["demo", "--fast"])
"""


@pytest.mark.parametrize("turns", [20, pytest.param(500, marks=pytest.mark.slow)])
def test_it_reads_well_at_80_columns_and_its_facts_are_as_promised(tmp_path: Path, turns: int) -> None:
    """By default the long conversation is shorter: test_scenes.py has one of 500 turns."""
    noted, folder = tmp_path / "facts.json", tmp_path / "here"
    folder.mkdir()
    before = _spent()
    command = [sys.executable, "-c", DEMO, str(noted), str(turns + 1)]
    environment = {**os.environ, "COLUMNS": "80"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=folder, timeout=300, env=environment)
    assert (done.returncode, done.stderr) == (0, ""), done.stdout
    assert _spent() - before <= 60, "half a minute is promised, and it takes a third of that"
    assert list(folder.iterdir()) == []
    _reads_well(done.stdout)
    _holds(**json.loads(noted.read_text()))


def _reads_well(shown: str) -> None:
    for title, _ in SCENES:
        assert title in shown
    assert max(map(len, shown.splitlines())) <= 80
    assert "\x1b" not in shown
    assert "engrain recall" in shown.split("Next")[1]


def _holds(broken: list[str], facts: dict[str, Any]) -> None:
    assert broken == []
    assert "Ana prefers Python" in facts["recalled"]
    assert facts["unknown_hits"] == 0
    assert (facts["city_now"], facts["city_then"]) == ("Ana lives in Quito.", "Ana lives in Lima.")
    assert facts["recall_is_current"]
    assert "6432" in facts["second_process_recalled"]
    assert facts["acknowledged_writes"] >= 20
    assert facts["lost"] == 0
    assert (facts["task_continued_at"], facts["mails_sent"]) == (18, 1)
    assert facts["places_before"] > 0
    assert facts["places_after"] == 0
    assert facts["write_ms"] > 0
    assert facts["recall_ms"] > 0


def _spent() -> float:
    """Of the processor by all programs that were started here, in seconds: nobody else's work counts."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_the_next_steps_begin_with_the_environment_if_the_command_is_not_on_the_path(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engrain.cli.commands.demo.SCENES", ())
    monkeypatch.setattr("engrain.cli.commands.demo.Process", NoProcess)
    (tmp_path / "activate").touch()
    monkeypatch.setattr(sys, "argv", [str(tmp_path / "engrain"), "demo"])
    monkeypatch.setenv("PATH", "")
    line = f"source {tmp_path / 'activate'}"
    assert line in CliRunner().invoke(root, ["demo", "--fast"]).output
    program = tmp_path / "engrain"
    program.touch(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert line not in CliRunner().invoke(root, ["demo", "--fast"]).output


def test_what_is_shown_is_what_ran(capsys: pytest.CaptureFixture[str]) -> None:
    stage = Stage(fast=True)
    assert stage.run("6 * 7") == 42
    stage.run("print('hello')")
    shown = capsys.readouterr().out
    assert ">>> 6 * 7\n       42\n" in shown
    assert "hello" in shown.splitlines()[-1]


class NoProcess:
    """Starts nothing: a scene that needs no other process is played sooner."""

    def __init__(self, store: str, user: str) -> None: ...

    def close(self) -> None: ...


def test_a_broken_promise_is_said_and_ends_with_1(monkeypatch: pytest.MonkeyPatch) -> None:
    lie = Scene("A lie.", ("= lost: 1 + 2 | lost == 0", "= not_reached: 1"))
    monkeypatch.setattr("engrain.cli.commands.demo.SCENES", (lie,))
    monkeypatch.setattr("engrain.cli.commands.demo.Process", NoProcess)
    done = CliRunner().invoke(root, ["demo", "--fast", "--json"])
    assert done.exit_code == 1
    told = json.loads(done.stdout)
    assert (told["ok"], told["broken"], told["facts"]) == (False, ["lost"], {"lost": 3})
    assert told["seconds"] >= 0
    assert "not as promised" in CliRunner().invoke(root, ["demo", "--fast"]).output
