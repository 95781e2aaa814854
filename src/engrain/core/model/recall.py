"""Recall as values: what is asked, what was found, and the block for the prompt."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, cast, get_args

from engrain.core.errors import InvalidInput
from engrain.core.identity import Scope, is_sortable_id
from engrain.core.model.filters import Filter
from engrain.core.model.items import TRUST, Item
from engrain.core.text.absolute_dates import add_absolute_dates
from engrain.core.text.invisible import escape_invisible
from engrain.core.validation import fields_to_plain

# What a prompt opens with, in this order. Wishes are the user's own words, and the only part that is no mere data.
WISHES_HEADING, PROFILE_HEADING = "What the user always wants", "About the user"
SESSION_HEADING, RECENT_HEADING = "Current session", "Recent context"
FACTS, KNOWLEDGE, HOW_TO, OTHERS = HEADINGS = "Facts", "Relevant knowledge", "How to", "Said by others"

SUMMARY_LABEL = "in short"  # opens the lines of a summary
EARLIER_MARK = "(earlier) "  # opens the line of a statement after which something newer was said
_NAME_LIMIT = 80
_ENDS = " .!\n"
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


def group_hits(hits: Iterable[Hit]) -> tuple[Section, ...]:
    """Group hits under their headings, each in the given order. A hit that the context tells is not repeated."""
    lines: dict[str, list[str]] = {title: [] for title in HEADINGS}
    for hit in (hit for hit in hits if not hit.in_context):
        lines[choose_heading(hit)].append(render_hit(hit))
    return tuple(Section(title, tuple(quoted)) for title, quoted in lines.items() if quoted)


def choose_heading(hit: Hit) -> str:
    # A summary names the speaker of each line itself.
    if hit.quoting or (hit.item.trust < TRUST["agent"] and hit.item.kind != "summary"):
        return OTHERS
    if hit.item.kind == "procedure":
        return HOW_TO
    return FACTS if hit.item.slot and hit.item.kind == "fact" else KNOWLEDGE


def render_block(context: Iterable[Section], hits: Iterable[Hit]) -> str:
    return "\n\n".join(map(str, (*context, *group_hits(hits))))


def render_hit(hit: Hit) -> str:
    """Write the line of a hit: its slot, the quoted text, and in brackets date, speaker and source."""
    details = "; ".join(_list_details(hit))
    if hit.item.kind == "summary":
        return "\n".join((f"- {SUMMARY_LABEL} ({details}):", *quote_lines(hit.text)))
    slot = f"{quote_name(hit.item.slot)}: " if hit.item.slot and hit.item.kind == "fact" else ""
    mark = EARLIER_MARK if hit.earlier and not hit.outdated else ""
    return f'- {mark}{slot}"{escape_text(_date_text(hit))}" ({details})'


def _date_text(hit: Hit) -> str:
    """Return the text with the dates that "yesterday" and the like meant when it was said."""
    item = hit.item
    is_told = item.kind in ("message", "fact", "episode") and item.trust >= TRUST["agent"]
    return add_absolute_dates(hit.text, (item.occurred_at or item.recorded_at).date()) if is_told else hit.text


def escape_text(text: str) -> str:
    """Escape a text for its quotes: quotation marks, line ends and every character that is not seen."""
    if text.isascii() and text.isprintable() and '"' not in text and "\\" not in text:
        return text
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
    name = item.slot.removeprefix("session:") if item.kind == "summary" and item.slot else ""
    # A name that engrain drew tells the model nothing, and costs twenty tokens.
    if name and not is_sortable_id(name):
        parts[0] += f", summary of session {quote_name(name)}"
    if hit.scope is not None:
        parts.append(f"shared by {quote_name(str(hit.scope))}")
    if item.valid_to is not None:
        parts.append(f"held until {_format_day(item.valid_to)}")
    for old in hit.outdated:
        now = f', now "{escape_text(old.now)}"' if old.now else ""
        whole = old.text.strip(_ENDS) == hit.text.strip(_ENDS)  # it need not be said twice
        quoted = "" if whole else f'"{escape_text(old.text)}" '
        parts.append(f"{quoted}held until {_format_day(old.until)}{now}")
    return parts


def quote_name(name: str) -> str:
    """Return a name of one plain word as it is, and any other in quotes: it must not pass for words of the block."""
    short = escape_text(name if len(name) <= _NAME_LIMIT else name[: _NAME_LIMIT - 1] + "…")
    return short if _PLAIN_NAME.fullmatch(short) else f'"{short}"'


def _format_day(time: datetime) -> str:
    return f"{time.year:04d}-{time.month:02d}-{time.day:02d}"


Effort = Literal["quick", "thorough"]
Reason = Literal["floor", "n", "budget", "source", "trust", "double"]

_ENDLESS = datetime(9999, 1, 1, tzinfo=UTC)
_REASONS: Mapping[str, str] = {
    "floor": "below the relevance floor",
    "n": "beyond the number asked for",
    "budget": "too long for the budget",
    "source": "set back because one source would have filled the answer",
    "trust": "set back because others' texts would have filled the answer",
    "double": "that repeat a hit",
}


@dataclass(frozen=True, slots=True)
class RecallRequest:
    """`scopes` are the memory's own scope, then those that it may read. `min_relevance=None` is the embedder's floor.

    `context` precedes the hits: standing wishes, the profile, the current task and recent events. `context_facts` are
    the facts in it. `shown` are items that the prompt has already: they are not repeated. A thorough search compares
    the best candidates once more.
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
    context_facts: tuple[ContextFact, ...] = ()
    effort: Effort = "quick"


def check_effort(value: object) -> Effort:
    if value not in get_args(Effort):
        raise InvalidInput(f"effort must be one of {', '.join(get_args(Effort))}, not {value!r}.")
    return cast(Effort, value)


@dataclass(frozen=True, slots=True)
class ContextFact:
    """A fact that the context tells in one of its lines."""

    item: Item
    line: str


@dataclass(frozen=True, slots=True)
class OutdatedText:
    """Words of a hit that no longer hold: until when they held, and what holds now, with its id."""

    text: str
    until: datetime
    now: str | None
    by: str | None = None


@dataclass(frozen=True, slots=True)
class Hit:
    """A found item. `text` is the whole of a short item and the best passage of a long one, at `span`.

    `score` orders the hits of one query. `relevance` is absolute, from 0 to 1. `score_parts` are its parts.
    `scope` is the memory that it was read from, None for the caller's own. `in_context`: the block says it already.
    `earlier`: something newer was said about the same matter since, and may have changed it.
    `quoting`: a user's message that matches only in words of others.
    """

    item: Item
    text: str
    span: tuple[int, int]
    score: float
    relevance: float
    found_by: tuple[str, ...] = ()
    score_parts: Mapping[str, float] = field(default_factory=dict)
    outdated: tuple[OutdatedText, ...] = ()
    scope: Scope | None = None
    in_context: bool = False
    earlier: bool = False
    quoting: bool = False

    @property
    def stale(self) -> bool:
        """Tell if the hit is shown for its past: a third of it no longer holds, or something newer was said."""
        if self.earlier or self.item.valid_to is not None:
            return True
        return bool(self.outdated) and sum(len(old.text) for old in self.outdated) > len(self.text) / 3

    def __str__(self) -> str:
        return render_hit(self)


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
    """A part of the memory that did not answer, or not in time, and why. The result was made without it."""

    part: Literal["recent context", "vector server", "meaning", "thorough comparison", "reranker"]
    why: str

    def __str__(self) -> str:
        return f"without the {self.part}: {self.why}"


@dataclass(frozen=True, slots=True)
class Recall:
    """The hits of a recall. It is false without hits, even if it has context.

    `str()` is the prompt block: sections of quoted items with date and source, one a line. `confidence`, from 0 to 1,
    tells if the question belongs to this memory at all: it is the best relevance, also below the floor. A topic that is
    there without the answer looks the same as one with it.
    """

    hits: tuple[Hit, ...] = ()
    tokens: int = 0
    omitted: tuple[Omitted, ...] = ()
    context: tuple[Section, ...] = ()
    degraded: tuple[Degraded, ...] = ()
    confidence: float = 0.0

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


def quote_item(item: Item, outdated: tuple[OutdatedText, ...] = ()) -> str:
    """Return a whole item as the line that recall would write."""
    return str(Hit(item, item.text, (0, len(item.text)), 0.0, 0.0, outdated=outdated))
