"""Embed items without a vector, in the background and in maintenance, and change to a new model."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from math import isfinite
from typing import TYPE_CHECKING, Any

from engrain.core.errors import EmbedderFailed, EngrainError
from engrain.core.model.queries import EmbeddingModel, EmbedKind, UnembeddedItem
from engrain.core.model.results import MaintenanceAction
from engrain.maintenance.passes import NO_LIMIT, MaintenanceContext, MaintenancePass, PassResult, ReportProgress
from engrain.maintenance.schedule_and_sync import BATCH_SIZE as FEED_BATCH
from engrain.ports import Services
from engrain.ports.search import Embedder, VectorModels
from engrain.privacy.audit import record

if TYPE_CHECKING:
    from engrain.ports.search import Matrix


PROBE_TEXT = "tea"  # an embedder that refuses this refuses everything
BATCH_SIZE = 32
FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.2, 60.0
SWITCH_CHECK_SECONDS = 5.0  # between two checks whether a change of the model is complete

_log = logging.getLogger("engrain")


class VectorBackfill:
    """Embed the items without a vector. `refused` has the errors of texts that the embedder refused, by id."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self.refused: dict[str, str] = {}

    def embed_batch(self, limit: int) -> list[str]:
        """Return the ids of the embedded items; none if only refused ones are left. EmbedderFailed if none is taken."""
        from engrain.ingest import write  # late: a store opens without it

        began = self._services.items.current_time()
        while missing := self._read_missing(limit):
            try:
                write.embed_items(self._services, missing, began)
            except EmbedderFailed:
                self._services.embedder.embed([PROBE_TEXT], "document")
                if made := self._embed_singly(missing, began):
                    return made
            else:
                return [item.id for item in missing]
        return []

    @property
    def problem(self) -> str:
        """The number of refused texts, and the error of the first; "" for none."""
        if not self.refused:
            return ""
        count, (id, why) = len(self.refused), next(iter(self.refused.items()))
        return f"{count:,} text{'s' * (count != 1)} not taken by the embedder, such as that of {id}: {why}"

    def has_missing(self) -> bool:
        return bool(self._read_missing(1))

    def _read_missing(self, limit: int) -> list[UnembeddedItem]:
        found = self._services.items.unembedded(self._services.embedder.model.key, limit + len(self.refused))
        return [item for item in found if item.id not in self.refused][:limit]

    def _embed_singly(self, missing: Sequence[UnembeddedItem], began: int) -> list[str]:
        from engrain.ingest import write

        made: list[str] = []
        for item in missing:
            try:
                write.embed_items(self._services, [item], began)
            except EmbedderFailed as exc:
                self.refused[item.id] = str(exc)
            else:
                made.append(item.id)
        return made


class CheckedEmbedder:
    """An embedder with checked results. It wakes the worker when a document fails, or after every document."""

    def __init__(self, embedder: Embedder, wake: Callable[[], None], always: bool = False) -> None:
        self.unchecked = embedder
        self._wake = wake
        self._always = always

    @property
    def model(self) -> EmbeddingModel:
        return self.unchecked.model

    def windows(self, text: str) -> list[str]:
        return self.unchecked.windows(text)

    def embed(self, texts: Sequence[str], kind: EmbedKind) -> Matrix:
        try:
            rows = self._embed_checked(texts, kind)
        except EmbedderFailed:
            if kind == "document":
                self._wake()
            raise
        if self._always and kind == "document":
            self._wake()
        return rows

    def _embed_checked(self, texts: Sequence[str], kind: EmbedKind) -> Matrix:
        """Turn every failure of a foreign embedder into EmbedderFailed."""
        name, wanted = self.model.name, (len(texts), self.model.dimension)
        try:
            rows = self.unchecked.embed(texts, kind)
            if getattr(rows, "shape", None) != wanted:
                raise EmbedderFailed(f"The embedder {name} returned {getattr(rows, 'shape', rows)!r}, not {wanted}.")
            if not isfinite(float(rows.sum())):
                raise EmbedderFailed(f"The embedder {name} returned a value that is not a finite number.")
        except EngrainError:
            raise
        except Exception as exc:
            raise EmbedderFailed(f"The embedder {name} failed: {type(exc).__name__}: {exc}") from exc
        return rows


class SwitchingEmbedder:
    """The previous embedder until the new one has embedded everything; then the new one.

    An operation reads `settled` once, so that no answer and no write mixes the two.
    """

    def __init__(self, services: Services, wake: Callable[[], None]) -> None:
        assert services.previous_embedder is not None
        self._services = services
        self._new = CheckedEmbedder(services.embedder, wake)
        # A text with a vector of the previous model gets one of the new model soon after.
        self._old = CheckedEmbedder(services.previous_embedder, wake, always=True)
        self._current = self._old
        self._checked_at = 0.0
        self.check()

    @property
    def settled(self) -> CheckedEmbedder:
        # Another process may have completed the change.
        if self._current is self._old and time.monotonic() - self._checked_at > SWITCH_CHECK_SECONDS:
            self.check()
        return self._current

    def check(self) -> None:
        """Switch if every item has a vector of the new model, or if at least as many have one as of the previous."""
        self._checked_at = time.monotonic()
        if self._current is self._old and self._is_complete():
            self._current = self._new

    def _is_complete(self) -> bool:
        new, old = self._new.model.key, self._old.model.key
        if not self._services.items.unembedded(new, 1):
            return True
        if not isinstance(self._services.items, VectorModels):
            return False
        counts = self._services.items.models()
        return counts.get(new, 0) >= counts.get(old, 0)

    @property
    def model(self) -> EmbeddingModel:
        return self.settled.model

    def windows(self, text: str) -> list[str]:
        return self.settled.windows(text)

    def embed(self, texts: Sequence[str], kind: EmbedKind) -> Matrix:
        return self.settled.embed(texts, kind)


class EmbeddingWorker:
    """One thread, only while items lack a vector. It can be stopped at any time: the store has the results."""

    def __init__(self, services: Services, enabled: bool) -> None:
        self._services = services
        self._enabled = enabled
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._embedded = 0
        self._error: str | None = None
        self._thread: threading.Thread | None = None
        self.embedder = (
            SwitchingEmbedder(services, self.wake)
            if services.previous_embedder
            else CheckedEmbedder(services.embedder, self.wake)
        )
        self._target = CheckedEmbedder(services.embedder, lambda: None)
        self._backfill = VectorBackfill(replace(services, embedder=self._target))

    @property
    def target(self) -> Embedder:
        """The embedder whose vectors all items will have."""
        return self._target

    def start(self) -> None:
        if self._enabled and self._services.items.unembedded(self._services.embedder.model.key, 1):
            self.wake()

    def wake(self) -> None:
        with self._lock:
            if self._enabled and not self._stop.is_set() and not self._is_running():
                self._thread = threading.Thread(target=self._work, name="engrain-embed", daemon=True)
                self._thread.start()

    def stop(self) -> None:
        with self._lock:
            self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def switch_if_ready(self) -> None:
        if isinstance(self.embedder, SwitchingEmbedder):
            self.embedder.check()

    def state(self) -> dict[str, Any]:
        return {"running": self._is_running(), "embedded": self._embedded, "error": self._error}

    def _is_running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _work(self) -> None:
        pause = FIRST_PAUSE_SECONDS
        self._backfill.refused.clear()  # the embedder may accept them this time
        try:
            while not self._stop.is_set():
                try:
                    made = len(self._backfill.embed_batch(BATCH_SIZE))
                except EmbedderFailed as exc:
                    self._error = str(exc)
                    # The failed text may not be written yet: the next batch has it.
                    self._stop.wait(pause)
                    pause = min(2 * pause, MAX_PAUSE_SECONDS)
                    continue
                self._embedded += made
                self._error, pause = self._backfill.problem or None, FIRST_PAUSE_SECONDS
                if not made:
                    self.switch_if_ready()
                    if self._stop.wait(FIRST_PAUSE_SECONDS) or not self._backfill.has_missing():
                        return
        except EngrainError as exc:
            self._error = str(exc)
            _log.warning("embedding in the background stopped: %s", exc)


PASS_BATCH_SIZE = 64


@dataclass(frozen=True, slots=True)
class VectorCounts:
    """The items with vectors of the current model, those with only others, and the models to remove."""

    own: int
    others: int
    models: tuple[str, ...] = ()

    def after(self, removed: int, unembedded: int, added: int) -> VectorCounts:
        """Return the counts after removals, `unembedded` of them without a current vector, and additions."""
        return replace(self, own=self.own - (removed - unembedded) + added, others=self.others - unembedded)


def count_vectors(context: MaintenanceContext) -> VectorCounts:
    items, current = context.services.items, context.services.embedder.model.key
    status, without_any = items.status(current), items.status().unembedded
    unused: list[str] = []
    if (context.reembed or context.policies.drop_old_vectors) and isinstance(items, VectorModels):
        unused = sorted(model for model in items.models() if model != current)
    return VectorCounts(status.items - status.unembedded, status.unembedded - without_any, tuple(unused))


def count_missing(context: MaintenanceContext, ids: Sequence[str]) -> int:
    """Count the items without a vector of the current model."""
    return len(ids) - len(context.services.items.vectors(context.scope, ids, context.services.embedder.model.key))


def plan_vector_passes(
    context: MaintenanceContext, counts: VectorCounts, removed: Collection[str]
) -> list[MaintenancePass]:
    """Plan from the counts after the earlier passes, which remove the items `removed`.

    If another model has made most of the vectors, the current one may be a mistake, as in a command that does not know
    the program's embedder. Then nothing is embedded again unless the caller asks for it.
    """
    wanted = context.reembed or counts.others <= counts.own
    found = context.services.items.unembedded(context.services.embedder.model.key, NO_LIMIT) if wanted else []
    missing = [item for item in found if item.id not in removed]
    return [_plan_embedding(context, missing), _plan_vector_removal(context, counts.models)]


def _plan_embedding(context: MaintenanceContext, missing: list[UnembeddedItem]) -> MaintenancePass:
    """Embed items of all scopes. A stopped pass continues next time."""
    model = context.services.embedder.model

    def act(report: ReportProgress) -> PassResult:
        backfill, problem = VectorBackfill(context.services), ""
        embedded: set[str] = set()
        try:
            while ids := backfill.embed_batch(PASS_BATCH_SIZE):
                embedded.update(ids)
                report(len(ids))
        except EmbedderFailed as exc:
            problem = str(exc)
        return PassResult(tuple(action for action in actions if action.id in embedded), problem or backfill.problem)

    why = f"it had no vector of {model.name}"
    actions = tuple(MaintenanceAction("embed", item.id, why, item.text, item.scope) for item in missing)
    which = f"that had no vector of {model.name}"
    return MaintenancePass("embedded", actions, ("embedded", "embed"), "item", which, act)


def _plan_vector_removal(context: MaintenanceContext, others: Sequence[str]) -> MaintenancePass:
    store, present = context.services.items, context.services.embedder.model

    def act(report: ReportProgress) -> PassResult | None:
        # The embedder refused an item, or a process with another model wrote one: it has no other vector yet.
        if not isinstance(store, VectorModels) or store.unembedded(present.key, 1):
            return PassResult(())
        for model in others:
            while gone := store.drop_model(model, 1_000):
                report(gone)
        return None

    why = f"every item has a vector of {present.name}"
    actions = tuple(MaintenanceAction("remove", model, why) for model in others)
    verb = ("removed the vectors of", "remove the vectors of")
    return MaintenancePass("dropped", actions, verb, "model", "out of use", act)


def rebuild_indexes(services: Services, report: ReportProgress) -> int:
    """Rebuild every index from the stored items, and embed those without a vector."""
    from engrain.ingest import write

    count = services.items.rebuild()
    while embedded := write.embed_missing(services, write.BATCH_SIZE):
        report(embedded)
    if services.feed is not None:
        services.feed.refeed()
        while fed := services.feed.feed(FEED_BATCH):
            report(fed)
    record(services, "rebuild", {"items": count})
    return count
