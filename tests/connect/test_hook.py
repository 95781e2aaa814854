"""The hook never disturbs a session, and the resident process loses and repeats nothing."""

from __future__ import annotations

import io
import json
import os
import resource
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from examples import for_each

from engrain.connect import hook
from engrain.connect.clients import HOOK_SCRIPT, MCP_SCRIPT, Place
from engrain.connect.connect_home import ConnectHome, open_store
from engrain.connect.repository import find_user
from engrain.server import resident

PATIENCE_SECONDS = 180.0


def read_pid(home: ConnectHome) -> int | None:
    return resident.find_place(home.store).read_pid()


def stop_resident(home: ConnectHome) -> bool:
    return resident.stop(home.store, kill=True)


@pytest.fixture
def place(home: ConnectHome, tmp_path: Path) -> Iterator[ConnectHome]:
    (tmp_path / "project").mkdir()
    yield home
    stop_resident(home)


def call(home: ConnectHome, payload: object, event: str = "UserPromptSubmit") -> subprocess.CompletedProcess[bytes]:
    raw = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
    command = [sys.executable, "-I", "-S", str(HOOK_SCRIPT), str(home.folder), "claude", event]
    return subprocess.run(command, input=raw, capture_output=True, check=False)


def prompt(home: ConnectHome, text: str, number: int = 1) -> dict[str, Any]:
    folder = str(home.folder.parent / "project")
    return {"session_id": "s1", "cwd": folder, "prompt": text, "prompt_id": f"p{number}"}


def start(home: ConnectHome, **environment: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-P", "-m", "engrain.connect.event_service", str(home.folder)]
    return subprocess.Popen(command, env={**os.environ, **environment})


def wait_for(condition: Callable[[], Any]) -> Any:
    end = time.monotonic() + PATIENCE_SECONDS
    while not (found := condition()):
        assert time.monotonic() < end, "it took too long"
        time.sleep(0.05)
    return found


def wait_until_ready(home: ConnectHome) -> None:
    """The process is ready when it has answered once."""
    end_session = {"session_id": "none", "cwd": "/"}

    def is_ready() -> bool:
        (home.folder / "breaker.json").unlink(missing_ok=True)
        call(home, end_session, "SessionStart")
        return not (home.folder / "breaker.json").exists()

    wait_for(is_ready)


def read_prompts(home: ConnectHome) -> list[str]:
    with open_store(home, background=False) as store:
        memory = store.memory(agent=str(home.folder.parent / "project"), user=find_user())
        return [one.text for one in memory.session("claude-s1").messages(100) if one.role == "user"]


def test_the_hook_is_silent_whatever_it_gets(home: ConnectHome) -> None:
    home.off.touch()  # no process may start here
    for payload in (b"", b"nonsense", b"[1]", b"\xff\xfe", b"{}", json.dumps(prompt(home, "hello")).encode()):
        done = call(home, payload)
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    bare = subprocess.run([sys.executable, "-I", "-S", str(HOOK_SCRIPT)], input=b"{}", capture_output=True, check=False)
    assert (bare.returncode, bare.stdout, bare.stderr) == (0, b"", b"")
    assert read_pid(home) is None
    assert list(home.spool.iterdir()) == []


@for_each("script", [HOOK_SCRIPT, MCP_SCRIPT])
def test_hook_and_front_import_the_standard_library_alone(script: Path) -> None:
    code = f"import sys, runpy; runpy.run_path({str(script)!r}, run_name='hook'); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", code], capture_output=True, check=True)
    names = {name.partition(".")[0] for name in done.stdout.decode().split()}
    assert names <= set(sys.stdlib_module_names) | {"__main__"}


IN_THE_WAY: dict[str, Callable[[Path], object]] = {
    "a pipe": os.mkfifo,
    "an endless device": lambda path: path.symlink_to("/dev/zero"),
    "a folder": lambda path: path.mkdir(),
    "a link to itself": lambda path: path.symlink_to(path),
    "half a terabyte of zeros": lambda path: (path.touch(), os.truncate(path, 512 << 30)),
    "deep lists": lambda path: path.write_bytes(b"[" * 100_000),
}


@pytest.mark.parametrize("what", IN_THE_WAY)
def test_whatever_stands_in_the_folder_the_hook_ends_and_keeps_the_event(home: ConnectHome, what: str) -> None:
    IN_THE_WAY[what](home.folder / "breaker.json")
    command = [sys.executable, "-I", "-S", str(HOOK_SCRIPT), str(home.folder), "claude", "UserPromptSubmit"]
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(str(home.socket))
        deaf.listen()
        begun = time.monotonic()
        done = subprocess.run(
            command,
            input=json.dumps(prompt(home, "we never use tabs here")).encode(),
            capture_output=True,
            check=False,
            preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (1 << 30, 1 << 30)),
        )
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
        assert time.monotonic() - begun < 60
        (spooled,) = wait_for(lambda: list(home.spool.glob("*.json")))
    assert "we never use tabs here" in spooled.read_text()


def test_a_client_that_stops_waiting_at_once_loses_no_event(home: ConnectHome, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGRAIN_HOOK_PATIENCE", "0.0001")  # as if the machine had stopped the hook for a second
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(str(home.socket))
        deaf.listen()
        for number in range(3):
            call(home, prompt(home, f"message number {number}", number))
        wait_for(lambda: len(list(home.spool.glob("*.json"))) == 3)


def test_an_event_that_is_written_late_is_kept(home: ConnectHome, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENGRAIN_HOOK_PATIENCE", "0.0001")
    command = [sys.executable, "-I", "-S", str(HOOK_SCRIPT), str(home.folder), "claude", "UserPromptSubmit"]
    with socket.socket(socket.AF_UNIX) as deaf:
        deaf.bind(str(home.socket))
        deaf.listen()
        with subprocess.Popen(command, stdin=subprocess.PIPE) as hook:
            assert hook.wait(PATIENCE_SECONDS) == 0  # before the client has written anything
            hook.communicate(json.dumps(prompt(home, "we never use tabs here")).encode())
        wait_for(lambda: list(home.spool.glob("*.json")))


def test_one_event_starts_the_process_and_is_kept_once(place: ConnectHome) -> None:
    assert call(place, prompt(place, "we never use tabs here")).returncode == 0
    wait_for(lambda: read_pid(place))
    wait_until_ready(place)
    assert stat.S_IMODE(place.socket.stat().st_mode) == 0o600
    call(place, prompt(place, "we never use tabs here"))  # the same event again
    wait_for(lambda: not list(place.spool.glob("*.json")))
    second = start(place)
    assert second.wait(PATIENCE_SECONDS) == 0  # the lock: one process serves a folder
    told = call(place, {"session_id": "s2", "cwd": prompt(place, "")["cwd"]}, "SessionStart")
    context = json.loads(told.stdout)["hookSpecificOutput"]["additionalContext"]
    assert "we never use tabs here" in context
    assert stop_resident(place)
    assert read_pid(place) is None
    assert not place.socket.is_symlink()
    assert read_prompts(place) == ["we never use tabs here"]


def test_a_process_that_hangs_costs_little_and_loses_nothing(place: ConnectHome) -> None:
    process = start(place)
    wait_for(lambda: read_pid(place) == process.pid)  # before any hook starts another one
    wait_until_ready(place)
    process.send_signal(signal.SIGSTOP)
    for number in range(6):
        done = call(place, prompt(place, f"message number {number}", number))
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    breaker = json.loads((place.folder / "breaker.json").read_text())
    assert breaker["failures"] == 2  # two waits, then none: the other four went straight to the spool
    wait_for(lambda: len(list(place.spool.glob("*.json"))) == 6)  # a process beside the hook writes each
    process.send_signal(signal.SIGCONT)
    wait_for(lambda: not list(place.spool.glob("*.json")))
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert sorted(read_prompts(place)) == [f"message number {number}" for number in range(6)]
    (place.folder / "breaker.json").unlink(missing_ok=True)
    assert call(place, prompt(place, "after the kill", 9)).returncode == 0
    wait_for(lambda: read_pid(place) not in (None, process.pid))


def is_closed(reading: int) -> bool:
    with suppress(BlockingIOError):
        return os.read(reading, 1) == b""
    return False


def test_the_process_holds_nothing_of_the_client_open(place: ConnectHome) -> None:
    reading, writing = os.pipe()
    os.set_inheritable(writing, True)
    command = [sys.executable, "-I", "-S", str(HOOK_SCRIPT), str(place.folder), "claude", "UserPromptSubmit"]
    raw = json.dumps(prompt(place, "hello there, first time")).encode()
    subprocess.run(command, input=raw, check=True, close_fds=False)
    os.close(writing)
    wait_for(lambda: read_pid(place))
    os.set_blocking(reading, False)
    wait_for(lambda: is_closed(reading))  # everywhere, though the resident process goes on
    assert read_pid(place)
    os.close(reading)


def test_an_unwritable_store_costs_no_event(place: ConnectHome) -> None:
    process = start(place)
    wait_for(lambda: read_pid(place) == process.pid)
    wait_until_ready(place)
    resource.prlimit(process.pid, resource.RLIMIT_FSIZE, (0, 0))  # a full disk, for root as well
    for number in range(3):
        done = call(place, prompt(place, f"message number {number}", number))
        assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    wait_for(lambda: len(list(place.spool.glob("*.json"))) == 3)
    process.send_signal(signal.SIGKILL)
    process.wait()
    start(place)
    wait_for(lambda: not list(place.spool.glob("*.json")))
    assert stop_resident(place)
    assert sorted(read_prompts(place)) == [f"message number {number}" for number in range(3)]


def test_a_folder_that_cannot_be_entered_disturbs_nobody(home: ConnectHome) -> None:
    blocked = ConnectHome(home.folder.parent / "file")
    blocked.folder.write_text("")
    done = call(blocked, prompt(home, "hello"))
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_the_process_ends_when_idle_or_its_store_was_replaced(place: ConnectHome) -> None:
    assert start(place, ENGRAIN_IDLE_SECONDS="0.1").wait(PATIENCE_SECONDS) == 0
    process = start(place)
    wait_for(lambda: read_pid(place) == process.pid)  # before any hook starts another one
    wait_until_ready(place)
    Path(place.store).rename(f"{place.store}.old")  # what it wrote now would be lost
    assert process.wait(PATIENCE_SECONDS) == 0


def test_a_hook_whose_engrain_is_gone_blocks_no_prompt(
    home: ConnectHome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engrain.connect.clients.HOOK_SCRIPT", tmp_path / "gone.py")
    command = Place(home, tmp_path).hook_command("claude")
    done = subprocess.run(command, shell=True, input=b"{}", capture_output=True, check=False)
    assert (done.returncode, done.stdout) == (0, b"")


@for_each("client", ("claude", "vscode", "copilot"))
def test_copilot_keeps_its_events_once_though_it_runs_the_hooks_of_others(
    client: str, home: ConnectHome, monkeypatch: pytest.MonkeyPatch
) -> None:
    delivered: list[bytes] = []

    def deliver(folder: str, body: bytes) -> dict[str, object]:
        delivered.append(body)
        return {}

    monkeypatch.setattr(hook, "deliver", deliver)
    own = {name: value for name, value in os.environ.items() if name != "COPILOT_CLI"}
    for variables in ({}, {"COPILOT_CLI": "1"}):
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(json.dumps(prompt(home, "hello")).encode())))
        monkeypatch.setattr(os, "environ", {**own, **variables})
        reading, writing = os.pipe()
        hook.hand_over(str(home.folder), client, "UserPromptSubmit", writing)
        os.close(reading)
        os.close(writing)
    assert len(delivered) == (2 if client == "copilot" else 1)


@pytest.mark.slow
def test_the_process_ends_when_nobody_can_reach_it(place: ConnectHome) -> None:
    process = start(place)
    wait_for(lambda: read_pid(place) == process.pid)  # before any hook starts another one
    wait_until_ready(place)
    Path(os.path.realpath(place.socket)).unlink()  # nobody can reach it any more
    assert process.wait(PATIENCE_SECONDS) == 0


def test_the_process_is_the_resident_process_of_its_store(place: ConnectHome) -> None:
    plain = resident.connect(place.store)  # serves the store, but no hooks
    wait_until_ready(place)
    told = call(place, prompt(place, "we never use tabs here"))
    assert told.returncode == 0
    pid = wait_for(lambda: read_pid(place))
    answer = wait_for(lambda: resident.ask(resident.find_place(place.store)))
    assert (answer["pid"], answer["connect"]) == (pid, True)
    memory = plain.memory(agent=str(place.folder.parent / "project"), user=find_user())
    wait_for(lambda: memory.list({"kind": "fact"}))  # other programs speak to the same process
    plain.close()
    assert resident.stop(place.store)
