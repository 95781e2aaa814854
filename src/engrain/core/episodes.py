"""What happened in a session, as entries over the log."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any


@dataclass(frozen=True, slots=True)
class Episode:
    """Something that happened: an entry of episodic memory.

    One over a log row names it as `item` and has no text of its own, so that forgetting the row takes the words. Two
    with the same `key` are the same thing happening again.
    """

    id: str
    session: str
    kind: str
    text: str
    importance: float
    happened_at: datetime
    expires_at: datetime | None
    count: int = 1
    data: Mapping[str, Any] = field(default_factory=dict)
    item: str | None = None
    key: str | None = None

    def alive(self, at: datetime) -> bool:
        return self.expires_at is None or at < self.expires_at


@dataclass(frozen=True, slots=True)
class Raw:
    """The long form of what an episode shows in short, kept for a time of its own."""

    text: str
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class Happening:
    """An episode on its way in. With no id it takes that of its item."""

    episode: Episode
    raw: Raw | None = None


def joined(episode: Episode, others: Iterable[Episode]) -> Episode:
    """One in place of all, for the same thing that happened again."""
    same = (episode, *others)
    ends = [one.expires_at for one in same if one.expires_at is not None]
    return replace(
        episode,
        count=sum(one.count for one in same),
        importance=max(one.importance for one in same),
        expires_at=max(ends) if len(ends) == len(same) else None,
    )
