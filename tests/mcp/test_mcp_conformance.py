"""The conformance suite of the protocol and the inspector, both from npm, against the command."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from mcp_kit import SOURCES, http_process

pytestmark = pytest.mark.slow

MIN_NODE = 22
PACKAGES = (
    "@modelcontextprotocol/conformance@0.1.16",
    "conformance-2026@npm:@modelcontextprotocol/conformance@0.2.0-alpha.12",
    "@modelcontextprotocol/inspector@0",
)
SCENARIOS = ["server-initialize", "ping", "tools-list", "prompts-list", "resources-list", "dns-rebinding-protection"]
SCENARIOS_2026 = [
    "tools-list", "prompts-list", "resources-list", "dns-rebinding-protection", "sep-2164-resource-not-found",
    "caching", "http-header-validation",
]  # fmt: skip


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the packages, and with a newer node where that of the machine is too old."""
    if shutil.which("npm") is None or shutil.which("node") is None:
        pytest.skip("npm is not installed: the conformance suite and the inspector are not run")
    folder = tmp_path_factory.mktemp("npm")
    (folder / "package.json").write_text('{"private": true}')
    version = subprocess.run(["node", "--version"], capture_output=True, text=True).stdout
    node = [] if int(version.strip("v\n").partition(".")[0]) >= MIN_NODE else [f"node@{MIN_NODE}"]
    command = ["npm", "install", "--no-audit", "--no-fund", *PACKAGES, *node]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=540)
    if done.returncode != 0:
        pytest.skip(f"npm cannot install the conformance suite here: {done.stderr[-300:]}")
    return folder


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server for this machine, without keys."""
    with http_process(tmp_path_factory.mktemp("store") / "store.db", "--user", "ana") as found:
        yield found


def run_node(packages: Path, *command: str) -> str:
    path = f"{packages / 'node_modules' / '.bin'}{os.pathsep}{os.environ['PATH']}"
    done = subprocess.run(
        ["node", *command], cwd=packages, capture_output=True, text=True, timeout=120, env={**os.environ, "PATH": path}
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_conformance_with_2025_11_25(packages: Path, url: str, scenario: str) -> None:
    suite = "node_modules/@modelcontextprotocol/conformance/dist/index.js"
    said = run_node(packages, suite, "server", "--url", url, "--scenario", scenario)
    assert ", 0 failed, 0 warnings" in said
    assert "Passed: 0/" not in said


@pytest.mark.parametrize("scenario", SCENARIOS_2026)
def test_conformance_with_2026_07_28(packages: Path, url: str, scenario: str) -> None:
    suite = "node_modules/conformance-2026/dist/index.js"
    version = ("--spec-version", "2026-07-28")
    said = run_node(packages, suite, "server", "--url", url, "--scenario", scenario, *version)
    assert ", 0 failed, 0 warnings" in said
    assert "Passed: 0/" not in said


@pytest.mark.parametrize(
    ("method", "names"),
    [
        ("tools/list", "recall remember correct forget list_items explain add_messages start_session"),
        ("resources/list", "profile"),
        ("resources/templates/list", "item session"),
        ("prompts/list", "prompt summary"),
    ],
)
def test_the_inspector_lists_everything(packages: Path, url: str, tmp_path: Path, method: str, names: str) -> None:
    inspector = ("node_modules/@modelcontextprotocol/inspector/cli/build/cli.js", "--cli")
    store = ("--store", str(tmp_path / "store.db"))
    stdio = ("-e", f"PYTHONPATH={SOURCES}", sys.executable, "-m", "engrain", "mcp", *store)
    for server in ((url, "--transport", "http"), stdio):
        (listed,) = json.loads(run_node(packages, *inspector, *server, "--method", method)).values()
        assert [one["name"] for one in listed] == names.split()
