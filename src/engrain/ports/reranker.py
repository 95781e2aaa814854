"""The contract of rerankers: models that read a question and a text together, and say how well they fit."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from math import isfinite
from typing import Any, Protocol

from engrain.core.errors import RerankerFailed


class Reranker(Protocol):
    """Safe to use from several threads. `recall(effort="thorough")` mixes its scores with its own."""

    @property
    def name(self) -> str:
        """The reranker's name for people."""

    def score(self, query: str, texts: Sequence[str]) -> Sequence[float]:
        """Return a finite number for each text, in the same order: the higher, the better it answers.

        Any scale will do. RerankerFailed if there is no usable answer, be it late, too short or no numbers.
        """


def check_scores(scores: Iterable[Any], texts: Sequence[str], name: str) -> list[float]:
    """Return the scores as numbers. RerankerFailed unless there is a finite one for each text."""
    try:
        numbers = [float(one) for one in scores]
    except (TypeError, ValueError, OverflowError) as exc:
        raise RerankerFailed(f"{name} returned a score that is not a number.") from exc
    if len(numbers) != len(texts) or not all(map(isfinite, numbers)):
        raise RerankerFailed(f"{name} returned {len(numbers)} scores, not {len(texts)} finite numbers.")
    return numbers
