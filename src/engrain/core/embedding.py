"""What is known of an embedding model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

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
