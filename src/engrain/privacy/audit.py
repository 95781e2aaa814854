"""Append to the audit log, list its entries and verify it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engrain.core.errors import ConfigError, ReadOnlyStore
from engrain.core.identity import Scope
from engrain.core.model.audit import AuditEntry, AuditResult, compare_with_checkpoint, parse_checkpoint
from engrain.core.model.erasure import Subject, find_owner
from engrain.ports import Services
from engrain.ports.erasure import AuditLog

MAX_ENTRIES = 1_000_000
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
    subject = services.erasing.hash_subject(user) if user and services.erasing else None
    try:
        return services.audit.append(what, details, subject)
    except ReadOnlyStore:
        return None


def list_entries(services: Services, subject: Subject | None, after: int | None, limit: int) -> list[AuditEntry]:
    """Return the entries above a number, or the newest; with a subject, only its entries."""
    log = require_audit_log(services)
    if subject is not None:
        subject_hash = services.erasing.hash_subject(subject) if services.erasing else None
        found = [entry for entry in log.entries(after or 0, MAX_ENTRIES) if entry.subject == subject_hash]
        return found[-limit:] if after is None else found[:limit]
    return list_newest(log, limit) if after is None else log.entries(after, limit)


def verify_log(services: Services, head: str | None) -> AuditResult:
    """Detect an entry that was changed, removed, moved or cut off; with a kept `head`, also a log that was set back."""
    n, hash = parse_checkpoint(head) if head is not None else (0, "")
    log = require_audit_log(services)
    return compare_with_checkpoint(log.verify(), n, hash, next(iter(log.entries(n - 1, 1)), None))


def require_audit_log(services: Services) -> AuditLog:
    if services.audit is None:
        raise ConfigError("this store keeps no audit log. Use a path such as agent.db, or postgresql://….")
    return services.audit
