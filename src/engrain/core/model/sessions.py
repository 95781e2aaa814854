"""Sessions and episodes: the start and end of a session, and the entries of episodic memory."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from engrain.core.model.items import Item
from engrain.core.model.recall import WISHES_HEADING, OutdatedText, Section, escape_text, quote_item
from engrain.core.rules.episode_importance import decay_importance
from engrain.core.rules.profile import is_standing_wish

MAX_WORDS_BESIDE = 3  # of a line of the summary that the profile tells, such as "from now on"


@dataclass(frozen=True, slots=True)
class SessionStart:
    """The user's profile, the last session's summary and important episodes. `str()` is the block for the prompt.

    The profile includes the standing wishes, which the block tells first. `outdated` are words of the summary that no
    longer hold: the block leaves out their lines if it has the new value, and marks the others.
    """

    session: str
    profile: tuple[Item, ...] = ()
    summary: Item | None = None
    episodes: tuple[Item, ...] = ()
    outdated: tuple[OutdatedText, ...] = ()

    def __str__(self) -> str:
        recap = self._shorten_summary()
        outdated = tuple(old for old in self.outdated if recap and old.text in recap.text)
        last = [quote_item(recap, outdated)] if recap else []
        wishes, others = self.wishes, [item for item in self.profile if item not in self.wishes]
        parts = (
            (WISHES_HEADING, [*map(quote_item, wishes)]),
            ("Profile", [*map(quote_item, others)]),
            ("Last session", last),
            ("Important episodes", [*map(quote_item, self.episodes)]),
        )
        return "\n\n".join(str(Section(title, tuple(lines))) for title, lines in parts if lines)

    def _shorten_summary(self) -> Item | None:
        """Return the summary without the lines that the block tells elsewhere, None if there are no others."""
        if self.summary is None:
            return None
        told = [item.text.casefold() for item in self.profile]
        told += [line for item in self.episodes for line in item.text.casefold().splitlines()]
        text = "\n".join((*told, self.summary.text.casefold()))
        told += [old.text.casefold() for old in self.outdated if old.now and old.now.casefold() in text]
        lines = [line for line in self.summary.text.splitlines() if not _says_only(line, told)]
        return replace(self.summary, text="\n".join(lines)) if lines else None

    @property
    def wishes(self) -> tuple[Item, ...]:
        """The items of the profile that say how the user always wants to be answered."""
        return tuple(filter(is_standing_wish, self.profile))


def _says_only(line: str, told: Iterable[str]) -> bool:
    """Tell if a line of a summary has hardly a word beside what was told, after the name of its speaker."""
    said = line.casefold().partition(": ")[2] or line.casefold()
    words = said
    for text in told:
        words = words.replace(text, " ")
    return words != said and len(re.findall(r"\w+", words)) <= MAX_WORDS_BESIDE


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
    repeats = (episode, *others)
    ends = [repeat.expires_at for repeat in repeats if repeat.expires_at is not None]
    return replace(
        episode,
        count=sum(repeat.count for repeat in repeats),
        importance=max(repeat.importance for repeat in repeats),
        expires_at=max(ends) if len(ends) == len(repeats) else None,
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
    names = ("id", "session", "kind", "importance", "happened_at", "expires_at", "count", "data", "item")
    shared: dict[str, Any] = {name: getattr(episode, name) for name in names}
    decayed = decay_importance(episode.importance, (now - episode.happened_at).total_seconds())
    why = [(str(name), float(part)) for name, part in episode.data.get("why", ())]
    # An episode that was merged with a more important one has the difference as "before".
    rest = round(episode.importance - sum(part for _, part in why), 3)
    return Event(text=text, decayed=decayed, why=(*why, ("before", rest)) if why and rest > 0 else tuple(why), **shared)
