"""The contract of the record of what was removed, moved and changed as a whole."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from engrain.core.audit import Audited, Entry


class AuditLog(Protocol):
    """Append-only and without content: counts, code words and keyed hashes. Where one store has all the ports, this one
    is its `audit`. Forgetting writes its entry in the transaction that forgets."""

    def append(self, what: str, details: Mapping[str, Any], subject: str | None = None) -> Entry:
        """Durable when it returns, chained to the entry before it, whoever else appends at the same time. `subject` is
        a keyed hash. InvalidInput if there is anything but numbers and code words in it."""

    def entries(self, after: int, limit: int) -> list[Entry]:
        """Those with a higher number, in order."""

    def verify(self) -> Audited:
        """Finds an entry that was changed, removed, moved or cut off at the end."""
