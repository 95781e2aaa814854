"""The contract of a store that tells how it is deployed."""

from __future__ import annotations

import os
from pathlib import Path
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


def on_encrypted_disk(path: Path, devices: str = "/sys/dev/block") -> bool:
    """Where Linux says so; elsewhere it cannot be seen."""
    number = path.stat().st_dev
    mapped = Path(devices) / f"{os.major(number)}:{os.minor(number)}" / "dm" / "uuid"
    try:
        return mapped.read_text().startswith("CRYPT-")
    except OSError:
        return False
