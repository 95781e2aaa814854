"""Search by brute force."""

from __future__ import annotations

import math
import struct
from collections.abc import Sequence
from datetime import datetime

import numpy as np

from engrain.core.model.filters import matches_filter
from engrain.core.model.queries import Nearest, VectorQuery, WordHit, WordMatches, WordQuery
from engrain.core.text.bm25 import compute_idf, score_bm25
from engrain_conformance.reference.state import State, StateHolder, StoredRow, reads

Passage = dict[int, int]  # term → count


class ReferenceSearch(StateHolder):
    @reads
    def nearest(self, state: State, query: VectorQuery) -> Nearest:
        at = self.now(query.at)
        compared = [
            stored
            for stored in state.list_items(query.scope)
            if query.model in stored.vectors and stored.item.visible(at) and matches_filter(query.where, stored.item)
        ]
        best = sorted(((_cosine(query, stored), stored.item.id) for stored in compared), reverse=True)[: query.limit]
        every = [cosine for stored in compared for cosine in _cosines(query, stored)]
        background = sum(every) / len(every) if every else None
        return Nearest([id for _, id in best], [cosine for cosine, _ in best], background=background)

    @reads
    def cosines(self, state: State, query: VectorQuery, ids: Sequence[str]) -> list[float]:
        at = self.now(query.at)
        found = [state.find_item(query.scope, id) for id in ids]
        return [_cosine(query, one) if one and one.item.visible(at) else math.nan for one in found]

    @reads
    def best(self, state: State, query: WordQuery) -> WordMatches:
        at = self.now(query.at)
        visible = _list_visible(state, query, at)
        scores = _Scores(visible, query.terms)
        wanted = [stored for stored in visible if matches_filter(query.where, stored.item)]
        hits = [found for stored in wanted if (found := scores.hit(stored))]
        hits.sort(key=lambda found: (found[0], found[1].id), reverse=True)
        return scores.matches([hit for _, hit in hits[: query.limit]])

    @reads
    def counts(self, state: State, query: WordQuery, ids: Sequence[str]) -> WordMatches:
        at = self.now(query.at)
        visible = _list_visible(state, query, at)
        scores = _Scores(visible, query.terms)
        known = {stored.item.id: stored for stored in visible}
        hits = [found for id in ids if id in known and (found := scores.hit(known[id]))]
        return scores.matches([hit for _, hit in hits])


class _Scores:
    """The statistics of a scope for some terms, and the scores of its passages."""

    def __init__(self, visible: Sequence[StoredRow], terms: Sequence[int]) -> None:
        self.terms = terms
        self.words = {stored.item.id: _unpack_passages(stored) for stored in visible}
        every = [passage for passages in self.words.values() for passage in passages]
        self.count = len(every)
        self.average = sum(sum(passage.values()) for passage in every) / len(every) if every else 0.0
        self.frequency = tuple(sum(term in passage for passage in every) for term in terms)
        self.weights = compute_idf(self.frequency, self.count)

    def hit(self, stored: StoredRow) -> tuple[float, WordHit] | None:
        """The best passage; the first of two equal ones."""
        found: tuple[float, WordHit] | None = None
        for number, passage in enumerate(self.words[stored.item.id]):
            counts = tuple(passage.get(term, 0) for term in self.terms)
            length = sum(passage.values())
            if any(counts):
                score = float(score_bm25([counts], [length], self.weights, self.average)[0])
                if found is None or score > found[0]:
                    found = score, WordHit(stored.item.id, number, length, counts)
        return found

    def matches(self, hits: list[WordHit]) -> WordMatches:
        return WordMatches(hits, self.count, self.average, self.frequency)


def _list_visible(state: State, query: WordQuery, at: datetime) -> list[StoredRow]:
    return [stored for stored in state.list_items(query.scope) if stored.item.visible(at)]


def _unpack_passages(stored: StoredRow) -> list[Passage]:
    found: list[Passage] = [{} for _ in range(stored.words.passages)]
    for term, packed in struct.iter_unpack("<II", stored.words.pairs):
        found[packed >> 16][term] = packed & 0xFFFF
    return found


def _cosine(query: VectorQuery, stored: StoredRow) -> float:
    return max(_cosines(query, stored), default=math.nan)


def _cosines(query: VectorQuery, stored: StoredRow) -> list[float]:
    asked = query.vector.reshape(-1).astype(np.float64)
    rows = [np.frombuffer(row, dtype="<f4").astype(np.float64) for row in stored.vectors.get(query.model, ())]
    return [max(-1.0, min(1.0, float(np.dot(asked, row)))) for row in rows]
