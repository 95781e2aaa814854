"""Write operations on a whole memory to the audit log, and read the log's end."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engrain.core.errors import ReadOnlyStore
from engrain.core.identity import Scope
from engrain.core.model.audit import AuditEntry
from engrain.core.model.erasure import find_owner
from engrain.ports import AuditLog, Services

_MAX_NUMBER = 1 << 61


def list_newest(log: AuditLog, count: int) -> list[AuditEntry]:
    """Return the last entries. A binary search finds the end, so a long log costs few reads."""
    low, high = 0, 1
    while high < _MAX_NUMBER and log.entries(high, 1):
        high *= 2
    while low < high:
        middle = (low + high) // 2
        low, high = (middle + 1, high) if log.entries(middle, 1) else (low, middle)
    return log.entries(max(0, high - count), count)


def record(services: Services, what: str, details: Mapping[str, Any], scope: Scope | None = None) -> AuditEntry | None:
    """Append an entry about the memory of `scope`, whose user is stored as a keyed hash.

    A store without a log, or one opened read-only, records nothing.
    """
    if services.audit is None:
        return None
    user = find_owner(scope) if scope else None
    subject = services.erasing.mark(user) if user and services.erasing else None
    try:
        return services.audit.append(what, details, subject)
    except ReadOnlyStore:
        return None
