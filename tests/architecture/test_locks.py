"""The lock files pin what pyproject.toml asks for, with hashes, and the bill of materials lists what they pin."""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "tools"))

import lock  # noqa: E402
import sbom  # noqa: E402

PIN = re.compile(r"^([A-Za-z0-9._-]+)==([^ ;\\]+)[^\n]*((?:\n    --hash=sha256:[0-9a-f]{64}[ \\]*)+)", re.M)


def read_pins(name: str) -> dict[str, str]:
    text = (ROOT / "requirements" / f"{name}.txt").read_text()
    pins = {canonicalize_name(found[1]): found[2] for found in PIN.finditer(text)}
    assert len(pins) == len(re.findall(r"^[A-Za-z0-9]", text, re.M)), "each line is a pin with hashes"
    return pins


@pytest.mark.parametrize("name", ["core", "build", "dev", "encryption"])
def test_a_lock_pins_every_requirement(name: str) -> None:
    pins = read_pins(name)
    for line in lock.list_requirements()[name]:
        wanted = Requirement(line)
        found = pins.get(canonicalize_name(wanted.name))
        assert found is not None, f"{line} is not in requirements/{name}.txt. Run: make lock"
        assert wanted.specifier.contains(found, prereleases=True), f"{line}, but {found} is pinned. Run: make lock"


def test_the_core_installs_no_package_of_the_server_mcp_or_the_page() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    named = {canonicalize_name(Requirement(line).name) for extra in ("server", "mcp", "ui") for line in extras[extra]}
    assert named.isdisjoint(read_pins("core"))
    assert named <= set(read_pins("dev"))


def test_the_environments_agree() -> None:
    dev = read_pins("dev")
    for name in ("core", "build"):
        assert read_pins(name).items() <= dev.items()


def test_no_lock_names_a_place() -> None:
    for path in (ROOT / "requirements").iterdir():
        assert "://" not in path.read_text()


def test_the_bill_of_materials_lists_every_pin_and_bundled_file() -> None:
    bom = sbom.build_bom()
    named = {one["name"]: one for one in bom["components"]}
    assert {canonicalize_name(one) for one in read_pins("core")} <= {canonicalize_name(name) for name in named}
    assert any(name.endswith("model.onnx") for name in named)
    assert any("htmx" in name for name in named)
    assert sbom.build_bom() == bom, "the same sources give the same file"
