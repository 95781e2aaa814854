"""What happened, with its words and what is left of its importance."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from engrain.core.episodes import Episode
from engrain.core.recalled import escaped
from engrain.core.scoring import decayed


@dataclass(frozen=True, slots=True)
class Event:
    """An entry of episodic memory as one reads it. `decayed` is what is left of the importance now; `why` says what the
    importance is made of. With no `expires_at` it lasts. `count` is how often it happened; the words are the last
    time's. `item` is the log row that it stands over."""

    id: str
    session: str
    kind: str
    text: str
    importance: float
    decayed: float
    happened_at: datetime
    expires_at: datetime | None = None
    count: int = 1
    why: tuple[tuple[str, float], ...] = ()
    data: Mapping[str, Any] = field(default_factory=dict)
    item: str | None = None

    def __str__(self) -> str:
        times = f", {self.count} times" if self.count > 1 else ""
        return f'- "{escaped(self.text)}" ({self.happened_at:%Y-%m-%d %H:%M}, {self.kind}{times})'


def event(episode: Episode, text: str, now: datetime) -> Event:
    return Event(
        id=episode.id,
        session=episode.session,
        kind=episode.kind,
        text=text,
        importance=episode.importance,
        decayed=decayed(episode.importance, (now - episode.happened_at).total_seconds()),
        happened_at=episode.happened_at,
        expires_at=episode.expires_at,
        count=episode.count,
        why=_reasons(episode),
        data=episode.data,
        item=episode.item,
    )


def _reasons(episode: Episode) -> tuple[tuple[str, float], ...]:
    """One that was joined with an earlier and more important one has the rest from there."""
    why = [(str(name), float(part)) for name, part in episode.data.get("why", ())]
    rest = round(episode.importance - sum(part for _, part in why), 3)
    return (*why, ("before", rest)) if why and rest > 0 else tuple(why)
