"""The contract of rerankers: models that read a question and a text together, and say how well they fit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol


class Reranker(Protocol):
    """Safe to use from several threads. `recall(effort="thorough")` mixes its scores with its own."""

    @property
    def name(self) -> str:
        """The reranker's name for people."""

    def score(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        """Return a number for each text, in the same order: the higher, the better it answers. Any scale will do.

        RerankerFailed if there is no usable answer.
        """
