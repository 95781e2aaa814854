"""Check that stored items can be found."""

from __future__ import annotations

from collections.abc import Sequence

from engrain.core.errors import EngrainError
from engrain.core.model.items import Item
from engrain.core.model.results import Verdict, failed, named, passed, warned
from engrain.core.text.tokenizer import terms
from engrain.health.context import Check, CheckContext, find_worst
from engrain.ports import Embedder, VectorQuery, WordQuery
from engrain.ports.search import VectorModels
from engrain.ports.storage import Deployed

SAMPLE_SIZE = 20
MAX_NEAREST = 10
MIN_SAME_COSINE = 0.999  # of a vector with itself, or with that of an equal text


def check_indexes(context: CheckContext) -> Verdict:
    found = context.find_own("indexes") or passed("this store searches the texts themselves")
    return (
        found
        if found.state == "pass"
        else Verdict(found.state, found.why, context.build_command("doctor", "--rebuild"))
    )


def check_vectors(context: CheckContext) -> Verdict:
    model, missing, items = context.kit.embedder.model, context.store.unembedded, context.store.items
    if not missing:
        return passed(f"every item has a vector of {model.name} ({items:,} in all)")
    mend = context.build_command("maintain", "--reembed")
    if before := _find_answering_embedder(context):
        made = f"{items - missing:,} of {items:,} items have their new vectors"
        return warned(f"changing to {model.name}: {made}; {before.model.name} answers meanwhile", mend)
    return warned(f"{missing:,} of {items:,} items have no vector of {model.name}: only their words find them", mend)


def _find_answering_embedder(context: CheckContext) -> Embedder | None:
    """Return the previous embedder while it has more vectors than the current one."""
    items, before = context.kit.items, context.kit.before
    if before is None or not isinstance(items, VectorModels):
        return before
    counts = items.models()
    return before if counts.get(before.model.key, 0) > counts.get(context.kit.embedder.model.key, 0) else None


def check_embedder(context: CheckContext) -> Verdict:
    mend = "check [embedder] in the settings file; words find everything meanwhile"
    try:
        model = context.kit.embedder.model
        row = context.kit.embedder.embed(["engrain"], "document")
    except EngrainError as exc:
        return failed(str(exc).rstrip("."), mend)
    if row.shape == (1, model.dimension):
        return passed(f"{model.name} answers with {model.dimension} dimensions")
    return failed(f"{model.name} answers with shape {row.shape} instead of (1, {model.dimension})", mend)


def check_old_vectors(context: CheckContext) -> Verdict:
    items, present = context.kit.items, context.kit.embedder.model.key
    if not isinstance(items, VectorModels):
        return passed("this store does not tell of which models its vectors are")
    others = {key: count for key, count in items.models().items() if key != present}
    if context.kit.before is not None and context.store.unembedded:
        # The previous model answers until the current one has embedded everything.
        others.pop(context.kit.before.model.key, None)
    if not others:
        return passed("there are no vectors of a model that nobody asks")
    told = named([f"{count:,} of {key}" for key, count in others.items()])
    return warned(
        f"vectors of other models take room and are compared with nothing: {told}",
        context.build_command("maintain", "--reembed"),
    )


def check_self_recall(context: CheckContext) -> Verdict:
    """Check a sample of the newest items: each must be among the best for its own words and its own vector."""
    newest = context.newest_items
    step = max(1, len(newest) // SAMPLE_SIZE)
    sample = newest[::step][:SAMPLE_SIZE]
    if not sample:
        return passed("there is nothing to find yet")
    lost = [item.id for item in sample if not _is_found_by_words(context, item)]
    away = context.kit.feed is not None and any(one.state == "fail" for one in context.find_on_servers("vectors"))
    if not away:  # do not wait for the server again
        lost += [id for id in _list_lost_by_meaning(context, sample) if id not in lost]
    if lost:
        why = f"{len(lost)} of {len(sample)} items are not found by their own text: {named(lost)}"
        return failed(why, context.build_command("doctor", "--rebuild"))
    how = "words; the server of their vectors is away" if away else "text"
    return passed(f"{len(sample)} of {len(sample)} items, picked among the newest, are found by their own {how}")


def _is_found_by_words(context: CheckContext, item: Item) -> bool:
    asked = tuple(dict.fromkeys(terms(item.text)))[:50]
    return not asked or bool(context.kit.words.counts(WordQuery(asked, context.scope), [item.id]).hits)


def _list_lost_by_meaning(context: CheckContext, sample: Sequence[Item]) -> list[str]:
    import numpy as np

    model = context.kit.embedder.model.key
    stored = context.kit.items.vectors(context.scope, [item.id for item in sample], model)
    lost = []
    for id, own in stored.items():
        query = VectorQuery(np.frombuffer(own.rows[0], dtype="<f4"), model, context.scope, limit=MAX_NEAREST)
        near = context.kit.vectors.nearest(query)
        # Not all of many equal texts can be among the best.
        if id not in near.ids and (not near.cosines or near.cosines[-1] < MIN_SAME_COSINE):
            lost.append(id)
    return lost


def check_vector_server(context: CheckContext) -> Verdict:
    if context.kit.feed is None:
        return passed("no vector server: there is nothing to be behind")
    found = find_worst(context.find_on_servers("vectors"))
    if found and found.state == "fail":
        return failed(
            found.why, "start the server: what it lacks then reaches it by itself, and words find all meanwhile"
        )
    return found or warned("the vector server said nothing", context.build_command("doctor", "--rebuild"))


def check_search_state(context: CheckContext) -> Verdict:
    if not isinstance(context.kit.items, Deployed):
        return passed("everything is in memory")
    if context.kit.feed is not None and not context.kit.feed.trouble:
        return passed("vectors are searched by their server")
    found = context.kit.items.search_state(context.scope)
    return Verdict(found.state, found.why, found.mend)


CHECKS = (
    Check(13, "retrieval", "indexes", "Does every item have its words, and every vector its item?", check_indexes),
    Check(14, "retrieval", "vectors", "Does every item have a vector of this model?", check_vectors),
    Check(15, "retrieval", "embedder", "Does the embedder answer, with the right dimension?", check_embedder),
    Check(16, "retrieval", "old vectors", "Are vectors of another model left over?", check_old_vectors),
    Check(17, "retrieval", "self-recall", "Is an item found by its own text?", check_self_recall,
          "items picked among the newest are found by their own text", most=SAMPLE_SIZE),
    Check(18, "retrieval", "vector server", "Does the vector server have every change?", check_vector_server),
    Check(19, "retrieval", "search", "Does search have what makes it fast?", check_search_state,
          "search has what makes it fast", most=SAMPLE_SIZE),
)  # fmt: skip
