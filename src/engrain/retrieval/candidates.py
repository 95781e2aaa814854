"""Read candidates from the store, with everything that ranking needs to know about them."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from engrain.core.errors import EmbedderFailed
from engrain.core.identity import Scope
from engrain.core.model.filters import Condition, Filter
from engrain.core.model.items import Item
from engrain.core.model.queries import Nearest, OutdatedSpan, Sketch, SketchQuery, VectorQuery, WordHit, WordQuery
from engrain.core.model.recall import RecallRequest
from engrain.core.rules.slots import states_same_name
from engrain.core.rules.statements import INSTRUCTION_OR_PREFERENCE
from engrain.core.text.languages import load_languages
from engrain.core.text.passages import split_passages
from engrain.ports import Services
from engrain.ports.search import Embedder
from engrain.retrieval.query import Question

Matrix = npt.NDArray[np.float32]

# Each arm (meaning, words) returns five candidates per requested hit, within these two limits.
CANDIDATES_PER_HIT, MIN_CANDIDATES, MAX_CANDIDATES = 5, 50, 100
MAX_STANDING_ORDERS = 50
NEIGHBOUR_DISTANCE = 1
MAX_EMBEDDED_PASSAGES = 8  # of one document, to choose among them

# (model, language) -> mean vector of texts without a topic, computed by the first question in that language.
_language_centroids: dict[tuple[str, str], Matrix] = {}
_log = logging.getLogger("engrain")


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


def collect_candidates(question: Question, scope: Scope, request: RecallRequest, services: Services) -> CandidateSet:
    where = build_filter(request)
    limit = max(request.n, min(max(CANDIDATES_PER_HIT * request.n, MIN_CANDIDATES), MAX_CANDIDATES))
    words = WordQuery(question.terms, scope, where, request.at, limit)
    by_words = services.words.best(words)
    vector = _build_vector_query(question, scope, request, services)
    near = services.vectors.nearest(replace(vector, where=where, limit=limit)) if vector else None
    standing = _find_standing_orders(question, scope, request, services)
    cosines = dict(zip(near.ids, near.cosines, strict=True)) if near else {}
    hits = {hit.id: hit for hit in by_words.hits}
    ids = list(dict.fromkeys([*cosines, *hits, *standing]))
    sketches = services.items.sketches(SketchQuery(scope, ids, NEIGHBOUR_DISTANCE, where, request.at))
    known = [sketch.id for sketch in sketches]
    arms = {"meaning": frozenset(cosines), "words": frozenset(hits), "standing": frozenset(standing)}
    if vector:
        cosines |= _compute_missing(known, cosines, lambda rest: services.vectors.cosines(vector, rest))
    wordless = [id for id in known if id not in hits]
    hits |= {hit.id: hit for hit in services.words.counts(words, wordless).hits} if wordless and question.terms else {}
    found = CandidateSet(sketches, cosines, hits, arms, by_words.passages, by_words.average, by_words.frequency)
    if vector is None or near is None:
        return found
    background = _measure_background(vector.vector, question.language, near, services.embedder)
    return replace(found, query_vector=vector.vector, background=background)


def load_items(
    scope: Scope, ids: Sequence[str], services: Services
) -> tuple[dict[str, Item], dict[str, list[OutdatedSpan]]]:
    """Load items by id, and the parts of their text that later statements have made outdated."""
    if not ids:
        return {}, {}
    items = {item.id: item for item in services.items.get_many(scope, ids)}
    summaries = {
        one.id: [cite.item for source in one.sources for cite in source.cites]
        for one in items.values()
        if one.kind == "summary"
    }
    cited = dict.fromkeys(source for sources in summaries.values() for source in sources)
    outdated: dict[str, list[OutdatedSpan]] = {}
    for mark in services.items.outdated(scope, list({**dict.fromkeys(ids), **cited})):
        outdated.setdefault(mark.id, []).append(mark)
    marked = [*cited.keys() & outdated]
    messages = {one.id: one for one in services.items.get_many(scope, marked)} if marked else {}
    outdated = {id: _drop_rephrased(items.get(id) or messages.get(id), marks) for id, marks in outdated.items()}
    for id, sources in summaries.items():
        marks = [mark for source in sources if source in messages for mark in outdated[source]]
        outdated.setdefault(id, []).extend(_mark_summary(items[id], marks, messages))
    return items, outdated


def _drop_rephrased(item: Item | None, marks: list[OutdatedSpan]) -> list[OutdatedSpan]:
    """Drop the marks whose new value only rephrases the old one."""
    text = item.text if item else ""
    return [mark for mark in marks if not mark.now or not states_same_name(text[mark.start : mark.end], mark.now)]


def _mark_summary(summary: Item, marks: Sequence[OutdatedSpan], messages: Mapping[str, Item]) -> list[OutdatedSpan]:
    """Copy the marks of cited messages to the places where the summary has the same words."""
    found: list[OutdatedSpan] = []
    for mark in marks:
        words = messages[mark.id].text[mark.start : mark.end]
        start = summary.text.find(words) if words else -1
        if start >= 0:
            found.append(OutdatedSpan(summary.id, start, start + len(words), mark.until, mark.now))
    return found


def find_nearest_passage(scope: Scope, item: Item, vector: Matrix | None, services: Services) -> int:
    """Return the number of the passage nearest to the query.

    The stored vectors choose a window of the text; its few passages are embedded to choose among them.
    """
    spans = split_passages(item.text)
    if vector is None or len(spans) < 2:
        return 0
    stored = services.items.vectors(scope, [item.id], services.embedder.model.key).get(item.id)
    if stored is None:
        return 0
    parts = np.frombuffer(b"".join(stored.rows), dtype="<f4").reshape(len(stored.rows), -1)
    start, end = _locate_window(item.text, int(np.argmax(parts @ vector)), services.embedder)
    within = [number for number, span in enumerate(spans) if span[0] < end and span[1] > start][:MAX_EMBEDDED_PASSAGES]
    try:
        rows = services.embedder.embed([item.text[slice(*spans[number])] for number in within], "document")
    except EmbedderFailed:
        return within[0]
    return within[int(np.argmax(rows @ vector))]


def _locate_window(text: str, wanted: int, embedder: Embedder) -> tuple[int, int]:
    """Return the start and end of the text's window with that number."""
    start = end = 0
    for piece in embedder.windows(text)[: wanted + 1]:
        start = text.index(piece, end)
        end = start + len(piece)
    return start, end


def build_filter(request: RecallRequest) -> Filter | None:
    if request.min_importance <= 0:
        return request.where
    least = Condition("importance", ">=", request.min_importance)
    return Filter((*(request.where.conditions if request.where else ()), least))


def _build_vector_query(
    question: Question, scope: Scope, request: RecallRequest, services: Services
) -> VectorQuery | None:
    text = (
        services.redact(question.text) if services.redact else question.text
    )  # the embedder may be somebody else's server
    try:
        row = services.embedder.embed([text], "query")[0]
    except EmbedderFailed as exc:
        _log.warning("the embedder failed, so recall searches by words only: %s", exc)
        return None
    return VectorQuery(np.asarray(row, dtype=np.float32), services.embedder.model.key, scope, None, request.at)


def _measure_background(vector: Matrix, language: str | None, near: Nearest, embedder: Embedder) -> float:
    """Return the cosine that any text of the question's language would have to it.

    English, which models are made for, has 0. Other known languages have texts without a topic to compare with.
    An unknown language falls back to this memory's mean cosine: less sure, a memory may have one topic only.
    """
    if language is None:
        return _estimate_background(near)
    texts, key = load_languages().by_name[language].unrelated, (embedder.model.key, language)
    if texts and key not in _language_centroids:
        try:
            _language_centroids[key] = embedder.embed(texts, "document").mean(axis=0)
        except EmbedderFailed:
            return _estimate_background(near)
    return float(_language_centroids[key] @ vector) if texts else 0.0


def _estimate_background(near: Nearest) -> float:
    """Estimate the background from the memory without its best match, which may be the answer.

    The fewer texts are left, the less their mean counts.
    """
    others = len(near.ids) - 1
    if near.background is None or others < 1:
        return 0.0
    rest = (near.background * (others + 1) - near.cosines[0]) / others
    return min(rest, near.background) * others / (others + 1)


def _find_standing_orders(question: Question, scope: Scope, request: RecallRequest, services: Services) -> list[str]:
    if not question.asks_for_advice:
        return []
    return services.items.having(
        scope, INSTRUCTION_OR_PREFERENCE, build_filter(request), MAX_STANDING_ORDERS, request.at
    )


def _compute_missing(
    ids: Sequence[str], cosines: dict[str, float], compute: Callable[[Sequence[str]], list[float]]
) -> dict[str, float]:
    missing = [id for id in ids if id not in cosines]
    if not missing:
        return {}
    return {id: cosine for id, cosine in zip(missing, compute(missing), strict=True) if not math.isnan(cosine)}
