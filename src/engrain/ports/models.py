"""The contract of a store that can let go of one model's vectors."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable


@runtime_checkable
class VectorModels(Protocol):
    """In all scopes: for upkeep, not for callers who are inside one."""

    def models(self) -> Mapping[str, int]:
        """How many items have vectors of each model, by the model's key; none that has no vectors."""

    def drop_model(self, model: str, limit: int) -> int:
        """Removes this model's vectors of at most so many items, which change by it; of how many. Other models' vectors
        stay."""
