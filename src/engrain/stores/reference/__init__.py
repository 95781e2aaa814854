"""The in-memory store that every backend is compared with."""

from __future__ import annotations

from engrain.stores.reference.items import Items
from engrain.stores.reference.search import Search

__all__ = ["ReferenceStore"]


class ReferenceStore(Items, Search):
    """Every port in one object, written to be obviously right rather than fast."""
