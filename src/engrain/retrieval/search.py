"""Answer a recall request: read candidates from the store, rank and select them, and follow their relations."""

from __future__ import annotations

import logging
import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

import numpy as np

from engrain.core.clock import check_time
from engrain.core.errors import EmbedderFailed, InvalidInput
from engrain.core.identity import Scope
from engrain.core.model.filters import Condition, Filter, matches_filter
from engrain.core.model.items import ASPECT_KEY, LATER_KEY, RESERVED_KEY, Item, is_all_forgotten
from engrain.core.model.messages import item_to_message
from engrain.core.model.queries import Nearest, OutdatedSpan, Sketch, SketchQuery, VectorQuery, WordQuery
from engrain.core.model.recall import Hit, Recall, RecallRequest
from engrain.core.rules.frames import HIDDEN_LETTER
from engrain.core.rules.own_words import find_own_words
from engrain.core.rules.relations import list_entities
from engrain.core.rules.slot_names import states_same_name
from engrain.core.rules.statements import INSTRUCTION_OR_PREFERENCE
from engrain.core.text.languages import load_languages
from engrain.core.text.passages import split_passages
from engrain.core.text.tokenizer import extract_terms
from engrain.ports import Services
from engrain.ports.search import Embedder, pin_embedder
from engrain.retrieval.query import Question, parse_query
from engrain.retrieval.ranking import CandidateSet, Matrix, Ranking, fuse, rank
from engrain.retrieval.selection import (
    MIN_TRUST,
    Candidate,
    Selection,
    TokenBudget,
    build_hit,
    count_untrusted_places,
    find_duplicates,
    list_candidates,
    merge_scopes,
    pack_hits,
    select_candidates,
)

# Each arm (meaning, words) returns five candidates per requested hit, within these two limits.
CANDIDATES_PER_HIT, MIN_CANDIDATES, MAX_CANDIDATES = 5, 50, 100
MAX_STANDING_ORDERS = 50
NEIGHBOUR_DISTANCE = 1
MAX_REFILLS = 3  # rounds in which other hits take the places of duplicates
MAX_EMBEDDED_PASSAGES = 8  # of one document, to choose among them
MIN_WORD_COVER = 0.5  # share of the question's words from which words alone choose a document's passage
MAX_FOLLOWED_RELATIONS = 3  # among the hits
MAX_RELATIONS_PER_ENTITY = 5
MIN_FOLLOWED_RELEVANCE = 0.25  # of the floor, for a relation of an entity that the query names
INHERITED_RELEVANCE = 0.7  # share of the relevance of the relation that led there

# (model, language) -> mean vector of texts without a topic, computed by the first question in that language.
_language_centroids: dict[tuple[str, str], Matrix] = {}
_log = logging.getLogger("engrain")


def search(request: RecallRequest, services: Services) -> Recall:
    """Search each scope on its own, so that none changes the order in another, then merge the results."""
    services = replace(services, embedder=pin_embedder(services.embedder))
    found: list[CandidateSet] = []
    rankings: list[Ranking] = []
    candidates: list[list[Candidate]] = []
    terms: frozenset[int] = frozenset()
    for number, scope in enumerate(request.scopes):
        speakers = _list_speakers(request.query, scope, services)
        question = parse_query(request.query, speakers, request.now)
        found.append(_collect_candidates(question, scope, request, services, frozenset(speakers)))
        rankings.append(rank(fuse(found[-1], question, services.embedder.model), question, request.now.timestamp()))
        terms |= frozenset(question.terms) - question.single_characters
        candidates.append(list_candidates(rankings[-1], number, question.wants_several))
    usual_floor = services.embedder.model.floor
    floor = usual_floor if request.min_relevance is None else request.min_relevance
    budget = TokenBudget(request.budget, services.count_tokens, terms)
    shown = request.shown or frozenset()
    order = [one for one in merge_scopes(candidates) if one.id not in shown]
    named = _find_named_relations(request, services)
    order = [
        one._replace(relevance=max(one.relevance, floor)) if _is_asked_for(one, named, floor) else one for one in order
    ]
    relevant = [one for one in order if one.relevance >= floor]
    calls = _find_bare_tool_calls(relevant, rankings, max(floor, usual_floor), request, services)
    order = [one for one in order if one not in calls] if calls else order
    selection = select_candidates(order, request.n, floor, usual_floor)
    hits = _load_hits(selection, request, services, found, rankings)
    duplicates: dict[Candidate, Candidate] = {}
    for _ in range(MAX_REFILLS):
        # Others move up, and may be duplicates themselves.
        if not (new := find_duplicates(hits)):
            break
        duplicates |= new
        selection = select_candidates([one for one in order if one not in duplicates], request.n, floor, usual_floor)
        hits = _load_hits(selection, request, services, found, rankings)
    selection.omitted["double"] = [*calls, *duplicates]
    related = _expand_relations(hits, request, services, floor, named)
    ordered = _put_current_first(_add_related(hits, related, selection, request.n), request.at)
    ordered = _mark_quoting(ordered, terms)
    return pack_hits(ordered, selection, budget, request.context, request.told)


def _find_named_relations(request: RecallRequest, services: Services) -> set[tuple[int, str]]:
    """Return the relations of the entities that the query names: the number of the scope, and the id."""
    entities = list_entities(request.query)
    return {
        (number, item.id)
        for number, scope in enumerate(request.scopes)
        for entity in entities
        for item in services.items.about(scope, entity, request.at)[:MAX_RELATIONS_PER_ENTITY]
    }


def _is_asked_for(one: Candidate, named: set[tuple[int, str]], floor: float) -> bool:
    """Tell if a candidate is a relation of a named entity that is near enough to be followed."""
    return (one.scope, one.id) in named and one.relevance >= floor * MIN_FOLLOWED_RELEVANCE


def _list_speakers(query: str, scope: Scope, services: Services) -> list[str]:
    """List the scope's named speakers, and the user, whose own messages carry no name.

    Many users are called "test": the user's id counts as a name only in a query that uses capitals.
    """
    user = scope.user or ""
    own = [user.title() if user == user.lower() else user] if user and query != query.lower() else []
    return [*services.items.speakers(scope), *own]


def _find_bare_tool_calls(
    order: list[Candidate], rankings: list[Ranking], floor: float, request: RecallRequest, services: Services
) -> set[Candidate]:
    """Find messages that only call a tool and whose result, the next message, is relevant itself."""
    found: set[Candidate] = set()
    for number, scope in enumerate(request.scopes):
        table, relevance = rankings[number].table, rankings[number].relevance
        next_row = table.next.tolist()
        results = {row for row, one in enumerate(table.sketches) if one.role == "tool" and relevance[row] >= floor}
        if not results:
            continue
        likely = {one.id: one for one in order if one.scope == number and next_row[one.row] in results}
        messages = [item_to_message(item) for item in services.items.get_many(scope, list(likely))] if likely else []
        found |= {likely[one.id] for one in messages if one.id and one.calls and not one.text}
    return found


def _add_related(
    hits: dict[Candidate, Hit], related: dict[Candidate, Hit], selection: Selection, n: int
) -> dict[Candidate, Hit]:
    """Append the related hits. If there are n already, a related hit replaces the least relevant one."""
    joined = list(hits.items())
    for candidate, hit in related.items():
        if not candidate.trusted and sum(not one.trusted for one, _ in joined) >= count_untrusted_places(n):
            selection.omitted["trust"].append(candidate)
            continue
        if len(joined) >= n:
            weakest = min(range(len(joined)), key=lambda position: joined[position][0].relevance)
            if joined[weakest][0].relevance >= candidate.relevance:
                continue
            selection.omitted["n"].append(joined.pop(weakest)[0])
        joined.append((candidate, hit))
    return dict(joined)


def _load_hits(
    selection: Selection, request: RecallRequest, services: Services, found: list[CandidateSet], rankings: list[Ranking]
) -> dict[Candidate, Hit]:
    hits: dict[Candidate, Hit] = {}
    for number, scope in enumerate(request.scopes):
        candidates = [one for one in selection.selected if one.scope == number]
        items, outdated = load_items(scope, [one.id for one in candidates], services)
        for one in candidates:
            if one.id in items and not is_all_forgotten(items[one.id].text):
                item, table = items[one.id], rankings[number].table
                marks = [mark for mark in outdated.get(one.id, ()) if request.at is None or mark.until <= request.at]
                passage = int(table.passage[one.row])  # has the most of the words
                if item.kind != "message" and table.cover[one.row] < MIN_WORD_COVER:
                    passage = _find_nearest_passage(scope, item, found[number].query_vector, services)
                hit = build_hit(one, rankings[number], item, passage, marks)
                shared_by = scope if number else None
                earlier = _find_later(item, request.at) is not None
                hits[one] = replace(hit, found_by=found[number].list_arms(one.id), scope=shared_by, earlier=earlier)
    return {one: hits[one] for one in selection.selected if one in hits}


def _find_later(item: Item, at: datetime | None) -> datetime | None:
    """Return since when something newer was said about the item's matter, by the moment that is asked for."""
    own = item.metadata.get(RESERVED_KEY)
    since = own.get(LATER_KEY) if isinstance(own, Mapping) else None
    try:
        later = check_time(since, "later") if isinstance(since, str) else None
    except InvalidInput:  # out of a file that somebody else wrote
        return None
    return later if later and (at is None or later <= at) else None


def _put_newest_first(ordered: list[tuple[Candidate, Hit]]) -> list[tuple[Candidate, Hit]]:
    """Let current facts of one aspect, such as two cities, change places so that the newest comes first."""
    places: dict[str, list[int]] = {}
    for place, (_, hit) in enumerate(ordered):
        own = hit.item.metadata.get(RESERVED_KEY)
        aspect = own.get(ASPECT_KEY) if isinstance(own, Mapping) else None
        if isinstance(aspect, str) and hit.item.kind == "fact" and not hit.stale:
            places.setdefault(aspect, []).append(place)
    swapped = list(ordered)
    for some in places.values():
        newest = sorted(some, key=lambda place: _get_time(ordered[place][1].item), reverse=True)
        for place, other in zip(some, newest, strict=True):
            swapped[place] = ordered[other]
    return swapped


def _get_time(item: Item) -> datetime:
    return item.occurred_at or item.recorded_at


def _mark_quoting(hits: dict[Candidate, Hit], terms: frozenset[int]) -> dict[Candidate, Hit]:
    """Move the user's messages to the end that match the query only in words of others, and mark them."""
    quoting = {
        one: replace(hit, quoting=True)
        for one, hit in hits.items()
        if hit.item.role == "user" and not one.trusted and terms.isdisjoint(_list_own_terms(hit.item.text))
    }
    return {**{one: hit for one, hit in hits.items() if one not in quoting}, **quoting}


def _list_own_terms(text: str) -> list[int]:
    return extract_terms(find_own_words(text).text.replace(HIDDEN_LETTER, " "))


def _put_current_first(hits: dict[Candidate, Hit], at: datetime | None) -> dict[Candidate, Hit]:
    """Move what no longer holds to the end, and what is earlier behind what was said later."""
    ordered = sorted(hits.items(), key=lambda pair: pair[1].stale and not pair[1].earlier)
    ordered = _put_newest_first(ordered)
    for pair in [pair for pair in ordered if pair[1].earlier]:
        since = _find_later(pair[1].item, at)
        later = [place for place, (_, hit) in enumerate(ordered) if since and hit.item.recorded_at >= since]
        place = ordered.index(pair)
        if later and later[-1] > place:
            ordered.insert(later[-1], ordered.pop(place))
    return dict(ordered)


def _expand_relations(
    hits: Mapping[Candidate, Hit],
    request: RecallRequest,
    services: Services,
    floor: float,
    named: set[tuple[int, str]],
) -> dict[Candidate, Hit]:
    """Follow the relations among the hits one step. A related item inherits a part of its hit's relevance.

    It must pass the floor, unless the query names the entity that led to it.
    """
    found: dict[Candidate, Hit] = {}
    relations = [(candidate, hit) for candidate, hit in hits.items() if hit.item.relation]
    seen_ids = {hit.item.id for hit in hits.values()}
    for origin, hit in relations[:MAX_FOLLOWED_RELATIONS]:
        for item in _find_related(hit.item, request.scopes[origin.scope], request, services):
            if item.id in seen_ids:
                continue
            seen_ids.add(item.id)
            score, relevance = origin.score * INHERITED_RELEVANCE, origin.relevance * INHERITED_RELEVANCE
            if (origin.scope, origin.id) in named:
                relevance = max(relevance, floor)
            if relevance < floor:
                continue
            candidate = Candidate(
                origin.scope, -len(seen_ids), item.id, score, relevance, item.source, item.trust >= MIN_TRUST
            )
            found[candidate] = Hit(
                item, item.text, (0, len(item.text)), score, relevance, ("relation",), {"relation": round(score, 4)},
                scope=hit.scope,
            )  # fmt: skip
    return found


def _find_related(item: Item, scope: Scope, request: RecallRequest, services: Services) -> list[Item]:
    assert item.relation
    related: list[Item] = []
    for name in (item.relation.object, item.relation.subject):
        related += services.items.about(scope, name, request.at)[:MAX_RELATIONS_PER_ENTITY]
    return [one for one in related if matches_filter(_build_filter(request), one)]


def _collect_candidates(
    question: Question, scope: Scope, request: RecallRequest, services: Services, speakers: frozenset[str]
) -> CandidateSet:
    where = _build_filter(request)
    limit = max(request.n, min(max(CANDIDATES_PER_HIT * request.n, MIN_CANDIDATES), MAX_CANDIDATES))
    words = WordQuery(question.terms, scope, where, request.at, limit)
    by_words = services.words.best(words)
    vector = _build_vector_query(question, scope, request, services)
    near = services.vectors.nearest(replace(vector, where=where, limit=limit)) if vector else None
    standing: list[str] = []
    if question.asks_for_advice:
        standing = services.items.having(scope, INSTRUCTION_OR_PREFERENCE, where, MAX_STANDING_ORDERS, request.at)
    cosines = dict(zip(near.ids, near.cosines, strict=True)) if near else {}
    hits = {hit.id: hit for hit in by_words.hits}
    sketches = _read_sketches([*cosines, *hits, *standing], scope, request, services)
    if max(len(cosines), len(hits)) >= limit and sum(one.trust >= MIN_TRUST for one in sketches) < request.n:
        # Texts of others fill both arms: what the user said is searched for on its own.
        trusted = _add_condition(where, Condition("trust", ">=", MIN_TRUST))
        hits |= {hit.id: hit for hit in services.words.best(replace(words, where=trusted)).hits}
        own = services.vectors.nearest(replace(vector, where=trusted, limit=limit)) if vector else None
        cosines |= dict(zip(own.ids, own.cosines, strict=True)) if own else {}
        sketches = _read_sketches([*cosines, *hits, *standing], scope, request, services)
    # A fact has no speaker of its own: it is attributed to its source if that is one of the speakers.
    sketches = [
        one._replace(speaker=one.source) if one.kind == "fact" and one.source in speakers else one for one in sketches
    ]
    arms = {"meaning": frozenset(cosines), "words": frozenset(hits), "standing": frozenset(standing)}
    far = [one.id for one in sketches if one.id not in cosines]
    if vector and far:
        computed = zip(far, services.vectors.cosines(vector, far), strict=True)
        cosines |= {id: cosine for id, cosine in computed if not math.isnan(cosine)}
    wordless = [one.id for one in sketches if one.id not in hits]
    hits |= {hit.id: hit for hit in services.words.counts(words, wordless).hits} if wordless and question.terms else {}
    found = CandidateSet(sketches, cosines, hits, arms, by_words.passages, by_words.average, by_words.frequency)
    if vector is None or near is None:
        return found
    background = _measure_background(vector.vector, question.language, near, services.embedder)
    return replace(found, query_vector=vector.vector, background=background)


def _read_sketches(ids: Sequence[str], scope: Scope, request: RecallRequest, services: Services) -> list[Sketch]:
    unique = list(dict.fromkeys(ids))
    return services.items.sketches(SketchQuery(scope, unique, NEIGHBOUR_DISTANCE, _build_filter(request), request.at))


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


def _find_nearest_passage(scope: Scope, item: Item, vector: Matrix | None, services: Services) -> int:
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


def _build_filter(request: RecallRequest) -> Filter | None:
    if request.min_importance <= 0:
        return request.where
    return _add_condition(request.where, Condition("importance", ">=", request.min_importance))


def _add_condition(where: Filter | None, condition: Condition) -> Filter:
    return Filter((*(where.conditions if where else ()), condition))


def _build_vector_query(
    question: Question, scope: Scope, request: RecallRequest, services: Services
) -> VectorQuery | None:
    # Redacted: the embedder may be somebody else's server.
    text = services.redact(question.text) if services.redact else question.text
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
