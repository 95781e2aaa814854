"""The README's and the guides' own code runs, and prints what they say it prints."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# A fence ```python, optionally followed by a fence ```text with what it prints.
BLOCK = re.compile(r"```python\n(.*?)```(?:\s*```text\n(.*?)```)?", re.DOTALL)
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]


# One process for a page. Each block has its own names, as if it stood in a file of its own.
RUN = """
import gc, json, sys
for n, code in enumerate(json.load(sys.stdin)):
    exec(compile(code, f"<block {n}>", "exec"), {"__name__": "__main__"})
    gc.collect()
    print(end=chr(0), flush=True)
"""


@pytest.mark.parametrize("page", [page for page in PAGES if BLOCK.search(page.read_text())], ids=lambda page: page.name)
def test_code_blocks_run_one_after_another_and_print_what_is_shown(page: Path, tmp_path: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("ENGRAIN_")}
    blocks = BLOCK.findall(page.read_text())
    run = subprocess.run(
        [sys.executable, "-c", RUN], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=180,
        input=json.dumps([code for code, _ in blocks]),
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    shown = run.stdout.split(chr(0))
    for (code, printed), told in zip(blocks, shown, strict=False):
        if printed:
            assert dated(told).strip() == dated(printed).strip(), code


def dated(text: str) -> str:
    """Today's date and the ids differ from run to run; nothing else may."""
    return re.sub(r"\b[0-9a-hjkmnp-tv-z]{26}\b", "ID", re.sub(r"\d{4}-\d\d-\d\d( \d\d:\d\d)?", "DATE", text))


def test_the_readme_shows_code_with_its_output() -> None:
    assert any(printed for _, printed in BLOCK.findall((ROOT / "README.md").read_text()))


def test_links_between_pages_lead_somewhere() -> None:
    for page in [*PAGES, *(ROOT / "docs" / "decisions").glob("*.md"), ROOT / "CONTRIBUTING.md"]:
        for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name}: {target}"
