"""What every part of the engine stands on: a services, a scope, and the tiers."""

from __future__ import annotations

import logging
import threading
from collections.abc import Sequence
from dataclasses import replace

from engrain.core.errors import StoreError
from engrain.core.identity import Scope, SortableIds
from engrain.core.model.erasure import find_owner
from engrain.engine.snapshots import Snapshots
from engrain.maintenance.embedding_worker import EmbeddingWorker
from engrain.maintenance.enrichment_worker import TIMEOUT, EnrichmentWorker, summarizer
from engrain.maintenance.metering import MeteredModel
from engrain.maintenance.vector_sync import VectorSync
from engrain.ports import Services
from engrain.tasks.admin import Tasks
from engrain.tiers.conversation import ConversationMemory
from engrain.tiers.episodic import EpisodicMemory
from engrain.tiers.procedural import ProceduralMemory
from engrain.tiers.semantic import SemanticMemory
from engrain.tiers.sessions import Sessions
from engrain.tiers.working import WorkingMemory

_log = logging.getLogger("engrain")


class Parts:
    """One scope's memory. `reads` are other scopes that recall looks into and nothing here writes to."""

    def __init__(self, services: Services, scope: Scope, reads: Sequence[Scope] = (), background: bool = False) -> None:
        self.background = background
        self.upkeep = EmbeddingWorker(services, background)
        self.feeder = VectorSync(services.feed, background)
        self.model = MeteredModel(services.model) if services.model else None
        self.services = replace(services, embedder=self.upkeep.embedder, model=self.model)
        self.scope = scope
        self.reads = tuple(reads)
        summarize = summarizer(self.model, TIMEOUT) if self.model else None
        self.snapshots = Snapshots(services.state, scope, services.redact) if services.state else None
        self.working = WorkingMemory(count_tokens=services.count_tokens, summarize=summarize)
        self._last = self.last_erasure() if self.snapshots else ""
        self._looked = True  # whether it could be seen at the last change
        self._looking = threading.RLock()  # to clear is a change, too
        if self.snapshots is not None:
            self.working.changing, self.working.changed = self.clear_erased, self._keep_working
        self.episodic = EpisodicMemory(self.services, scope)
        self.semantic = SemanticMemory(self.services, scope)
        self.procedural = ProceduralMemory(self.services, scope)
        self.sessions = Sessions(self.services, scope)
        self.tasks = Tasks(self.services, scope)
        self.enricher = EnrichmentWorker(self.services, scope, background, self.working.refine)
        self.session: str | None = None
        self._present = threading.Lock()
        self._talk: ConversationMemory | None = None
        self._begun = ("", "")  # a task that was at hand, and the last erasure of this user before it
        self._new_id = SortableIds()
        self.upkeep.start()
        self.feeder.start()

    def task_at_hand(self) -> str:
        """ "" for none: what this process still had of a user who was erased since, by whomever, goes with that."""
        if self.working.task:
            id, last = self.working.task_id, self.last_erasure()
            if self._begun[0] == id and self._begun[1] != last:
                self.working.clear()
            self._begun = (id, last)
        return self.working.task

    def last_erasure(self) -> str:
        """Of this user, done or under way; "" for none."""
        user, erasing = find_owner(self.scope), self.services.erasing
        if user is None or erasing is None:
            return ""
        mark, done = erasing.mark(user), erasing.erased(user)
        running = [one.id for one in erasing.running() if one.mark == mark]
        return running[-1] if running else done.receipt if done else ""

    def clear_erased(self) -> None:
        """Where working memory is kept outside this process: what was made before this user was erased goes, and what
        is said from now on stays."""
        if self.snapshots is None:
            return
        with self._looking:
            try:
                last = self.last_erasure()
            except StoreError as exc:
                self._looked = False
                _log.warning("working memory is in this process alone: %s", exc)
                return
            self._looked = True
            if last != self._last:
                self._last = last
                self.working.clear()

    def _keep_working(self) -> None:
        """Outside this process, unless nobody knows whether its user was erased."""
        if self.snapshots is not None and self.session is not None and self._looked:
            self.snapshots.keep(self.session, self.working)
