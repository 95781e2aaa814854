"""A clock that tests set."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

# Ahead of every real clock: an engine that expires by its own time never takes a test's entries away.
START = datetime(2040, 1, 1, 12, 0, tzinfo=UTC)


class SetClock:
    """Stands still until it is moved."""

    def __init__(self, now: datetime = START) -> None:
        self.now = now

    def __call__(self) -> datetime:
        return self.now

    def advance(self, seconds: float = 1.0) -> datetime:
        """The time after moving on, or back."""
        self.now += timedelta(seconds=seconds)
        return self.now
