"""What a recall is asked and what it answers, down to the block for the prompt."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal

from engrain.core.identity import Scope
from engrain.core.model.filters import Filter
from engrain.core.model.items import Item

Reason = Literal["floor", "n", "budget", "source", "double"]

SESSION_HEADING, RECENT_HEADING, FACTS, KNOWLEDGE, HOW_TO = (
    "Current session",
    "Recent context",
    "Facts",
    "Relevant knowledge",
    "How to",
)

SUMMARY_LABEL = "in short"  # opens the lines of a summary
_ENDLESS = datetime(9999, 1, 1, tzinfo=UTC)
_NAME_LIMIT = 80
_WHY: Mapping[str, str] = {
    "floor": "below the relevance floor",
    "n": "beyond the number asked for",
    "budget": "too long for the budget",
    "source": "set back because one source would have filled the answer",
    "double": "that say what a hit says already",
}

# Stored text must not be able to end its quotes, start a line of its own or turn the reading direction.
_ESCAPES = {
    ord('"'): '\\"',
    ord("\\"): "\\\\",
    ord("\n"): "\\n",
    ord("\r"): "\\r",
    ord("\t"): "\\t",
    **{code: f"\\u{code:04x}" for code in (*range(0x9), 0xB, 0xC, *range(0xE, 0x20), *range(0x7F, 0xA0))},
    **{code: f"\\u{code:04x}" for code in (0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A))},
}


@dataclass(frozen=True, slots=True)
class Section:
    """A part of the block for the prompt: a heading and its lines."""

    title: str
    lines: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join((f"## {self.title}", *self.lines))


@dataclass(frozen=True, slots=True)
class RecallRequest:
    """`scopes` are the memory's own, then the ones it may read. No `min_relevance` means the embedder's own floor.

    `context` goes in front of what is found: the task at hand, and what happened last. `shown` are items that the
    prompt has anyway, with what goes on: neither is told a second time."""

    query: str
    scopes: tuple[Scope, ...] = ()
    n: int = 5
    budget: int | None = None
    at: datetime | None = None
    now: datetime = _ENDLESS
    min_relevance: float | None = None
    where: Filter | None = None
    min_importance: float = 0.0
    context: tuple[Section, ...] = ()
    shown: frozenset[str] | None = None


@dataclass(frozen=True, slots=True)
class OutdatedText:
    """Words of a hit that no longer hold: what they were, until when they held, and what holds now."""

    text: str
    until: datetime
    now: str | None


@dataclass(frozen=True, slots=True)
class Hit:
    """An item that was found. `text` is the whole of a short item and the best passage of a long one, at `span`.

    `score` orders the hits of one question. `relevance` is absolute, from 0 to 1. `arms` says what each part of the
    ranking added to the score. `scope` is the memory it was read from, None for one's own.
    """

    item: Item
    text: str
    span: tuple[int, int]
    score: float
    relevance: float
    found_by: tuple[str, ...] = ()
    arms: Mapping[str, float] = field(default_factory=dict)
    outlived: tuple[OutdatedText, ...] = ()
    scope: Scope | None = None

    def __str__(self) -> str:
        told = "; ".join(_particulars(self))
        if self.item.kind == "summary":
            return "\n".join((f"- {SUMMARY_LABEL} ({told}):", *quote_lines(self.text)))
        slot = f"{_name(self.item.slot)}: " if self.item.slot and self.item.kind == "fact" else ""
        return f'- {slot}"{escape_text(self.text)}" ({told})'


@dataclass(frozen=True, slots=True)
class Omitted:
    """How many were found and not returned, for one reason; the ids of the best of them and the best relevance."""

    reason: Reason
    count: int
    best: tuple[str, ...]
    relevance: float

    def __str__(self) -> str:
        return f"{self.count} {_WHY[self.reason]} (best relevance {math.floor(self.relevance * 100) / 100:.2f})"


@dataclass(frozen=True, slots=True)
class Degraded:
    """A part of the memory whose server did not answer, and why: the answer is made without it."""

    part: Literal["recent context", "vector server"]
    why: str

    def __str__(self) -> str:
        return f"without the {self.part}: {self.why}"


@dataclass(frozen=True, slots=True)
class Recall:
    """`str()` of it is the block for the prompt: sections of quoted items with date and origin, one a line; of a
    summary, each line by itself.

    False if nothing was found, even where there is a session to show."""

    hits: tuple[Hit, ...] = ()
    tokens: int = 0
    omitted: tuple[Omitted, ...] = ()
    context: tuple[Section, ...] = ()
    without: tuple[Degraded, ...] = ()

    @property
    def sections(self) -> tuple[Section, ...]:
        return (*self.context, *group_hits(self.hits))

    def __str__(self) -> str:
        return render_block(self.context, self.hits)

    def __bool__(self) -> bool:
        return bool(self.hits)


def group_hits(hits: Iterable[Hit]) -> tuple[Section, ...]:
    """Hits under their headings, each in the order given; a heading with nothing under it is left out."""
    lines: dict[str, list[str]] = {FACTS: [], KNOWLEDGE: [], HOW_TO: []}
    for hit in hits:
        lines[choose_heading(hit)].append(str(hit))
    return tuple(Section(title, tuple(some)) for title, some in lines.items() if some)


def choose_heading(hit: Hit) -> str:
    if hit.item.kind == "procedure":
        return HOW_TO
    return FACTS if hit.item.slot and hit.item.kind == "fact" else KNOWLEDGE


def render_block(context: Iterable[Section], hits: Iterable[Hit]) -> str:
    return "\n\n".join(map(str, (*context, *group_hits(hits))))


def quote_item(item: Item) -> str:
    """A whole item as the line that recall would make of it."""
    return str(Hit(item, item.text, (0, len(item.text)), 0.0, 0.0))


def escape_text(text: str) -> str:
    return text.translate(_ESCAPES)


def quote_lines(text: str) -> list[str]:
    """A text of several lines, each quoted by itself."""
    return [f'  "{escape_text(line)}"' for line in text.split("\n") if line.strip()]


def _particulars(hit: Hit) -> list[str]:
    item = hit.item
    day, since = _day(item.occurred_at or item.recorded_at), item.metadata.get("since")
    parts = [f"{since} to {day}" if item.kind == "summary" and isinstance(since, str) and since < day else day]
    who = item.speaker or (f"the {item.role}" if item.role else None)
    if who:
        parts[0] += f", said by {_name(who)}"
    if item.source:
        parts[0] += f", from {_name(item.source)}"
    if item.kind == "summary" and item.slot:
        parts[0] += f", summary of session {_name(item.slot.removeprefix('session:'))}"
    if hit.scope is not None:
        parts.append(f"shared by {_name(str(hit.scope))}")
    if item.valid_to is not None:
        parts.append(f"held until {_day(item.valid_to)}")
    for old in hit.outlived:
        now = f', now "{escape_text(old.now)}"' if old.now else ""
        parts.append(f'"{escape_text(old.text)}" held until {_day(old.until)}{now}')
    return parts


def _name(name: str) -> str:
    short = name if len(name) <= _NAME_LIMIT else name[: _NAME_LIMIT - 1] + "…"
    return escape_text(short)


def _day(moment: datetime) -> str:
    return f"{moment.year:04d}-{moment.month:02d}-{moment.day:02d}"
