"""Answer a recall request: read candidates from the store, rank and select them, and follow their relations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from engrain.core.errors import EmbedderFailed
from engrain.core.identity import Scope
from engrain.core.model.filters import matches_filter
from engrain.core.model.items import FORGOTTEN, Item
from engrain.core.model.messages import item_to_message
from engrain.core.model.queries import CandidateQuery, Candidates, OutdatedSpan
from engrain.core.model.recall import Degraded, Hit, Recall, RecallRequest
from engrain.core.rules.own_words import find_own_words
from engrain.core.rules.quotation_frames import HIDDEN_LETTER
from engrain.core.rules.relations import list_entities
from engrain.core.rules.slot_names import states_same_name
from engrain.core.text.passages import split_passages
from engrain.core.text.tokenizer import extract_terms, tokenize
from engrain.ports import Services
from engrain.ports.search import Embedder, pin_embedder
from engrain.retrieval.candidates import (
    Collect,
    build_filter,
    build_query,
    embed_question,
    measure_background,
    search_by_ports,
    search_with_server,
)
from engrain.retrieval.current_before_stale import find_later, is_outdated_by_any, put_current_first
from engrain.retrieval.duplicates import find_duplicates
from engrain.retrieval.general_questions import measure_generality
from engrain.retrieval.query import Question, parse_query
from engrain.retrieval.ranking import Collected, Matrix, Ranking, fuse, rank
from engrain.retrieval.rerank import rerank
from engrain.retrieval.selection import (
    MIN_TRUST,
    Candidate,
    Selection,
    count_untrusted_places,
    list_candidates,
    merge_scopes,
    select_candidates,
)
from engrain.retrieval.token_budget import HitOrigin, TokenBudget, build_hit, pack_hits

MAX_REFILLS = 3  # rounds in which other hits take the places of duplicates
MAX_EMBEDDED_PASSAGES = 8  # of one document, to choose among them
MIN_WORD_COVER = 0.5  # share of the question's words from which words alone choose a document's passage
MAX_FOLLOWED_RELATIONS = 3  # among the hits
MAX_RELATIONS_PER_ENTITY = 5
MIN_FOLLOWED_RELEVANCE = 0.25  # of the floor, for a relation of an entity that the query names
MIN_COMPARED = 5  # hits among which the current ones come first, even if fewer are asked for
MIN_WORDS_LEFT = 7  # of a message of which a part was forgotten: "please forget what I said about" has six
INHERITED_RELEVANCE = 0.7  # share of the relevance of the relation that led there


class RankedScope(NamedTuple):
    """One scope's candidates with their features, scores and order."""

    scope: Scope
    question: Question
    collected: Collected
    ranking: Ranking
    candidates: list[Candidate]
    degraded: tuple[Degraded, ...] = ()


def search(request: RecallRequest, services: Services) -> Recall:
    """Search each scope on its own, so that none changes the order in another, then merge the results."""
    embedder = pin_embedder(services.embedder)
    services = services if embedder is services.embedder else replace(services, embedder=embedder)
    ranked = [_rank_scope(number, scope, request, services) for number, scope in enumerate(request.scopes)]
    terms = frozenset[int]().union(*(frozenset(one.question.terms) - one.question.single_characters for one in ranked))
    usual_floor = services.embedder.model.floor
    floor = usual_floor if request.min_relevance is None else request.min_relevance
    order = merge_scopes([one.candidates for one in ranked])
    order = [one for one in order if one.id not in request.shown] if request.shown else order
    with services.items.pin_snapshot():
        named = _find_named_relations(request, services)
        order = _lift_named(order, named, floor) if named else order
        calls = _find_bare_tool_calls(order, ranked, floor, services)
        order = [one for one in order if one not in calls] if calls else order
        if request.n < MIN_COMPARED:
            order = _put_earlier_behind(order, ranked, request, services, floor)
        selection = select_candidates(order, request.n, floor, usual_floor)
        loaded = _load_found(selection, ranked, services)
    hits = _build_hits(loaded, ranked, request, services)
    duplicates: dict[Candidate, Candidate] = {}
    for _ in range(MAX_REFILLS):
        # Others move up, and may be duplicates themselves.
        if not (new := find_duplicates(hits)):
            break
        duplicates |= new
        selection = select_candidates([one for one in order if one not in duplicates], request.n, floor, usual_floor)
        with services.items.pin_snapshot():
            loaded = _load_found(selection, ranked, services)
        hits = _build_hits(loaded, ranked, request, services)
    selection.omitted["double"] = [*calls, *duplicates]
    related = _expand_relations(hits, request, services, floor, named)
    joined = _add_current(_add_related(hits, related, selection, request.n), selection, request, services)
    ordered = put_current_first(joined, request.at)
    ordered = _mark_quoting(ordered, terms)
    budget = TokenBudget(request.budget, services.count_tokens, terms)
    found = pack_hits(ordered, selection, budget, request.context, request.context_facts)
    return replace(found, confidence=_get_confidence(ranked), degraded=tuple(dict.fromkeys(_list_degraded(ranked))))


def _put_earlier_behind(
    order: list[Candidate], ranked: list[RankedScope], request: RecallRequest, services: Services, floor: float
) -> list[Candidate]:
    """Move what is earlier behind the newer one among the best, so that a recall of one hit returns the newer one."""
    best = [one for one in order if one.relevance >= floor][:MIN_COMPARED]
    hits = _build_hits(_load_found(Selection(best, {}), ranked, services), ranked, request, services)
    earlier = [one for one, hit in hits.items() if hit.earlier and is_outdated_by_any(hit, hits.values())]
    if not earlier:
        return order
    first = [one for one in best if one not in earlier]
    return [*first, *earlier, *(one for one in order if one not in best)]


def _rank_scope(number: int, scope: Scope, request: RecallRequest, services: Services) -> RankedScope:
    """Collect the candidates of a scope, fuse the arms, and rank."""
    speakers = _list_speakers(request.query, scope, services)
    question = parse_query(request.query, speakers, request.now)
    vector = embed_question(question, services)
    found = _collect(build_query(question, vector, scope, request, services), services)
    background = generality = 0.0
    if vector is not None:
        background = measure_background(vector, question.language, found, services.embedder)
        generality = measure_generality(vector, question, services.embedder.model.key)
    collected = Collected(found, vector, background, generality)
    table = fuse(collected, question, services.embedder.model, speakers)
    ranking = rank(table, question, request.now.timestamp())
    degraded: tuple[Degraded, ...] = ()
    if request.effort == "thorough":
        ranking, degraded = rerank(ranking, question, scope, services)
    return RankedScope(scope, question, collected, ranking, list_candidates(ranking, number, question), degraded)


def _get_confidence(ranked: list[RankedScope]) -> float:
    return round(max((float(one.ranking.relevance.max()) for one in ranked if one.candidates), default=0.0), 4)


def _list_degraded(ranked: list[RankedScope]) -> list[Degraded]:
    return [one for scope in ranked for one in scope.degraded]


def _collect(query: CandidateQuery, services: Services) -> Candidates:
    """Collect the candidates from whatever stores the memory has."""
    # By name: isinstance() with a protocol takes 50 µs.
    collect: Collect | None = getattr(services.items, "collect", None)
    if collect is None:
        return search_by_ports(query, services)
    own_vectors: object = services.items
    if services.vectors is own_vectors or query.vector is None:
        return collect(query)
    return search_with_server(query, collect, services)


def _find_named_relations(request: RecallRequest, services: Services) -> set[tuple[int, str]]:
    """Return the relations of the entities that the query names: the number of the scope, and the id."""
    entities = list_entities(request.query)
    return {
        (number, item.id)
        for number, scope in enumerate(request.scopes)
        for entity in entities
        for item in services.items.about(scope, entity, request.at)[:MAX_RELATIONS_PER_ENTITY]
    }


def _lift_named(order: list[Candidate], named: set[tuple[int, str]], floor: float) -> list[Candidate]:
    """Lift to the floor those relations of named entities that are near enough to be followed."""
    return [
        one._replace(relevance=max(one.relevance, floor))
        if (one.scope, one.id) in named and one.relevance >= floor * MIN_FOLLOWED_RELEVANCE
        else one
        for one in order
    ]


def _list_speakers(query: str, scope: Scope, services: Services) -> list[str]:
    """List the scope's named speakers, and the user, whose own messages carry no name.

    Many users are called "test": the user's id counts as a name only in a query that uses capitals.
    """
    user = scope.user or ""
    own = [user.title() if user == user.lower() else user] if user and query != query.lower() else []
    return [*services.items.speakers(scope), *own]


def _find_bare_tool_calls(
    order: list[Candidate], ranked: list[RankedScope], floor: float, services: Services
) -> set[Candidate]:
    """Find messages that only call a tool and whose result, the next message, is relevant itself."""
    found: set[Candidate] = set()
    usual_floor = max(floor, services.embedder.model.floor)
    for number, (scope, _, _, ranking, *_) in enumerate(ranked):
        is_tool = ranking.table.items.role == "tool"
        results = np.flatnonzero(is_tool & (ranking.relevance >= usual_floor)).tolist() if is_tool.any() else []
        if not results:
            continue
        calling = {*ranking.table.previous[results].tolist()}
        likely = {one.id: one for one in order if one.scope == number and one.row in calling and one.relevance >= floor}
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


def _add_current(
    hits: dict[Candidate, Hit], selection: Selection, request: RecallRequest, services: Services
) -> dict[Candidate, Hit]:
    """Put what holds now before each hit that no longer holds, be it found itself or not. The stale ones make room."""
    successors = {
        one: {old.by for old in hit.outdated if old.by} for one, hit in hits.items() if hit.stale and hit.outdated
    }
    if not any(successors.values()):
        return hits
    # A successor may be earlier itself: it is marked, and told only once.
    current = {hit.item.id: one for one, hit in hits.items() if not hit.stale or (hit.earlier and not hit.outdated)}
    seen = request.shown or frozenset()
    joined: dict[Candidate, Hit] = {}
    for one, hit in hits.items():
        for item in services.items.get_many(request.scopes[one.scope], list(successors.get(one, ()))):
            telling = (item.id, *(cite.item for source in item.sources for cite in source.cites))
            found = next((current[id] for id in telling if id in current), None)
            if found is not None:
                joined.setdefault(found, hits.get(found) or joined[found])
                continue
            visible = item.visible(request.at or request.now) and matches_filter(build_filter(request), item)
            if visible and seen.isdisjoint(telling):
                candidate = one._replace(row=-1, id=item.id, source=item.source, trusted=item.trust >= MIN_TRUST)
                current[item.id] = candidate
                followed = _build_followed(candidate, item, "change", hit)
                joined[candidate] = replace(followed, earlier=find_later(item, request.at) is not None)
        joined[one] = hit
    surplus = sorted(joined, key=lambda one: joined[one].stale)[request.n :]
    selection.omitted["n"] += surplus
    return {one: hit for one, hit in joined.items() if one not in surplus}


def _build_followed(candidate: Candidate, item: Item, by: str, origin: Hit) -> Hit:
    """Build a hit that another one led to."""
    score, relevance = candidate.score, candidate.relevance
    return Hit(item, item.text, (0, len(item.text)), score, relevance, (by,), {by: round(score, 4)}, scope=origin.scope)


def _load_found(
    selection: Selection, ranked: list[RankedScope], services: Services
) -> dict[Candidate, tuple[Item, list[OutdatedSpan]]]:
    """Load the items of the selected candidates, and the spans of them that are outdated."""
    found: dict[Candidate, tuple[Item, list[OutdatedSpan]]] = {}
    for number, (scope, *_) in enumerate(ranked):
        candidates = [one for one in selection.selected if one.scope == number]
        items, outdated = load_items(scope, [one.id for one in candidates], services)
        for one in candidates:
            if one.id in items and not _is_cut_to_little(items[one.id].text):
                found[one] = items[one.id], outdated.get(one.id, [])
    return {one: found[one] for one in selection.selected if one in found}


def _is_cut_to_little(text: str) -> bool:
    """Tell if forgetting left only a mark and a few words around it, which answer nothing."""
    return FORGOTTEN in text and len(tokenize(text.replace(FORGOTTEN, " "))) < MIN_WORDS_LEFT


def _build_hits(
    found: dict[Candidate, tuple[Item, list[OutdatedSpan]]],
    ranked: list[RankedScope],
    request: RecallRequest,
    services: Services,
) -> dict[Candidate, Hit]:
    hits: dict[Candidate, Hit] = {}
    for one, (item, outdated) in found.items():
        scope, _, collected, ranking, *_ = ranked[one.scope]
        marks = [mark for mark in outdated if request.at is None or mark.until <= request.at]
        passage = int(ranking.table.passage[one.row])  # has the most of the words
        if item.kind != "message" and ranking.table.cover[one.row] < MIN_WORD_COVER:
            passage = _find_nearest_passage(scope, item, collected.vector, services)
        origin = HitOrigin(
            collected.list_arms(one.row), scope if one.scope else None, find_later(item, request.at) is not None
        )
        hits[one] = build_hit(one, ranking, item, passage, marks, origin)
    return hits


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
            found[candidate] = _build_followed(candidate, item, "relation", hit)
    return found


def _find_related(item: Item, scope: Scope, request: RecallRequest, services: Services) -> list[Item]:
    assert item.relation
    related: list[Item] = []
    for name in (item.relation.object, item.relation.subject):
        related += services.items.about(scope, name, request.at)[:MAX_RELATIONS_PER_ENTITY]
    return [one for one in related if matches_filter(build_filter(request), one)]


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
            found.append(OutdatedSpan(summary.id, start, start + len(words), mark.until, mark.now, mark.by))
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
