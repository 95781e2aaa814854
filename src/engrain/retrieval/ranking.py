"""Fuse what all arms found into one table of features, and compute a score and a relevance for each row."""

from __future__ import annotations

import math
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from engrain.core.model.items import TRUST
from engrain.core.model.queries import BY_MEANING, BY_TRAITS, BY_WORDS, Candidates, EmbeddingModel, ItemColumns
from engrain.core.rules.own_words import PASTED
from engrain.core.rules.statements import (
    CONDITION,
    INSTRUCTION,
    INSTRUCTION_OR_PREFERENCE,
    IS_QUESTION,
    NUMBER_OR_TIME,
    PREFERENCE,
)
from engrain.core.text.bm25 import compute_idf, score_bm25
from engrain.core.text.languages import ENGLISH
from engrain.core.text.tokenizer import hash_term, tokenize
from engrain.retrieval.query import PartialDate, Question, TimeSpan

Matrix = npt.NDArray[np.float32]
Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Names = npt.NDArray[np.object_]

# Scale on which the weights were learnt: meaning counts from 1.2 deviations above unrelated text, in steps of 1.4.
MEANING_ZERO, MEANING_STEP = 1.2, 1.4
# An item without a vector gets this meaning for a full match of the words.
WORDS_AS_MEANING = 3.0
# In scripts without spaces, the weight of a single character; a pair of characters has 1.
SINGLE_CHARACTER_WEIGHT = 0.1
# Deviations above unrelated text from which the background lowers relevance, and at which it does so fully.
BACKGROUND_START, BACKGROUND_FULL = 1.2, 2.4


_ARM_NAMES = {BY_MEANING: "meaning", BY_WORDS: "words", BY_TRAITS: "standing"}
_ARMS = [
    tuple(name for bit, name in _ARM_NAMES.items() if bits & bit) or ("neighbour",) for bits in range(2 * BY_TRAITS)
]


@dataclass(frozen=True, slots=True, eq=False)
class Collected:
    """The candidates of one scope, and what they were compared with."""

    candidates: Candidates
    vector: Matrix | None = None  # of the question
    background: float = 0.0  # cosine of the question to any text of its language
    generality: float = 0.0  # from 0 to 1, how far the question asks for general knowledge

    def list_arms(self, row: int) -> tuple[str, ...]:
        """Return the arms that found a candidate; one that none found is a neighbour of another."""
        return _ARMS[int(self.candidates.found_by[row])]


@dataclass(frozen=True, slots=True, eq=False)
class CandidateTable:
    """The features of all candidates. `previous` and `next` are row numbers, -1 for none."""

    items: ItemColumns
    speaker: Names  # with the source of a fact that one of the speakers stated
    meaning: Floats  # the cosine, scaled by the model's mean and deviation
    words: Floats  # BM25 of the best passage, 1 for the best candidate
    cover: Floats  # share of the question's words in that passage, weighted by rarity
    cover_unnamed: Floats  # the same without the names of speakers
    cover_before: Floats  # share of the question's words that only the turn before has, which this one replies to
    passage: Ints
    previous: Ints
    next: Ints
    replies_to: Ints  # `previous` if it is another speaker's
    reply: Ints  # `next` if it is another speaker's
    passage_count: int
    background: float = 0.0  # meaning that every text of this language has for the question
    generality: float = 0.0

    def __len__(self) -> int:
        return len(self.items.ids)


def fuse(
    collected: Collected, question: Question, model: EmbeddingModel, speakers: Collection[str] = ()
) -> CandidateTable:
    """Give every candidate all its features. `speakers` are those that the scope knows."""
    found = collected.candidates
    speaker = _attribute_facts(found.items, speakers)
    previous, following = _find_neighbours(found.items)
    replies_to = _keep_other_speakers(found.items, previous)
    reply = np.full(len(found), -1)
    replying = (replies_to >= 0).nonzero()[0]
    reply[replies_to[replying]] = replying
    words, cover, unnamed, before, passage = _score_words(found, speaker, question, replies_to)
    meaning = ((found.cosine - model.mean) / model.deviation - MEANING_ZERO) / MEANING_STEP
    meaning = np.where(np.isnan(meaning), WORDS_AS_MEANING * unnamed, meaning)
    return CandidateTable(
        found.items, speaker, meaning, words, cover, unnamed, before, passage, previous, following, replies_to, reply,
        found.words.passages, _scale_background(collected.background, model), collected.generality,
    )  # fmt: skip


def _attribute_facts(items: ItemColumns, speakers: Collection[str]) -> Names:
    """Return the speakers. A fact has none of its own: it is attributed to its source if that is one of them."""
    known = frozenset(speakers)
    rows = [row for row in np.flatnonzero(items.kind == "fact").tolist() if items.source[row] in known]
    if not rows:
        return items.speaker
    speaker = items.speaker.copy()
    speaker[rows] = items.source[rows]
    return speaker


def _scale_background(background: float, model: EmbeddingModel) -> float:
    """Return the meaning to subtract from every candidate.

    A model that knows English best puts all texts of another language near each other.
    """
    above = (background - model.mean) / model.deviation
    share = min(max((above - BACKGROUND_START) / (BACKGROUND_FULL - BACKGROUND_START), 0.0), 1.0)
    return share * above / MEANING_STEP


def _score_words(
    found: Candidates, speaker: Names, question: Question, replies_to: Ints
) -> tuple[Floats, Floats, Floats, Floats, Ints]:
    size, matched = len(found), found.words
    scores, cover, unnamed, before = np.zeros((4, size))
    passage, places = np.zeros(size, dtype=np.int64), matched.rows
    if not len(places):
        return scores, cover, unnamed, before, passage
    counts = matched.counts.copy()
    _subtract_speaker_names(counts, speaker[places], question)
    weights = _weigh_terms(counts, found, question)
    points = score_bm25(counts, matched.length, weights, matched.average)
    scores[places] = points / max(points.max(), 1e-9)
    if question.single_characters:
        weights *= [SINGLE_CHARACTER_WEIGHT if one in question.single_characters else 1.0 for one in question.terms]
    plain = weights * [one not in question.names for one in question.terms] if question.names else weights
    present = counts > 0
    cover[places] = present @ weights / max(weights.sum(), 1e-9)
    unnamed[places] = present @ plain / max(plain.sum(), 1e-9) if question.names else cover[places]
    passage[places] = matched.passage
    has = np.zeros((size, len(plain)), dtype=bool)
    has[places] = present
    before[:] = (~has & has[replies_to] & (replies_to >= 0)[:, None]) @ plain / max(plain.sum(), 1e-9)
    return scores, cover, unnamed, before, passage


def _weigh_terms(counts: Floats, found: Candidates, question: Question) -> Floats:
    """Return the rarity of each term. Two spellings of one word count once, as the folded one."""
    place = {one: number for number, one in enumerate(question.terms)}
    frequency = np.array(found.words.frequency, dtype=np.float64)
    twins = [(place[out], place[folded]) for out, folded in question.spelling_pairs if out in place and folded in place]
    for out, folded in twins:
        counts[:, folded] = np.maximum(counts[:, folded], counts[:, out])
        frequency[folded] = max(frequency[folded], frequency[out])
    weights: Floats = compute_idf(frequency, found.words.passages)
    if twins:
        weights[[out for out, folded in twins if out != folded]] = 0.0
    return weights


def _subtract_speaker_names(counts: Floats, speakers: Names, question: Question) -> None:
    """Do not count the speaker's name in front of a text as a word of that text."""
    named = [number for number, one in enumerate(question.terms) if one in question.names]
    if not named:
        return
    own: dict[str | None, set[int]] = {
        speaker: {hash_term(word) for word in tokenize(speaker or "")} for speaker in set(speakers)
    }
    for row, speaker in enumerate(speakers):
        for number in named:
            if question.terms[number] in own[speaker]:
                counts[row, number] = max(0.0, counts[row, number] - 1)


def _find_neighbours(items: ItemColumns) -> tuple[Ints, Ints]:
    """Return each row's previous and next row in its session; -1 for none."""
    session, place = items.session, items.place
    order = np.lexsort((place, session))
    left, right = order[:-1], order[1:]
    has_place = (session[left] >= 0) & (place[left] >= 0)
    adjacent = has_place & (session[left] == session[right]) & (place[right] - place[left] == 1)
    previous, following = np.full(len(place), -1), np.full(len(place), -1)
    previous[right[adjacent]] = left[adjacent]
    following[left[adjacent]] = right[adjacent]
    return previous, following


def _keep_other_speakers(items: ItemColumns, rows: Ints) -> Ints:
    """Return the neighbouring rows that may be another speaker's, -1 for the others: one's next turn is no reply."""
    if not len(rows):
        return rows
    is_known = (items.speaker != None) | (items.role != None)  # noqa: E711  # element by element
    is_same = (items.speaker[rows] == items.speaker) & (items.role[rows] == items.role) & is_known
    kept: Ints = np.where((rows >= 0) & ~is_same.astype(bool), rows, -1)
    return kept


# Learnt on two sets of conversations together, with folds by conversation; docs/explanation/ranking.md has each weight.
WEIGHTS = {
    "meaning": 0.75,
    "words": 2.1,
    "cover": 1.4,
    "words before": 0.4,
    "cover before": 1.6,
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
_WEIGHT_COLUMN = np.array(list(WEIGHTS.values()))[:, None]
SECONDS_PER_MONTH = 30 * 86_400.0
FULL_TOPIC_MEANING = 1.5  # from this meaning on, a standing order counts in full
CONDITION_MEANING = (1.2, 3.0)  # from which a condition counts, and counts in full
CONDITION_COVER = 0.15  # share of a question's words in an order, from which it counts in full in other languages
BEST_PER_SESSION = 3
MAX_TURN_LIFT, MAX_FACT_LIFT, MAX_SMALL_FACT_LIFT = -1.0, -2.0, -1.5  # the last in a memory of the smallest size
BEST_MATCHES = 3  # tell together whether a question belongs to this memory: a single one may be chance
CLEAR_MATCH = 2.0  # a best match from which others count by their own alone
SMALL_MEMORY_SLACK = 0.6  # how far behind the best match others count like it, in a memory of the smallest size
NAMED_SPEAKER_BONUS = 0.5
# A question, a remark of the assistant or somebody's pasted text seldom answers: it needs a clearer match.
SELDOM_ANSWERS = -1.0
GENERAL_QUESTION = -1.0  # the same for all texts, if a question asks for general knowledge; not in far languages
FAR_LANGUAGE_LIFT = 0.7  # of a turn, where the background takes away most of the meaning
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
    parts = np.array([features[name] for name in names]) * _WEIGHT_COLUMN
    relevance = _estimate_relevance(table, features, _flag_speakers(table.speaker, question.speakers), question)
    return Ranking(table, parts.sum(axis=0), relevance, parts.T, names)


def _compute_features(table: CandidateTable, question: Question, now: float) -> dict[str, Floats]:
    items, traits, nothing = table.items, table.items.traits, np.zeros(len(table))
    asks = _has_trait(traits, IS_QUESTION)
    helper = nothing
    if not question.asks.isdisjoint(("about_me", "about_you")):
        helper = np.asarray((items.role == "assistant") | (items.role == "tool"), dtype=np.float64)
    standing = nothing
    if question.looks_forward and (traits & INSTRUCTION_OR_PREFERENCE).any():
        standing = _weigh_standing_orders(table, question)
    padded = np.zeros((4, len(table) + 1))  # row -1 is nothing
    padded[:, :-1] = table.words, asks, table.cover_unnamed, np.maximum(table.meaning, 0)
    words_before, asked_before, asked_cover, asked_meaning = padded[:, table.replies_to]
    return {
        "meaning": table.meaning,
        "words": table.words,
        "cover": table.cover,
        "words before": words_before,
        "cover before": table.cover_before,
        "words after": padded[0, table.reply],
        "session": _score_sessions(table),
        "another speaker": _flag_other_speakers(table, question),
        "date": score_dates(question.days, question.spans, items.occurred_at),
        "number or time": _has_trait(traits, NUMBER_OR_TIME) if "asks_number_or_time" in question.asks else nothing,
        "instruction": _has_trait(traits, INSTRUCTION) * standing,
        "preference": _has_trait(traits, PREFERENCE) * standing if question.asks_for_advice else nothing,
        "only asks": asks,
        "answers, by words": asked_before * asked_cover,
        "answers, by meaning": asked_before * asked_meaning,
        "about me, assistant's": helper if "about_me" in question.asks else nothing,
        "about you, assistant's": helper if "about_you" in question.asks else nothing,
        **_compute_item_priors(items, now),
    }


def _weigh_standing_orders(table: CandidateTable, question: Question) -> Floats:
    """Return from 0 to 1 how far a standing order applies to the question, if the item is one.

    A request for advice needs the same topic. Any other question that does not look back needs to meet the condition of
    the order. Only the user gives orders, however a text of others words one.
    """
    trusted = table.items.trust >= TRUST["agent"]
    if question.asks_for_advice:
        topical: Floats = np.clip(table.meaning / FULL_TOPIC_MEANING, 0, 1) * trusted
        return topical
    least, full = CONDITION_MEANING
    met = np.clip((table.meaning - table.background - least) / (full - least), 0, 1)
    # In other languages meaning tells subjects apart badly: a common word counts as well.
    if table.background > 0 or question.language not in (None, ENGLISH):
        met = np.maximum(met, np.clip(table.cover_unnamed / CONDITION_COVER, 0, 1))
    applying: Floats = met * _has_trait(table.items.traits, CONDITION) * trusted
    return applying


def _compute_item_priors(items: ItemColumns, now: float) -> dict[str, Floats]:
    """Return an item's features that do not depend on the question.

    Their weights are small, so that they order equals. Turns of a conversation get trust only.
    """
    fact = np.asarray(items.kind != "message", dtype=np.float64)
    if not fact.any():
        return {"importance": fact, "pinned": fact, "trust": items.trust - 1, "recency": fact}
    age = np.clip((now - items.occurred_at) / SECONDS_PER_MONTH, 0, 600)
    return {
        "importance": fact * (items.importance - 0.5),
        "pinned": fact * items.pinned,
        "trust": items.trust - 1,
        "recency": fact * np.exp(-age),
    }


def _estimate_relevance(
    table: CandidateTable, features: dict[str, Floats], named: Floats, question: Question
) -> Floats:
    """Estimate how likely each item answers the question, from its own match and this memory's best matches.

    A larger memory has better matches by chance, so the same match counts less there. In a small one the best few
    count alike: they stand and fall with the question. A good best match lifts the others, a turn further than a
    fact: a turn may answer by its context.
    """
    if not len(table):
        return np.zeros(0)
    meaning, cover = table.meaning - table.background, table.cover_unnamed
    least, most = CALIBRATED_PASSAGES
    standing = features["instruction"] + features["preference"]
    crowd = math.log1p(min(max(table.passage_count, least), most) / 10) - math.log1p(least / 10)
    own = (
        1.0 * meaning
        + 4.7 * cover
        + 3.4 * np.minimum(features["date"], 1)
        + 2.0 * standing
        + NAMED_SPEAKER_BONUS * named
    )
    best = np.sort(meaning)[-BEST_MATCHES:].tolist()
    lift = 0.45 * best[-1] + 0.45 * sum(best) / len(best) + 2.5 * float(cover.max()) - 1.0 * crowd - 2.2
    is_turn, behind = table.items.session >= 0, own.max() - own
    # In a language whose texts are all near each other, nearness alone lifts nothing.
    slack, fact_lift = (0.0, MAX_FACT_LIFT) if table.background else _ease_small_memory(crowd)
    slack *= min(max(CLEAR_MATCH - float(own.max()), 0.0), 1.0)
    logit = own + np.minimum(behind, slack) + np.minimum(lift, np.where(is_turn, MAX_TURN_LIFT, fact_lift))
    logit += FAR_LANGUAGE_LIFT * is_turn if table.background else 0.0
    logit += GENERAL_QUESTION * table.generality * (1 - np.minimum(standing, 1)) if not table.background else 0.0
    # The clearer the match, the less the kind of the text says.
    logit += SELDOM_ANSWERS * _count_seldom_kinds(table, question) * (1 - _squash(logit))
    return _squash(logit)


def _squash(logit: Floats) -> Floats:
    probability: Floats = 1 / (1 + np.exp(-np.minimum(np.maximum(logit, -60), 60)))  # for few rows faster than clip
    return probability


def _count_seldom_kinds(table: CandidateTable, question: Question) -> Floats:
    """Return of how many kinds that seldom answer each text is: a question, pasted words, the assistant's words."""
    traits = table.items.traits
    count = _has_trait(traits, IS_QUESTION) + _has_trait(traits, PASTED)
    if "about_you" not in question.asks:
        count += np.asarray(table.items.role == "assistant", dtype=np.float64)
    return count


def _ease_small_memory(crowd: float) -> tuple[float, float]:
    """Return how far behind the best match others count like it, and the most that a fact is lifted."""
    return max(0.0, SMALL_MEMORY_SLACK - 0.4 * crowd), max(MAX_FACT_LIFT, MAX_SMALL_FACT_LIFT - 0.5 * crowd)


def _has_trait(traits: Ints, bit: int) -> Floats:
    flags: Floats = ((traits & bit) > 0).astype(np.float64)
    return flags


def _flag_other_speakers(table: CandidateTable, question: Question) -> Floats:
    if not question.speakers:
        return np.zeros(len(table))
    spoken = np.asarray(table.speaker != None, dtype=np.float64)  # noqa: E711 - of each row
    weight = np.where(table.items.kind == "fact", OTHER_SPEAKER_FACT_FACTOR, 1.0)
    other: Floats = (spoken - _flag_speakers(table.speaker, question.speakers)) * weight
    return other


def _flag_speakers(speaker: Names, named: frozenset[str]) -> Floats:
    if not named:
        return np.zeros(len(speaker))
    return np.array([one in named for one in speaker], dtype=np.float64)


def _score_sessions(table: CandidateTable) -> Floats:
    """Return how far the best items of an item's session are behind the best session; 0 without a session."""
    behind = np.zeros(len(table))
    turns = (table.items.session >= 0).nonzero()[0]
    if not len(turns):
        return behind
    strength = (table.meaning / 2 + 2 * table.words)[turns]
    number = table.items.session[turns]
    order = np.lexsort((-strength, number))
    sorted_number = number[order]
    first = np.ones(len(order), dtype=np.bool_)
    first[1:] = sorted_number[1:] != sorted_number[:-1]
    group = first.cumsum() - 1
    kept = np.arange(len(order)) - first.nonzero()[0][group] < BEST_PER_SESSION
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
