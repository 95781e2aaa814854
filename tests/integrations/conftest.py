"""Figures of a run: what was compared and how often, in which versions, for docs/integrations.md."""

from __future__ import annotations

import json
import os
from importlib import metadata
from pathlib import Path

import pytest
from integration_kit import Figures

TARGET = os.environ.get("INTEGRATION_FIGURES")
_figures = Figures()


def pytest_configure(config: pytest.Config) -> None:
    """Suites of frameworks have async tests without a mark."""
    if config.pluginmanager.hasplugin("asyncio"):
        config.option.asyncio_mode = "auto"


@pytest.fixture
def figures() -> Figures:
    return _figures


def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Write the figures of a run in which every test passed."""
    if TARGET and exitstatus == 0 and _figures.shown:
        name = Path(TARGET).stem
        environment = Path(__file__).parents[2] / ".venv-integrations" / name
        packages = metadata.distributions(path=[str(next(environment.glob("lib/*/site-packages")))])
        versions = {one.name: one.version for one in packages if one.name in _figures.packages}
        install = json.loads((environment / "install.json").read_text())
        found = {"versions": dict(sorted(versions.items())), "install": install, "tests": _figures.shown}
        Path(TARGET).write_text(json.dumps(found, indent=2, ensure_ascii=False) + "\n")
