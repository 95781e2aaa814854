"""The machine's steady clock, which nobody can set: leases in a file on this machine are judged by it."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from functools import cache
from pathlib import Path

# (which boot of the machine, microseconds of it); boots cannot be compared with each other.
Steady = Callable[[], tuple[str, int]]

_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


@cache
def machine_steady() -> Steady | None:
    """None where the machine does not tell one boot from another: there the wall clock has to do."""
    try:
        boot = _BOOT_ID.read_text().strip()
    except OSError:
        return None
    return lambda: (boot, time.monotonic_ns() // 1000)


def mark(steady: Steady | None, ahead: timedelta = timedelta()) -> str | None:
    """The moment so far ahead, as the store keeps it."""
    if steady is None:
        return None
    boot, micros = steady()
    return f"{boot}:{micros + ahead // timedelta(microseconds=1)}"


def passed(steady: Steady | None, moment: str | None, since: timedelta = timedelta()) -> bool | None:
    """Whether so much time has gone by since the mark; None if this boot's clock cannot tell."""
    if steady is None or moment is None:
        return None
    boot, micros = steady()
    then, _, at = moment.rpartition(":")
    return None if then != boot else micros - int(at) >= since // timedelta(microseconds=1)
