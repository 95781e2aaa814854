"""Collect the candidates for a question in one scope, from whatever stores the memory has."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np

from engrain.core.errors import EmbedderFailed
from engrain.core.identity import Scope
from engrain.core.model.filters import Condition, Filter
from engrain.core.model.queries import (
    BY_MEANING,
    BY_TRAITS,
    BY_WORDS,
    CandidateQuery,
    Candidates,
    ItemColumns,
    Nearest,
    Sketch,
    SketchQuery,
    VectorQuery,
    WordColumns,
    WordHit,
    WordMatches,
    WordQuery,
)
from engrain.core.model.recall import RecallRequest
from engrain.core.rules.own_words import PASTED
from engrain.core.rules.statements import CONDITION, INSTRUCTION_OR_PREFERENCE
from engrain.core.text.languages import load_languages
from engrain.ports import Services
from engrain.ports.search import Embedder
from engrain.retrieval.query import Question
from engrain.retrieval.ranking import Matrix
from engrain.retrieval.selection import MIN_TRUST

Collect = Callable[[CandidateQuery], Candidates]

# Each arm (meaning, words) returns five candidates per requested hit, within these two limits.
CANDIDATES_PER_HIT, MIN_CANDIDATES, MAX_CANDIDATES = 5, 50, 100
MAX_STANDING_ORDERS = 50
NEIGHBOUR_DISTANCE = 1

# (model, language) -> mean vector of texts without a topic, computed by the first question in that language.
_language_centroids: dict[tuple[str, str], Matrix] = {}
_log = logging.getLogger("engrain")


def embed_question(question: Question, services: Services) -> Matrix | None:
    """Return the question's vector; None if the embedder failed."""
    # Redacted: the embedder may be somebody else's server.
    text = services.redact(question.text) if services.redact else question.text
    try:
        return np.asarray(services.embedder.embed([text], "query")[0], dtype=np.float32)
    except EmbedderFailed as exc:
        _log.warning("the embedder failed, so recall searches by words only: %s", exc)
        return None


def build_query(
    question: Question, vector: Matrix | None, scope: Scope, request: RecallRequest, services: Services
) -> CandidateQuery:
    """Ask for the best by words and by meaning, and for standing orders."""
    where = build_filter(request)
    limit = max(request.n, min(max(CANDIDATES_PER_HIT * request.n, MIN_CANDIDATES), MAX_CANDIDATES))
    meaning = None
    if vector is not None:
        meaning = VectorQuery(vector, services.embedder.model.key, scope, where, request.at, limit)
    return CandidateQuery(
        WordQuery(question.terms, scope, where, request.at, limit),
        meaning,
        traits=INSTRUCTION_OR_PREFERENCE if question.asks_for_advice else CONDITION * question.looks_forward,
        max_with_traits=MAX_STANDING_ORDERS,
        reach=NEIGHBOUR_DISTANCE,
        min_trusted=max(request.n, limit // 2),
        trust=MIN_TRUST,
        foreign_traits=PASTED,
    )


def search_with_server(query: CandidateQuery, collect: Collect, services: Services) -> Candidates:
    """Collect from the store, with the vectors that a server of their own finds."""
    assert query.vector is not None
    first = near = services.vectors.nearest(query.vector)
    found = collect(replace(query, vector=None, near=near))
    if len(near.ids) >= query.words.limit and (found.items.trust >= query.trust).sum() < query.min_trusted:
        near = _join_nearest(near, services.vectors.nearest(replace(query.vector, where=_require_trust(query))))
        found = collect(replace(query, vector=None, near=near))
    return _add_cosines(found, first, near, query.vector, services)


def _require_trust(query: CandidateQuery) -> Filter:
    return add_condition(query.words.where, Condition("trust", ">=", query.trust))


def _join_nearest(near: Nearest, more: Nearest) -> Nearest:
    cosines = dict(zip(near.ids, near.cosines, strict=True)) | dict(zip(more.ids, more.cosines, strict=True))
    return replace(near, ids=list(cosines), cosines=list(cosines.values()))


def _add_cosines(
    found: Candidates, first: Nearest, near: Nearest, query: VectorQuery, services: Services
) -> Candidates:
    """Add the cosines of all candidates, and of the first search how many it found, the best and the background."""
    cosines = dict(zip(near.ids, near.cosines, strict=True))
    if far := [id for id in found.items.ids if id not in cosines]:
        cosines |= dict(zip(far, services.vectors.cosines(query, far), strict=True))
    best = first.cosines[0] if first.cosines else 0.0
    cosine = np.array([cosines[id] for id in found.items.ids], dtype=np.float64)
    return replace(found, cosine=cosine, nearest=(len(first.ids), best, first.background))


def search_by_ports(query: CandidateQuery, services: Services) -> Candidates:
    """Collect with one call for each arm, from a store that has no way of its own."""
    words, meaning = query.words, query.vector
    by_words = services.words.best(words)
    near = services.vectors.nearest(meaning) if meaning else Nearest([], [])
    first = near
    having: list[str] = []
    if query.traits:
        having = services.items.having(words.scope, query.traits, words.where, query.max_with_traits, words.at)
    hits = {hit.id: hit for hit in by_words.hits}
    sketches = _read_sketches(query, [*near.ids, *hits, *having], services)
    full = max(len(near.ids), len(hits)) >= words.limit
    if full and sum(one.trust >= query.trust for one in sketches) < query.min_trusted:
        # Texts of others fill both arms: what the user said is searched for on its own.
        trusted = _require_trust(query)
        hits |= {hit.id: hit for hit in services.words.best(replace(words, where=trusted)).hits}
        near = _join_nearest(near, services.vectors.nearest(replace(meaning, where=trusted))) if meaning else near
        sketches = _read_sketches(query, [*near.ids, *hits, *having], services)
    arms = {BY_MEANING: frozenset(near.ids), BY_WORDS: frozenset(hits), BY_TRAITS: frozenset(having)}
    wordless = [one.id for one in sketches if one.id not in hits]
    if wordless and words.terms:
        hits |= {hit.id: hit for hit in services.words.counts(words, wordless).hits}
    found = make_candidates(sketches, {}, hits, arms, by_words)
    return _add_cosines(found, first, near, meaning, services) if meaning else found


def _read_sketches(query: CandidateQuery, ids: Sequence[str], services: Services) -> list[Sketch]:
    words, unique = query.words, list(dict.fromkeys(ids))
    return services.items.sketches(SketchQuery(words.scope, unique, query.reach, words.where, words.at))


def make_candidates(
    sketches: Sequence[Sketch],
    cosines: dict[str, float],
    hits: dict[str, WordHit],
    arms: dict[int, frozenset[str]],
    matches: WordMatches,
) -> Candidates:
    """Turn what the ports return into columns."""
    numbers: dict[str | None, int] = {None: -1}
    kind, role, speaker, source = (
        np.array([*(one[field] for one in sketches), None], dtype=object)[:-1] for field in (1, 5, 4, 12)
    )
    items = ItemColumns(
        [one.id for one in sketches],
        kind,
        role,
        speaker,
        source,
        np.array([numbers.setdefault(one.session, len(numbers) - 1) for one in sketches], np.int64),
        np.array([-1 if one.place is None else one.place for one in sketches], np.int64),
        np.array([one.occurred_at for one in sketches], np.float64),
        np.array([one.traits for one in sketches], np.int64),
        np.array([one.importance for one in sketches], np.float64),
        np.array([one.pinned for one in sketches], np.float64),
        np.array([one.trust for one in sketches], np.float64),
    )
    rows = [row for row, id in enumerate(items.ids) if id in hits]
    some = [hits[items.ids[row]] for row in rows]
    words = WordColumns(
        np.array(rows, np.int64),
        np.array([hit.passage for hit in some], np.int64),
        np.array([hit.length for hit in some], np.int64),
        np.array([hit.counts for hit in some], np.float64).reshape(len(some), len(matches.frequency)),
        matches.passages,
        matches.average,
        matches.frequency,
    )
    cosine = np.array([cosines.get(id, math.nan) for id in items.ids], np.float64)
    found_by = np.array([sum(bit for bit, ids in arms.items() if id in ids) for id in items.ids], np.int64)
    return Candidates(items, words, cosine, found_by)


def build_filter(request: RecallRequest) -> Filter | None:
    if request.min_importance <= 0:
        return request.where
    return add_condition(request.where, Condition("importance", ">=", request.min_importance))


def add_condition(where: Filter | None, condition: Condition) -> Filter:
    return Filter((*(where.conditions if where else ()), condition))


def measure_background(vector: Matrix, language: str | None, found: Candidates, embedder: Embedder) -> float:
    """Return the cosine that any text of the question's language would have to it.

    English, which models are made for, has 0. Other known languages have texts without a topic to compare with.
    An unknown language falls back to this memory's mean cosine: less sure, a memory may have one topic only.
    """
    if language is None:
        return _estimate_background(found)
    texts, key = load_languages().by_name[language].unrelated, (embedder.model.key, language)
    if texts and key not in _language_centroids:
        try:
            _language_centroids[key] = embedder.embed(texts, "document").mean(axis=0)
        except EmbedderFailed:
            return _estimate_background(found)
    return float(_language_centroids[key] @ vector) if texts else 0.0


def _estimate_background(found: Candidates) -> float:
    """Estimate the background from the memory without its best match, which may be the answer.

    The fewer texts are left, the less their mean counts.
    """
    count, best, background = found.nearest
    if background is None or count < 2:
        return 0.0
    rest = (background * count - best) / (count - 1)
    return min(rest, background) * (count - 1) / count
