"""Time as a value that is handed in, so that tests set it and stores agree on it."""

from __future__ import annotations

import math
from collections.abc import Callable
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


def checked_time(moment: object, what: str, *, end_of_day: bool = False) -> datetime:
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


def checked_span(span: object, what: str) -> timedelta:
    """A length of time, as a timedelta or in seconds: from none to a hundred years."""
    found = span
    if isinstance(span, (int, float)) and not isinstance(span, bool) and math.isfinite(span):
        found = timedelta(seconds=min(max(span, -1), _LONGEST.total_seconds() + 1))
    if not isinstance(found, timedelta) or not timedelta() <= found <= _LONGEST:
        raise InvalidInput(f"{what} must be seconds or a timedelta, from 0 to 100 years, not {span!r}.")
    return found
