"""The code on the pages of frameworks runs where the framework is installed, and prints what the pages show."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from integration_kit import is_installed

PAGES = Path(__file__).parents[2] / "docs" / "integrations"
NEEDS = {
    "agent-framework": "agent_framework",
    "anthropic": "anthropic",
    "google-adk": "google.adk",
    "langchain": "langchain_core",
    "langgraph": "langgraph",
    "llama-index": "llama_index",
    "openai-agents": "agents",
    "pydantic-ai": "pydantic_ai",
}
BY_MCP = {"autogen", "crewai", "smolagents"}  # tests/integrations/test_mcp_frameworks.py
BLOCK = re.compile(r"```python\n(.*?)```(?:\s*```text\n(.*?)```)?", re.DOTALL)
RUN = """
import json, sys
for n, code in enumerate(json.load(sys.stdin)):
    exec(compile(code, f"<block {n}>", "exec"), {"__name__": "__main__"})
    print(end=chr(0), flush=True)
"""


def test_every_page_names_its_framework() -> None:
    assert {page.stem for page in PAGES.glob("*.md")} == {*NEEDS, *BY_MCP}


def test_the_figures_on_the_page_are_those_of_the_last_runs() -> None:
    tool = PAGES.parents[1] / "tools" / "integrations_page.py"
    done = subprocess.run([sys.executable, str(tool), "--check"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize("name", NEEDS)
def test_code_blocks_run_and_print_what_is_shown(name: str, tmp_path: Path) -> None:
    if not is_installed(NEEDS[name]):
        pytest.skip("make test-integrations runs it")
    blocks = BLOCK.findall((PAGES / f"{name}.md").read_text())
    run = subprocess.run(
        [sys.executable, "-c", RUN], cwd=tmp_path, capture_output=True, text=True, timeout=180,
        input=json.dumps([code for code, _ in blocks]),
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    for (_, shown), printed in zip(blocks, run.stdout.split(chr(0)), strict=False):
        assert not shown or printed.strip() == shown.strip()
