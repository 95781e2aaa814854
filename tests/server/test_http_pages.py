"""The pages about HTTP say what the server does."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from server_kit import run_server

from engrain import Scope
from engrain.server.access import OpenAccess

ROOT = Path(__file__).parents[2]
EXAMPLE = re.compile(r"```sh\n(curl [^`]*?)\n```\n\n```json\n(.*?)\n```", re.DOTALL)


def mask(text: str) -> str:
    text = re.sub(r"\b[0-9a-hjkmnp-tv-z]{26}\b", "ID", text.strip())
    return re.sub(r"\d{4}-\d\d-\d\d", "DATE", text)


def test_the_page_of_routes_is_up_to_date() -> None:
    done = subprocess.run(
        [sys.executable, str(ROOT / "tools" / "http_page.py"), "--check"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@pytest.mark.meaning
@pytest.mark.skipif(shutil.which("curl") is None, reason="curl is not installed")
def test_the_examples_with_curl_print_what_is_shown(tmp_path: Path) -> None:
    examples = EXAMPLE.findall((ROOT / "docs" / "how-to" / "serve-http.md").read_text())
    assert len(examples) >= 4
    with run_server(tmp_path, open_access=OpenAccess(Scope(user="ana"))) as server:
        address = server.listener.address.removeprefix("http://")
        for command, shown in examples:
            run = subprocess.run(
                command.replace("localhost:8377", address),
                shell=True, executable="/bin/bash", capture_output=True, text=True, timeout=60, check=False,
            )  # fmt: skip
            assert mask(run.stdout) == mask(shown), command
