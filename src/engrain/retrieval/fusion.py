"""Bring what the arms found into one table: a row for each candidate, a column for each thing known of it."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engrain.core.model.queries import EmbeddingModel
from engrain.core.text.bm25 import compute_idf, score_bm25
from engrain.core.text.tokenizer import hash_term, tokenize
from engrain.ports import Sketch
from engrain.retrieval.candidates import CandidateSet
from engrain.retrieval.query import Question

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]

# The scale on which the weights were learnt: meaning counts from 1.2 deviations above unrelated text, in steps of 1.4.
MEANING_ZERO, MEANING_STEP = 1.2, 1.4
# What a full match of the words is worth in meaning where an item has no vector yet.
WORDS_AS_MEANING = 3.0
# What a single character is worth beside the pairs, in scripts without spaces.
SINGLE_CHARACTER_WEIGHT = 0.1
# The background is taken off relevance from here on, in deviations above unrelated text, and wholly at the second.
BACKGROUND_START, BACKGROUND_FULL = 1.2, 2.4


@dataclass(frozen=True, slots=True, eq=False)
class CandidateTable:
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
    background: float = 0.0  # what all of this memory has of meaning for the question, beyond what is usual

    def __len__(self) -> int:
        return len(self.sketches)


def fuse(gathered: CandidateSet, question: Question, model: EmbeddingModel) -> CandidateTable:
    ids = [sketch.id for sketch in gathered.sketches]
    words, cover, unnamed, passage = _score_words(gathered, question, ids)
    cosines = np.array([gathered.cosines.get(id, np.nan) for id in ids], dtype=np.float64)
    meaning = ((cosines - model.mean) / model.deviation - MEANING_ZERO) / MEANING_STEP
    meaning = np.where(np.isnan(meaning), WORDS_AS_MEANING * unnamed, meaning)
    previous, following, session = _find_neighbours(gathered.sketches)
    return CandidateTable(
        gathered.sketches, meaning, words, cover, unnamed, passage, previous, following, session, gathered.passages,
        _scale_background(gathered, model),
    )  # fmt: skip


def _scale_background(gathered: CandidateSet, model: EmbeddingModel) -> float:
    """What to take off the meaning of everything: to a model that knows English best, all texts of another language are
    near each other."""
    above = (gathered.background - model.mean) / model.deviation
    share = np.clip((above - BACKGROUND_START) / (BACKGROUND_FULL - BACKGROUND_START), 0, 1)
    return float(share * above / MEANING_STEP)


def _score_words(gathered: CandidateSet, question: Question, ids: list[str]) -> tuple[Floats, Floats, Floats, Ints]:
    size = len(ids)
    scores, cover, unnamed = np.zeros(size), np.zeros(size), np.zeros(size)
    passage = np.zeros(size, dtype=np.int64)
    places = [row for row, id in enumerate(ids) if id in gathered.words]
    if not places:
        return scores, cover, unnamed, passage
    hits = [gathered.words[ids[row]] for row in places]
    counts = np.array([hit.counts for hit in hits], dtype=np.float64)
    _subtract_speaker_names(counts, [gathered.sketches[row].speaker for row in places], question)
    weights = _weigh_terms(counts, gathered, question)
    points = score_bm25(counts, [hit.length for hit in hits], weights, gathered.average)
    scores[places] = points / max(points.max(), 1e-9)
    weights = weights * np.array([SINGLE_CHARACTER_WEIGHT if one in question.light else 1.0 for one in question.terms])
    plain = weights * np.array([one not in question.names for one in question.terms])
    cover[places] = (counts > 0) @ weights / max(weights.sum(), 1e-9)
    unnamed[places] = (counts > 0) @ plain / max(plain.sum(), 1e-9)
    passage[places] = [hit.passage for hit in hits]
    return scores, cover, unnamed, passage


def _weigh_terms(counts: Floats, gathered: CandidateSet, question: Question) -> Floats:
    """The rarity of each term. Two spellings of one word count once, as the folded one."""
    place = {one: number for number, one in enumerate(question.terms)}
    frequency = np.array(gathered.frequency, dtype=np.float64)
    twins = [(place[out], place[folded]) for out, folded in question.spelled if out in place and folded in place]
    for out, folded in twins:
        counts[:, folded] = np.maximum(counts[:, folded], counts[:, out])
        frequency[folded] = max(frequency[folded], frequency[out])
    weights: Floats = compute_idf(frequency, gathered.passages)
    weights[[out for out, folded in twins if out != folded]] = 0.0
    return weights


def _subtract_speaker_names(counts: Floats, speakers: list[str | None], question: Question) -> None:
    """A name that is only in front of the text, as the speaker's, is no word of the text."""
    named = [number for number, one in enumerate(question.terms) if one in question.names]
    if not named:
        return
    own = {speaker: {hash_term(word) for word in tokenize(speaker or "")} for speaker in set(speakers)}
    for row, speaker in enumerate(speakers):
        for number in named:
            if question.terms[number] in own[speaker]:
                counts[row, number] = max(0.0, counts[row, number] - 1)


def _find_neighbours(sketches: list[Sketch]) -> tuple[Ints, Ints, Ints]:
    """The rows one place before and after in the same session, and the session's number; -1 where there is none."""
    numbers: dict[str | None, int] = {None: -1}
    session = np.array([numbers.setdefault(one.session, len(numbers) - 1) for one in sketches], np.int64)
    place = np.array([-1 if one.place is None else one.place for one in sketches], np.int64)
    order = np.lexsort((place, session))
    left, right = order[:-1], order[1:]
    placed = (session[left] >= 0) & (place[left] >= 0)
    beside = placed & (session[left] == session[right]) & (place[right] - place[left] == 1)
    previous, following = np.full(len(sketches), -1), np.full(len(sketches), -1)
    previous[right[beside]] = left[beside]
    following[left[beside]] = right[beside]
    return previous, following, session
