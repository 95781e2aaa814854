"""The contract of a store that tells how it is deployed."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from engrain.core.queries import Finding
from engrain.core.scope import Scope


@runtime_checkable
class Deployed(Protocol):
    """What is not the store's own health, which `check` looks at, but what stands around it. Nothing is changed."""

    def deployment(self) -> list[Finding]:
        """By the names "sync" (what an acknowledged write survives), "file system", "rights" (who else can read it),
        "encryption" and "owners" (items of nobody beside those of somebody); what does not apply is left out."""

    def search_state(self, scope: Scope) -> Finding:
        """Whether searches in this scope have what makes them fast."""
