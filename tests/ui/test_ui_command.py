"""The command `engrain ui` serves the page until Ctrl-C, and needs its extra only then."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from pathlib import Path

import httpx
import pytest
from click.testing import CliRunner

from engrain import Memory, Scope, Store
from engrain.cli.commands import demo
from engrain.cli.context import CommandContext
from engrain.cli.main import root


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "agent.db"
    with Memory(path, user="ana", background=False) as memory:
        memory.remember("Ana prefers Python.")
    return path


def test_it_prints_an_address_serves_the_page_and_ends_with_ctrl_c(store: Path) -> None:
    command = [sys.executable, "-m", "engrain", "ui", str(store), "--port", "0", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            address = json.loads(process.stdout.readline())["address"]
            assert address.startswith("http://127.0.0.1:")
            answer = httpx.Client(follow_redirects=True).get(address)
            assert "Ana prefers Python." in answer.text
            assert "token" not in str(answer.url)
            assert answer.url.path == "/user=ana/timeline"  # the only memory of the store
            process.send_signal(signal.SIGINT)
            rest, errors = process.communicate(timeout=120)
        finally:
            process.kill()
    assert process.returncode == 0, errors
    assert "token" not in rest + errors


def test_a_store_that_does_not_exist_is_not_made(tmp_path: Path) -> None:
    done = CliRunner().invoke(root, ["ui", str(tmp_path / "no.db")])
    assert done.exit_code == 1
    assert "there is no store" in done.output
    assert not (tmp_path / "no.db").exists()


def test_a_taken_port_is_named(store: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        done = CliRunner().invoke(root, ["ui", str(store), "--port", str(port), "--no-open"])
    assert done.exit_code == 1
    assert f"127.0.0.1:{port} cannot be used" in done.output


def test_without_the_extra_the_command_says_what_to_install(store: Path) -> None:
    code = """if 1:
        import sys
        sys.modules.update(dict.fromkeys(("starlette", "uvicorn", "jinja2")))
        from engrain.cli.main import root
        root(["ui", sys.argv[1]])
    """
    done = subprocess.run([sys.executable, "-c", code, str(store)], capture_output=True, text=True)
    assert done.returncode == 1
    assert 'pip install "engrain[ui]"' in done.stderr


def test_nothing_of_the_page_is_loaded_by_other_commands(store: Path) -> None:
    code = """if 1:
        import sys
        from engrain.cli.main import root
        try:
            root(["list", "--store", sys.argv[1]])
        except SystemExit:
            pass
        wanted = ("starlette", "uvicorn", "jinja2", "engrain.ui")
        print([name for name in sys.modules if name.startswith(wanted)])
    """
    done = subprocess.run([sys.executable, "-c", code, str(store)], capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_demo_opens_the_page_on_its_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: dict[str, list[str]] = {}

    def look(cli: CommandContext, store: Store, home: Scope) -> None:
        memory = store.memory(user=home.user)
        seen["items"] = [item.text for item in memory.list(limit=1_000)]
        seen["parked"] = [task.task for task in memory.tasks.list(status="parked")]
        seen["sessions"] = [info.session for info in memory.sessions.list()]

    monkeypatch.setattr(demo, "PAGE_SCENES", (demo.SCENES[0], demo.PAGE_SCENES[-1]))
    monkeypatch.setattr(demo, "show_page", look)
    done = CliRunner().invoke(root, ["demo", "--fast", "--ui"], catch_exceptions=False)
    assert done.exit_code == 0
    assert {"Ana prefers Python over JavaScript.", "Ana works at Acme"} <= set(seen["items"])
    assert seen["parked"] == ["refund-7"]
    assert seen["sessions"] == ["monday"]
