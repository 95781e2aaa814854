"""Time each arm of recall, and the whole, over a fixed set of queries."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from engrain.core.model.queries import VectorQuery, WordQuery
from engrain.core.text.languages import load_languages
from engrain.core.text.tokenizer import extract_terms
from engrain.memory import Memory
from engrain.ports import Services
from harness.synthetic import BLOCK, Corpus, PreparedEmbedder, Query
from harness.timing import seconds, times

ARM_LIMIT = 100  # as many as recall asks of an arm
HITS = 10


def search_times(store: Path, user: str, corpus: Corpus, prepared: PreparedEmbedder, queries: int) -> dict[str, Any]:
    """Each query once to warm up, then once measured: the arms alone, then recall with all of them and its fusion."""
    asked = corpus.queries(queries, BLOCK)
    prepared.prepare([query.text for query in asked], np.stack([query.vector for query in asked]))
    with Memory(store, user=user, embedder=prepared, background=False) as memory:
        first = seconds(lambda: memory.recall(asked[0].text, n=HITS, min_relevance=0))
        kit = memory.store.services  # the arms have no face of their own
        by_meaning = [_vector_query(query, memory, kit) for query in asked]
        by_words = [_word_query(query, memory) for query in asked]
        runs: dict[str, list[Callable[[], Any]]] = {
            "vectors": [partial(kit.vectors.nearest, query) for query in by_meaning],
            "words": [partial(kit.words.best, query) for query in by_words],
            "recall": [partial(memory.recall, query.text, n=HITS, min_relevance=0) for query in asked],
        }
        report: dict[str, Any] = {"first_recall_ms": first * 1e3}
        for name, some in runs.items():
            for run in some:
                run()
            report[name] = times(some).milliseconds
        for kind in ("common", "rare", "mixed"):
            some = [run for run, query in zip(runs["recall"], asked, strict=True) if query.words == kind]
            report[f"recall_{kind}"] = times(some).milliseconds
        report["exact"] = all(kit.vectors.nearest(query).exact for query in by_meaning[:3])
    return report


def exactness(store: Path, items: int, corpus: Corpus, prepared: PreparedEmbedder, queries: int) -> float:
    """The share of the ten nearest, by a plain product with every vector, that the vector arm gives as well."""
    _, vectors = corpus.items(0, items)
    asked = corpus.queries(queries, BLOCK)
    right = 0
    with Memory(store, user="bench", embedder=prepared, background=False) as memory:
        kit = memory.store.services
        for query in asked:
            cosines = vectors @ query.vector
            found = kit.vectors.nearest(_vector_query(query, memory, kit)).cosines[:HITS]
            right += int(np.sum(np.abs(np.sort(cosines)[::-1][: len(found)] - np.asarray(found)) < 1e-5))
    return right / (len(asked) * min(HITS, items))


def _vector_query(query: Query, memory: Memory, kit: Services) -> VectorQuery:
    return VectorQuery(query.vector, kit.embedder.model.key, memory.scope, limit=ARM_LIMIT)


def _word_query(query: Query, memory: Memory) -> WordQuery:
    return WordQuery(_kept(extract_terms(query.text)), memory.scope, limit=ARM_LIMIT)


def _kept(found: Sequence[int]) -> tuple[int, ...]:
    return tuple(dict.fromkeys(word for word in found if word not in load_languages().stop_terms))
