"""Time as a value that is handed in, so that tests set it and stores agree on it."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

from engrain.core.errors import InvalidInput

Clock = Callable[[], datetime]

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)


def system_clock() -> datetime:
    return datetime.now(UTC)


def to_micros(moment: datetime) -> int:
    """The form in which stores keep a time: whole microseconds since 1970, exact."""
    return (moment - _EPOCH) // _MICROSECOND


def from_micros(micros: int) -> datetime:
    return _EPOCH + timedelta(microseconds=micros)


def checked_time(moment: object, what: str) -> datetime:
    """An aware datetime, a datetime without a zone (taken as UTC), or ISO 8601 text; given back in UTC."""
    if isinstance(moment, str):
        try:
            moment = datetime.fromisoformat(moment)
        except ValueError as exc:
            raise InvalidInput(
                f"{what}: {moment!r} is not an ISO 8601 time such as 2026-11-15T09:30:00+00:00."
            ) from exc
    if not isinstance(moment, datetime):
        raise InvalidInput(f"{what} must be a datetime or ISO 8601 text, not {type(moment).__name__}.")
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    try:
        return moment.astimezone(UTC)
    except (OverflowError, ValueError) as exc:
        raise InvalidInput(f"{what}: {moment} is outside the years 1 to 9999.") from exc
