"""Compare moments of the clock that judges leases.

A moment is "boot:microseconds" of a machine's steady clock, or the microseconds of a server's own clock. Nobody sets
either of them, whatever happens to the wall clock. None: there is no such clock, and the wall clock decides.
"""

from __future__ import annotations

from datetime import timedelta

Moment = str | int | None
_MICROSECOND = timedelta(microseconds=1)


def add_time(moment: Moment, time: timedelta) -> Moment:
    if moment is None:
        return None
    boot, micros = _split(moment)
    later = micros + time // _MICROSECOND
    return f"{boot}:{later}" if boot else later


def has_passed(moment: Moment, now: Moment, since: timedelta = timedelta()) -> bool | None:
    """Whether `since` or more has passed after the moment. None if the two cannot be compared."""
    if moment is None or now is None or not _is_same_boot(moment, now):
        return None
    return _split(now)[1] - _split(moment)[1] >= since // _MICROSECOND


def is_lease_over(until: int, moment: Moment, now: int, clock: Moment) -> bool:
    """Whether a lease until then has expired, by the store's time and by the clock of leases."""
    # Whoever held a lease of another boot ended with that boot.
    if moment is not None and clock is not None and not _is_same_boot(moment, clock):
        return True
    passed = has_passed(moment, clock)
    return until <= now if passed is None else passed


def _is_same_boot(one: str | int, other: str | int) -> bool:
    return _split(one)[0] == _split(other)[0]


def _split(moment: str | int) -> tuple[str, int]:
    boot, _, micros = str(moment).rpartition(":")
    return boot, int(micros)
