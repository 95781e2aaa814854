"""How many examples a promise is tried on: a third of them in the default run, which tries the same every time."""

from __future__ import annotations

from hypothesis import settings


def up_to(count: int) -> int:
    return count // 3 if settings().derandomize else count
