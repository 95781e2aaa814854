"""Write operations on a whole memory to the audit log, and read the log's end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engrain.core.errors import ReadOnlyStore
from engrain.core.identity import Scope
from engrain.core.model.audit import Entry
from engrain.core.model.erasure import owner
from engrain.ports import AuditLog, Kit

_MAX_NUMBER = 1 << 61


def list_newest(log: AuditLog, count: int) -> list[Entry]:
    """Return the last entries. A binary search finds the end, so a long log costs few reads."""
    low, high = 0, 1
    while high < _MAX_NUMBER and log.entries(high, 1):
        high *= 2
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if log.entries(middle, 1) else (low, middle)
    return log.entries(max(0, high - count), count)


def record(kit: Kit, what: str, details: Mapping[str, Any], scope: Scope | None = None) -> Entry | None:
    """Append an entry about the memory of `scope`, whose user is stored as a keyed hash.

    A store without a log, or one opened read-only, records nothing.
    """
    if kit.audit is None:
        return None
    user = owner(scope) if scope else None
    subject = kit.erasing.mark(user) if user and kit.erasing else None
    try:
        return kit.audit.append(what, details, subject)
    except ReadOnlyStore:
        return None
