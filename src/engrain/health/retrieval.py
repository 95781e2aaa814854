"""Whether what is kept is found."""

from __future__ import annotations

from collections.abc import Sequence

from engrain.core.errors import EngrainError
from engrain.core.model.items import Item
from engrain.core.model.results import Verdict, list_first, report_failure, report_pass, report_warning
from engrain.core.text.tokenizer import extract_terms
from engrain.health.context import Check, CheckContext, find_worst
from engrain.ports import Embedder, VectorQuery, WordQuery
from engrain.ports.search import VectorModels
from engrain.ports.storage import Deployed

SAMPLE_SIZE = 20
MAX_NEAREST = 10
MIN_SAME_COSINE = 0.999  # the cosine of a vector with itself, or with that of the same text elsewhere


def check_indexes(look: CheckContext) -> Verdict:
    found = look.found("indexes") or report_pass("this store searches the texts themselves")
    return found if found.state == "pass" else Verdict(found.state, found.why, look.run("doctor", "--rebuild"))


def check_vectors(look: CheckContext) -> Verdict:
    model, missing, items = look.services.embedder.model, look.store.unembedded, look.store.items
    if not missing:
        return report_pass(f"every item has a vector of {model.name} ({items:,} in all)")
    mend = look.run("maintain", "--reembed")
    if before := _find_answering_embedder(look):
        made = f"{items - missing:,} of {items:,} items have their new vectors"
        return report_warning(f"changing to {model.name}: {made}; {before.model.name} answers meanwhile", mend)
    return report_warning(
        f"{missing:,} of {items:,} items have no vector of {model.name}: only their words find them", mend
    )


def _find_answering_embedder(look: CheckContext) -> Embedder | None:
    """The embedder before, as long as more items have vectors of its."""
    items, before = look.services.items, look.services.before
    if before is None or not isinstance(items, VectorModels):
        return before
    counts = items.models()
    return before if counts.get(before.model.key, 0) > counts.get(look.services.embedder.model.key, 0) else None


def check_embedder(look: CheckContext) -> Verdict:
    mend = "check [embedder] in the settings file; words find everything meanwhile"
    try:
        model = look.services.embedder.model
        row = look.services.embedder.embed(["engrain"], "document")
    except EngrainError as exc:
        return report_failure(str(exc).rstrip("."), mend)
    if row.shape == (1, model.dimension):
        return report_pass(f"{model.name} answers with {model.dimension} dimensions")
    return report_failure(f"{model.name} answers with shape {row.shape} instead of (1, {model.dimension})", mend)


def check_old_vectors(look: CheckContext) -> Verdict:
    items, present = look.services.items, look.services.embedder.model.key
    if not isinstance(items, VectorModels):
        return report_pass("this store does not tell of which models its vectors are")
    others = {key: count for key, count in items.models().items() if key != present}
    if look.services.before is not None and look.store.unembedded:
        # Searched by, until the present model has made all anew.
        others.pop(look.services.before.model.key, None)
    if not others:
        return report_pass("there are no vectors of a model that nobody asks")
    told = list_first([f"{count:,} of {key}" for key, count in others.items()])
    return report_warning(
        f"vectors of other models take room and are compared with nothing: {told}", look.run("maintain", "--reembed")
    )


def check_self_recall(look: CheckContext) -> Verdict:
    """Spread over the newest ones; each must be among the best for its own words, and for its own vector."""
    newest = look.newest
    step = max(1, len(newest) // SAMPLE_SIZE)
    sample = newest[::step][:SAMPLE_SIZE]
    if not sample:
        return report_pass("there is nothing to find yet")
    lost = [item.id for item in sample if not _is_found_by_words(look, item)]
    away = look.services.feed is not None and any(one.state == "fail" for one in look.beside("vectors"))
    if not away:  # else it would be waited for once more
        lost += [id for id in _list_lost_by_meaning(look, sample) if id not in lost]
    if lost:
        why = f"{len(lost)} of {len(sample)} items are not found by their own text: {list_first(lost)}"
        return report_failure(why, look.run("doctor", "--rebuild"))
    how = "words; the server of their vectors is away" if away else "text"
    return report_pass(f"{len(sample)} of {len(sample)} items, picked among the newest, are found by their own {how}")


def _is_found_by_words(look: CheckContext, item: Item) -> bool:
    asked = tuple(dict.fromkeys(extract_terms(item.text)))[:50]
    return not asked or bool(look.services.words.counts(WordQuery(asked, look.scope), [item.id]).hits)


def _list_lost_by_meaning(look: CheckContext, sample: Sequence[Item]) -> list[str]:
    import numpy as np

    model = look.services.embedder.model.key
    stored = look.services.items.vectors(look.scope, [item.id for item in sample], model)
    lost = []
    for id, own in stored.items():
        query = VectorQuery(np.frombuffer(own.rows[0], dtype="<f4"), model, look.scope, limit=MAX_NEAREST)
        near = look.services.vectors.nearest(query)
        # Of many equal texts not all are among the best.
        if id not in near.ids and (not near.cosines or near.cosines[-1] < MIN_SAME_COSINE):
            lost.append(id)
    return lost


def check_vector_server(look: CheckContext) -> Verdict:
    if look.services.feed is None:
        return report_pass("no vector server: there is nothing to be behind")
    found = find_worst(look.beside("vectors"))
    if found and found.state == "fail":
        return report_failure(
            found.why, "start the server: what it lacks then reaches it by itself, and words find all meanwhile"
        )
    return found or report_warning("the vector server said nothing", look.run("doctor", "--rebuild"))


def check_search_state(look: CheckContext) -> Verdict:
    if not isinstance(look.services.items, Deployed):
        return report_pass("everything is in memory")
    if look.services.feed is not None and not look.services.feed.trouble:
        return report_pass("vectors are searched by their server")
    found = look.services.items.search_state(look.scope)
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
