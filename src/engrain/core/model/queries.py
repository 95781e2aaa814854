"""What is asked of a store and what it answers, as values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from engrain.core.clock import from_micros
from engrain.core.identity import Scope
from engrain.core.model.filters import Filter
from engrain.core.model.items import Citation, Item

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Matrix = npt.NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class ListQuery:
    """Which items, newest recorded first, which is the order of their ids, last to first.

    Those visible at `at`; with `history` closed, corrected and expired versions as well, and `at` plays no part.
    """

    scope: Scope
    where: Filter | None = None
    at: datetime | None = None
    history: bool = False
    limit: int = 100
    after: str | None = None  # the id of the last item of the page before


@dataclass(frozen=True, slots=True)
class SketchQuery:
    scope: Scope
    ids: Sequence[str]
    reach: int = 2
    where: Filter | None = None
    at: datetime | None = None


class Sketch(NamedTuple):
    """What ranking needs to know of an item, without its text."""

    id: str
    kind: str
    session: str | None
    place: int | None
    speaker: str | None
    role: str | None
    occurred_at: float  # seconds since 1970: when it happened, or else when it was recorded
    traits: int
    passages: int
    importance: float
    pinned: bool
    trust: float
    source: str | None


class OutdatedSpan(NamedTuple):
    """A span of a message from which an item was taken that has since been replaced."""

    id: str
    start: int
    end: int
    until: datetime
    now: str | None  # the text that holds at present


class ItemCitation(NamedTuple):
    """`item` rests on `cite`."""

    item: str
    cite: Citation


class ItemChange(NamedTuple):
    seq: int
    id: str
    gone: bool


@dataclass(frozen=True, slots=True)
class Changes:
    """`seq` is what the reader has now seen; pass it as `since` the next time. `complete` is False if more follow."""

    seq: int
    changes: tuple[ItemChange, ...]
    complete: bool = True


class UnembeddedItem(NamedTuple):
    scope: Scope
    id: str
    text: str
    kind: str
    hash: str
    slot: str | None = None


class OutboxEntry(NamedTuple):
    """`item` was written or removed, and the index `target` does not know it yet."""

    seq: int
    scope: Scope
    item: str
    gone: bool


@dataclass(frozen=True, slots=True)
class StoreStatus:
    backend: str
    location: str
    schema: int
    items: int
    open_items: int
    scopes: int
    bytes: int
    seq: int
    unembedded: int
    purge_pending: bool
    details: Mapping[str, Any] = field(default_factory=dict)
    hidden: bool = False  # the role sees one scope at a time: what would be counted across all of them is not known


class Finding(NamedTuple):
    """One point of a store's own check: what was looked at, how it stands, why, and what fixes it."""

    point: str
    state: Literal["pass", "warn", "fail"]
    why: str
    fix: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class VectorQuery:
    """`model` is EmbeddingModel.key; vectors of another model are never compared."""

    vector: Matrix
    model: str
    scope: Scope
    where: Filter | None = None
    at: datetime | None = None
    limit: int = 10


@dataclass(frozen=True, slots=True)
class Nearest:
    """`background` is the mean cosine of the query to all the vectors it was compared with."""

    ids: list[str]
    cosines: list[float]
    exact: bool = True
    background: float | None = None


@dataclass(frozen=True, slots=True)
class WordQuery:
    """`terms` are core.words terms, each once."""

    terms: tuple[int, ...]
    scope: Scope
    where: Filter | None = None
    at: datetime | None = None
    limit: int = 10


class WordHit(NamedTuple):
    """An item's best passage by BM25, the first of equals: its number, its length (the sum of its counts), how often
    each term of the query is in it."""

    id: str
    passage: int
    length: int
    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class WordMatches:
    """Hits, and the scope's own statistics over the passages of its visible items, whatever the filter says."""

    hits: list[WordHit]
    passages: int
    average: float
    frequency: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Summary:
    """A session's rolling summary of the messages before number `upto`. With no text, the window was cleared there.

    `version` rises with every summary, and with all that is forgotten in the session. `by` says who made it: "digest"
    for the extractive one, or a model's name.
    """

    text: str
    upto: int
    version: int
    by: str = ""


class UnprocessedSession(NamedTuple):
    """A session with messages from number `upto` on that some work has not seen yet."""

    scope: Scope
    session: str
    upto: int
    length: int


FOREVER = 2**50  # the end of what has none; past every time there is
_EPOCH = from_micros(0)


class VectorPoint(NamedTuple):
    """`row` is float32, unit length. It held from the second `begins` on and before the second `ends`."""

    item: str
    window: int
    scope: str
    begins: int
    ends: int
    row: bytes


@dataclass(frozen=True, slots=True, eq=False)
class PointQuery:
    """What held in the second `at`, of one scope. With `at_least` only the end counts: what is over is left out."""

    vector: Matrix
    model: str
    scope: str
    at: int
    limit: int
    at_least: bool = False


@dataclass(frozen=True, slots=True)
class FoundPoints:
    """The items of the nearest points, best first, one for each point; fewer than the limit if there are no more."""

    items: list[str]
    cosines: list[float]
    exact: bool


def item_to_points(item: Item, scope: str, rows: tuple[bytes, ...]) -> list[VectorPoint]:
    """None of an item that was corrected: it answers no moment at all."""
    if item.retracted_at is not None:
        return []
    ends = min((to_seconds(one) + 1 for one in (item.valid_to, item.expires_at) if one), default=FOREVER)
    begins = to_seconds(item.valid_from)
    return [VectorPoint(item.id, number, scope, begins, ends, row) for number, row in enumerate(rows)]


def to_seconds(moment: datetime) -> int:
    """Whole seconds since 1970: servers compare numbers as float64, which holds no microseconds of far years."""
    return (moment - _EPOCH) // (from_micros(1_000_000) - _EPOCH)


EmbedKind = Literal["query", "document"]


@dataclass(frozen=True, slots=True)
class EmbeddingModel:
    """`floor` is the calibrated relevance under which a hit is left out; `mean` and `deviation` are those of the cosine
    between texts that have nothing to do with each other, so that ranking can standardise any model's cosines."""

    name: str
    hash: str
    dimension: int
    floor: float = 0.2
    mean: float = 0.15
    deviation: float = 0.12

    @property
    def key(self) -> str:
        """Names the vectors of this model in a store: two models never share a key."""
        return f"{self.name}/{self.dimension}/{self.hash[:12]}"
