"""Bring what the arms found into one table: a row for each candidate, a column for each thing known of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engrain.core.bm25 import bm25, rarity
from engrain.core.embedding import EmbeddingModel
from engrain.ports import Sketch
from engrain.recall.gather import Gathered
from engrain.recall.question import Question

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

# The scale on which the weights were learnt: meaning counts from 1.2 deviations above unrelated text, in steps of 1.4.
ZERO, STEP = 1.2, 1.4
# What a full match of the words is worth in meaning where an item has no vector yet.
WORDS_AS_MEANING = 3.0


@dataclass(frozen=True, slots=True, eq=False)
class Table:
    """`meaning` is the cosine in the model's own measure. `previous` and `next` are rows, -1 for none."""

    sketches: list[Sketch]
    meaning: Floats
    words: Floats  # BM25 of the best passage, 1 for the best of all
    cover: Floats  # share of the question's words in that passage, by rarity
    cover_unnamed: Floats  # the same, the names of speakers aside
    passage: Ints
    previous: Ints
    next: Ints
    session: Ints  # -1 for an item of no session
    passages: int

    def __len__(self) -> int:
        return len(self.sketches)


def fuse(gathered: Gathered, question: Question, model: EmbeddingModel) -> Table:
    rows = {sketch.id: row for row, sketch in enumerate(gathered.sketches)}
    words, cover, unnamed, passage = _words(gathered, question, rows)
    meaning = np.full(len(rows), np.nan)
    for id, cosine in gathered.cosines.items():
        if id in rows:
            meaning[rows[id]] = ((cosine - model.mean) / model.deviation - ZERO) / STEP
    meaning = np.where(np.isnan(meaning), WORDS_AS_MEANING * unnamed, meaning)
    previous, following, session = _neighbours(gathered.sketches)
    return Table(
        gathered.sketches, meaning, words, cover, unnamed, passage, previous, following, session, gathered.passages
    )


def _words(gathered: Gathered, question: Question, rows: dict[str, int]) -> tuple[Floats, Floats, Floats, Ints]:
    size = len(rows)
    scores, cover, unnamed = np.zeros(size), np.zeros(size), np.zeros(size)
    passage = np.zeros(size, dtype=np.int64)
    hits = [hit for hit in gathered.words.values() if hit.id in rows]
    if not hits:
        return scores, cover, unnamed, passage
    places = np.array([rows[hit.id] for hit in hits])
    counts = np.array([hit.counts for hit in hits], dtype=np.float64)
    weights = rarity(gathered.frequency, gathered.passages)
    plain = weights * np.array([term not in question.names for term in question.terms])
    points = bm25(counts, [hit.length for hit in hits], weights, gathered.average)
    scores[places] = points / max(points.max(), 1e-9)
    cover[places] = (counts > 0) @ weights / max(weights.sum(), 1e-9)
    unnamed[places] = (counts > 0) @ plain / max(plain.sum(), 1e-9)
    passage[places] = [hit.passage for hit in hits]
    return scores, cover, unnamed, passage


def _neighbours(sketches: list[Sketch]) -> tuple[Ints, Ints, Ints]:
    at = {(one.session, one.place): row for row, one in enumerate(sketches) if one.place is not None}
    size = len(sketches)
    previous, following = np.full(size, -1, dtype=np.int64), np.full(size, -1, dtype=np.int64)
    session = np.full(size, -1, dtype=np.int64)
    numbers: dict[str, int] = {}
    for row, one in enumerate(sketches):
        if one.session is None:
            continue
        session[row] = numbers.setdefault(one.session, len(numbers))
        if one.place is not None:
            previous[row] = at.get((one.session, one.place - 1), -1)
            following[row] = at.get((one.session, one.place + 1), -1)
    return previous, following, session
