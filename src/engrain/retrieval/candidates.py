"""Ask the ports for everything that ranking needs: the only part of the read path that is not pure."""

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
from engrain.core.model.recall import RecallRequest
from engrain.core.rules.slots import states_same_name
from engrain.core.rules.traits import INSTRUCTION_OR_PREFERENCE
from engrain.core.text.languages import load_languages
from engrain.core.text.passages import split_passages
from engrain.ports import (
    Embedder,
    Nearest,
    OutdatedSpan,
    Services,
    Sketch,
    SketchQuery,
    VectorQuery,
    WordHit,
    WordQuery,
)
from engrain.retrieval.query import Question

Matrix = npt.NDArray[np.float32]

# Candidates of each arm: five for a hit that is asked for, between these two numbers.
CANDIDATES_PER_HIT, MIN_CANDIDATES, MAX_CANDIDATES = 5, 50, 100
MAX_STANDING_ORDERS = 50
NEIGHBOUR_DISTANCE = 1
MAX_EMBEDDED_PASSAGES = 8  # passages of one document that are embedded to choose among them

# The mean vector of a language's unrelated texts, by model: made once, by the first question in that language.
_language_centroids: dict[tuple[str, str], Matrix] = {}
_log = logging.getLogger("engrain")


@dataclass(frozen=True, slots=True)
class CandidateSet:
    """Candidates and their neighbours, with what each arm says of them."""

    sketches: list[Sketch]
    cosines: dict[str, float]  # of those that have a vector
    words: dict[str, WordHit]  # of those that have one of the words
    arms: dict[str, frozenset[str]]  # which of them each arm named
    passages: int
    average: float
    frequency: tuple[int, ...]
    vector: Matrix | None = None
    background: float = 0.0  # the cosine that the question has to any text of its language

    def arms_of(self, id: str) -> tuple[str, ...]:
        return tuple(name for name, ids in self.arms.items() if id in ids) or ("neighbour",)


def collect_candidates(question: Question, scope: Scope, request: RecallRequest, services: Services) -> CandidateSet:
    where = build_filter(request)
    limit = max(request.n, min(max(CANDIDATES_PER_HIT * request.n, MIN_CANDIDATES), MAX_CANDIDATES))
    words = WordQuery(question.terms, scope, where, request.at, limit)
    found = services.words.best(words)
    vector = _build_vector_query(question, scope, request, services)
    near = services.vectors.nearest(replace(vector, where=where, limit=limit)) if vector else None
    standing = _find_standing_orders(question, scope, request, services)
    cosines = dict(zip(near.ids, near.cosines, strict=True)) if near else {}
    hits = {hit.id: hit for hit in found.hits}
    ids = list(dict.fromkeys([*cosines, *hits, *standing]))
    sketches = services.items.sketches(SketchQuery(scope, ids, NEIGHBOUR_DISTANCE, where, request.at))
    known = [sketch.id for sketch in sketches]
    arms = {"meaning": frozenset(cosines), "words": frozenset(hits), "standing": frozenset(standing)}
    if vector:
        cosines |= _compute_missing(known, cosines, lambda rest: services.vectors.cosines(vector, rest))
    wordless = [id for id in known if id not in hits]
    hits |= {hit.id: hit for hit in services.words.counts(words, wordless).hits} if wordless and question.terms else {}
    gathered = CandidateSet(sketches, cosines, hits, arms, found.passages, found.average, found.frequency)
    if vector is None or near is None:
        return gathered
    background = _measure_background(vector.vector, question.language, near, services.embedder)
    return replace(gathered, vector=vector.vector, background=background)


def load_items(
    scope: Scope, ids: Sequence[str], services: Services
) -> tuple[dict[str, Item], dict[str, list[OutdatedSpan]]]:
    """The items themselves, and which of their words have been overtaken by later ones."""
    if not ids:
        return {}, {}
    items = {item.id: item for item in services.items.get_many(scope, ids)}
    retold = {one.id: _list_cited_ids(one) for one in items.values() if one.kind == "summary"}
    cited = dict.fromkeys(source for some in retold.values() for source in some)
    outdated: dict[str, list[OutdatedSpan]] = {}
    for mark in services.items.outdated(scope, list({**dict.fromkeys(ids), **cited})):
        outdated.setdefault(mark.id, []).append(mark)
    said = (
        {one.id: one for one in services.items.get_many(scope, marked)}
        if (marked := [*cited.keys() & outdated])
        else {}
    )
    outdated = {id: _drop_rephrased(items.get(id) or said.get(id), marks) for id, marks in outdated.items()}
    for id, sources in retold.items():
        marks = [mark for source in sources if source in said for mark in outdated[source]]
        outdated.setdefault(id, []).extend(_mark_summary(items[id], marks, said))
    return items, outdated


def _drop_rephrased(item: Item | None, marks: list[OutdatedSpan]) -> list[OutdatedSpan]:
    """Without the marks on what was only said again in other words."""
    text = item.text if item else ""
    return [mark for mark in marks if not mark.now or not states_same_name(text[mark.start : mark.end], mark.now)]


def _list_cited_ids(item: Item) -> list[str]:
    return [cite.item for source in item.sources for cite in source.cites]


def _mark_summary(summary: Item, marks: Sequence[OutdatedSpan], said: Mapping[str, Item]) -> list[OutdatedSpan]:
    """The same marks, where the summary has the words as they stand in the message."""
    found: list[OutdatedSpan] = []
    for mark in marks:
        words = said[mark.id].text[mark.start : mark.end]
        start = summary.text.find(words) if words else -1
        if start >= 0:
            found.append(OutdatedSpan(summary.id, start, start + len(words), mark.until, mark.now))
    return found


def find_nearest_passage(scope: Scope, item: Item, vector: Matrix | None, services: Services) -> int:
    """The stored vectors tell which part of the text is nearest; of that part's few passages, embedding tells."""
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
    """Where the text's window of that number stands."""
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
    asked = (
        services.redact(question.text) if services.redact else question.text
    )  # an embedder may be a server of others
    try:
        row = services.embedder.embed([asked], "query")[0]
    except EmbedderFailed as exc:
        _log.warning("recall looks for words alone: %s", exc)
        return None
    return VectorQuery(np.asarray(row, dtype=np.float32), services.embedder.model.key, scope, None, request.at)


def _measure_background(vector: Matrix, language: str | None, near: Nearest, embedder: Embedder) -> float:
    """0 for English, which models are made for. In a language that is known, the cosine to texts of no topic; in any
    other the mean cosine to this memory: less sure, since a memory may have one topic or several languages."""
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
    """The best may be the answer. The fewer the others, the less they are trusted."""
    others = len(near.ids) - 1
    if near.background is None or others < 1:
        return 0.0
    rest = (near.background * (others + 1) - near.cosines[0]) / others
    return min(rest, near.background) * others / (others + 1)


def _find_standing_orders(question: Question, scope: Scope, request: RecallRequest, services: Services) -> list[str]:
    if not question.requests:
        return []
    return services.items.having(
        scope, INSTRUCTION_OR_PREFERENCE, build_filter(request), MAX_STANDING_ORDERS, request.at
    )


def _compute_missing(
    known: Sequence[str], have: dict[str, float], ask: Callable[[Sequence[str]], list[float]]
) -> dict[str, float]:
    rest = [id for id in known if id not in have]
    if not rest:
        return {}
    return {id: cosine for id, cosine in zip(rest, ask(rest), strict=True) if not math.isnan(cosine)}
