"""Read the machine's steady clock, which nobody can set."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cache
from pathlib import Path

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@cache
def find_steady_clock() -> Callable[[], str] | None:
    """A function that gives "boot:microseconds", since boots cannot be compared with each other.

    None where the machine does not tell one boot from another: there the wall clock has to do."""
    try:
        boot = _BOOT_ID.read_text().strip()
    except OSError:
        return None
    return lambda: f"{boot}:{time.monotonic_ns() // 1000}"
