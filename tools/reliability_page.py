"""Write the counts of docs/reliability.md from the suites' own: python tools/reliability_page.py [--check].

    COUNTS=tests/reliability.json python -m pytest tests/crash/test_requests.py -m slow

adds the counts of a run to the file, each with its day. A row of the page names its test and its count in a comment:
`<!-- crash/test_requests.py::test_name kills -->`. All other cells of that row are written here.
"""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "reliability.md"
COUNTS = ROOT / "tests" / "reliability.json"
_MARK = re.compile(r"<!-- (?P<test>\S+) (?P<name>[^>]+?) -->")

Run = Mapping[str, Any]


def main() -> int:
    text = fill_page(PAGE.read_text(), json.loads(COUNTS.read_text()))
    if "--check" in sys.argv:
        stale = PAGE.read_text() != text
        if stale:
            print("docs/reliability.md is stale. Run: python tools/reliability_page.py", file=sys.stderr)  # noqa: T201
        return int(stale)
    PAGE.write_text(text)
    return 0


def fill_page(text: str, runs: Mapping[str, Run]) -> str:
    lines: list[str] = []
    columns: list[str] = []
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        if not cells:
            columns = []
        elif not columns:
            columns = cells
        mark = _MARK.search(line)
        lines.append(fill_row(columns, cells, runs.get(f"tests/{mark['test']}"), mark["name"]) if mark else line)
    return "\n".join(lines) + "\n"


def fill_row(columns: list[str], cells: list[str], run: Run | None, name: str) -> str:
    """Return a row with the counts of its run. The other cells are what its test found none of, if it passed."""
    counts = run["counts"] if run else {}
    failed = counts.get("failed", 0) + counts.get("error", 0)
    if run is None or failed or name not in counts:
        filled = ["failed" if failed else "not run"] + ["–"] * (len(columns) - 2)
    else:
        tried = counts[name]
        values = {"tried": f"{tried:,}", "of": f"{counts.get('of ' + name, tried):,}", "run on": run["day"]}
        filled = [values.get(column, "0") for column in columns[1:]]
    return "| " + " | ".join([cells[0], *filled]) + " |"


if __name__ == "__main__":
    raise SystemExit(main())
