"""The contracts of search: vectors, words and embedders."""

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
        """Return the nearest items, best first, cosine in -1..1, ties by newer id first.

        An item with several vectors counts with its best. Filter and validity apply before the limit. Never crosses the
        scope. Sees every write acknowledged before the call, by this and by other processes. `background` is the mean
        over every vector of the model that passes filter and validity, each counted, right to about .02. It is None if
        there is none, or if the index does not see them all.
        """

    def cosines(self, query: VectorQuery, ids: Sequence[str]) -> list[float]:
        """Return the cosine of each item, nan if it is not visible or has no vector of the model.

        Ignores filter and limit.
        """


class VectorServer(Protocol):
    """A copy of an item store's vectors on a server of its own. It may be behind the store, and is never the truth.

    Safe to use from several threads. Each model has a collection of its own, so that two are never compared. Every call
    but `close` raises StoreUnavailable without an answer within the timeout, and NotFound if the collection is gone.
    """

    @property
    def where(self) -> str:
        """The server's name for people."""

    def models(self) -> list[str]:
        """Return the models that have a collection."""

    def target(self, model: str, dimension: int) -> str:
        """Return the name of the model's collection in the item store's outbox.

        Creates the collection if there is none; with dimension 0 that is NotFound instead. A collection that was lost
        or cleared and created again has another name, so that it starts with everything.
        """

    def put(self, model: str, points: Sequence[VectorPoint]) -> None:
        """Replace all points of these points' items. Doing it twice changes nothing."""

    def drop(self, model: str, items: Sequence[str]) -> None:
        """Remove all points of these items, and verify that none is left."""

    def count(self, model: str, items: Sequence[str] | None = None) -> int:
        """Count the points of these items, or all points of the model."""

    def nearest(self, query: PointQuery) -> FoundPoints:
        """Search within the scope.

        A point that does not hold may be among the results; one that holds is not left out.
        """

    def remove(self, model: str) -> None:
        """Remove the model's collection."""

    def clear(self) -> None:
        """Remove every collection of this memory."""

    def close(self) -> None:
        """Close the connection. A second call does nothing."""


class Feed(Protocol):
    """The synchronization from an item store to a VectorServer, behind a VectorIndex over both."""

    @property
    def last_error(self) -> str | None:
        """The reason why the server did not answer the last call; None if it did."""

    def feed(self, limit: int) -> int:
        """Bring at most `limit` of the oldest changes to the server and settle them. Return how many.

        StoreUnavailable if the server does not answer: nothing is lost, and the next call continues there.
        """

    def drop(self, items: Collection[str]) -> None:
        """Remove deleted items from the server at once, before other pending changes, and verify it."""

    def lacks(self, scope: Scope, items: Collection[str]) -> bool:
        """Return True if a change of any of these items has not reached the server yet."""

    def refeed(self) -> None:
        """Drop the server's data, so that `feed` starts with everything."""

    def state(self) -> dict[str, Any]:
        """Return the server's address, how many changes it is behind, and why it does not answer."""

    def check(self) -> list[Finding]: ...


class WordIndex(Protocol):
    def best(self, query: WordQuery) -> WordMatches:
        """Return the items with at least one of the terms, best BM25 first (core.bm25), ties by newer id first.

        Filter and validity apply before the limit. Nothing outside the scope changes an order or a number.
        """

    def counts(self, query: WordQuery, ids: Sequence[str]) -> WordMatches:
        """Return the same for these items, in the order asked. Ignores filter and limit.

        An item that is not visible or has none of the terms is left out.
        """


class Embedder(Protocol):
    @property
    def model(self) -> EmbeddingModel: ...

    def embed(self, texts: Sequence[str], kind: EmbedKind) -> Matrix:
        """Return one row per text, float32, unit length.

        The same text gives the same row whatever its neighbours are. A long text is cut at the model's limit, never
        refused.
        """

    def windows(self, text: str) -> list[str]:
        """Split a text into pieces to embed: substrings within the model's limit, in order.

        A short text is one piece.
        """


@runtime_checkable
class SpanPooling(Protocol):
    """An embedder that also returns what its model knows of the parts of a text."""

    def read_text(self, text: str) -> TextStates:
        """Run the model once over a text of one window."""
        ...


class TextStates(Protocol):
    """The result of one pass of the model over a text: its vector, and the states of its words."""

    @property
    def text(self) -> str: ...

    @property
    def vector(self) -> Matrix:
        """The vector that `embed` returns for the text."""

    def pool_spans(self, spans: Sequence[tuple[int, int]]) -> Matrix:
        """Return a row of features for each span."""

    def embed_spans(self, spans: Sequence[tuple[int, int]]) -> Matrix:
        """Return a vector for each span, comparable with those of whole texts. A span of all words has the text's."""


@runtime_checkable
class PartEmbedder(Protocol):
    """An embedder that also embeds the sentences and the words of a text, in the pass that embeds the text."""

    def embed_parts(self, texts: Sequence[str], spans: Sequence[Sequence[tuple[int, int]]]) -> list[Matrix]:
        """Return for each text its own vector, then one for each of its spans: float32, unit length."""
        ...

    def embed_words(self, texts: Sequence[str], limit: int) -> list[Matrix]:
        """Return for each text a vector for each of its first `limit` pieces of words: float32, of length 1 to .001."""
        ...


def pin_embedder(embedder: Embedder) -> Embedder:
    """Return the embedder for one operation, whose model does not change while the operation runs."""
    found: Embedder = getattr(embedder, "settled", embedder)
    return found


def find_span_pooling(embedder: Embedder) -> SpanPooling | None:
    """Return the embedder that pools spans, behind the one that checks its vectors; None if it cannot."""
    found = _get_unchecked(embedder)
    return found if isinstance(found, SpanPooling) else None


def find_part_embedder(embedder: Embedder) -> PartEmbedder | None:
    """Return the embedder that embeds parts of texts, behind the one that checks its vectors; None if it cannot."""
    found = _get_unchecked(embedder)
    return found if isinstance(found, PartEmbedder) else None


def _get_unchecked(embedder: Embedder) -> object:
    pinned = pin_embedder(embedder)
    return getattr(pinned, "unchecked", pinned)


@runtime_checkable
class VectorModels(Protocol):
    """The vectors of each model in all scopes. For maintenance only, because it crosses scopes."""

    def models(self) -> Mapping[str, int]:
        """Return the number of items with vectors of each model, by the model's key.

        Models without vectors are left out.
        """

    def drop_model(self, model: str, limit: int) -> int:
        """Remove this model's vectors of at most `limit` items, which count as changed. Return how many.

        Other models' vectors stay.
        """
