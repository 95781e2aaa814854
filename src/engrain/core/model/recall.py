"""Requests and results of recall. Their text for the prompt is made in `recall_block`."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal, cast, get_args

from engrain.core.errors import InvalidInput
from engrain.core.identity import Scope
from engrain.core.model.filters import Filter
from engrain.core.model.items import Item
from engrain.core.model.recall_block import Section, group_hits, render_block, render_hit
from engrain.core.validation import fields_to_plain

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

    `context` precedes the hits: standing wishes, the profile, the current task and recent events. `told` are the facts
    in it. `shown` are items that the prompt has already: they are not repeated. A thorough search compares the best
    candidates once more.
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
    told: tuple[ToldFact, ...] = ()
    effort: Effort = "quick"


def check_effort(value: object) -> Effort:
    if value not in get_args(Effort):
        raise InvalidInput(f"effort must be one of {', '.join(get_args(Effort))}, not {value!r}.")
    return cast(Effort, value)


@dataclass(frozen=True, slots=True)
class ToldFact:
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

    `score` orders the hits of one query. `relevance` is absolute, from 0 to 1. `arms` splits the score into its parts.
    `scope` is the memory that it was read from, None for the caller's own. `told`: the context of the block says it.
    `earlier`: something newer was said about the same matter since, and may have changed it.
    `quoting`: a user's message that matches only in words of others.
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
    told: bool = False
    earlier: bool = False
    quoting: bool = False

    @property
    def stale(self) -> bool:
        """Tell if the hit is shown for its past: a third of it no longer holds, or something newer was said."""
        outlived = sum(len(old.text) for old in self.outlived)
        return self.earlier or self.item.valid_to is not None or outlived > len(self.text) / 3

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


def quote_item(item: Item, outlived: tuple[OutdatedText, ...] = ()) -> str:
    """Return a whole item as the line that recall would write."""
    return str(Hit(item, item.text, (0, len(item.text)), 0.0, 0.0, outlived=outlived))
