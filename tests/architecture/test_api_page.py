"""docs/reference/api.md says what the code says."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import engrain

ROOT = Path(__file__).parents[2]


def test_the_page_of_every_public_name_is_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "api_page.py"), "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def test_every_public_name_is_on_the_page() -> None:
    page = (ROOT / "docs" / "reference" / "api.md").read_text()
    assert [name for name in engrain.__all__ if not re.search(rf"\b{re.escape(name)}\b", page)] == []


def test_the_counts_on_the_reliability_page_are_those_of_the_runs() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "reliability_page.py"), "--check"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "| failed |" not in (ROOT / "docs" / "reliability.md").read_text()
