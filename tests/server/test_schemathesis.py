"""schemathesis finds nothing: every answer is as the OpenAPI document says, and no input is a defect."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from engrain_conformance.embedder import HashEmbedder
from server_kit import run_server

from engrain.core.http_routes import GROUPS

CONFIG = Path(__file__).with_name("schemathesis.toml")
COMMAND = Path(sys.executable).with_name("schemathesis")


def run_schemathesis(folder: Path, *options: str) -> None:
    with run_server(folder, embedder=HashEmbedder()) as server:
        key = server.add_key("all", chooses=("tenant", "agent", "user"))
        command = [
            str(COMMAND), "--config-file", str(CONFIG), "run", f"{server.listener.address}/openapi.json",
            "--header", f"Authorization: Bearer {key}", "--header", "Engrain-User: ana", "--max-failures", "20",
            *options,
        ]  # fmt: skip
        done = subprocess.run(
            command, capture_output=True, text=True, check=False, cwd=folder, env={**os.environ, "NO_COLOR": "1"}
        )
        assert done.returncode == 0, done.stdout[-6_000:] + done.stderr[-2_000:]


@pytest.mark.skipif(not shutil.which(str(COMMAND)), reason="schemathesis is not installed")
def test_a_sample_of_requests_finds_nothing(tmp_path: Path) -> None:
    """Of one group of routes; the others have theirs in the long suite."""
    run_schemathesis(
        tmp_path, "--phases", "fuzzing", "--max-examples", "1", "--seed", "1", "--include-tag", "Knowledge"
    )


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which(str(COMMAND)), reason="schemathesis is not installed")
@pytest.mark.parametrize("group", GROUPS)
def test_a_hundred_examples_of_each_operation_find_nothing(tmp_path: Path, group: str) -> None:
    run_schemathesis(tmp_path, "--phases", "examples,coverage,fuzzing", "--max-examples", "100", "--include-tag", group)


@pytest.mark.slow
@pytest.mark.skipif(not shutil.which(str(COMMAND)), reason="schemathesis is not installed")
def test_a_hundred_series_of_requests_find_nothing(tmp_path: Path) -> None:
    run_schemathesis(tmp_path, "--phases", "stateful", "--max-examples", "100")
