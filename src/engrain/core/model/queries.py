"""Queries to the stores and their answers: lists, vector and word search, change feed, outbox and status."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from engrain.core.clock import to_micros
from engrain.core.identity import Scope
from engrain.core.model.filters import Filter
from engrain.core.model.items import Citation, Item

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Matrix = npt.NDArray[np.float32]
    Floats = npt.NDArray[np.float64]
    Ints = npt.NDArray[np.int64]
    Names = npt.NDArray[np.object_]


@dataclass(frozen=True, slots=True)
class ListQuery:
    """Items, newest recorded first, which is the descending order of their ids.

    Those visible at `at`. With `history`, closed, corrected and expired versions too; then `at` is ignored.
    """

    scope: Scope
    where: Filter | None = None
    at: datetime | None = None
    history: bool = False
    limit: int = 100
    after: str | None = None  # the id of the last item of the previous page


@dataclass(frozen=True, slots=True)
class SketchQuery:
    scope: Scope
    ids: Sequence[str]
    reach: int = 2
    where: Filter | None = None
    at: datetime | None = None


class Sketch(NamedTuple):
    """The fields of an item that ranking needs, without its text."""

    id: str
    kind: str
    session: str | None
    place: int | None
    speaker: str | None
    role: str | None
    occurred_at: float  # seconds since 1970; the recording time if none was given
    traits: int
    passages: int
    importance: float
    pinned: bool
    trust: float
    source: str | None


class OutdatedSpan(NamedTuple):
    """A span of a message whose derived item was replaced since. `now` and `by` are the current text and its item."""

    id: str
    start: int
    end: int
    until: datetime
    now: str | None
    by: str | None = None


class ItemCitation(NamedTuple):
    """`item` cites `cite`."""

    item: str
    cite: Citation


class ItemChange(NamedTuple):
    seq: int
    id: str
    deleted: bool


@dataclass(frozen=True, slots=True)
class Changes:
    """`seq` is the last change that was read: pass it as `since` next. `complete` is False if more follow."""

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
    """A write or removal of `item` that an index has not received yet."""

    seq: int
    scope: Scope
    item: str
    deleted: bool


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
    hidden: bool = False  # the database role sees one scope at a time, so counts over all scopes are unknown
    records: int = 0


class Finding(NamedTuple):
    """One point of a store's own check: its state, the reason and the remedy."""

    point: str
    state: Literal["pass", "warn", "fail"]
    why: str
    fix: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class VectorQuery:
    """`model` is EmbeddingModel.key: vectors of different models are never compared."""

    vector: Matrix
    model: str
    scope: Scope
    where: Filter | None = None
    at: datetime | None = None
    limit: int = 10


@dataclass(frozen=True, slots=True)
class Nearest:
    """`background` is the mean cosine of the query to all vectors that were compared."""

    ids: list[str]
    cosines: list[float]
    exact: bool = True
    background: float | None = None


@dataclass(frozen=True, slots=True)
class WordQuery:
    """`terms` are the numbers of `hash_term`, each once."""

    terms: tuple[int, ...]
    scope: Scope
    where: Filter | None = None
    at: datetime | None = None
    limit: int = 10


class WordHit(NamedTuple):
    """An item's best passage by BM25, the first of equals.

    `length` is the sum of the passage's counts. `counts` says how often each term of the query is in it.
    """

    id: str
    passage: int
    length: int
    counts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class WordMatches:
    """Hits, and the scope's statistics over the passages of all its visible items, whatever the filter."""

    hits: list[WordHit]
    passages: int
    average: float
    frequency: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class CandidateQuery:
    """The search of a recall in one scope: by words, by meaning and by traits, at most `limit` by each.

    Neighbours up to `reach` places away in the same session come along. If fewer than `min_trusted` of all are trusted
    and a search was full, both searches are repeated among items of at least `trust`. An item with `foreign_traits`,
    such as a message that quotes others, does not count as trusted where a store can tell.
    """

    words: WordQuery
    vector: VectorQuery | None = None
    near: Nearest | None = None  # found by another index, in place of `vector`
    traits: int = 0
    max_with_traits: int = 50
    reach: int = 1
    min_trusted: int = 0
    trust: float = 0.0
    foreign_traits: int = 0


BY_MEANING, BY_WORDS, BY_TRAITS = 1, 2, 4


@dataclass(frozen=True, slots=True, eq=False)
class ItemColumns:
    """The fields of items that ranking needs, one item a row. A session is a number, -1 for none, as is a place."""

    ids: list[str]
    kind: Names
    role: Names
    speaker: Names
    source: Names
    session: Ints
    place: Ints
    occurred_at: Floats  # seconds since 1970; the recording time if none was given
    traits: Ints
    importance: Floats
    pinned: Floats
    trust: Floats


@dataclass(frozen=True, slots=True, eq=False)
class WordColumns:
    """The best passages of those candidates that have a word of the query: `rows` are theirs, in rising order."""

    rows: Ints
    passage: Ints
    length: Ints
    counts: Floats  # a column per term
    passages: int  # of the scope, as in WordMatches
    average: float
    frequency: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Candidates:
    """The candidates of one scope for a query, one a row, ordered by age: each once, with its neighbours."""

    items: ItemColumns
    words: WordColumns
    cosine: Floats  # nan without a vector
    found_by: Ints  # BY_MEANING, BY_WORDS, BY_TRAITS; 0 for a neighbour
    nearest: tuple[int, float, float | None] = (0, 0.0, None)  # found by meaning: how many, the best, the background

    def __len__(self) -> int:
        return len(self.items.ids)


@dataclass(frozen=True, slots=True)
class Summary:
    """A session's rolling summary of the messages before number `upto`. Without a text, the window was cleared there.

    `version` rises with every summary and with every forget in the session.
    `by` names the author: "digest" for the extractive summary, or a model's name.
    """

    text: str
    upto: int
    version: int
    by: str = ""


class UnprocessedSession(NamedTuple):
    """A session whose messages from number `upto` on some work has not read yet."""

    scope: Scope
    session: str
    upto: int
    length: int


FOREVER = 2**50  # the `ends` of a point without an end, later than every time


class VectorPoint(NamedTuple):
    """`row` is float32, unit length. It is valid from second `begins` until before second `ends`."""

    item: str
    window: int
    scope: str
    begins: int
    ends: int
    row: bytes


@dataclass(frozen=True, slots=True, eq=False)
class PointQuery:
    """The points of one scope that are valid in second `at`. With `at_least`, points that begin later count too."""

    vector: Matrix
    model: str
    scope: str
    at: int
    limit: int
    at_least: bool = False


@dataclass(frozen=True, slots=True)
class FoundPoints:
    """The items of the nearest points, best first, one per point. Fewer than the limit means that there are no more."""

    items: list[str]
    cosines: list[float]
    exact: bool


def item_to_points(item: Item, scope: str, rows: tuple[bytes, ...]) -> list[VectorPoint]:
    """Return the points of an item. A corrected item has none, because it is valid at no moment."""
    if item.retracted_at is not None:
        return []
    ends = min((to_seconds(end) + 1 for end in (item.valid_to, item.expires_at) if end), default=FOREVER)
    begins = to_seconds(item.valid_from)
    return [VectorPoint(item.id, number, scope, begins, ends, row) for number, row in enumerate(rows)]


def to_seconds(when: datetime) -> int:
    """Return whole seconds since 1970. Servers compare float64, which has no room for microseconds of far years."""
    return to_micros(when) // 1_000_000


EmbedKind = Literal["query", "document"]


@dataclass(frozen=True, slots=True)
class EmbeddingModel:
    """`floor` is the calibrated relevance below which a hit is omitted.

    `mean` and `deviation` are those of the cosine of unrelated texts: ranking standardizes every model's cosines.
    """

    name: str
    hash: str
    dimension: int
    floor: float = 0.2
    mean: float = 0.15
    deviation: float = 0.12

    @property
    def key(self) -> str:
        """The name of this model's vectors in a store. Two models never share a key."""
        return f"{self.name}/{self.dimension}/{self.hash[:12]}"
