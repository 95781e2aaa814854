"""Time as a value that is handed in, so that tests set it and stores agree on it."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta

from engrain.core.errors import InvalidInput

Clock = Callable[[], datetime]
# What a caller may give as a time; a datetime is a date.
Time = date | str

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_LONGEST = timedelta(days=36_525)


def system_clock() -> datetime:
    return datetime.now(UTC)


def to_micros(moment: datetime) -> int:
    """The form in which stores keep a time: whole microseconds since 1970, exact."""
    return (moment - _EPOCH) // _MICROSECOND


def from_micros(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)


def check_time(moment: object, what: str, *, end_of_day: bool = False) -> datetime:
    """An aware datetime, one without a zone (taken as UTC), a date, or ISO 8601 text of either; given back in UTC.

    A date alone is its first moment, or with `end_of_day` its last: "as of Friday" includes what was said on Friday.
    """
    if isinstance(moment, str):
        try:
            moment = date.fromisoformat(moment) if len(moment) == 10 else datetime.fromisoformat(moment)
        except ValueError as exc:
            raise InvalidInput(
                f"{what}: {moment!r} is not an ISO 8601 time such as 2026-11-15T09:30:00+00:00."
            ) from exc
    if isinstance(moment, date) and not isinstance(moment, datetime):
        moment = datetime.combine(moment, time.max if end_of_day else time.min)
    if not isinstance(moment, datetime):
        raise InvalidInput(f"{what} must be a date, a datetime or ISO 8601 text, not {type(moment).__name__}.")
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    try:
        return moment.astimezone(UTC)
    except (OverflowError, ValueError) as exc:
        raise InvalidInput(f"{what}: {moment} is outside the years 1 to 9999.") from exc


def check_duration(span: object, what: str) -> timedelta:
    """A length of time, as a timedelta or in seconds: from none to a hundred years."""
    found = span
    if isinstance(span, (int, float)) and not isinstance(span, bool) and math.isfinite(span):
        found = timedelta(seconds=min(max(span, -1), _LONGEST.total_seconds() + 1))
    if not isinstance(found, timedelta) or not timedelta() <= found <= _LONGEST:
        raise InvalidInput(f"{what} must be seconds or a timedelta, from 0 to 100 years, not {span!r}.")
    return found


# So long nobody looks after a memory that is in use; a clock that is wrong is mostly wrong by years.
MAX_CLOCK_STEP = timedelta(days=180)
# For so long it must go on saying so.
CLOCK_CONFIRMATION = timedelta(days=1)
_OFTEN = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class ClockState:
    """`last` is the last moment that was believed, `since` when one far beyond it was first seen."""

    last: datetime | None = None
    since: datetime | None = None


def clock_jumped(seen: ClockState, now: datetime) -> bool:
    """Whether it is too early to believe that it is so late."""
    if seen.last is None or now - seen.last <= MAX_CLOCK_STEP:
        return False
    return seen.since is None or not CLOCK_CONFIRMATION <= now - seen.since <= MAX_CLOCK_STEP


def next_state(seen: ClockState, now: datetime) -> ClockState:
    """What is known after a look at the clock; the same value if nothing is worth being noted."""
    if clock_jumped(seen, now):
        begun = seen.since is not None and seen.since <= now <= seen.since + MAX_CLOCK_STEP
        return seen if begun else ClockState(seen.last, now)
    recent = seen.last is not None and abs(now - seen.last) < _OFTEN
    return seen if recent and seen.since is None else ClockState(now)


def write_clock_state(seen: ClockState) -> str:
    moments = {"last": seen.last, "since": seen.since}
    return json.dumps({name: at.isoformat() if at else None for name, at in moments.items()})


def read_clock_state(text: str | None) -> ClockState:
    """Nothing is known from a text that is not one of these."""
    try:
        values = json.loads(text or "{}")
        return ClockState(
            *(datetime.fromisoformat(values[name]) if values[name] else None for name in ("last", "since"))
        )
    except (ValueError, TypeError, KeyError):
        return ClockState()
