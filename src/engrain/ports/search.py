"""The contracts of search: vectors, words, and what makes vectors."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from engrain.core.identity import Scope
from engrain.core.model.queries import (
    EmbeddingModel,
    EmbedKind,
    Finding,
    FoundPoints,
    Nearest,
    PointQuery,
    VectorPoint,
    VectorQuery,
    WordMatches,
    WordQuery,
)

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Matrix = npt.NDArray[np.float32]


class VectorIndex(Protocol):
    def nearest(self, query: VectorQuery) -> Nearest:
        """Best first, cosine in -1..1, ties by newer id first; an item with several vectors counts with its best.

        Filter and validity apply before the limit. Never crosses the scope. Sees every write acknowledged before
        the call, of this and of other processes. `background` is the mean over every vector of the model that passes
        filter and validity, each counted, right to about .02; None if there is none, or in an index that does not see
        them all.
        """

    def cosines(self, query: VectorQuery, ids: Sequence[str]) -> list[float]:
        """The cosine of each of these items, nan where it is not visible or has no vector of the model; filter and
        limit play no part."""


class VectorServer(Protocol):
    """A copy of vectors on a server of its own, fed from an item store. It may be behind the store, and is never the
    truth. Safe to use from several threads. Each model has a collection of its own, so that two are never compared.

    Every call but `close` raises StoreUnavailable if there is no answer within the time-out, and NotFound if the
    collection is no longer there.
    """

    @property
    def where(self) -> str:
        """The server as it is named to people."""

    def models(self) -> list[str]:
        """Those that have a collection."""

    def target(self, model: str, dimension: int) -> str:
        """The model's collection as the item store's outbox knows it: made if there is none, but not with dimension 0,
        which is NotFound. One that was lost or cleared and made anew has another name, so that it begins with
        everything."""

    def put(self, model: str, points: Sequence[VectorPoint]) -> None:
        """In place of all that their items had. Doing it twice changes nothing."""

    def drop(self, model: str, items: Sequence[str]) -> None:
        """Removes all points of these items, and looks that none is left."""

    def count(self, model: str, items: Sequence[str] | None = None) -> int:
        """The points of these items, or all of the model's."""

    def nearest(self, query: PointQuery) -> FoundPoints:
        """Never crosses the scope. A point that does not hold may be among them, one that holds is not left out."""

    def remove(self, model: str) -> None:
        """Removes the model's collection."""

    def clear(self) -> None:
        """Removes every collection of this memory."""

    def close(self) -> None:
        """A second call does nothing."""


class Feed(Protocol):
    """The way from an item store to a VectorServer, behind a VectorIndex that is over both."""

    @property
    def trouble(self) -> str | None:
        """Why the server did not answer the last time; None if it did."""

    def feed(self, limit: int) -> int:
        """Brings the oldest changes to the server, at most so many, and settles them; how many. StoreUnavailable if
        the server does not answer: nothing is lost, and the next call goes on there."""

    def drop(self, items: Collection[str]) -> None:
        """Takes items that are gone off the server at once, whatever else is still to come, and looks that none is
        left."""

    def lacks(self, scope: Scope, items: Collection[str]) -> bool:
        """Whether a change of any of these is still to come to the server."""

    def refeed(self) -> None:
        """Drops what the server has; `feed` then begins with everything."""

    def state(self) -> dict[str, Any]:
        """Where the server is, how many changes it is behind, and why it does not answer."""

    def check(self) -> list[Finding]: ...


class WordIndex(Protocol):
    def best(self, query: WordQuery) -> WordMatches:
        """Items with at least one of the terms, best BM25 first (core.bm25), ties by newer id first.

        Filter and validity apply before the limit. Nothing outside the scope changes an order or a number.
        """

    def counts(self, query: WordQuery, ids: Sequence[str]) -> WordMatches:
        """The same for these items, in the order asked; one that is not visible or has none of the terms is left out.
        Filter and limit play no part."""


class Embedder(Protocol):
    @property
    def model(self) -> EmbeddingModel: ...

    def embed(self, texts: Sequence[str], kind: EmbedKind) -> Matrix:
        """One row per text, float32, unit length. The same text gives the same row whatever its neighbours are. A long
        text is cut at the model's limit, never refused."""

    def windows(self, text: str) -> list[str]:
        """The pieces of a text to embed, each a substring within the model's limit, in order; a short text is one."""


def settled(embedder: Embedder) -> Embedder:
    """To be asked once for everything that belongs together: an embedder may be about to change its model."""
    found: Embedder = getattr(embedder, "settled", embedder)
    return found


@runtime_checkable
class VectorModels(Protocol):
    """In all scopes: for upkeep, not for callers who are inside one."""

    def models(self) -> Mapping[str, int]:
        """How many items have vectors of each model, by the model's key; none that has no vectors."""

    def drop_model(self, model: str, limit: int) -> int:
        """Removes this model's vectors of at most so many items, which change by it; of how many. Other models' vectors
        stay."""
