"""What a session begins with, and what it leaves behind."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from engrain.core.items import Item
from engrain.core.recalled import Section, quoted

SLOT = "session:"


@dataclass(frozen=True, slots=True)
class Opening:
    """`str()` of it is the block for the prompt: who the user is, how the last session ended, what mattered since."""

    session: str
    profile: tuple[Item, ...] = ()
    summary: Item | None = None
    episodes: tuple[Item, ...] = ()

    def __str__(self) -> str:
        last = (self.summary,) if self.summary else ()
        parts = (("Profile", self.profile), ("Last session", last), ("Important episodes", self.episodes))
        return "\n\n".join(str(Section(title, tuple(map(quoted, items)))) for title, items in parts if items)


@dataclass(frozen=True, slots=True)
class Closing:
    """What became of a session: its summary, and what was kept for good of what was new since it was last ended."""

    session: str
    summary: Item | None = None
    kept: tuple[Item, ...] = ()

    def __str__(self) -> str:
        return self.summary.text if self.summary else ""


@dataclass(frozen=True, slots=True)
class Listed:
    """A session in a list: how many messages it has had, when the last was, and its summary if it was ended."""

    session: str
    messages: int
    last_at: datetime | None
    summary: str
