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
    ids = [sketch.id for sketch in gathered.sketches]
    words, cover, unnamed, passage = _words(gathered, question, ids)
    cosines = np.array([gathered.cosines.get(id, np.nan) for id in ids], dtype=np.float64)
    meaning = ((cosines - model.mean) / model.deviation - ZERO) / STEP
    meaning = np.where(np.isnan(meaning), WORDS_AS_MEANING * unnamed, meaning)
    previous, following, session = _neighbours(gathered.sketches)
    return Table(
        gathered.sketches, meaning, words, cover, unnamed, passage, previous, following, session, gathered.passages
    )


def _words(gathered: Gathered, question: Question, ids: list[str]) -> tuple[Floats, Floats, Floats, Ints]:
    size = len(ids)
    scores, cover, unnamed = np.zeros(size), np.zeros(size), np.zeros(size)
    passage = np.zeros(size, dtype=np.int64)
    places = [row for row, id in enumerate(ids) if id in gathered.words]
    if not places:
        return scores, cover, unnamed, passage
    hits = [gathered.words[ids[row]] for row in places]
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
    numbers: dict[str, int] = {}
    previous, following, session = [], [], []
    for one in sketches:
        name, place = one.session, one.place
        session.append(-1 if name is None else numbers.setdefault(name, len(numbers)))
        if name is None or place is None:
            previous.append(-1)
            following.append(-1)
        else:
            previous.append(at.get((name, place - 1), -1))
            following.append(at.get((name, place + 1), -1))
    return np.array(previous, np.int64), np.array(following, np.int64), np.array(session, np.int64)
