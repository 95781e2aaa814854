"""The in-memory store that every backend is compared with."""

from __future__ import annotations

from engrain.core.clock import Clock, system_clock
from engrain.core.identity import IdSource
from engrain_conformance.reference.audit import Audit
from engrain_conformance.reference.episodes import EpisodeBook
from engrain_conformance.reference.erasing import Eraser
from engrain_conformance.reference.items import Items
from engrain_conformance.reference.moving import Moving
from engrain_conformance.reference.outcomes import OutcomeBook
from engrain_conformance.reference.search import Search
from engrain_conformance.reference.sessions import Sessions
from engrain_conformance.reference.tasks import Tasks

__all__ = ["ReferenceStore"]


class ReferenceStore(Items, Search, Sessions, Moving):
    """Every port, written to be obviously right rather than fast."""

    def __init__(self, clock: Clock = system_clock, ids: IdSource | None = None) -> None:
        super().__init__(clock, ids)
        self.episodes = EpisodeBook(self)
        self.outcomes = OutcomeBook(self)
        self.journal = Tasks(self)
        self.audit = Audit(self)
        self.erasing = Eraser(self)


def open_reference(url: str, *, clock: Clock, read_only: bool) -> ReferenceStore:
    """Open a new, empty store: the entry point for URLs that begin with reference://."""
    return ReferenceStore(clock=clock)
