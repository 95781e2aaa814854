"""Fuse what all arms found into one table of features, and compute a score and a relevance for each row."""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engrain.core.model.queries import EmbeddingModel, Sketch, WordHit
from engrain.core.rules.statements import INSTRUCTION, IS_QUESTION, NUMBER_OR_TIME, PREFERENCE
from engrain.core.text.bm25 import compute_idf, score_bm25
from engrain.core.text.tokenizer import hash_term, tokenize
from engrain.retrieval.query import PartialDate, Question, TimeSpan

Matrix = npt.NDArray[np.float32]
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


@dataclass(frozen=True, slots=True)
class CandidateSet:
    """Candidates and their neighbours, with the scores of each arm."""

    sketches: list[Sketch]
    cosines: dict[str, float]  # only candidates with a vector
    words: dict[str, WordHit]  # only candidates with a word of the query
    arms: dict[str, frozenset[str]]  # arm -> ids that it found
    passage_count: int
    average_length: float
    term_frequencies: tuple[int, ...]
    query_vector: Matrix | None = None
    background: float = 0.0  # cosine of the question to any text of its language

    def list_arms(self, id: str) -> tuple[str, ...]:
        """Return the arms that found an item; one that none found is a neighbour of a candidate."""
        return tuple(name for name, ids in self.arms.items() if id in ids) or ("neighbour",)


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


# Learnt on two sets of conversations together, with folds by conversation; docs/explanation/ranking.md has each weight.
WEIGHTS = {
    "meaning": 0.75,
    "words": 2.1,
    "cover": 1.4,
    "words before": 0.5,
    "words after": 1.1,
    "session": 0.95,
    "another speaker": -1.1,
    "date": 2.0,
    "number or time": 1.4,
    "instruction": 4.3,
    "preference": 2.8,
    "only asks": -1.3,
    "answers, by words": 1.75,
    "answers, by meaning": 0.4,
    "about me, assistant's": -2.2,
    "about you, assistant's": 0.9,
    "importance": 0.12,
    "pinned": 0.06,
    "trust": 0.12,
    "recency": 0.03,
}
SECONDS_PER_MONTH = 30 * 86_400.0
FULL_TOPIC_MEANING = 1.5  # from this meaning on, a standing order counts in full
BEST_PER_SESSION = 3
MAX_TURN_LIFT, MAX_FACT_LIFT, MAX_SMALL_FACT_LIFT = -1.0, -2.0, -1.5  # the last in a memory of the smallest size
BEST_MATCHES = 3  # tell together whether a question belongs to this memory: a single one may be chance
CLEAR_MATCH = 2.0  # a best match from which others count by their own alone
SMALL_MEMORY_SLACK = 0.6  # how far behind the best match others count like it, in a memory of the smallest size
NAMED_SPEAKER_BONUS = 0.5
# "I live in Quito" as a fact is Bob's alone, while a turn of Bob's may be about the one who is named.
OTHER_SPEAKER_FACT_FACTOR = 2.8
CALIBRATED_PASSAGES = (20, 2_000)  # sizes of memory between which relevance was calibrated


@dataclass(frozen=True, slots=True, eq=False)
class Ranking:
    table: CandidateTable
    score: Floats
    relevance: Floats
    parts: Floats  # a row per candidate, a column per weight: its contribution to the score
    names: tuple[str, ...]


def rank(table: CandidateTable, question: Question, now: float) -> Ranking:
    features = _compute_features(table, question, now)
    names = tuple(WEIGHTS)
    parts = np.array([WEIGHTS[name] * features[name] for name in names])
    relevance = _estimate_relevance(table, features, _flag_speakers(table.sketches, question.speakers))
    return Ranking(table, parts.sum(axis=0), relevance, parts.T, names)


def _compute_features(table: CandidateTable, question: Question, now: float) -> dict[str, Floats]:
    sketches = table.sketches
    traits = np.array([one.traits for one in sketches], dtype=np.int64)
    asks = _has_trait(traits, IS_QUESTION)
    topical = np.clip(table.meaning / FULL_TOPIC_MEANING, 0, 1) * question.asks_for_advice
    helper = np.array([one.role in ("assistant", "tool") for one in sketches], dtype=np.float64)
    occurred = np.array([one.occurred_at for one in sketches], dtype=np.float64)
    asked_before = _values_of_rows(asks, table.previous)
    return {
        "meaning": table.meaning,
        "words": table.words,
        "cover": table.cover,
        "words before": _values_of_rows(table.words, table.previous),
        "words after": _values_of_rows(table.words, table.next),
        "session": _score_sessions(table),
        "another speaker": _flag_other_speakers(sketches, question),
        "date": score_dates(question.days, question.spans, occurred),
        "number or time": _has_trait(traits, NUMBER_OR_TIME) * ("asks_number_or_time" in question.asks),
        "instruction": _has_trait(traits, INSTRUCTION) * topical,
        "preference": _has_trait(traits, PREFERENCE) * topical,
        "only asks": asks,
        "answers, by words": asked_before * _values_of_rows(table.cover_unnamed, table.previous),
        "answers, by meaning": asked_before * np.maximum(_values_of_rows(table.meaning, table.previous), 0),
        "about me, assistant's": helper * ("about_me" in question.asks),
        "about you, assistant's": helper * ("about_you" in question.asks),
        **_compute_item_priors(sketches, occurred, now),
    }


def _compute_item_priors(sketches: list[Sketch], occurred: Floats, now: float) -> dict[str, Floats]:
    """Return an item's features that do not depend on the question.

    Their weights are small, so that they order equals. Turns of a conversation get trust only.
    """
    fact = np.array([one.kind != "message" for one in sketches], dtype=np.float64)
    age = np.clip((now - occurred) / SECONDS_PER_MONTH, 0, 600)
    return {
        "importance": fact * (np.array([one.importance for one in sketches]) - 0.5),
        "pinned": fact * np.array([one.pinned for one in sketches]),
        "trust": np.array([one.trust for one in sketches]) - 1,
        "recency": fact * np.exp(-age),
    }


def _estimate_relevance(table: CandidateTable, features: dict[str, Floats], named: Floats) -> Floats:
    """Estimate how likely each item answers the question, from its own match and this memory's best matches.

    A larger memory has better matches by chance, so the same match counts less there. In a small one the best few
    count alike: they stand and fall with the question. A good best match lifts the others, a turn further than a
    fact: a turn may answer by its context.
    """
    if not len(table):
        return np.zeros(0)
    meaning, cover = table.meaning - table.background, table.cover_unnamed
    least, most = CALIBRATED_PASSAGES
    crowd = math.log1p(min(max(table.passage_count, least), most) / 10) - math.log1p(least / 10)
    own = (
        1.0 * meaning
        + 4.7 * cover
        + 3.4 * np.minimum(features["date"], 1)
        + 2.0 * (features["instruction"] + features["preference"])
        + NAMED_SPEAKER_BONUS * named
    )
    best = np.sort(meaning)[-BEST_MATCHES:]
    lift = 0.45 * best.max() + 0.45 * best.mean() + 2.5 * cover.max() - 1.0 * crowd - 2.2
    is_turn, behind = table.session >= 0, own.max() - own
    # In a language whose texts are all near each other, nearness alone lifts nothing.
    slack, fact_lift = (0.0, MAX_FACT_LIFT) if table.background else _ease_small_memory(crowd)
    slack *= min(max(CLEAR_MATCH - float(own.max()), 0.0), 1.0)
    logit = own + np.minimum(behind, slack) + np.minimum(lift, np.where(is_turn, MAX_TURN_LIFT, fact_lift))
    probability: Floats = 1 / (1 + np.exp(-np.clip(logit, -60, 60)))
    return probability


def _ease_small_memory(crowd: float) -> tuple[float, float]:
    """Return how far behind the best match others count like it, and the most that a fact is lifted."""
    return max(0.0, SMALL_MEMORY_SLACK - 0.4 * crowd), max(MAX_FACT_LIFT, MAX_SMALL_FACT_LIFT - 0.5 * crowd)


def _values_of_rows(values: Floats, rows: Ints) -> Floats:
    """Return the values of other rows, 0 for row -1."""
    if not len(values):
        return values
    picked: Floats = np.where(rows >= 0, values[np.maximum(rows, 0)], 0.0)
    return picked


def _has_trait(traits: Ints, bit: int) -> Floats:
    flags: Floats = ((traits & bit) > 0).astype(np.float64)
    return flags


def _flag_other_speakers(sketches: list[Sketch], question: Question) -> Floats:
    if not question.speakers:
        return np.zeros(len(sketches))
    spoken = np.array([one.speaker is not None for one in sketches], dtype=np.float64)
    weight = np.array([OTHER_SPEAKER_FACT_FACTOR if one.kind == "fact" else 1.0 for one in sketches])
    other: Floats = (spoken - _flag_speakers(sketches, question.speakers)) * weight
    return other


def _flag_speakers(sketches: list[Sketch], speakers: frozenset[str]) -> Floats:
    if not speakers:
        return np.zeros(len(sketches))
    return np.array([one.speaker in speakers for one in sketches], dtype=np.float64)


def _score_sessions(table: CandidateTable) -> Floats:
    """Return how far the best items of an item's session are behind the best session; 0 without a session."""
    behind = np.zeros(len(table))
    turns = np.flatnonzero(table.session >= 0)
    if not len(turns):
        return behind
    strength = (table.meaning / 2 + 2 * table.words)[turns]
    number = table.session[turns]
    order = np.lexsort((-strength, number))
    sorted_number = number[order]
    first = np.append(True, sorted_number[1:] != sorted_number[:-1])
    group = np.cumsum(first) - 1
    kept = np.arange(len(order)) - np.flatnonzero(first)[group] < BEST_PER_SESSION
    total = np.bincount(group[kept], strength[order][kept])
    mean = total / np.bincount(group[kept])
    behind[turns[order]] = (mean - mean.max())[group]
    return behind


def score_dates(days: tuple[PartialDate, ...], spans: tuple[TimeSpan, ...], occurred: Floats) -> Floats:
    """Score 1 for the named month, less for the month after and for the year, more for the week after a named day."""
    best = np.zeros(len(occurred))
    if not len(occurred) or not (days or spans):
        return best
    moments = occurred.astype("M8[s]")
    months = moments.astype("M8[M]").astype(np.int64)  # since January 1970
    dates = moments.astype("M8[D]").astype(np.int64)
    for day in days:
        best = np.maximum(best, _score_date(day, months, dates))
    for span in spans:
        best = np.maximum(best, ((occurred >= span.start) & (occurred < span.end)).astype(np.float64))
    return best


def _score_date(day: PartialDate, months: Ints, dates: Ints) -> Floats:
    year = months // 12 + 1970
    value = np.zeros(len(months))
    if day.year:
        value += 0.3 * (year == day.year)
    if not day.month:
        return value
    wanted_year = np.where(day.year > 0, day.year, year)
    since = months - ((wanted_year - 1970) * 12 + day.month - 1)
    if not day.year:
        since %= 12
    value += np.where(since == 0, 1.0, np.where(since == 1, 0.3, 0.0))
    if day.day:
        first = ((wanted_year - 1970) * 12 + day.month - 1).astype("M8[M]").astype("M8[D]").astype(np.int64)
        after = dates - (first + day.day - 1)
        value += 0.7 * ((after >= 0) & (after <= 7))
    return value
