"""Real coding agents remember across sessions and across each other. Run by `make test-clients`."""

from __future__ import annotations

import contextlib
import json
import math
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest
from model_server import ANSWER, ModelServer, serve_model
from real_clients import NAMES, Machine, find_client

from engrain.connect.clients import HOOK_MARK
from engrain.connect.connect_home import ConnectHome, open_store
from engrain.connect.hook import BREAKER_FILE
from engrain.connect.repository import find_user
from engrain.connect.status import are_hooks_trusted, list_hooks
from engrain.server import resident

INSTALLED = [name for name in NAMES if find_client(name)]
pytestmark = [pytest.mark.slow, pytest.mark.skipif(not INSTALLED, reason="no coding agent is installed")]
READY_SECONDS = 60.0
MAX_EXTRA_SECONDS = 1.2
ATTEMPTS = 3
AT_ONCE = 2  # clients at the same time: a start takes a second of CPU
SECRETS = (
    "sk-ant-api03-AbCdEf0123456789AbCdEf0123456789AbCdEf0123456789",
    "ghp_aB3dE5fG7hI9jK1lM3nO5pQ7rS9tU1vW3xY5",
    "AKIAIOSFODNN7EXAMPLE",
    "4111 1111 1111 1111",
    "xoxb-1234567890-abcdefghijklmnop",
    "hunter-tulip-9",
)


def read_pid(home: ConnectHome) -> int | None:
    return resident.find_place(home.store).read_pid()


def stop_resident(home: ConnectHome) -> bool:
    return resident.stop(home.store, kill=True)


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


def run(machine: Machine, *words: str) -> str:
    command = [sys.executable, "-m", "engrain", *words]
    done = subprocess.run(
        command, env=machine.environment(), cwd=machine.project, check=True, capture_output=True, text=True
    )
    return done.stdout


def run_client(machine: Machine, name: str, *words: str) -> str:
    """Run a command of the client itself, such as `claude mcp list`."""
    command = [str(find_client(name)), *words]
    done = subprocess.run(
        command, env=machine.environment(), cwd=machine.project, check=True, capture_output=True, text=True
    )
    return done.stdout


def start(machine: Machine) -> None:
    """Start the resident process and wait until it answers from its model."""
    home = ConnectHome(machine.engrain_home)
    command = [sys.executable, "-P", "-m", "engrain.connect.event_service", str(machine.engrain_home)]
    subprocess.Popen(command, env=machine.environment(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    end = time.monotonic() + READY_SECONDS
    while read_pid(home) is None:
        assert time.monotonic() < end, "the resident process does not start"
        time.sleep(0.1)
    time.sleep(5)  # the model loads: a user's second session comes later than that


def wait_for_spool(machine: Machine) -> None:
    """Wait until what was spooled is stored: detached processes may still be writing."""
    end, quiet = time.monotonic() + READY_SECONDS, 0
    while quiet < 20 and time.monotonic() < end:
        waits = bool(list((machine.engrain_home / "spool").glob("*.json"))) or is_spooling(machine)
        quiet = 0 if waits else quiet + 1
        time.sleep(0.1)


def is_spooling(machine: Machine) -> bool:
    """True while a process that hands an event to the spool, or a hook, still runs."""
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            words = path.read_bytes().decode("utf-8", "replace").split("\0")
            names = ("engrain.connect.spool" in words) or any(word.endswith(HOOK_MARK) for word in words)
            if names and str(machine.engrain_home) in words:
                return True
    return False


def run_all(machine: Machine, prompts: dict[str, str]) -> None:
    """Run one session in each of these clients, some at the same time."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        done = dict(zip(prompts, pool.map(lambda name: machine.run(name, prompts[name]), prompts), strict=True))
    assert {name: one.returncode for name, one in done.items()} == dict.fromkeys(prompts, 0)
    wait_for_spool(machine)


def read_texts(machine: Machine, *prefixes: str) -> list[str]:
    """The messages of all sessions whose name begins so."""
    with open_store(ConnectHome(machine.engrain_home), background=False) as store:
        memory = store.memory(agent=str(machine.project), user=find_user())
        sessions = [one.session for one in memory.sessions.list(1_000) if one.session.startswith(prefixes)]
        return [one.text for session in sessions for one in memory.session(session).messages(200)]


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
    texts = read_texts(machine, name)
    asked = [text for text in texts if "[[fail]]" in text]
    errors = [text for text in texts if text.startswith("Error: ") and "no_such_module_xyz" in text]
    solutions = [text for text in texts if text.startswith("Resolved: ")]
    assert (len(asked), len(errors), len(solutions)) == (1, 1, 1)
    assert ANSWER in texts


def test_ten_sessions_at_once_keep_twenty_messages_in_one_process(machine: Machine) -> None:
    name, before = INSTALLED[0], read_pid(ConnectHome(machine.engrain_home))
    answers = read_texts(machine, name).count(ANSWER)
    prompts = [f"This is session number {number} of ten." for number in range(10)]
    with ThreadPoolExecutor(10) as pool:
        done = list(pool.map(lambda prompt: machine.run(name, prompt), prompts))
    assert [one.returncode for one in done] == [0] * 10
    wait_for_spool(machine)
    texts = read_texts(machine, name)
    assert sorted(text for text in texts if text.endswith(" of ten.")) == sorted(prompts)
    assert texts.count(ANSWER) == answers + 10
    assert read_pid(ConnectHome(machine.engrain_home)) == before


def test_secrets_in_a_prompt_reach_no_file(machine: Machine) -> None:
    keys = " and ".join(SECRETS[:5])
    run_all(machine, dict.fromkeys(INSTALLED, f"Rotate {keys} <private>{SECRETS[5]}</private> in the vault please."))
    assert sum("in the vault please" in text for text in read_texts(machine, *INSTALLED)) == len(INSTALLED)
    stored = b"".join(path.read_bytes() for path in machine.engrain_home.rglob("*") if path.is_file())
    assert [secret for secret in SECRETS if secret.encode() in stored] == []


def test_clients_of_one_repository_keep_each_prompt_once(model: ModelServer, tmp_path: Path) -> None:
    machine = Machine(tmp_path / "user", tmp_path / "proj", tmp_path / "home", model.url)
    machine.user_folder.mkdir()
    subprocess.run(["git", "init", "-q", str(machine.project)], check=True)
    machine.prepare()
    # opencode first installs packages into a repository, which may take longer than the time for a session.
    names = [name for name in INSTALLED if name != "opencode"]
    run(machine, "connect", *names, "vscode", "--project")  # Copilot runs the hooks of Claude Code and VS Code, too
    start(machine)
    prompts = {name: f"Here is the repository of {name}." for name in names}
    run_all(machine, prompts)
    texts = read_texts(machine, "")
    run(machine, "disconnect")
    assert {name: texts.count(prompt) for name, prompt in prompts.items()} == dict.fromkeys(names, 1)
    assert [path.name for path in machine.project.iterdir() if path.name != ".git"] == []
    assert read_pid(ConnectHome(machine.engrain_home)) is None


@pytest.mark.skipif("claude" not in INSTALLED, reason="Claude Code is not installed")
def test_a_plugin_and_the_settings_together_answer_once(machine: Machine, model: ModelServer) -> None:
    folder = machine.user_folder.parent / "plugin"
    run(machine, "connect", "claude", "--plugin", str(folder))
    assert "Validation passed" in run_client(machine, "claude", "plugin", "validate", "--strict", str(folder))
    assert "Connected" in run_client(machine, "claude", "mcp", "list")
    run_client(machine, "claude", "plugin", "marketplace", "add", str(folder))
    run_client(machine, "claude", "plugin", "install", "engrain@engrain")
    assert machine.run("claude", "In this repo we never commit the dist folder.").returncode == 0
    wait_for_spool(machine)
    model.take()
    prompt = "Which port does claude-gateway have, with the plugin?"
    assert machine.run("claude", prompt).returncode == 0
    wait_for_spool(machine)
    [request] = [one for one in model.take() if prompt in one]
    assert request.count("Notes of earlier sessions") == 1
    assert request.count("From earlier sessions") <= 1
    assert read_texts(machine, "claude").count(prompt) == 1
    run_client(machine, "claude", "plugin", "uninstall", "engrain@engrain")
    run_client(machine, "claude", "plugin", "marketplace", "remove", "engrain")


@pytest.mark.skipif("codex" not in INSTALLED, reason="Codex is not installed")
def test_the_status_says_whether_codex_trusts_its_hooks(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> None:
    codex = str(find_client("codex"))
    monkeypatch.setenv("HOME", str(machine.user_folder))
    assert are_hooks_trusted(HOOK_MARK, machine.project, codex) is False
    config = machine.user_folder / ".codex/config.toml"
    before = config.read_text()
    config.write_text(before + "".join(trust_hooks(codex, machine.project)))  # as the user does it with /hooks
    assert are_hooks_trusted(HOOK_MARK, machine.project, codex) is True
    config.write_text(before)


def trust_hooks(codex: str, folder: Path) -> Iterator[str]:
    for hook in list_hooks(codex, folder):
        yield f"\n[hooks.state.{json.dumps(hook['key'])}]\ntrusted_hash = {json.dumps(hook['currentHash'])}\n"


def test_an_uninstalled_engrain_blocks_no_prompt(machine: Machine, model: ModelServer) -> None:
    status = json.loads(run(machine, "connect", "--status", "--json"))
    files = {Path(path) for client in status["clients"] for path in client["files"]}
    before = {path: path.read_text() for path in files if HOOK_MARK in path.read_text()}
    assert len(before) == len(INSTALLED)
    for path, text in before.items():
        path.write_text(text.replace(HOOK_MARK, "engrain/connect/gone.py"))
    try:
        for name in INSTALLED:
            model.take()
            assert machine.run(name, f"Without engrain {name} goes on.").returncode == 0
            assert any(f"Without engrain {name} goes on." in request for request in model.take()), name
    finally:
        for path, text in before.items():
            path.write_text(text)


def test_a_killed_a_stopped_and_an_unwritable_store_disturb_no_client(machine: Machine) -> None:
    home = ConnectHome(machine.engrain_home)
    stop_resident(home)
    run_all(machine, {name: f"After the kill {name} goes on." for name in INSTALLED})
    start(machine)
    pid = read_pid(home)
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    with ThreadPoolExecutor(AT_ONCE) as pool:
        stopped = list(pool.map(lambda name: machine.run(name, f"While it is stopped {name} goes on."), INSTALLED))
    assert [one.returncode for one in stopped] == [0] * len(INSTALLED)
    os.kill(pid, signal.SIGCONT)
    wait_for_spool(machine)
    stop_resident(home)
    start(machine)
    forbid_writing(read_pid(home))
    with ThreadPoolExecutor(AT_ONCE) as pool:
        unwritable = list(pool.map(lambda name: machine.run(name, f"Without a disk {name} goes on."), INSTALLED))
    assert [one.returncode for one in unwritable] == [0] * len(INSTALLED)
    stop_resident(home)
    start(machine)
    wait_for_spool(machine)
    texts = read_texts(machine, *INSTALLED)
    for name in INSTALLED:
        assert texts.count(f"After the kill {name} goes on.") == 1
        assert texts.count(f"While it is stopped {name} goes on.") == 1
        assert texts.count(f"Without a disk {name} goes on.") == 1


@pytest.mark.parametrize("name", INSTALLED)
def test_a_memory_that_fails_costs_a_session_little(name: str, machine: Machine, tmp_path: Path) -> None:
    """Each session is compared with one without engrain right before it: other programs slow both down."""
    machine = replace(machine, patience=1.0)  # as users have it
    plain = replace(machine, user_folder=tmp_path)
    plain.prepare()
    home = ConnectHome(machine.engrain_home)
    for prepared in (plain, machine):
        time_session(prepared, name)  # the first one writes its caches
    extra: dict[str, float] = {}
    for failure, harm in HARMS.items():
        for _ in range(ATTEMPTS):
            took = time_session(plain, name)
            harm(home)
            (home.folder / BREAKER_FILE).unlink(missing_ok=True)
            cost = (time_session(machine, name) - took) / read_slowness()
            extra[failure] = min(cost, extra.get(failure, math.inf))
            stop_resident(home)
            start(machine)
            if extra[failure] <= MAX_EXTRA_SECONDS:
                break
    wait_for_spool(machine)
    assert {failure: seconds for failure, seconds in extra.items() if seconds > MAX_EXTRA_SECONDS} == {}, extra


def time_session(machine: Machine, name: str) -> float:
    began = time.monotonic()
    assert machine.run(name, "Say hello, please.").returncode == 0
    return time.monotonic() - began


def read_slowness() -> float:
    """Return 1 on a quiet machine, and more on a busy one: the wall time for each second of processor time."""
    wall, cpu = time.monotonic(), time.thread_time()
    sum(range(20_000_000))
    return max(1.0, (time.monotonic() - wall) / (time.thread_time() - cpu))


def signal_resident(home: ConnectHome, number: signal.Signals) -> None:
    pid = read_pid(home)
    assert pid is not None
    os.kill(pid, number)


def forbid_writing(pid: int | None) -> None:
    """No file of this process may have a byte more, as on a full disk: also root cannot write then."""
    assert pid is not None
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (0, 0))


HARMS: dict[str, Callable[[ConnectHome], None]] = {
    "stopped": lambda home: signal_resident(home, signal.SIGSTOP),
    "unwritable": lambda home: forbid_writing(read_pid(home)),
    "killed": lambda home: signal_resident(home, signal.SIGKILL),
}


def test_disconnecting_leaves_no_entry_and_no_process(machine: Machine) -> None:
    run(machine, "disconnect")
    assert read_pid(ConnectHome(machine.engrain_home)) is None
    for path in machine.user_folder.rglob("*"):
        settings = path.suffix in (".json", ".jsonc", ".toml") and path.parent.name in (
            "user", ".claude", ".codex", ".gemini", ".copilot", "hooks", "opencode",
        )  # fmt: skip
        if settings and path.is_file() and "plugins" not in path.parts:  # copies that `claude plugin` keeps
            assert "connect/hook.py" not in path.read_text(), path
    assert not Path(machine.user_folder / ".config/opencode/plugins/engrain.js").exists()
