"""Install a framework into an environment of its own, and measure it: python tools/install_framework.py NAME FOLDER.

A framework with an extra of engrain gets engrain, the extra and the tests. Any other is installed alone: it starts the
MCP server of another environment. With --lowest, the framework is in the lowest version that the extra allows.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
OWN = ["./packages/engrain-minilm", "-e", "."]
TESTS = ["-e", "./packages/engrain-conformance", "-e", ".[postgres]", "--group", "integrations", "--group"]


def main(name: str, folder: Path) -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    venv.create(folder, with_pip=True, clear=True)
    install(folder, "--upgrade", "pip>=25.1")
    if name in extras:
        install(folder, *OWN)
    before, began = measure(folder), time.monotonic()
    install(folder, *(["-e", f".[{name}]"] if name in extras else ["--group", name]))
    seconds, after = time.monotonic() - began, measure(folder)
    if name in extras:
        # In one call, so that packages of the tests fit the lowest version.
        lowest = [package.replace(">=", "==") for package in extras[name]] if "--lowest" in sys.argv else []
        install(folder, *TESTS, f"{name}-tests", *lowest)
    added = {key: after[key] - before[key] for key in after}
    (folder / "install.json").write_text(json.dumps({**added, "seconds": round(seconds)}))


def install(folder: Path, *what: str) -> None:
    pip = [str(folder / "bin" / "python"), "-m", "pip", "--disable-pip-version-check", "-q", "install"]
    subprocess.run([*pip, *what], cwd=ROOT, check=True)


def measure(folder: Path) -> dict[str, int]:
    """Return the packages of an environment, and the megabytes of their files but for compiled ones."""
    files = [path for path in (folder / "lib").rglob("*") if path.is_file() and path.suffix != ".pyc"]
    # Not those that a package brings inside of it, such as setuptools.
    packages = sum(path.name == "METADATA" and path.parents[1].name == "site-packages" for path in files)
    return {"packages": packages, "megabytes": round(sum(path.stat().st_size for path in files) / 1e6)}


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
