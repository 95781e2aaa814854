"""The in-memory store that every backend is compared with."""

from __future__ import annotations

from engrain.core.clock import Clock, system_clock
from engrain.core.ids import IdSource
from engrain.stores.reference.audit import Audit
from engrain.stores.reference.episodes import EpisodeBook
from engrain.stores.reference.erasing import Eraser
from engrain.stores.reference.items import Items
from engrain.stores.reference.moving import Moving
from engrain.stores.reference.outcomes import OutcomeBook
from engrain.stores.reference.search import Search
from engrain.stores.reference.sessions import Sessions
from engrain.stores.reference.tasks import Tasks

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
