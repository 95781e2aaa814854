"""Count the points that the crash suites try, for docs/reliability.md: printed after the tests."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable
from typing import Any

import pytest

COUNTS = "counts"


@pytest.fixture
def report_counts(record_property: Callable[[str, object], None]) -> Callable[..., None]:
    """Note how many points of each name a test has tried, such as report_counts(kills=12)."""

    def report(**counts: int) -> None:
        record_property(COUNTS, counts)

    return report


def pytest_terminal_summary(terminalreporter: Any) -> None:
    found: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for one in terminalreporter.stats.get("passed", ()):
        for name, counts in getattr(one, "user_properties", ()):
            if name == COUNTS:
                found[one.nodeid.partition("[")[0]].update(counts)
    if found:
        terminalreporter.section("points tried")
    for test, counts in found.items():
        terminalreporter.write_line(f"{test}: " + ", ".join(f"{count:,} {name}" for name, count in counts.items()))
