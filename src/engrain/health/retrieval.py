"""Check that stored items can be found."""

from __future__ import annotations

from collections.abc import Sequence

from engrain.core.errors import EngrainError
from engrain.core.model.items import Item
from engrain.core.model.queries import VectorQuery, WordQuery
from engrain.core.model.results import Verdict, list_first, report_failure, report_pass, report_warning
from engrain.core.text.tokenizer import extract_terms
from engrain.health.run_checks import Check, CheckContext, find_worst
from engrain.ports.search import Embedder, VectorModels
from engrain.ports.storage import Deployed

SAMPLE_SIZE = 20
MAX_NEAREST = 10
MAX_TERMS = 50
MIN_SAME_COSINE = 0.999  # of a vector with itself, or with that of an equal text


def check_indexes(context: CheckContext) -> Verdict:
    found = context.find_own("indexes") or report_pass("this store searches the texts themselves")
    return found if found.state == "pass" else found._replace(fix=context.build_command("doctor", "--rebuild"))


def check_vectors(context: CheckContext) -> Verdict:
    model, missing, items = context.services.embedder.model, context.store.unembedded, context.store.items
    if not missing:
        return report_pass(f"every item has a vector of {model.name} ({items:,} in all)")
    fix = context.build_command("maintain", "--reembed")
    if before := _find_answering_embedder(context):
        made = f"{items - missing:,} of {items:,} items have their new vectors"
        return report_warning(f"changing to {model.name}: {made}; {before.model.name} answers meanwhile", fix)
    return report_warning(
        f"{missing:,} of {items:,} items have no vector of {model.name}: only word search finds them", fix
    )


def _find_answering_embedder(context: CheckContext) -> Embedder | None:
    """Return the previous embedder while it has more vectors than the current one."""
    items, before = context.services.items, context.services.previous_embedder
    if before is None or not isinstance(items, VectorModels):
        return before
    counts = items.models()
    return before if counts.get(before.model.key, 0) > counts.get(context.services.embedder.model.key, 0) else None


def check_embedder(context: CheckContext) -> Verdict:
    fix = "check [embedder] in the settings file; word search works meanwhile"
    try:
        model = context.services.embedder.model
        row = context.services.embedder.embed(["engrain"], "document")
    except EngrainError as exc:
        return report_failure(str(exc).rstrip("."), fix)
    if row.shape == (1, model.dimension):
        return report_pass(f"{model.name} answers with {model.dimension} dimensions")
    return report_failure(f"{model.name} answers with shape {row.shape} instead of (1, {model.dimension})", fix)


def check_old_vectors(context: CheckContext) -> Verdict:
    items, present = context.services.items, context.services.embedder.model.key
    if not isinstance(items, VectorModels):
        return report_pass("this store does not list the models of its vectors")
    others = {key: count for key, count in items.models().items() if key != present}
    if context.services.previous_embedder is not None and context.store.unembedded:
        # The previous model answers until the current one has embedded everything.
        others.pop(context.services.previous_embedder.model.key, None)
    if not others:
        return report_pass("there are no vectors of unused models")
    listed = list_first([f"{count:,} of {key}" for key, count in others.items()])
    why = f"unused vectors of other models take space: {listed}"
    return report_warning(why, context.build_command("maintain", "--reembed"))


def check_self_recall(context: CheckContext) -> Verdict:
    """Check a sample of the newest items: each must be among the best for its own words and its own vector."""
    newest = context.newest_items
    step = max(1, len(newest) // SAMPLE_SIZE)
    sample = newest[::step][:SAMPLE_SIZE]
    if not sample:
        return report_pass("there is nothing to find yet")
    lost = []
    for item in sample:
        terms = tuple(dict.fromkeys(extract_terms(item.text)))[:MAX_TERMS]
        if terms and not context.services.words.counts(WordQuery(terms, context.scope), [item.id]).hits:
            lost.append(item.id)
    down = context.services.feed is not None and any(
        verdict.state == "fail" for verdict in context.find_on_servers("vectors")
    )
    if not down:  # do not wait for the server again
        lost += [id for id in _list_lost_by_meaning(context, sample) if id not in lost]
    if lost:
        why = f"{len(lost)} of {len(sample)} items are not found by their own text: {list_first(lost)}"
        return report_failure(why, context.build_command("doctor", "--rebuild"))
    how = "words; the vector server does not answer" if down else "text"
    return report_pass(f"{len(sample)} of {len(sample)} items, sampled from the newest, are found by their own {how}")


def _list_lost_by_meaning(context: CheckContext, sample: Sequence[Item]) -> list[str]:
    import numpy as np

    model = context.services.embedder.model.key
    stored = context.services.items.vectors(context.scope, [item.id for item in sample], model)
    lost = []
    for id, own in stored.items():
        query = VectorQuery(np.frombuffer(own.rows[0], dtype="<f4"), model, context.scope, limit=MAX_NEAREST)
        near = context.services.vectors.nearest(query)
        # Not all of many equal texts can be among the best.
        if id not in near.ids and (not near.cosines or near.cosines[-1] < MIN_SAME_COSINE):
            lost.append(id)
    return lost


def check_vector_server(context: CheckContext) -> Verdict:
    if context.services.feed is None:
        return report_pass("no vector server is set")
    found = find_worst(context.find_on_servers("vectors"))
    if found and found.state == "fail":
        return report_failure(
            found.why, "start the server: missing changes then reach it automatically, and word search works meanwhile"
        )
    return found or report_warning("the vector server did not report", context.build_command("doctor", "--rebuild"))


def check_search_state(context: CheckContext) -> Verdict:
    if not isinstance(context.services.items, Deployed):
        return report_pass("everything is in memory")
    if context.services.feed is not None and not context.services.feed.last_error:
        return report_pass("vectors are searched by their server")
    found = context.services.items.search_state(context.scope)
    return Verdict(found.state, found.why, found.fix)


CHECKS = (
    Check(13, "retrieval", "indexes", "Does every item have its words, and every vector its item?", check_indexes),
    Check(14, "retrieval", "vectors", "Does every item have a vector of this model?", check_vectors),
    Check(15, "retrieval", "embedder", "Does the embedder answer, with the right dimension?", check_embedder),
    Check(16, "retrieval", "old vectors", "Are vectors of another model left over?", check_old_vectors),
    Check(17, "retrieval", "self-recall", "Is an item found by its own text?", check_self_recall,
          "items sampled from the newest are found by their own text", most=SAMPLE_SIZE),
    Check(18, "retrieval", "vector server", "Does the vector server have every change?", check_vector_server),
    Check(19, "retrieval", "search", "Does search have what makes it fast?", check_search_state,
          "search has what makes it fast", most=SAMPLE_SIZE),
)  # fmt: skip
