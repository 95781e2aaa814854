"""The packages that are published: the same sources give the same bytes, and the image starts what exists."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from click.testing import CliRunner

from engrain.cli.main import root

ROOT = Path(__file__).parents[2]
PACKAGES = (".", "packages/engrain-conformance", "packages/engrain-minilm")


def build(package: str, folder: Path) -> dict[str, str]:
    command = [sys.executable, "-m", "hatchling", "build", "-d", str(folder)]
    subprocess.run(command, cwd=ROOT / package, check=True, capture_output=True)
    return {path.name: hashlib.sha256(path.read_bytes()).hexdigest() for path in folder.iterdir()}


@pytest.mark.slow
@pytest.mark.parametrize("package", PACKAGES)
def test_wheels_and_sdists_build_reproducibly(package: str, tmp_path: Path) -> None:
    first, second = build(package, tmp_path / "first"), build(package, tmp_path / "second")
    assert first == second
    assert {name.rpartition(".")[2] for name in first} == {"whl", "gz"}


def test_all_that_a_source_distribution_names_is_there() -> None:
    build = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]
    assert [name for name in build["targets"]["sdist"]["only-include"] if not (ROOT / name).exists()] == []


def test_the_image_starts_the_server_and_asks_for_its_health() -> None:
    text = (ROOT / "deploy" / "Dockerfile").read_text()
    command = re.search(r"^CMD (\[.*\])$", text, re.MULTILINE)
    assert command is not None
    program, verb, *options = json.loads(command[1])
    shown = CliRunner().invoke(root, [verb, "--help"]).output
    assert program == "engrain"
    assert all(option in shown for option in options if option.startswith("--"))
    asked = re.search(r"HEALTHCHECK.*?127\.0\.0\.1:(\d+)(/\w+)", text, re.DOTALL)
    assert asked is not None
    assert f"EXPOSE {asked[1]}" in text
    assert asked[1] in shown
    assert asked[2] == "/healthz"  # tests/server asks for it
