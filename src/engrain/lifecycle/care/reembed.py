"""Give every item a vector of the present model, and let go of another model's once they all have one."""

from __future__ import annotations

from collections.abc import Collection

from engrain.core.errors import EmbedderFailed
from engrain.core.maintained import Doing
from engrain.lifecycle.background.embedding import Embedding
from engrain.lifecycle.care.rounds import ALL, Done, Pass, Round, Tell
from engrain.ports import Unembedded
from engrain.ports.models import VectorModels

BATCH = 64


def passes(care: Round, going: Collection[str], coming: int) -> list[Pass]:
    """`going` are the items that earlier passes remove, and `coming` is how many they add."""
    wanted = care.reembed or not _others_first(care, going, coming)
    missing = care.kit.items.unembedded(care.kit.embedder.model.key, ALL) if wanted else []
    return [_embed(care, [one for one in missing if one.id not in going]), _drop(care)]


def _others_first(care: Round, going: Collection[str], coming: int) -> bool:
    """Whether another model has made most of the vectors. Then this one may be there by mistake, as in a command that
    does not know the program's embedder, and everything is not embedded anew unless somebody asks for it."""
    model = care.kit.embedder.model.key
    missing, without_any = care.kit.items.status(model), care.kit.items.status().unembedded
    others, own = missing.unembedded - without_any, missing.items - missing.unembedded
    if going and others > own + coming:
        lost = sum(one.id in going for one in care.kit.items.unembedded(model, ALL))
        others, own = others - lost, own - (len(going) - lost)
    return others > own + coming


def _embed(care: Round, missing: list[Unembedded]) -> Pass:
    """Of all memories of the store, of which this one's are told. It goes on where it was stopped."""
    model = care.kit.embedder.model

    def act(tell: Tell) -> Done:
        embedding, trouble = Embedding(care.kit), ""
        made: set[str] = set()
        try:
            while some := embedding.some(BATCH):
                made.update(some)
                tell(len(some))
        except EmbedderFailed as exc:
            trouble = str(exc)
        return Done(tuple(one for one in each if one.id in made), trouble or embedding.trouble)

    mine = [one for one in missing if one.scope == care.scope]
    each = tuple(Doing("embed", one.id, f"it had no vector of {model.name}", one.text) for one in mine)
    which = f"that had no vector of {model.name}"
    return Pass("embedded", each, ("embedded", "embed"), "item", which, act, always=bool(missing))


def _drop(care: Round) -> Pass:
    store, present = care.kit.items, care.kit.embedder.model
    others = _others(care)

    def act(tell: Tell) -> Done | None:
        # Not taken by the embedder, or written meanwhile by a process with another model: nothing takes its place yet.
        if not isinstance(store, VectorModels) or store.unembedded(present.key, 1):
            return Done(())
        for model in others:
            while gone := store.drop_model(model, 1_000):
                tell(gone)
        return None

    why = f"every item has a vector of {present.name}"
    each = tuple(Doing("remove", model, why) for model in others)
    verb = ("removed the vectors of", "remove the vectors of")
    return Pass("dropped", each, verb, "model", "out of use", act)


def _others(care: Round) -> list[str]:
    store = care.kit.items
    if not (care.reembed or care.policies.drop_old_vectors) or not isinstance(store, VectorModels):
        return []
    return sorted(model for model in store.models() if model != care.kit.embedder.model.key)
