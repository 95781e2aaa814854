"""The background workers of an opened store: one of each kind, however many views it has."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property
from typing import TYPE_CHECKING, Any

from engrain.core.errors import EngrainError, StoreClosed
from engrain.core.identity import Scope
from engrain.core.model.results import MaintenanceReport
from engrain.maintenance.embedding import EmbeddingWorker
from engrain.maintenance.model_usage import MeteredModel
from engrain.maintenance.passes import RunHooks, list_scopes
from engrain.maintenance.schedule_and_sync import MaintenanceScheduler, VectorSync
from engrain.ports import Services

if TYPE_CHECKING:
    from engrain.maintenance.enrichment_worker import EnrichmentWorker


_METERED = ("calls", "failures", "tokens_in", "tokens_out", "last_error", "pending")
_log = logging.getLogger("engrain")


class Workers:
    """They start and stop with the store.

    `services` are the store's ports for everything else: the embedder wakes the worker that repeats failed embeddings,
    and the model counts its use.
    """

    def __init__(self, services: Services, enabled: bool) -> None:
        self._enabled = enabled
        self.embedding = EmbeddingWorker(services, enabled)
        self.vectors = VectorSync(services.feed, enabled)
        self._model = MeteredModel(services.model) if services.model else None
        ready = replace(services, embedder=self.embedding.embedder, model=self._model)
        self.services = replace(ready, background=self) if enabled else ready
        self.scheduler = MaintenanceScheduler(self.services, enabled, self._maintain_all, self._catch_up)
        self._erasing: threading.Thread | None = None
        self._stopping = threading.Event()

    @cached_property
    def enrichment(self) -> EnrichmentWorker:
        """Made when it is first needed: without a model it has nothing to do, and its imports take time."""
        from engrain.maintenance.enrichment_worker import EnrichmentWorker

        return EnrichmentWorker(self.services, self._enabled)

    def start(self) -> None:
        self.embedding.start()
        self.vectors.start()
        self.scheduler.start()

    def stop(self) -> None:
        self._stopping.set()
        self.scheduler.stop()
        if "enrichment" in vars(self):
            self.enrichment.stop()
        self.embedding.stop()
        self.vectors.stop()
        if self._erasing is not None:
            self._erasing.join()  # it reads files by descriptors that are about to be closed

    # The port Background

    def embed(self) -> None:
        self.embedding.wake()

    def enrich(self, scope: Scope, session: str, *, to_the_end: bool = False) -> None:
        if self._model is not None:
            self.enrichment.wake(scope, session, to_the_end=to_the_end)

    def refine(self, refine: Callable[[], bool]) -> None:
        if self._model is not None:
            self.enrichment.refine(refine)

    @property
    def target(self) -> Services:
        """The services with the new embedder, even while the previous one still answers."""
        return replace(self.services, embedder=self.embedding.target)

    def scopes(self) -> list[Scope]:
        """Return every scope of the store. An empty store has one, so that the store itself is maintained."""
        return list_scopes(self.services) or [Scope()]

    def follow_maintenance(self, scopes: Sequence[Scope], report: MaintenanceReport) -> MaintenanceReport:
        """Switch the embedder if it is ready after a round of maintenance, and catch up on enrichment."""
        self.embedding.switch_if_ready()
        if not report.dry_run and self._model is not None:
            self.enrichment.catch_up(scopes)
        return report

    def resume_erasures(self) -> None:
        """Complete erasures of killed processes in the background; without a background, log that it is due."""
        erasing = self.services.erasing
        if erasing is None or not erasing.running():
            return
        if not self._enabled:
            _log.warning("an erasure is not complete yet. Complete it: engrain erase --resume, or resume_erasures().")
            return
        self._erasing = threading.Thread(target=self._resume, name="engrain-erase", daemon=True)
        self._erasing.start()

    def state(self) -> dict[str, Any]:
        return {
            **self.embedding.state(),
            "changing": self._switch_state(),
            "enrichment": self.enrichment.state(),
            "vectors": self.vectors.state(),
            "maintenance": self.scheduler.state(),
        }

    def model_use(self) -> dict[str, object]:
        """Return the use of the small model; empty without one."""
        if self._model is None:
            return {}
        return {"name": self._model.name, **{name: getattr(self._model, name) for name in _METERED}}

    def _switch_state(self) -> dict[str, object] | None:
        """Return the progress of a new model's vectors while the previous model still answers."""
        new = self.embedding.target.model
        if new.key == self.services.embedder.model.key:
            return None
        store = self.services.items.status(new.key)
        return {"to": new.name, "embedded": store.items - store.unembedded, "of": store.items}

    def _resume(self) -> None:
        from engrain.privacy.erase import resume_erasures

        try:
            resume_erasures(self.services, self._report_erasure)
        except EngrainError as exc:
            _log.warning("an erasure is still to be completed: %s", exc)

    def _report_erasure(self, stage: str) -> None:
        """Log the progress of an erasure, and interrupt it when the store is closed: it resumes at the next open."""
        if self._stopping.is_set():
            raise StoreClosed("the store was closed. The erasure resumes when it is opened next.")
        _log.info(stage)

    def _maintain_all(self, check_lease: Callable[[], None]) -> MaintenanceReport:
        # Imported here, as most of what maintenance needs: a store opens in half the time without.
        from engrain.maintenance.maintain import maintain

        scopes = self.scopes()
        return self.follow_maintenance(scopes, maintain(self.target, *scopes, hooks=RunHooks(before_pass=check_lease)))

    def _catch_up(self) -> None:
        if self._model is not None:
            self.enrichment.catch_up(list_scopes(self.services))
