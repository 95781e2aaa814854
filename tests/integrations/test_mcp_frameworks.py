"""Frameworks that use the MCP server: the code on their pages runs, each in an environment without engrain."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from integration_kit import Figures

ROOT = Path(__file__).parents[2]
PACKAGES = {
    "autogen": ("autogen-agentchat", "autogen-ext", "mcp"),
    "crewai": ("crewai", "crewai-tools", "mcp"),
    "smolagents": ("smolagents", "mcpadapt", "mcp"),
}
BLOCK = re.compile(r"```python\n(.*?)```\s*```text\n(.*?)```", re.DOTALL)


@pytest.mark.parametrize("name", PACKAGES)
def test_the_code_of_the_page_prints_what_is_shown(name: str, tmp_path: Path, figures: Figures) -> None:
    python = ROOT / ".venv-integrations" / name / "bin" / "python"
    if not (python.parents[1] / ".ready").exists():
        pytest.skip("make test-integrations runs it")
    ((code, shown),) = BLOCK.findall((ROOT / "docs" / "integrations" / f"{name}.md").read_text())
    # The command `engrain` is that of the environment of the tests.
    env = {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(tmp_path),
    }
    run = subprocess.run(
        [python, "-c", code], cwd=tmp_path, env=env, capture_output=True, text=True, timeout=300, check=False
    )
    assert run.returncode == 0, run.stderr
    assert run.stdout.strip() == shown.strip(), run.stderr
    figures.name_packages(*PACKAGES[name])
    figures.show("an agent with a scripted model remembers and recalls over MCP", "sqlite", "yes")
