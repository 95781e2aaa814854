"""What a memory is made of: items, where they came from and when they held."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal, get_args

from engrain.core.errors import InvalidInput

Kind = Literal["fact", "message", "relation", "summary", "episode", "procedure"]
SourceKind = Literal["user", "system", "agent", "tool", "document", "import", "web"]

KINDS: tuple[Kind, ...] = get_args(Kind)
FORGOTTEN = "[forgotten]"
ROLES = ("user", "assistant", "system", "tool")

# Who says a thing decides how far it is trusted; the numbers order the kinds and are shown by `why`.
TRUST: Mapping[str, float] = {
    "user": 1.0, "system": 1.0, "agent": 0.7, "document": 0.6, "import": 0.6, "tool": 0.5, "web": 0.3,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Cite:
    """The span of another item that an item rests on; the whole item when no span is given.

    With the span 0:0 it rests on the whole too, but has no words from there: to forget it cuts nothing out."""

    item: str
    start: int | None = None
    end: int | None = None

    @property
    def wordless(self) -> bool:
        return (self.start, self.end) == (0, 0)


@dataclass(frozen=True, slots=True)
class Source:
    """Where an item came from. `name` is a page, a file, a tool; None for what was simply said."""

    name: str | None = None
    kind: SourceKind = "user"
    cites: tuple[Cite, ...] = ()

    def __post_init__(self) -> None:
        if self.kind not in TRUST:
            raise InvalidInput(f"source kind {self.kind!r} is not one of {', '.join(TRUST)}.")

    @property
    def trust(self) -> float:
        return TRUST[self.kind]


@dataclass(frozen=True, slots=True)
class Place:
    """Where in a session an item was said, and by whom. With no number it takes the session's next."""

    session: str
    number: int | None = None
    speaker: str | None = None
    role: str | None = None


@dataclass(frozen=True, slots=True)
class Relation:
    """subject –relation→ object, between two entities."""

    subject: str
    relation: str
    object: str


@dataclass(frozen=True, slots=True)
class Item:
    """One version of one thing remembered, word for word."""

    id: str
    kind: Kind
    text: str
    importance: float
    recorded_at: datetime
    valid_from: datetime
    valid_to: datetime | None = None
    occurred_at: datetime | None = None
    slot: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    sources: tuple[Source, ...] = ()
    trust: float = 1.0
    session: str | None = None
    place: int | None = None
    speaker: str | None = None
    role: str | None = None
    relation: Relation | None = None
    pinned: bool = False
    replaced_by: str | None = None
    retracted_at: datetime | None = None
    expires_at: datetime | None = None
    access_count: int = 0
    last_accessed: datetime | None = None

    @property
    def source(self) -> str | None:
        """The name of the first named source."""
        return next((source.name for source in self.sources if source.name), None)

    @property
    def open(self) -> bool:
        """Held to be so at present: neither replaced nor corrected away."""
        return self.valid_to is None and self.retracted_at is None

    def visible(self, at: datetime) -> bool:
        """Held at that moment. A corrected item was never so, and answers no moment at all."""
        return (
            self.retracted_at is None
            and self.valid_from <= at
            and (self.valid_to is None or at < self.valid_to)
            and (self.expires_at is None or at < self.expires_at)
        )


@dataclass(frozen=True, slots=True)
class Words:
    """The stored words of a text: little-endian uint32 pairs (term, passage << 16 | count), and how many passages."""

    pairs: bytes = b""
    passages: int = 1


@dataclass(frozen=True, slots=True)
class Vectors:
    """The vectors of one text by one model: float32, unit length, one row for each window of the text."""

    model: str
    rows: tuple[bytes, ...]


@dataclass(frozen=True, slots=True)
class Draft:
    """A text on its way in, with all that was computed from it outside any transaction."""

    text: str
    kind: Kind = "fact"
    importance: float = 0.5
    slot: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    source: Source = field(default_factory=Source)
    place: Place | None = None
    occurred_at: datetime | None = None
    expires_at: datetime | None = None
    relation: Relation | None = None
    words: Words = field(default_factory=Words)
    vectors: Vectors | None = None
    traits: int = 0
    # Made by extraction, import or replay rather than said now: a tombstone keeps it out.
    derived: bool = False
