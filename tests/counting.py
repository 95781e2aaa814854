"""Count what the long suites try, for docs/reliability.md: printed after the tests, and written to $COUNTS.

tools/reliability_page.py puts the numbers of such a file into the page.
"""

from __future__ import annotations

import json
import os
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import pytest

COUNTS = "counts"
Point = TypeVar("Point")
# A run without time for every point tries each n-th: CRASH_STEP=5. With CRASH_START from 0 to 4, five runs try all.
STEP = int(os.environ.get("CRASH_STEP", "1"))
START = int(os.environ.get("CRASH_START", (STEP - 1) // 2))


def choose_points(points: Sequence[Point]) -> list[Point]:
    """Return every point, or evenly spaced ones if CRASH_STEP is set."""
    return list(points)[START::STEP] or list(points)


@pytest.fixture
def report_counts(record_property: Callable[[str, object], None]) -> Callable[..., None]:
    """Note how many points of each name a test has tried: report_counts(kills=12, of=24) says that 24 are known."""

    def report(**counts: int) -> None:
        known = {name: f"of {last}" for last, name in pairwise(counts) if name == "of"}
        record_property(COUNTS, {known.get(name, name): count for name, count in counts.items()})

    return report


def pytest_terminal_summary(terminalreporter: Any) -> None:
    found: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for outcome in ("passed", "failed", "error"):
        for one in terminalreporter.stats.get(outcome, ()):
            test = one.nodeid.partition("[")[0]
            found[test][outcome] += 1
            for name, counts in getattr(one, "user_properties", ()) if outcome == "passed" else ():
                if name == COUNTS:
                    found[test].update(counts)
    counted = {test: counts for test, counts in found.items() if counts.keys() - {"passed", "failed", "error"}}
    if counted:
        terminalreporter.section("points tried")
    for test, counts in counted.items():
        terminalreporter.write_line(f"{test}: " + ", ".join(f"{count:,} {name}" for name, count in counts.items()))
    if "COUNTS" in os.environ:
        write_counts(Path(os.environ["COUNTS"]), found)


def write_counts(path: Path, found: dict[str, Counter[str]]) -> None:
    """Replace the counts of the tests that ran; others in the file stay, with the day of their own run."""
    kept = json.loads(path.read_text()) if path.exists() else {}
    today = datetime.now(UTC).date().isoformat()
    kept |= {test: {"day": today, "counts": dict(counts)} for test, counts in found.items()}
    path.write_text(json.dumps(kept, indent=1, sort_keys=True) + "\n")
