"""Fuse the results of all arms into one table: a row per candidate, a column per feature."""

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

# Scale on which the weights were learnt: meaning counts from 1.2 deviations above unrelated text, in steps of 1.4.
MEANING_ZERO, MEANING_STEP = 1.2, 1.4
# An item without a vector gets this meaning for a full match of the words.
WORDS_AS_MEANING = 3.0
# In scripts without spaces, the weight of a single character; a pair of characters has 1.
SINGLE_CHARACTER_WEIGHT = 0.1
# Deviations above unrelated text from which the background lowers relevance, and at which it does so fully.
BACKGROUND_START, BACKGROUND_FULL = 1.2, 2.4


@dataclass(frozen=True, slots=True, eq=False)
class CandidateTable:
    """The features of all candidates. `previous` and `next` are row numbers, -1 for none."""

    sketches: list[Sketch]
    meaning: Floats  # the cosine, scaled by the model's mean and deviation
    words: Floats  # BM25 of the best passage, 1 for the best candidate
    cover: Floats  # share of the question's words in that passage, weighted by rarity
    cover_unnamed: Floats  # the same without the names of speakers
    passage: Ints
    previous: Ints
    next: Ints
    session: Ints  # -1 for an item of no session
    passage_count: int
    background: float = 0.0  # meaning that every text of this language has for the question

    def __len__(self) -> int:
        return len(self.sketches)


def fuse(found: CandidateSet, question: Question, model: EmbeddingModel) -> CandidateTable:
    ids = [sketch.id for sketch in found.sketches]
    words, cover, unnamed, passage = _score_words(found, question, ids)
    cosines = np.array([found.cosines.get(id, np.nan) for id in ids], dtype=np.float64)
    meaning = ((cosines - model.mean) / model.deviation - MEANING_ZERO) / MEANING_STEP
    meaning = np.where(np.isnan(meaning), WORDS_AS_MEANING * unnamed, meaning)
    previous, following, session = _find_neighbours(found.sketches)
    return CandidateTable(
        found.sketches, meaning, words, cover, unnamed, passage, previous, following, session, found.passage_count,
        _scale_background(found, model),
    )  # fmt: skip


def _scale_background(found: CandidateSet, model: EmbeddingModel) -> float:
    """Return the meaning to subtract from every candidate.

    A model that knows English best puts all texts of another language near each other.
    """
    above = (found.background - model.mean) / model.deviation
    share = np.clip((above - BACKGROUND_START) / (BACKGROUND_FULL - BACKGROUND_START), 0, 1)
    return float(share * above / MEANING_STEP)


def _score_words(found: CandidateSet, question: Question, ids: list[str]) -> tuple[Floats, Floats, Floats, Ints]:
    size = len(ids)
    scores, cover, unnamed = np.zeros(size), np.zeros(size), np.zeros(size)
    passage = np.zeros(size, dtype=np.int64)
    places = [row for row, id in enumerate(ids) if id in found.words]
    if not places:
        return scores, cover, unnamed, passage
    hits = [found.words[ids[row]] for row in places]
    counts = np.array([hit.counts for hit in hits], dtype=np.float64)
    _subtract_speaker_names(counts, [found.sketches[row].speaker for row in places], question)
    weights = _weigh_terms(counts, found, question)
    points = score_bm25(counts, [hit.length for hit in hits], weights, found.average_length)
    scores[places] = points / max(points.max(), 1e-9)
    weights = weights * np.array(
        [SINGLE_CHARACTER_WEIGHT if one in question.single_characters else 1.0 for one in question.terms]
    )
    plain = weights * np.array([one not in question.names for one in question.terms])
    cover[places] = (counts > 0) @ weights / max(weights.sum(), 1e-9)
    unnamed[places] = (counts > 0) @ plain / max(plain.sum(), 1e-9)
    passage[places] = [hit.passage for hit in hits]
    return scores, cover, unnamed, passage


def _weigh_terms(counts: Floats, found: CandidateSet, question: Question) -> Floats:
    """Return the rarity of each term. Two spellings of one word count once, as the folded one."""
    place = {one: number for number, one in enumerate(question.terms)}
    frequency = np.array(found.term_frequencies, dtype=np.float64)
    twins = [(place[out], place[folded]) for out, folded in question.spelling_pairs if out in place and folded in place]
    for out, folded in twins:
        counts[:, folded] = np.maximum(counts[:, folded], counts[:, out])
        frequency[folded] = max(frequency[folded], frequency[out])
    weights: Floats = compute_idf(frequency, found.passage_count)
    weights[[out for out, folded in twins if out != folded]] = 0.0
    return weights


def _subtract_speaker_names(counts: Floats, speakers: list[str | None], question: Question) -> None:
    """Do not count the speaker's name in front of a text as a word of that text."""
    named = [number for number, one in enumerate(question.terms) if one in question.names]
    if not named:
        return
    own = {speaker: {hash_term(word) for word in tokenize(speaker or "")} for speaker in set(speakers)}
    for row, speaker in enumerate(speakers):
        for number in named:
            if question.terms[number] in own[speaker]:
                counts[row, number] = max(0.0, counts[row, number] - 1)


def _find_neighbours(sketches: list[Sketch]) -> tuple[Ints, Ints, Ints]:
    """Return each row's previous and next row in its session, and its session's number; -1 for none."""
    numbers: dict[str | None, int] = {None: -1}
    session = np.array([numbers.setdefault(one.session, len(numbers) - 1) for one in sketches], np.int64)
    place = np.array([-1 if one.place is None else one.place for one in sketches], np.int64)
    order = np.lexsort((place, session))
    left, right = order[:-1], order[1:]
    has_place = (session[left] >= 0) & (place[left] >= 0)
    adjacent = has_place & (session[left] == session[right]) & (place[right] - place[left] == 1)
    previous, following = np.full(len(sketches), -1), np.full(len(sketches), -1)
    previous[right[adjacent]] = left[adjacent]
    following[left[adjacent]] = right[adjacent]
    return previous, following, session
