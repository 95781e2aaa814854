"""The audit log in memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from engrain.core.model.audit import AuditEntry, AuditResult, find_end, make_entry, seal_head, verify_log
from engrain_conformance.reference.state import Holder, State


class Audit:
    """A view of the store."""

    def __init__(self, holder: Holder) -> None:
        self._holder = holder

    def append(self, what: str, details: Mapping[str, Any], subject: str | None = None) -> AuditEntry:
        with self._holder.writing() as state:
            return record(state, self._holder, what, details, subject)

    def entries(self, after: int, limit: int) -> list[AuditEntry]:
        with self._holder.whole() as state:
            return [entry for entry in state.audit if entry.n > after][:limit]

    def verify(self) -> AuditResult:
        with self._holder.whole() as state:
            return verify_log(self._holder._key, state.audit, state.head, bool(state.erased or state.holds))


def record(
    state: State, holder: Holder, what: str, details: Mapping[str, Any], subject: str | None = None
) -> AuditEntry:
    last = max((one.n for one in state.audit), default=0)
    entry = make_entry(holder._key, find_end(holder._key, state.head, last), holder.now(), what, subject, details)
    state.audit.append(entry)
    state.head = seal_head(holder._key, entry.n, entry.hash)
    return entry
