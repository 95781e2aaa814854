"""Answer a recall request: run the steps of the read path in order, then follow relations among the hits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from engrain.core.identity import Scope
from engrain.core.model.filters import matches_filter
from engrain.core.model.items import Item
from engrain.core.model.messages import item_to_message
from engrain.core.model.recall import Hit, Recall, RecallRequest
from engrain.ports import Services
from engrain.ports.search import pin_embedder
from engrain.retrieval.candidates import (
    CandidateSet,
    build_filter,
    collect_candidates,
    find_nearest_passage,
    load_items,
)
from engrain.retrieval.query import parse_query
from engrain.retrieval.ranking import Ranking, fuse, rank
from engrain.retrieval.selection import (
    Candidate,
    Selection,
    TokenBudget,
    build_hit,
    find_duplicates,
    list_candidates,
    merge_scopes,
    pack_hits,
    select_candidates,
)

MIN_WORD_COVER = 0.5  # share of the question's words from which words alone choose a document's passage


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
        found.append(_attribute_facts(collect_candidates(question, scope, request, services), frozenset(speakers)))
        rankings.append(rank(fuse(found[-1], question, services.embedder.model), question, request.now.timestamp()))
        terms |= frozenset(question.terms) - question.single_characters
        candidates.append(list_candidates(rankings[-1], number, question.wants_several))
    usual_floor = services.embedder.model.floor
    floor = usual_floor if request.min_relevance is None else request.min_relevance
    budget = TokenBudget(request.budget, services.count_tokens, terms)
    shown = request.shown or frozenset()
    order = [one for one in merge_scopes(candidates) if one.id not in shown]
    relevant = [one for one in order if one.relevance >= floor]
    calls = _find_bare_tool_calls(relevant, rankings, max(floor, usual_floor), request, services)
    order = [one for one in order if one not in calls] if calls else order
    selection = select_candidates(order, request.n, floor, usual_floor)
    hits = _load_hits(selection, request, services, found, rankings)
    duplicates = find_duplicates(hits)
    if duplicates:
        # Others move up only once, although they may hold duplicates again.
        selection = select_candidates([one for one in order if one not in duplicates], request.n, floor, usual_floor)
        hits = _load_hits(selection, request, services, found, rankings)
    selection.omitted["double"] = [*calls, *duplicates]
    related = {one: hit for one, hit in expand_relations(hits, request, services).items() if one.relevance >= floor}
    return pack_hits(_add_related(hits, related, selection, request.n), selection, budget, request.context)


def _list_speakers(query: str, scope: Scope, services: Services) -> list[str]:
    """List the scope's named speakers, and the user, whose own messages carry no name.

    Many users are called "test": the user's id counts as a name only in a query that uses capitals.
    """
    user = scope.user or ""
    own = [user.title() if user == user.lower() else user] if user and query != query.lower() else []
    return [*services.items.speakers(scope), *own]


def _attribute_facts(found: CandidateSet, speakers: frozenset[str]) -> CandidateSet:
    """Attribute each fact to its source if that is one of the speakers: a fact has no speaker of its own."""
    sketches = [
        one._replace(speaker=one.source) if one.kind == "fact" and one.source in speakers else one
        for one in found.sketches
    ]
    return replace(found, sketches=sketches)


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
            if one.id in items:
                marks = [mark for mark in outdated.get(one.id, ()) if request.at is None or mark.until <= request.at]
                passage = _choose_passage(one, items[one.id], scope, (found[number], rankings[number]), services)
                hit = build_hit(one, rankings[number], items[one.id], passage, marks)
                shared_by = scope if number else None
                hits[one] = replace(hit, found_by=found[number].list_arms(one.id), scope=shared_by)
    return {one: hits[one] for one in selection.selected if one in hits}


def _choose_passage(
    candidate: Candidate, item: Item, scope: Scope, context: tuple[CandidateSet, Ranking], services: Services
) -> int:
    """Choose the passage with the most of the words; in a document with few of them, the nearest in meaning."""
    found, ranking = context
    if item.kind == "message" or ranking.table.cover[candidate.row] >= MIN_WORD_COVER:
        return int(ranking.table.passage[candidate.row])
    return find_nearest_passage(scope, item, found.query_vector, services)


MAX_FOLLOWED_RELATIONS = 3  # among the hits
MAX_RELATIONS_PER_ENTITY = 5
INHERITED_RELEVANCE = 0.7  # share of the relevance of the relation that led there


def expand_relations(hits: Mapping[Candidate, Hit], request: RecallRequest, services: Services) -> dict[Candidate, Hit]:
    """Follow the relations among the hits one step. A related item inherits a part of its hit's relevance."""
    found: dict[Candidate, Hit] = {}
    relations = [(candidate, hit) for candidate, hit in hits.items() if hit.item.relation]
    seen_ids = {hit.item.id for hit in hits.values()}
    for origin, hit in relations[:MAX_FOLLOWED_RELATIONS]:
        for item in _find_related(hit.item, request.scopes[origin.scope], request, services):
            if item.id in seen_ids:
                continue
            seen_ids.add(item.id)
            score, relevance = origin.score * INHERITED_RELEVANCE, origin.relevance * INHERITED_RELEVANCE
            candidate = Candidate(origin.scope, -len(seen_ids), item.id, score, relevance, item.source)
            found[candidate] = Hit(
                item, item.text, (0, len(item.text)), score, relevance, ("relation",), {"relation": round(score, 4)},
                scope=hit.scope,
            )  # fmt: skip
    return found


def _find_related(item: Item, scope: Scope, request: RecallRequest, services: Services) -> list[Item]:
    assert item.relation
    where = build_filter(request)
    entities = (item.relation.object, item.relation.subject)
    related = [
        one for name in entities for one in services.items.about(scope, name, request.at)[:MAX_RELATIONS_PER_ENTITY]
    ]
    return [one for one in related if matches_filter(where, one)]
