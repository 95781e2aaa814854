"""The contracts of search: vectors, words, and what makes vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Protocol

from engrain.core.embedding import EmbeddingModel, EmbedKind
from engrain.core.queries import Matches, Nearest, VectorQuery, WordQuery

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


class WordIndex(Protocol):
    def best(self, query: WordQuery) -> Matches:
        """Items with at least one of the terms, best BM25 first (core.bm25), ties by newer id first.

        Filter and validity apply before the limit. Nothing outside the scope changes an order or a number.
        """

    def counts(self, query: WordQuery, ids: Sequence[str]) -> Matches:
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
