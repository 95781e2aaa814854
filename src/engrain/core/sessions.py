"""What a session begins with, and what it leaves behind."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from engrain.core.items import Item
from engrain.core.recalled import Hit, Outlived, Section, quoted

SLOT = "session:"


@dataclass(frozen=True, slots=True)
class Opening:
    """`str()` of it is the block for the prompt: who the user is, how the last session ended, what mattered since.
    `outlived` are words of the summary that no longer hold."""

    session: str
    profile: tuple[Item, ...] = ()
    summary: Item | None = None
    episodes: tuple[Item, ...] = ()
    outlived: tuple[Outlived, ...] = ()

    def __str__(self) -> str:
        last = [_summed_up(self.summary, self.outlived)] if self.summary else []
        profile, episodes = [*map(quoted, self.profile)], [*map(quoted, self.episodes)]
        parts = (("Profile", profile), ("Last session", last), ("Important episodes", episodes))
        return "\n\n".join(str(Section(title, tuple(lines))) for title, lines in parts if lines)


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


def _summed_up(summary: Item, outlived: tuple[Outlived, ...]) -> str:
    return str(Hit(summary, summary.text, (0, len(summary.text)), 0.0, 0.0, outlived=outlived))
