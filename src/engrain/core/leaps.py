"""Tell a clock that is wrong from time that went by: one reading far ahead is not believed at once."""

from __future__ import annotations

import json
from dataclasses import dataclass
from datetime import datetime, timedelta

# So long nobody looks after a memory that is in use; a clock that is wrong is mostly wrong by years.
LEAP = timedelta(days=180)
# For so long it must go on saying so.
ENOUGH = timedelta(days=1)
_OFTEN = timedelta(hours=1)


@dataclass(frozen=True, slots=True)
class Seen:
    """`last` is the last moment that was believed, `since` when one far beyond it was first seen."""

    last: datetime | None = None
    since: datetime | None = None


def leapt(seen: Seen, now: datetime) -> bool:
    """Whether it is too early to believe that it is so late."""
    if seen.last is None or now - seen.last <= LEAP:
        return False
    return seen.since is None or not ENOUGH <= now - seen.since <= LEAP


def following(seen: Seen, now: datetime) -> Seen:
    """What is known after a look at the clock; the same value if nothing is worth being noted."""
    if leapt(seen, now):
        begun = seen.since is not None and seen.since <= now <= seen.since + LEAP
        return seen if begun else Seen(seen.last, now)
    recent = seen.last is not None and abs(now - seen.last) < _OFTEN
    return seen if recent and seen.since is None else Seen(now)


def written(seen: Seen) -> str:
    moments = {"last": seen.last, "since": seen.since}
    return json.dumps({name: at.isoformat() if at else None for name, at in moments.items()})


def read(text: str | None) -> Seen:
    """Nothing is known from a text that is not one of these."""
    try:
        values = json.loads(text or "{}")
        return Seen(*(datetime.fromisoformat(values[name]) if values[name] else None for name in ("last", "since")))
    except (ValueError, TypeError, KeyError):
        return Seen()
