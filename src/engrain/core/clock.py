"""Convert, check and compare times, and detect a clock that jumps."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

from engrain.core.errors import InvalidInput, StoreCorrupt

Clock = Callable[[], datetime]
# A time as callers may pass it. A datetime is a date.
Time = date | str

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_MAX_DURATION = timedelta(days=36_525)


def system_clock() -> datetime:
    return datetime.now(UTC)


def to_micros(when: datetime) -> int:
    """Return whole microseconds since 1970, as stores keep a time."""
    return (when - _EPOCH) // _MICROSECOND


def from_micros(micros: int) -> datetime:
    """Return a stored time. StoreCorrupt if no calendar has it."""
    try:
        return _EPOCH + timedelta(microseconds=micros)
    except OverflowError as exc:
        raise StoreCorrupt(f"a stored time is in no calendar: {micros}. Restore a backup.") from exc


def check_time(when: object, what: str, *, end_of_day: bool = False) -> datetime:
    """Return a datetime, a date or ISO 8601 text as a datetime in UTC. A time without a zone is UTC.

    A date alone means its first moment, or with `end_of_day` its last: "as of Friday" includes Friday.
    """
    if isinstance(when, str):
        try:
            when = date.fromisoformat(when) if len(when) == 10 else datetime.fromisoformat(when)
        except ValueError as exc:
            raise InvalidInput(f"{what}: {when!r} is not an ISO 8601 time such as 2026-11-15T09:30:00+00:00.") from exc
    if isinstance(when, date) and not isinstance(when, datetime):
        when = datetime.combine(when, time.max if end_of_day else time.min)
    if not isinstance(when, datetime):
        raise InvalidInput(f"{what} must be a date, a datetime or ISO 8601 text, not {type(when).__name__}.")
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    try:
        return when.astimezone(UTC)
    except (OverflowError, ValueError) as exc:
        raise InvalidInput(f"{what}: {when} is outside the years 1 to 9999.") from exc


def check_duration(value: object, what: str) -> timedelta:
    """Return seconds or a timedelta as a timedelta from 0 to a hundred years."""
    duration = value
    if isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value):
        duration = timedelta(seconds=min(max(value, -1), _MAX_DURATION.total_seconds() + 1))
    if not isinstance(duration, timedelta) or not timedelta() <= duration <= _MAX_DURATION:
        raise InvalidInput(f"{what} must be seconds or a timedelta, from 0 to 100 years, not {value!r}.")
    return duration


# A memory in use is maintained more often than this. A wrong clock is mostly wrong by years.
MAX_CLOCK_STEP = timedelta(days=180)
# A later time is believed after the clock has shown it for so long.
CLOCK_CONFIRMATION = timedelta(days=1)
_RECORD_INTERVAL = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class ClockState:
    """`last` is the last believed time. `since` is the first time far beyond it, if the clock has jumped."""

    last: datetime | None = None
    since: datetime | None = None


def clock_jumped(state: ClockState, now: datetime) -> bool:
    """Tell if the clock shows a much later time that is not confirmed yet."""
    if state.last is None or now - state.last <= MAX_CLOCK_STEP:
        return False
    return state.since is None or not CLOCK_CONFIRMATION <= now - state.since <= MAX_CLOCK_STEP


def next_state(state: ClockState, now: datetime) -> ClockState:
    """Return the state after reading the clock; the same value if there is nothing to record."""
    if clock_jumped(state, now):
        recorded = state.since is not None and state.since <= now <= state.since + MAX_CLOCK_STEP
        return state if recorded else ClockState(state.last, now)
    recent = state.last is not None and abs(now - state.last) < _RECORD_INTERVAL
    return state if recent and state.since is None else ClockState(now)


def write_clock_state(state: ClockState) -> str:
    times = {"last": state.last, "since": state.since}
    return json.dumps({name: at.isoformat() if at else None for name, at in times.items()})


def read_clock_state(text: str | None) -> ClockState:
    """Read a state. A text that is not a state gives an empty one."""
    try:
        values = json.loads(text or "{}")
        return ClockState(
            *(datetime.fromisoformat(values[name]) if values[name] else None for name in ("last", "since"))
        )
    except (ValueError, TypeError, KeyError, RecursionError):
        return ClockState()


# A reading of the clock that judges leases: "boot:microseconds" of a machine's steady clock, or the microseconds of a
# server's own. Nobody sets either of them, whatever happens to the wall clock. None: the wall clock decides.
ClockReading = str | int | None


def add_time(reading: ClockReading, time: timedelta) -> ClockReading:
    if reading is None:
        return None
    boot, micros = _split(reading)
    later = micros + time // _MICROSECOND
    return f"{boot}:{later}" if boot else later


def has_passed(reading: ClockReading, now: ClockReading, since: timedelta = timedelta()) -> bool | None:
    """Tell if `since` or more has passed after the reading. None if the two cannot be compared."""
    if reading is None or now is None or not _is_same_boot(reading, now):
        return None
    return _split(now)[1] - _split(reading)[1] >= since // _MICROSECOND


def is_lease_over(until: int, reading: ClockReading, now: int, clock: ClockReading) -> bool:
    """Tell if a lease until then has expired, by the store's time and by the clock of leases."""
    # Whoever held a lease of another boot ended with that boot.
    if reading is not None and clock is not None and not _is_same_boot(reading, clock):
        return True
    passed = has_passed(reading, clock)
    return until <= now if passed is None else passed


def _is_same_boot(first: str | int, other: str | int) -> bool:
    return _split(first)[0] == _split(other)[0]


def _split(reading: str | int) -> tuple[str, int]:
    boot, _, micros = str(reading).rpartition(":")
    return boot, int(micros)
