"""Give every item a vector of the present model, and let go of another model's once they all have one."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from engrain.core.errors import EmbedderFailed
from engrain.core.model.results import MaintenanceAction
from engrain.maintenance.embedding_worker import Embedding
from engrain.maintenance.passes import ALL, Done, MaintenanceContext, MaintenancePass, Tell
from engrain.ports import UnembeddedItem
from engrain.ports.search import VectorModels

BATCH = 64


@dataclass(frozen=True, slots=True)
class Standing:
    """How many items have vectors of the present model and how many of others alone, and which models go."""

    own: int
    others: int
    models: tuple[str, ...] = ()

    def then(self, gone: int, lacking: int, coming: int) -> Standing:
        """After so many items went, of which some had no vector of the present model, and so many came."""
        return replace(self, own=self.own - (gone - lacking) + coming, others=self.others - lacking)


def standing(care: MaintenanceContext) -> Standing:
    present = care.services.items.status(care.services.embedder.model.key)
    without_any = care.services.items.status().unembedded
    return Standing(present.items - present.unembedded, present.unembedded - without_any, tuple(_others(care)))


def lacking(care: MaintenanceContext, ids: Sequence[str]) -> int:
    """How many of these items have no vector of the present model."""
    return len(ids) - len(care.services.items.vectors(care.scope, ids, care.services.embedder.model.key)) if ids else 0


def passes(care: MaintenanceContext, stands: Standing, going: Collection[str]) -> list[MaintenancePass]:
    """`stands` is how it is after the passes before, `going` are items that they remove.

    If another model has made most of the vectors, this one may be there by mistake, as in a command that does not know
    the program's embedder, and everything is not embedded anew unless somebody asks for it."""
    wanted = care.reembed or stands.others <= stands.own
    missing = care.services.items.unembedded(care.services.embedder.model.key, ALL) if wanted else []
    return [_embed(care, [one for one in missing if one.id not in going]), _drop(care, stands.models)]


def _embed(care: MaintenanceContext, missing: list[UnembeddedItem]) -> MaintenancePass:
    """Of all memories of the store. It goes on where it was stopped."""
    model = care.services.embedder.model

    def act(tell: Tell) -> Done:
        embedding, trouble = Embedding(care.services), ""
        made: set[str] = set()
        try:
            while some := embedding.some(BATCH):
                made.update(some)
                tell(len(some))
        except EmbedderFailed as exc:
            trouble = str(exc)
        return Done(tuple(one for one in each if one.id in made), trouble or embedding.trouble)

    why = f"it had no vector of {model.name}"
    each = tuple(MaintenanceAction("embed", one.id, why, one.text, one.scope) for one in missing)
    which = f"that had no vector of {model.name}"
    return MaintenancePass("embedded", each, ("embedded", "embed"), "item", which, act)


def _drop(care: MaintenanceContext, others: Sequence[str]) -> MaintenancePass:
    store, present = care.services.items, care.services.embedder.model

    def act(tell: Tell) -> Done | None:
        # Not taken by the embedder, or written meanwhile by a process with another model: nothing takes its place yet.
        if not isinstance(store, VectorModels) or store.unembedded(present.key, 1):
            return Done(())
        for model in others:
            while gone := store.drop_model(model, 1_000):
                tell(gone)
        return None

    why = f"every item has a vector of {present.name}"
    each = tuple(MaintenanceAction("remove", model, why) for model in others)
    verb = ("removed the vectors of", "remove the vectors of")
    return MaintenancePass("dropped", each, verb, "model", "out of use", act)


def _others(care: MaintenanceContext) -> list[str]:
    store = care.services.items
    if not (care.reembed or care.policies.drop_old_vectors) or not isinstance(store, VectorModels):
        return []
    return sorted(model for model in store.models() if model != care.services.embedder.model.key)
