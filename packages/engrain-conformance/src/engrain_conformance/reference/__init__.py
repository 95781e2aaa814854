"""The in-memory store that every backend is compared with."""

from __future__ import annotations

from contextlib import nullcontext

from engrain.core.clock import Clock, system_clock
from engrain.core.identity import IdSource
from engrain_conformance.reference.episodes import ReferenceEpisodes, ReferenceOutcomes
from engrain_conformance.reference.erasure import ReferenceErasing
from engrain_conformance.reference.items import ReferenceItems, ReferenceSessions
from engrain_conformance.reference.records import ReferenceRecords
from engrain_conformance.reference.rows import ReferenceRows
from engrain_conformance.reference.search import ReferenceSearch
from engrain_conformance.reference.state import ReferenceAudit
from engrain_conformance.reference.tasks import ReferenceTasks

__all__ = ["ReferenceStore"]


class ReferenceStore(ReferenceItems, ReferenceSearch, ReferenceSessions, ReferenceRows):
    """Implements every port, written to be obviously right rather than fast."""

    def __init__(self, clock: Clock = system_clock, ids: IdSource | None = None) -> None:
        super().__init__(clock, ids)
        self.episodes = ReferenceEpisodes(self)
        self.outcomes = ReferenceOutcomes(self)
        self.records = ReferenceRecords(self)
        self.journal = ReferenceTasks(self)
        self.audit = ReferenceAudit(self)
        self.erasing = ReferenceErasing(self)
        self.pin_snapshot = nullcontext
        self.short_page = self.page


def open_reference(url: str, *, clock: Clock, read_only: bool) -> ReferenceStore:
    """Open a new, empty store: the entry point for URLs that begin with reference://."""
    return ReferenceStore(clock=clock)
