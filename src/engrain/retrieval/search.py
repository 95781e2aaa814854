"""Answer a recall: understand, gather, fuse, rank, pack."""

from __future__ import annotations

from dataclasses import replace

from engrain.core.identity import Scope
from engrain.core.model.items import Item
from engrain.core.model.messages import item_to_message
from engrain.core.model.recall import Hit, Recall, RecallRequest
from engrain.ports import Services
from engrain.ports.search import settled
from engrain.retrieval.candidates import CandidateSet, collect_candidates, find_nearest_passage, load_items
from engrain.retrieval.expansion import expand_relations, find_duplicates
from engrain.retrieval.fusion import fuse
from engrain.retrieval.query import parse_query
from engrain.retrieval.ranking import Ranking, rank
from engrain.retrieval.selection import (
    Candidate,
    Selection,
    TokenBudget,
    build_hit,
    list_candidates,
    merge_scopes,
    pack_hits,
    select_candidates,
)

MIN_WORD_COVER = 0.5


def search(request: RecallRequest, services: Services) -> Recall:
    """Every scope is searched apart, so that none changes the order in another; then the answers are merged."""
    services = replace(services, embedder=settled(services.embedder))
    gathered: list[CandidateSet] = []
    ranked: list[Ranking] = []
    candidates: list[list[Candidate]] = []
    terms: frozenset[int] = frozenset()
    for number, scope in enumerate(request.scopes):
        speakers = _list_speakers(request.query, scope, services)
        question = parse_query(request.query, speakers, request.now)
        gathered.append(_attribute_facts(collect_candidates(question, scope, request, services), frozenset(speakers)))
        ranked.append(rank(fuse(gathered[-1], question, services.embedder.model), question, request.now.timestamp()))
        terms |= frozenset(question.terms) - question.light
        candidates.append(list_candidates(ranked[-1], number, question.wants_several))
    usual = services.embedder.model.floor
    floor = usual if request.min_relevance is None else request.min_relevance
    budget = TokenBudget(request.budget, services.count_tokens, terms)
    shown = request.shown or frozenset()
    order = [one for one in merge_scopes(candidates) if one.id not in shown]
    calls = _find_bare_tool_calls(
        [one for one in order if one.relevance >= floor], ranked, max(floor, usual), request, services
    )
    order = [one for one in order if one not in calls] if calls else order
    chosen = select_candidates(order, request.n, floor, usual)
    hits = _load_hits(chosen, request, services, gathered, ranked)
    seconds = find_duplicates(hits)
    if seconds:
        # Others move up into their places, once: one of these may say nothing new again.
        chosen = select_candidates([one for one in order if one not in seconds], request.n, floor, usual)
        hits = _load_hits(chosen, request, services, gathered, ranked)
    chosen.left["double"] = [*calls, *seconds]
    further = {one: hit for one, hit in expand_relations(hits, request, services).items() if one.relevance >= floor}
    return pack_hits(_add_related(hits, further, chosen, request.n), chosen, budget, request.context)


def _list_speakers(query: str, scope: Scope, services: Services) -> list[str]:
    """Whoever spoke under a name; and the user, whose own words stand under none. Many a user is called "test": that is
    a name only where it is written as one."""
    user = scope.user or ""
    own = [user.title() if user == user.lower() else user] if user and query != query.lower() else []
    return [*services.items.speakers(scope), *own]


def _attribute_facts(gathered: CandidateSet, speakers: frozenset[str]) -> CandidateSet:
    """A fact has no speaker of its own: one whose source spoke here is that speaker's."""
    sketches = [
        one._replace(speaker=one.source) if one.kind == "fact" and one.source in speakers else one
        for one in gathered.sketches
    ]
    return replace(gathered, sketches=sketches)


def _find_bare_tool_calls(
    order: list[Candidate], ranked: list[Ranking], floor: float, request: RecallRequest, services: Services
) -> set[Candidate]:
    """Messages that only call a tool, where the result behind them is relevant itself: that tells more."""
    found: set[Candidate] = set()
    for number, scope in enumerate(request.scopes):
        sketches, after = ranked[number].table.sketches, ranked[number].table.next.tolist()
        told = {
            row for row, one in enumerate(sketches) if one.role == "tool" and ranked[number].relevance[row] >= floor
        }
        likely = {one.id: one for one in order if one.scope == number and after[one.row] in told} if told else {}
        messages = [item_to_message(item) for item in services.items.get_many(scope, list(likely))] if likely else []
        found |= {likely[one.id] for one in messages if one.id and one.calls and not one.text}
    return found


def _add_related(
    hits: dict[Candidate, Hit], further: dict[Candidate, Hit], chosen: Selection, n: int
) -> dict[Candidate, Hit]:
    """What relations led to goes behind; where there is no room, in place of what is less relevant."""
    kept = list(hits.items())
    for choice, hit in further.items():
        if len(kept) >= n:
            last = min(range(len(kept)), key=lambda place: kept[place][0].relevance)
            if kept[last][0].relevance >= choice.relevance:
                continue
            chosen.left["n"].append(kept.pop(last)[0])
        kept.append((choice, hit))
    return dict(kept)


def _load_hits(
    chosen: Selection, request: RecallRequest, services: Services, gathered: list[CandidateSet], ranked: list[Ranking]
) -> dict[Candidate, Hit]:
    hits: dict[Candidate, Hit] = {}
    for number, scope in enumerate(request.scopes):
        mine = [choice for choice in chosen.taken if choice.scope == number]
        items, outdated = load_items(scope, [choice.id for choice in mine], services)
        for choice in mine:
            if choice.id in items:
                marks = [mark for mark in outdated.get(choice.id, ()) if request.at is None or mark.until <= request.at]
                passage = _choose_passage(choice, items[choice.id], scope, (gathered[number], ranked[number]), services)
                hit = build_hit(choice, ranked[number], items[choice.id], passage, marks)
                shared = scope if number else None
                hits[choice] = replace(hit, found_by=gathered[number].arms_of(choice.id), scope=shared)
    return {choice: hits[choice] for choice in chosen.taken if choice in hits}


def _choose_passage(
    choice: Candidate, item: Item, scope: Scope, found: tuple[CandidateSet, Ranking], services: Services
) -> int:
    """The one with the words; of a document that has few of them, the nearest in meaning."""
    gathered, ranked = found
    if item.kind == "message" or ranked.table.cover[choice.row] >= MIN_WORD_COVER:
        return int(ranked.table.passage[choice.row])
    return find_nearest_passage(scope, item, gathered.vector, services)
