"""Measure every extra, and write docs/reference/extras.md: python tools/extras_page.py [NAME…].

Each extra is resolved beside an installed engrain, and what it adds is installed into a folder of its own. With names
only these are measured, and the other rows stay. A dash is a figure that nobody measured yet.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
import tempfile
import time
import tomllib
import venv
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reference" / "extras.md"
CORE = "(none)"
INTRODUCTION = """\
# Extras

`pip install engrain` is enough for a memory in one file. An extra adds what one feature needs:
`pip install "engrain[postgres]"`, or several as in `"engrain[server,ui]"`.

## From a clone

Before the first release, install from a clone of the repository: `.` stands for engrain, and the weights are named too.

```sh
pip install ./packages/engrain-minilm ".[postgres]"
```

## Sizes and times

`python tools/extras_page.py` writes this page. Packages and megabytes are added to an installed engrain; the first row
is engrain itself with the weights of its embedder. The time is that of pip on the machine of the run, with two cores
that had other work and an index on the network, and contains the download. A dash was not measured. Versions are the
newest that the extra allows.

| extra | for | packages | megabytes | seconds |
|---|---|---|---|---|
"""
PURPOSES = {
    CORE: "everything in one SQLite file",
    "fast": "a quicker search in large scopes",
    "sentence-transformers": "an embedder of [sentence-transformers](../how-to/choose-an-embedder.md)",
    "postgres": "[Postgres](../how-to/use-postgres.md)",
    "redis": "[Redis](../how-to/use-redis.md)",
    "qdrant": "[Qdrant](../how-to/use-a-vector-server.md)",
    "chroma": "[Chroma](../how-to/use-a-vector-server.md)",
    "encryption": "[encryption at rest](../how-to/encrypt.md)",
    "otel": "[traces and metrics](../how-to/monitor.md)",
    "yaml": "conversations as YAML",
    "watch": "[files that are watched](../how-to/mirror-to-files.md)",
    "tokens": "exact counts of tokens",
    "redact": "[phone numbers](../how-to/redact.md) in every form",
    "server": "[`engrain serve`](../how-to/serve-http.md)",
    "mcp": "[`engrain mcp`](../how-to/use-mcp.md)",
    "connect": "[coding agents](../how-to/connect.md)",
    "ui": "[`engrain ui`](../how-to/look-into-a-memory.md)",
}
FRAMEWORK = "[{}](../integrations/{}.md)"
Row = list[str]  # packages, megabytes, seconds
UNKNOWN = ["–"] * 3


def main(names: list[str]) -> int:
    extras = [CORE, *tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]]
    rows = read_rows()
    with tempfile.TemporaryDirectory() as folder:
        python = make_environment(Path(folder) / "bare")
        if CORE in (names or extras):
            rows[CORE] = measure(python, Path(folder), ["./packages/engrain-minilm", "."])
        run(python, "install", "./packages/engrain-minilm", ".")
        for name in names or extras:
            if name != CORE:
                rows[name] = measure(python, Path(folder), [f".[{name}]"])
            write_page(extras, rows)
    return 0


def write_page(extras: list[str], rows: dict[str, Row]) -> None:
    PAGE.write_text(INTRODUCTION + "".join(write_row(name, rows.get(name, UNKNOWN)) for name in extras))


def read_rows() -> dict[str, Row]:
    text = PAGE.read_text() if PAGE.exists() else ""
    found = re.findall(r"^\| `?([^`|]+?)`? \| .* \| ([\d–]+) \| ([\d.,–]+) \| ([\d–]+) \|$", text, re.MULTILINE)
    return {name: values for name, *values in found}


def write_row(name: str, row: Row) -> str:
    purpose = PURPOSES.get(name) or FRAMEWORK.format(name, name)
    shown = name if name == CORE else f"`{name}`"
    return f"| {shown} | {purpose} | {' | '.join(row)} |\n"


def make_environment(folder: Path) -> str:
    venv.create(folder, with_pip=True)
    python = str(folder / "bin" / "python")
    run(python, "install", "--upgrade", "pip>=25.1")
    return python


def measure(python: str, folder: Path, what: list[str]) -> Row:
    """Install what is not there yet into a folder, and measure it."""
    found = json.loads(run(python, "install", "--dry-run", "--report", "-", *what))["install"]
    added = [one for one in found if one["metadata"]["name"] not in ("engrain", "engrain-minilm")]
    own = [word for word in what if "[" not in word]
    pins = [f"{one['metadata']['name']}=={one['metadata']['version']}" for one in added]
    with tempfile.TemporaryDirectory(dir=folder) as target:
        began = time.monotonic()
        run(python, "install", "--no-deps", "--no-compile", "--target", target, *pins, *own)
        seconds = time.monotonic() - began
        size = sum(path.stat().st_size for path in Path(target).rglob("*") if path.is_file()) / 1e6
    return [str(len(pins) + len(own)), f"{size:.1f}" if size < 10 else f"{size:,.0f}", f"{seconds:.0f}"]


def run(python: str, *words: str) -> str:
    command = [python, "-m", "pip", "--disable-pip-version-check", "-q", *words]
    return subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE, text=True).stdout


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
