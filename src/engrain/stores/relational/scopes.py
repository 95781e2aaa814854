"""The keys of scopes that no reader finds: erased ones, and those that a hold hides."""

from __future__ import annotations

from engrain.core.identity import Scope, hash_keyed

OPEN, ERASING, HIDDEN, ERASED = range(4)


def hash_scope(key: bytes, scope: Scope) -> str:
    """The keyed hash that stands for the scope's id while the scope is erased or hidden."""
    return hash_keyed(key, "scope", scope.id)
