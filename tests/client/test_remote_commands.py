"""The commands work on a memory on a server as on a file."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner
from engrain_conformance.embedder import HashEmbedder
from server_kit import run_server

from engrain.cli.main import root

COMMANDS = (
    ("recall", "anything"),
    ("remember", "Ana likes tea.", "--slot", "user.drink"),
    ("recall", "Ana likes tea"),
    ("list",),
    ("slots",),
    ("sessions",),
    ("forget", "--where", "slot=user.drink", "--yes"),
)
OF_OPERATORS = (("status",), ("memories",), ("audit",), ("doctor",), ("erase", "--yes"))


def test_a_user_and_an_operator_use_the_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with run_server(tmp_path, embedder=HashEmbedder()) as server:
        plain = server.add_key("plain", user="ana", rights=("read", "write"))
        whole = server.add_key("whole", chooses=("tenant", "agent", "user"))

        def run(key: str, *command: str) -> tuple[int, str]:
            monkeypatch.setenv("ENGRAIN_API_KEY", key)
            done = CliRunner().invoke(root, ["--store", server.url, "--user", "ana", *command])
            return done.exit_code, done.output

        for key in (plain, whole):
            for command in COMMANDS:
                code, output = run(key, *command)
                assert code == 0, output
            assert run(key, "export", str(tmp_path / f"{key}.jsonl"))[0] == 0
            assert run(key, "load", str(tmp_path / f"{key}.jsonl"))[0] == 0
        for command in OF_OPERATORS:
            assert "right" in run(plain, *command)[1]
            code, output = run(whole, *command)
            assert code == 0, output
        assert "does not work over HTTP" in run(whole, "backup", str(tmp_path / "copy.db"))[1]
