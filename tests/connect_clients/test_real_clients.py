"""Real coding agents remember across sessions and across each other. Run by `make test-clients`."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from model_server import ModelServer, serve_model
from real_clients import NAMES, Machine, find_client

from engrain.connect.home import ConnectHome
from engrain.connect.repository import find_user
from engrain.connect.resident import read_pid, stop_resident
from engrain.connect.service import open_store

INSTALLED = [name for name in NAMES if find_client(name)]
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not INSTALLED, reason="no coding agent is installed")]
READY_SECONDS = 60.0


@pytest.fixture(scope="module")
def model() -> Iterator[ModelServer]:
    with serve_model() as served:
        yield served


@pytest.fixture(scope="module")
def machine(model: ModelServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Machine]:
    """A user with every client connected, and the resident process running."""
    root = tmp_path_factory.mktemp("m")
    found = Machine(root / "user", root / "proj", root / "home", model.url)
    found.user_folder.mkdir()
    subprocess.run(["git", "init", "-q", str(found.project)], check=True)
    found.prepare()
    run(found, "connect", *INSTALLED)
    start(found)
    yield found
    stop_resident(ConnectHome(found.engrain_home))


def run(machine: Machine, *words: str) -> None:
    command = [sys.executable, "-m", "engrain", *words]
    subprocess.run(command, env=machine.environment(), cwd="/", check=True, capture_output=True)


def start(machine: Machine) -> None:
    command = [sys.executable, "-P", "-m", "engrain.connect.service", str(machine.engrain_home)]
    subprocess.Popen(command, env=machine.environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    end = time.monotonic() + READY_SECONDS
    while read_pid(ConnectHome(machine.engrain_home)) is None:
        assert time.monotonic() < end, "the resident process does not start"
        time.sleep(0.1)
    time.sleep(5)  # the model loads: a user's second session comes later than that


def wait_for_spool(machine: Machine) -> None:
    end = time.monotonic() + READY_SECONDS
    while list((machine.engrain_home / "spool").glob("*.json")) and time.monotonic() < end:
        time.sleep(0.1)


@pytest.mark.parametrize("name", INSTALLED)
def test_a_session_knows_what_another_was_told(name: str, machine: Machine, model: ModelServer) -> None:
    number, service = 4700 + NAMES.index(name), f"{name}-gateway"
    assert machine.run(name, f"Remember that the port of {service} is {number}.").returncode == 0
    wait_for_spool(machine)
    other = INSTALLED[(INSTALLED.index(name) + 1) % len(INSTALLED)]
    for asked in (name, other):
        model.take()
        assert machine.run(asked, f"Which port does {service} have?").returncode == 0
        assert any(str(number) in request for request in model.take()), f"{asked} was not told"


@pytest.mark.parametrize("name", INSTALLED)
def test_a_failed_command_and_its_fix_are_one_error_and_one_solution(name: str, machine: Machine) -> None:
    assert machine.run(name, "[[fail]] please run the check of this project").returncode == 0
    wait_for_spool(machine)
    home = ConnectHome(machine.engrain_home)
    with open_store(home, background=False) as store:
        memory = store.memory(agent=str(machine.project), user=find_user())
        sessions = [one.session for one in memory.sessions.list() if one.session.startswith(name)]
        texts = [one.text for session in sessions for one in memory.session(session).messages(100)]
    asked = [text for text in texts if "[[fail]]" in text]
    errors = [text for text in texts if text.startswith("Error: ") and "no_such_module_xyz" in text]
    solutions = [text for text in texts if text.startswith("Resolved: ")]
    assert (len(asked), len(errors), len(solutions)) == (1, 1, 1)
    assert any(text.startswith("FAKE-ANSWER") for text in texts)


def test_a_dead_process_and_an_unwritable_store_do_not_disturb(machine: Machine) -> None:
    home = ConnectHome(machine.engrain_home)
    stop_resident(home)
    for name in INSTALLED:
        assert machine.run(name, f"We never use tabs in {name}.").returncode == 0


def test_disconnecting_leaves_no_entry_and_no_process(machine: Machine) -> None:
    run(machine, "disconnect")
    assert read_pid(ConnectHome(machine.engrain_home)) is None
    for path in machine.user_folder.rglob("*"):
        settings = path.suffix in (".json", ".jsonc", ".toml") and path.parent.name in (
            "user", ".claude", ".codex", ".gemini", ".copilot", "hooks", "opencode",
        )  # fmt: skip
        if settings and path.is_file():
            assert "connect/hook.py" not in path.read_text(), path
    assert not Path(machine.user_folder / ".config/opencode/plugins/engrain.js").exists()
