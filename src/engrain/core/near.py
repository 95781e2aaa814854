"""Find the name that somebody may have meant."""

from __future__ import annotations

import difflib
from collections.abc import Iterable


def near(name: str, known: Iterable[str], most: int = 1) -> list[str]:
    """Those that differ by a slip or two, the closest first."""
    lowered: dict[str, str] = {}
    for one in known:
        lowered.setdefault(one.lower(), one)
    return [lowered[one] for one in difflib.get_close_matches(name.lower(), lowered, most, 0.75)]


def hint(name: str, known: Iterable[str]) -> str:
    found = near(name, known)
    return f" Did you mean {found[0]!r}?" if found else ""
