"""The front of the MCP server answers greetings by itself, and everything else through the server."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from engrain.connect.clients import MCP_SCRIPT
from engrain.connect.connect_home import ConnectHome
from engrain.connect.mcp_front import ANSWERS_FILE

PATIENCE_SECONDS = 180.0
VERSIONS = ["2025-06-18", "2025-11-25"]


class Session:
    """A client that speaks lines of JSON-RPC with the front."""

    def __init__(self, home: ConnectHome, project: Path) -> None:
        command = [sys.executable, "-I", "-S", str(MCP_SCRIPT), str(home.folder)]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=project)
        self._number = 0

    def ask(self, method: str, **params: Any) -> dict[str, Any]:
        self._number += 1
        self._send({"jsonrpc": "2.0", "id": self._number, "method": method, "params": params})
        assert self.process.stdout is not None
        answer = json.loads(self.process.stdout.readline())
        assert answer["id"] == self._number
        return dict(answer)

    def greet(self, version: str) -> tuple[dict[str, Any], dict[str, Any]]:
        about = {"name": f"client-{time.monotonic_ns()}", "version": "1"}
        greeting = self.ask("initialize", protocolVersion=version, capabilities={}, clientInfo=about)
        self._send({"jsonrpc": "2.0", "method": "notifications/initialized"})
        return greeting, self.ask("tools/list")

    def call(self, tool: str, **arguments: Any) -> dict[str, Any]:
        return dict(self.ask("tools/call", name=tool, arguments=arguments)["result"]["structuredContent"])

    def has_server(self) -> bool:
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text()
        return bool(children.split())

    def end(self) -> int:
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(PATIENCE_SECONDS)

    def _send(self, message: dict[str, Any]) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(json.dumps(message).encode() + b"\n")
        self.process.stdin.flush()


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    folder.mkdir()
    return folder


def test_the_next_sessions_start_the_server_only_for_a_tool(home: ConnectHome, project: Path) -> None:
    """Answers depend on the version of the protocol."""
    learnt = []
    for version in VERSIONS:
        first = Session(home, project)
        learnt.append(first.greet(version))
        assert learnt[-1][0]["result"]["protocolVersion"] == version
        assert len(learnt[-1][1]["result"]["tools"]) == 8
        assert first.has_server()
        assert first.end() == 0
    for version, answers in zip(VERSIONS, learnt, strict=True):
        second = Session(home, project)
        assert second.greet(version) == answers
        assert not second.has_server()
        if version != VERSIONS[-1]:
            assert second.end() == 0
    made = second.call("remember", text="The build needs Node 22.")
    assert second.has_server()
    found = second.call("recall", query="Which Node does the build need?")
    assert [item["id"] for item in found["items"]] == [made["id"]]
    assert second.ask("tools/list")["result"] == learnt[-1][1]["result"]
    assert "error" in second.ask("no/such/method")
    assert second.end() == 0


def test_a_session_that_ends_at_once_teaches_the_next_one(home: ConnectHome, project: Path) -> None:
    greeting = {"protocolVersion": VERSIONS[0], "capabilities": {"roots": {}}, "clientInfo": {"name": "x"}}
    line = json.dumps({"jsonrpc": "2.0", "id": 0, "method": "initialize", "params": greeting}).encode() + b"\n"
    first = Session(home, project)
    assert first.process.stdin is not None
    first.process.stdin.write(line)
    first.process.stdin.flush()
    end = time.monotonic() + PATIENCE_SECONDS
    while not first.has_server():
        assert time.monotonic() < end, "the server does not start"
    first.process.kill()
    while "resources/templates/list" not in read_answers(home):
        assert time.monotonic() < end, "nothing was learnt"
        time.sleep(0.1)
    second = Session(home, project)
    assert len(second.greet(VERSIONS[0])[1]["result"]["tools"]) == 8
    assert not second.has_server()
    assert second.end() == 0


def read_answers(home: ConnectHome) -> str:
    path = home.folder / ANSWERS_FILE
    return path.read_text() if path.exists() else ""


@pytest.mark.parametrize(
    "content",
    [
        json.dumps({"build": "old", "answers": {"x": 1}}),
        *(pytest.param(text, marks=pytest.mark.slow) for text in ("{", "[]")),
    ],
)
def test_answers_of_another_installation_are_not_used(home: ConnectHome, project: Path, content: str) -> None:
    answers = home.folder / ANSWERS_FILE
    answers.write_text(content)
    session = Session(home, project)
    assert len(session.greet(VERSIONS[0])[1]["result"]["tools"]) == 8
    assert session.end() == 0
    assert json.loads(answers.read_text())["build"] != "old"
