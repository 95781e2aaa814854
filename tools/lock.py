"""Write requirements/*.txt: every third-party package of an environment, pinned, with the hashes of its files.

`make lock` runs it; `make lock UPGRADE=1` takes the newest versions. uv resolves, for every platform at once.
Installing needs pip alone.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FOLDER = ROOT / "requirements"
OWN = ("engrain", "engrain-minilm", "engrain-conformance")  # installed from this repository
BUILD = ("hatchling>=1.27", "editables>=0.5")  # they build the packages of this repository
HEADER = "# Made by `make lock` from pyproject.toml. Do not edit.\n"


def read_project(folder: str) -> dict[str, Any]:
    with (ROOT / folder / "pyproject.toml").open("rb") as file:
        return tomllib.load(file)


def list_requirements() -> dict[str, list[str]]:
    """The requirements of each environment, without our own packages."""
    main = read_project(".")
    groups, project = main["dependency-groups"], main["project"]
    suites = read_project("packages/engrain-conformance")["project"]["dependencies"]
    core = [*project["dependencies"], *project["optional-dependencies"]["fast"]]
    dev = [*core, *BUILD, *suites, *groups["dev"]]
    found = {"core": core, "build": list(BUILD), "dev": dev, "encryption": list(groups["encryption"])}
    return {name: [one for one in lines if not is_own(one)] for name, lines in found.items()}


def is_own(requirement: str) -> bool:
    name = requirement.split(";")[0].split("[")[0]
    return name.rstrip("<>=~!0123456789., ") in OWN


def lock(name: str, requirements: list[str], upgrade: bool) -> None:
    target = FOLDER / f"{name}.txt"
    command = [
        sys.executable, "-m", "uv", "pip", "compile", "-", "--universal", "--generate-hashes",
        "--python-version", "3.11", "--no-header", "--no-annotate", "--quiet", "--system-certs",
        "--output-file", str(target),
    ]  # fmt: skip
    command += ["--upgrade"] if upgrade else []
    if name in ("build", "dev"):
        command += ["--constraints", str(FOLDER / "core.txt")]  # one environment: all name the same versions
    subprocess.run(command, input="\n".join(requirements).encode(), check=True, cwd=ROOT)
    target.write_text(HEADER + target.read_text().removeprefix(HEADER))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--upgrade", action="store_true", help="take the newest versions instead of the pinned ones")
    upgrade = parser.parse_args().upgrade
    for name, requirements in list_requirements().items():
        lock(name, requirements, upgrade)
