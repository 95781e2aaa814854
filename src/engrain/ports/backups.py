"""The contract of a store that can be backed up while it is written to."""

from __future__ import annotations

from pathlib import Path
from typing import Protocol, runtime_checkable

from engrain.core.backups import Manifest


@runtime_checkable
class Backed(Protocol):
    @property
    def code(self) -> str:
        """Of this store, and of what is restored from its backups: the manifests of them have it."""

    def backup(self, target: Path, key: str | None = None) -> Manifest:
        """All that was committed at one moment, in one file that is read again and checked, with its manifest beside
        it; writers go on meanwhile. What was forgotten before leaves no bytes in it.

        With a key it is encrypted with that, else with the store's own, if it has one. InvalidInput if the target is
        there already. If it fails, nothing is left at the target."""
