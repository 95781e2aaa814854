"""What is asked of a store and what it answers, as values."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

from engrain.core.filters import Filter
from engrain.core.items import Cite
from engrain.core.scope import Scope

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


class Outdated(NamedTuple):
    """A span of a message from which an item was taken that has since been replaced."""

    id: str
    start: int
    end: int
    until: datetime
    now: str | None  # the text that holds at present


class Lineage(NamedTuple):
    """`item` rests on `cite`."""

    item: str
    cite: Cite


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


class Unembedded(NamedTuple):
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
    """One point of a store's own check: what was looked at, how it stands, why, and what mends it."""

    point: str
    state: Literal["pass", "warn", "fail"]
    why: str
    mend: str = ""


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
class Matches:
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


class Behind(NamedTuple):
    """A session with messages from number `upto` on that some work has not seen yet."""

    scope: Scope
    session: str
    upto: int
    length: int
