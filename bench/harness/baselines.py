"""Three plain searches to stand beside: by meaning, by words, and the two fused by reciprocal ranks."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from engrain.bench.recall import Doc, FoundDocument
from engrain.core.text.bm25 import compute_idf, score_bm25
from engrain.core.text.languages import load_languages
from engrain.core.text.tokenizer import extract_terms
from harness.compare import Batch, EmbeddedQuestion, Matrix

RANK_OFFSET = 60

Order = npt.NDArray[np.intp]


@dataclass(frozen=True, slots=True, eq=False)
class _Space:
    docs: Sequence[Doc]
    vectors: Matrix
    counts: Sequence[Counter[int]]
    lengths: npt.NDArray[np.float64]
    frequency: Counter[int]


class Baselines:
    """The documents, indexed once for the three."""

    def __init__(self) -> None:
        self._spaces: dict[str, _Space] = {}

    def add(self, batch: Batch) -> None:
        if batch.space not in self._spaces:
            counts = [Counter(extract_terms(doc.line)) for doc in batch.docs]
            lengths = np.array([count.total() for count in counts], dtype=np.float64)
            frequency = Counter(word for count in counts for word in count)
            self._spaces[batch.space] = _Space(batch.docs, batch.vectors, counts, lengths, frequency)

    def by_meaning(self, space: str, asked: EmbeddedQuestion) -> Order:
        return _best_first(self._spaces[space].vectors @ asked.vector)

    def by_words(self, space: str, asked: EmbeddedQuestion) -> Order:
        known = self._spaces[space]
        query = list(set(extract_terms(asked.text)) - load_languages().stop_terms)
        weights = compute_idf([known.frequency[word] for word in query], len(known.docs))
        rows = [[count[word] for word in query] for count in known.counts]
        return _best_first(score_bm25(rows, known.lengths, weights, float(known.lengths.mean())))

    def fused(self, space: str, asked: EmbeddedQuestion) -> Order:
        scores = np.zeros(len(self._spaces[space].docs))
        for order in (self.by_meaning(space, asked), self.by_words(space, asked)):
            scores[order] += 1 / (RANK_OFFSET + 1 + np.arange(len(order)))
        return _best_first(scores)

    def found(self, space: str, order: Order, n: int) -> list[FoundDocument]:
        docs = [self._spaces[space].docs[at] for at in order[:n]]
        return [FoundDocument(doc.id, len(doc.text), len(doc.text)) for doc in docs]


class Baseline:
    """One of the three, as a system."""

    version = ""

    def __init__(self, name: str, shared: Baselines) -> None:
        self.name = name
        self._shared = shared
        order = {"dense": shared.by_meaning, "BM25": shared.by_words, "RRF": shared.fused}[name]
        self._order = lru_cache(maxsize=1)(order)  # each question comes twice in a row: for ten, and for more

    def add(self, batch: Batch) -> None:
        self._shared.add(batch)

    def search(self, space: str, asked: EmbeddedQuestion, n: int) -> list[FoundDocument]:
        return self._shared.found(space, self._order(space, asked), n)

    def close(self) -> None:
        pass


def baselines() -> list[Baseline]:
    shared = Baselines()
    return [Baseline(name, shared) for name in ("dense", "BM25", "RRF")]


def _best_first(scores: npt.NDArray[np.floating]) -> Order:
    return np.argsort(-scores, kind="stable")
