"""Requests and results of recall, and their text block for the prompt."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from engrain.core.identity import Scope
from engrain.core.model.filters import Filter
from engrain.core.model.items import TRUST, Item
from engrain.core.text.invisible import escape_invisible
from engrain.core.validation import fields_to_plain

Reason = Literal["floor", "n", "budget", "source", "trust", "double"]

SESSION_HEADING, RECENT_HEADING = "Current session", "Recent context"
FACTS, KNOWLEDGE, HOW_TO, OTHERS = "Facts", "Relevant knowledge", "How to", "Said by others"

SUMMARY_LABEL = "in short"  # opens the lines of a summary
_ENDLESS = datetime(9999, 1, 1, tzinfo=UTC)
_NAME_LIMIT = 80
_REASONS: Mapping[str, str] = {
    "floor": "below the relevance floor",
    "n": "beyond the number asked for",
    "budget": "too long for the budget",
    "source": "set back because one source would have filled the answer",
    "trust": "set back because others' texts would have filled the answer",
    "double": "that repeat a hit",
}

# Stored text must not be able to end its quotes or start a line of its own.
_ESCAPES = {
    ord('"'): '\\"',
    ord("\\"): "\\\\",
    ord("\n"): "\\n",
    ord("\r"): "\\r",
    ord("\t"): "\\t",
}
_PLAIN_NAME = re.compile(r"[\w.@/:+#=-]+")


@dataclass(frozen=True, slots=True)
class Section:
    """A heading of the prompt block, and its lines."""

    title: str
    lines: tuple[str, ...]

    def __str__(self) -> str:
        return "\n".join((f"## {self.title}", *self.lines))


@dataclass(frozen=True, slots=True)
class RecallRequest:
    """`scopes` are the memory's own scope, then those that it may read. `min_relevance=None` is the embedder's floor.

    `context` precedes the hits: the current task and recent events. `shown` are items that the prompt has already:
    they are not repeated.
    """

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
    """Words of a hit that no longer hold: until when they held, and what holds now."""

    text: str
    until: datetime
    now: str | None


@dataclass(frozen=True, slots=True)
class Hit:
    """A found item. `text` is the whole of a short item and the best passage of a long one, at `span`.

    `score` orders the hits of one query. `relevance` is absolute, from 0 to 1. `arms` splits the score into its parts.
    `scope` is the memory that it was read from, None for the caller's own.
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
        details = "; ".join(_list_details(self))
        if self.item.kind == "summary":
            return "\n".join((f"- {SUMMARY_LABEL} ({details}):", *quote_lines(self.text)))
        slot = f"{quote_name(self.item.slot)}: " if self.item.slot and self.item.kind == "fact" else ""
        return f'- {slot}"{escape_text(self.text)}" ({details})'


@dataclass(frozen=True, slots=True)
class Omitted:
    """The number of items that were found and not returned for one reason, with the best ids and relevance."""

    reason: Reason
    count: int
    best: tuple[str, ...]
    relevance: float

    def __str__(self) -> str:
        return f"{self.count} {_REASONS[self.reason]} (best relevance {math.floor(self.relevance * 100) / 100:.2f})"


@dataclass(frozen=True, slots=True)
class Degraded:
    """A part of the memory whose server did not answer, and why. The result was made without it."""

    part: Literal["recent context", "vector server"]
    why: str

    def __str__(self) -> str:
        return f"without the {self.part}: {self.why}"


@dataclass(frozen=True, slots=True)
class Recall:
    """The hits of a recall. It is false without hits, even if it has context.

    `str()` is the prompt block: sections of quoted items with date and source, one a line.
    """

    hits: tuple[Hit, ...] = ()
    tokens: int = 0
    omitted: tuple[Omitted, ...] = ()
    context: tuple[Section, ...] = ()
    degraded: tuple[Degraded, ...] = ()

    @property
    def sections(self) -> tuple[Section, ...]:
        return (*self.context, *group_hits(self.hits))

    def __str__(self) -> str:
        return render_block(self.context, self.hits)

    def __bool__(self) -> bool:
        return bool(self.hits)

    def __iter__(self) -> Iterator[Hit]:
        return iter(self.hits)

    def __len__(self) -> int:
        return len(self.hits)

    def to_dict(self) -> dict[str, Any]:
        """Return plain JSON: times as ISO 8601 texts, tuples as lists."""
        return fields_to_plain(self)


def group_hits(hits: Iterable[Hit]) -> tuple[Section, ...]:
    """Group hits under their headings, each in the given order. Empty headings are left out."""
    lines: dict[str, list[str]] = {FACTS: [], KNOWLEDGE: [], HOW_TO: [], OTHERS: []}
    for hit in hits:
        lines[choose_heading(hit)].append(str(hit))
    return tuple(Section(title, tuple(quoted)) for title, quoted in lines.items() if quoted)


def choose_heading(hit: Hit) -> str:
    # A summary names the speaker of each line itself.
    if hit.item.trust < TRUST["agent"] and hit.item.kind != "summary":
        return OTHERS
    if hit.item.kind == "procedure":
        return HOW_TO
    return FACTS if hit.item.slot and hit.item.kind == "fact" else KNOWLEDGE


def render_block(context: Iterable[Section], hits: Iterable[Hit]) -> str:
    return "\n\n".join(map(str, (*context, *group_hits(hits))))


def quote_item(item: Item, outlived: tuple[OutdatedText, ...] = ()) -> str:
    """Return a whole item as the line that recall would write."""
    return str(Hit(item, item.text, (0, len(item.text)), 0.0, 0.0, outlived=outlived))


def escape_text(text: str) -> str:
    """Escape a text for its quotes: quotation marks, line ends and every character that is not seen."""
    return escape_invisible(text.translate(_ESCAPES))


def quote_lines(text: str) -> list[str]:
    """Quote each line of a text."""
    return [f'  "{escape_text(line)}"' for line in text.split("\n") if line.strip()]


def _list_details(hit: Hit) -> list[str]:
    item = hit.item
    day, since = _format_day(item.occurred_at or item.recorded_at), item.metadata.get("since")
    parts = [f"{since} to {day}" if item.kind == "summary" and isinstance(since, str) and since < day else day]
    if item.speaker or item.role:
        parts[0] += f", said by {quote_name(item.speaker) if item.speaker else f'the {item.role}'}"
    if item.source:
        parts[0] += f", from {quote_name(item.source)}"
    if item.kind == "summary" and item.slot:
        parts[0] += f", summary of session {quote_name(item.slot.removeprefix('session:'))}"
    if hit.scope is not None:
        parts.append(f"shared by {quote_name(str(hit.scope))}")
    if item.valid_to is not None:
        parts.append(f"held until {_format_day(item.valid_to)}")
    for old in hit.outlived:
        now = f', now "{escape_text(old.now)}"' if old.now else ""
        parts.append(f'"{escape_text(old.text)}" held until {_format_day(old.until)}{now}')
    return parts


def quote_name(name: str) -> str:
    """Return a name of one plain word as it is, and any other in quotes: it must not pass for words of the block."""
    short = escape_text(name if len(name) <= _NAME_LIMIT else name[: _NAME_LIMIT - 1] + "…")
    return short if _PLAIN_NAME.fullmatch(short) else f'"{short}"'


def _format_day(moment: datetime) -> str:
    return f"{moment.year:04d}-{moment.month:02d}-{moment.day:02d}"
