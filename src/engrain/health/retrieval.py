"""Whether what is kept is found."""

from __future__ import annotations

from collections.abc import Sequence

from engrain.core.errors import EngrainError
from engrain.core.model.items import Item
from engrain.core.model.results import Verdict, list_first, report_failure, report_pass, report_warning
from engrain.core.text.tokenizer import extract_terms
from engrain.health.context import Look, Point, worst
from engrain.ports import Embedder, VectorQuery, WordQuery
from engrain.ports.search import VectorModels
from engrain.ports.storage import Deployed

SAMPLE = 20
BEST = 10
SAME = 0.999  # the cosine of a vector with itself, or with that of the same text elsewhere


def indexes(look: Look) -> Verdict:
    found = look.found("indexes") or report_pass("this store searches the texts themselves")
    return found if found.state == "pass" else Verdict(found.state, found.why, look.run("doctor", "--rebuild"))


def vectors(look: Look) -> Verdict:
    model, missing, items = look.kit.embedder.model, look.store.unembedded, look.store.items
    if not missing:
        return report_pass(f"every item has a vector of {model.name} ({items:,} in all)")
    mend = look.run("maintain", "--reembed")
    if before := _answering(look):
        made = f"{items - missing:,} of {items:,} items have their new vectors"
        return report_warning(f"changing to {model.name}: {made}; {before.model.name} answers meanwhile", mend)
    return report_warning(
        f"{missing:,} of {items:,} items have no vector of {model.name}: only their words find them", mend
    )


def _answering(look: Look) -> Embedder | None:
    """The embedder before, as long as more items have vectors of its."""
    items, before = look.kit.items, look.kit.before
    if before is None or not isinstance(items, VectorModels):
        return before
    counts = items.models()
    return before if counts.get(before.model.key, 0) > counts.get(look.kit.embedder.model.key, 0) else None


def embedder(look: Look) -> Verdict:
    mend = "check [embedder] in the settings file; words find everything meanwhile"
    try:
        model = look.kit.embedder.model
        row = look.kit.embedder.embed(["engrain"], "document")
    except EngrainError as exc:
        return report_failure(str(exc).rstrip("."), mend)
    if row.shape == (1, model.dimension):
        return report_pass(f"{model.name} answers with {model.dimension} dimensions")
    return report_failure(f"{model.name} answers with shape {row.shape} instead of (1, {model.dimension})", mend)


def old_vectors(look: Look) -> Verdict:
    items, present = look.kit.items, look.kit.embedder.model.key
    if not isinstance(items, VectorModels):
        return report_pass("this store does not tell of which models its vectors are")
    others = {key: count for key, count in items.models().items() if key != present}
    if look.kit.before is not None and look.store.unembedded:
        # Searched by, until the present model has made all anew.
        others.pop(look.kit.before.model.key, None)
    if not others:
        return report_pass("there are no vectors of a model that nobody asks")
    told = list_first([f"{count:,} of {key}" for key, count in others.items()])
    return report_warning(
        f"vectors of other models take room and are compared with nothing: {told}", look.run("maintain", "--reembed")
    )


def self_recall(look: Look) -> Verdict:
    """Spread over the newest ones; each must be among the best for its own words, and for its own vector."""
    newest = look.newest
    step = max(1, len(newest) // SAMPLE)
    sample = newest[::step][:SAMPLE]
    if not sample:
        return report_pass("there is nothing to find yet")
    lost = [item.id for item in sample if not _by_words(look, item)]
    away = look.kit.feed is not None and any(one.state == "fail" for one in look.beside("vectors"))
    if not away:  # else it would be waited for once more
        lost += [id for id in _without_meaning(look, sample) if id not in lost]
    if lost:
        why = f"{len(lost)} of {len(sample)} items are not found by their own text: {list_first(lost)}"
        return report_failure(why, look.run("doctor", "--rebuild"))
    how = "words; the server of their vectors is away" if away else "text"
    return report_pass(f"{len(sample)} of {len(sample)} items, picked among the newest, are found by their own {how}")


def _by_words(look: Look, item: Item) -> bool:
    asked = tuple(dict.fromkeys(extract_terms(item.text)))[:50]
    return not asked or bool(look.kit.words.counts(WordQuery(asked, look.scope), [item.id]).hits)


def _without_meaning(look: Look, sample: Sequence[Item]) -> list[str]:
    import numpy as np

    model = look.kit.embedder.model.key
    stored = look.kit.items.vectors(look.scope, [item.id for item in sample], model)
    lost = []
    for id, own in stored.items():
        query = VectorQuery(np.frombuffer(own.rows[0], dtype="<f4"), model, look.scope, limit=BEST)
        near = look.kit.vectors.nearest(query)
        # Of many equal texts not all are among the best.
        if id not in near.ids and (not near.cosines or near.cosines[-1] < SAME):
            lost.append(id)
    return lost


def vector_server(look: Look) -> Verdict:
    if look.kit.feed is None:
        return report_pass("no vector server: there is nothing to be behind")
    found = worst(look.beside("vectors"))
    if found and found.state == "fail":
        return report_failure(
            found.why, "start the server: what it lacks then reaches it by itself, and words find all meanwhile"
        )
    return found or report_warning("the vector server said nothing", look.run("doctor", "--rebuild"))


def search_state(look: Look) -> Verdict:
    if not isinstance(look.kit.items, Deployed):
        return report_pass("everything is in memory")
    if look.kit.feed is not None and not look.kit.feed.trouble:
        return report_pass("vectors are searched by their server")
    found = look.kit.items.search_state(look.scope)
    return Verdict(found.state, found.why, found.mend)


POINTS = (
    Point(13, "retrieval", "indexes", "Does every item have its words, and every vector its item?", indexes),
    Point(14, "retrieval", "vectors", "Does every item have a vector of this model?", vectors),
    Point(15, "retrieval", "embedder", "Does the embedder answer, with the right dimension?", embedder),
    Point(16, "retrieval", "old vectors", "Are vectors of another model left over?", old_vectors),
    Point(17, "retrieval", "self-recall", "Is an item found by its own text?", self_recall,
          "items picked among the newest are found by their own text", most=SAMPLE),
    Point(18, "retrieval", "vector server", "Does the vector server have every change?", vector_server),
    Point(19, "retrieval", "search", "Does search have what makes it fast?", search_state,
          "search has what makes it fast", most=SAMPLE),
)  # fmt: skip
