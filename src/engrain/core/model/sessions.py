"""Sessions and episodes: the start and end of a session, and the entries of episodic memory."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from engrain.core.model.items import Item
from engrain.core.model.recall import Hit, OutdatedText, Section, escape_text, quote_item
from engrain.core.rules.importance import decay_importance


@dataclass(frozen=True, slots=True)
class SessionStart:
    """The user's profile, the last session's summary and important episodes. `str()` is the block for the prompt.

    `outlived` are words of the summary that no longer hold.
    """

    session: str
    profile: tuple[Item, ...] = ()
    summary: Item | None = None
    episodes: tuple[Item, ...] = ()
    outlived: tuple[OutdatedText, ...] = ()

    def __str__(self) -> str:
        last = [str(_summary_hit(self.summary, self.outlived))] if self.summary else []
        profile, episodes = [*map(quote_item, self.profile)], [*map(quote_item, self.episodes)]
        parts = (("Profile", profile), ("Last session", last), ("Important episodes", episodes))
        return "\n\n".join(str(Section(title, tuple(lines))) for title, lines in parts if lines)


@dataclass(frozen=True, slots=True)
class SessionEnd:
    """The summary of an ended session, and the items kept from its messages since it was last ended."""

    session: str
    summary: Item | None = None
    kept: tuple[Item, ...] = ()

    def __str__(self) -> str:
        return self.summary.text if self.summary else ""


@dataclass(frozen=True, slots=True)
class SessionInfo:
    """A session in a list: its number of messages, the time of the last one, and its summary if it was ended."""

    session: str
    messages: int
    last_at: datetime | None
    summary: str


def _summary_hit(summary: Item, outlived: tuple[OutdatedText, ...]) -> Hit:
    return Hit(summary, summary.text, (0, len(summary.text)), 0.0, 0.0, outlived=outlived)


@dataclass(frozen=True, slots=True)
class Episode:
    """A stored event: an entry of episodic memory.

    The entry of a log row names the row as `item` and has no text of its own: forgetting the row removes the words.
    Entries with the same `key` are repeats of one event.
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
class RawOutput:
    """The whole text of an event that its episode shows shortened, kept for a time of its own."""

    text: str
    expires_at: datetime


@dataclass(frozen=True, slots=True)
class EpisodeDraft:
    """An episode to be stored. Without an id it takes the id of its item."""

    episode: Episode
    raw: RawOutput | None = None


def merge_episodes(episode: Episode, others: Iterable[Episode]) -> Episode:
    """Return one episode in place of the repeats of one event."""
    same = (episode, *others)
    ends = [one.expires_at for one in same if one.expires_at is not None]
    return replace(
        episode,
        count=sum(one.count for one in same),
        importance=max(one.importance for one in same),
        expires_at=max(ends) if len(ends) == len(same) else None,
    )


@dataclass(frozen=True, slots=True)
class Event:
    """An entry of episodic memory, as `recent` returns it.

    `decayed` is the present importance, and `why` lists the parts of the original one. Without `expires_at` it is kept.
    `count` is the number of repeats; the text is that of the last one. `item` is its log row.
    """

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
        return f'- "{escape_text(self.text)}" ({self.happened_at:%Y-%m-%d %H:%M}, {self.kind}{times})'


def make_event(episode: Episode, text: str, now: datetime) -> Event:
    return Event(
        id=episode.id,
        session=episode.session,
        kind=episode.kind,
        text=text,
        importance=episode.importance,
        decayed=decay_importance(episode.importance, (now - episode.happened_at).total_seconds()),
        happened_at=episode.happened_at,
        expires_at=episode.expires_at,
        count=episode.count,
        why=_list_reasons(episode),
        data=episode.data,
        item=episode.item,
    )


def _list_reasons(episode: Episode) -> tuple[tuple[str, float], ...]:
    """List the parts of the importance. An episode merged with a more important one has the difference as "before"."""
    why = [(str(name), float(part)) for name, part in episode.data.get("why", ())]
    rest = round(episode.importance - sum(part for _, part in why), 3)
    return (*why, ("before", rest)) if why and rest > 0 else tuple(why)
