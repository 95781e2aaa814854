"""Write the figures of docs/integrations.md from the last runs: python tools/integrations_page.py [--check].

`make test-integrations` writes one file per framework into tests/integrations/figures/.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PAGE = ROOT / "docs" / "integrations.md"
FIGURES = ROOT / "tests" / "integrations" / "figures"
HEADING = "## What was shown"
INTRODUCTION = """\
`make test-integrations` writes these figures: each framework in an environment of its own, with the newest versions
that its extra allows. A dash means that the test runs on the other store, or has nothing to do with it.
"""
INSTALLED = """\
An extra adds these packages to an installed engrain. The time is that of pip on the machine of the run, which had other
work, from an index on the network. AutoGen, CrewAI and smolagents are no extras: the row is the framework alone.
"""


def main() -> int:
    kept = PAGE.read_text().partition(HEADING)[0]
    text = kept + "\n".join(describe()) + "\n"
    if "--check" in sys.argv:
        stale = PAGE.read_text() != text
        if stale:
            print("docs/integrations.md is stale. Run: python tools/integrations_page.py", file=sys.stderr)  # noqa: T201
        return int(stale)
    PAGE.write_text(text)
    return 0


def describe() -> Iterator[str]:
    found = {path.stem: json.loads(path.read_text()) for path in sorted(FIGURES.glob("*.json"))}
    yield from (HEADING, "", INTRODUCTION, "| framework | test | SQLite | Postgres |", "|---|---|---|---|")
    for name, figures in found.items():
        for test, values in figures["tests"].items():
            yield f"| {name} | {test} | {values.get('sqlite', '–')} | {values.get('postgres', '–')} |"
    yield from ("", "## Versions, sizes and times", "", INSTALLED)
    yield from ("| framework | tested with | packages | megabytes | seconds |", "|---|---|---|---|---|")
    for name, figures in found.items():
        versions = ", ".join(f"{package} {version}" for package, version in figures["versions"].items())
        install = figures["install"]
        yield f"| {name} | {versions} | {install['packages']} | {install['megabytes']} | {install['seconds']} |"


if __name__ == "__main__":
    raise SystemExit(main())
