"""Give every item a vector of the current model, then remove the vectors of other models."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from engrain.core.errors import EmbedderFailed
from engrain.core.model.results import MaintenanceAction
from engrain.ingest import write
from engrain.maintenance.embedding_worker import VectorBackfill
from engrain.maintenance.passes import NO_LIMIT, MaintenanceContext, MaintenancePass, PassResult, ReportProgress
from engrain.maintenance.vector_sync import BATCH_SIZE as FEED_BATCH
from engrain.ports import Services, UnembeddedItem
from engrain.ports.search import VectorModels
from engrain.privacy.audit import record

BATCH_SIZE = 64


@dataclass(frozen=True, slots=True)
class VectorCounts:
    """How many items have vectors of the current model, how many only of others, and which models to remove."""

    own: int
    others: int
    models: tuple[str, ...] = ()

    def after(self, removed: int, unembedded: int, added: int) -> VectorCounts:
        """Return the counts after removals, `unembedded` of them without a current vector, and additions."""
        return replace(self, own=self.own - (removed - unembedded) + added, others=self.others - unembedded)


def count_vectors(context: MaintenanceContext) -> VectorCounts:
    present = context.services.items.status(context.services.embedder.model.key)
    without_any = context.services.items.status().unembedded
    return VectorCounts(
        present.items - present.unembedded, present.unembedded - without_any, tuple(_find_unused_models(context))
    )


def count_missing(context: MaintenanceContext, ids: Sequence[str]) -> int:
    """Count the items without a vector of the current model."""
    return (
        len(ids) - len(context.services.items.vectors(context.scope, ids, context.services.embedder.model.key))
        if ids
        else 0
    )


def plan_vector_passes(
    context: MaintenanceContext, counts: VectorCounts, removed: Collection[str]
) -> list[MaintenancePass]:
    """Plan from the counts after the earlier passes, which remove the items `removed`.

    If another model has made most of the vectors, the current one may be a mistake, as in a command that does not know
    the program's embedder. Then nothing is embedded again unless the caller asks for it.
    """
    wanted = context.reembed or counts.others <= counts.own
    found = context.services.items.unembedded(context.services.embedder.model.key, NO_LIMIT) if wanted else []
    missing = [one for one in found if one.id not in removed]
    return [_plan_embedding(context, missing), _plan_vector_removal(context, counts.models)]


def _plan_embedding(context: MaintenanceContext, missing: list[UnembeddedItem]) -> MaintenancePass:
    """Embed items of all scopes. A stopped pass continues next time."""
    model = context.services.embedder.model

    def act(report: ReportProgress) -> PassResult:
        backfill, trouble = VectorBackfill(context.services), ""
        embedded: set[str] = set()
        try:
            while ids := backfill.embed_batch(BATCH_SIZE):
                embedded.update(ids)
                report(len(ids))
        except EmbedderFailed as exc:
            trouble = str(exc)
        return PassResult(tuple(one for one in actions if one.id in embedded), trouble or backfill.trouble)

    why = f"it had no vector of {model.name}"
    actions = tuple(MaintenanceAction("embed", one.id, why, one.text, one.scope) for one in missing)
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


def _find_unused_models(context: MaintenanceContext) -> list[str]:
    store = context.services.items
    if not (context.reembed or context.policies.drop_old_vectors) or not isinstance(store, VectorModels):
        return []
    return sorted(model for model in store.models() if model != context.services.embedder.model.key)


def rebuild_indexes(services: Services, report: ReportProgress) -> int:
    """Rebuild every index from the stored items, and embed those without a vector."""
    count = services.items.rebuild()
    while embedded := write.embed_missing(services, write.BATCH_SIZE):
        report(embedded)
    if services.feed is not None:
        services.feed.refeed()
        while fed := services.feed.feed(FEED_BATCH):
            report(fed)
    record(services, "rebuild", {"items": count})
    return count
