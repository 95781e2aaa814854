"""Answer a recall: understand, gather, fuse, rank, pack."""

from __future__ import annotations

from dataclasses import replace

from engrain.core.identity import Scope
from engrain.core.model.items import Item
from engrain.core.model.messages import item_to_message
from engrain.core.model.recall import Hit, Recall, RecallRequest
from engrain.ports import Kit
from engrain.ports.search import settled
from engrain.retrieval.candidates import Gathered, fetch, gather, nearest_passage
from engrain.retrieval.expansion import around, doubles
from engrain.retrieval.fusion import fuse
from engrain.retrieval.query import understand
from engrain.retrieval.ranking import Ranked, rank
from engrain.retrieval.selection import Budget, Choice, Chosen, choices, choose, hit_of, merge, pack

ENOUGH_WORDS = 0.5


def search(request: RecallRequest, kit: Kit) -> Recall:
    """Every scope is searched apart, so that none changes the order in another; then the answers are merged."""
    kit = replace(kit, embedder=settled(kit.embedder))
    gathered: list[Gathered] = []
    ranked: list[Ranked] = []
    candidates: list[list[Choice]] = []
    terms: frozenset[int] = frozenset()
    for number, scope in enumerate(request.scopes):
        speakers = _speakers(request.query, scope, kit)
        question = understand(request.query, speakers, request.now)
        gathered.append(_told(gather(question, scope, request, kit), frozenset(speakers)))
        ranked.append(rank(fuse(gathered[-1], question, kit.embedder.model), question, request.now.timestamp()))
        terms |= frozenset(question.terms) - question.light
        candidates.append(choices(ranked[-1], number, question.wants_several))
    usual = kit.embedder.model.floor
    floor = usual if request.min_relevance is None else request.min_relevance
    budget = Budget(request.budget, kit.count_tokens, terms)
    shown = request.shown or frozenset()
    order = [one for one in merge(candidates) if one.id not in shown]
    calls = _bare_calls([one for one in order if one.relevance >= floor], ranked, max(floor, usual), request, kit)
    order = [one for one in order if one not in calls] if calls else order
    chosen = choose(order, request.n, floor, usual)
    hits = _hits(chosen, request, kit, gathered, ranked)
    seconds = doubles(hits)
    if seconds:
        # Others move up into their places, once: one of these may say nothing new again.
        chosen = choose([one for one in order if one not in seconds], request.n, floor, usual)
        hits = _hits(chosen, request, kit, gathered, ranked)
    chosen.left["double"] = [*calls, *seconds]
    further = {one: hit for one, hit in around(hits, request, kit).items() if one.relevance >= floor}
    return pack(_joined(hits, further, chosen, request.n), chosen, budget, request.context)


def _speakers(query: str, scope: Scope, kit: Kit) -> list[str]:
    """Whoever spoke under a name; and the user, whose own words stand under none. Many a user is called "test": that is
    a name only where it is written as one."""
    user = scope.user or ""
    own = [user.title() if user == user.lower() else user] if user and query != query.lower() else []
    return [*kit.items.speakers(scope), *own]


def _told(gathered: Gathered, speakers: frozenset[str]) -> Gathered:
    """A fact has no speaker of its own: one whose source spoke here is that speaker's."""
    sketches = [
        one._replace(speaker=one.source) if one.kind == "fact" and one.source in speakers else one
        for one in gathered.sketches
    ]
    return replace(gathered, sketches=sketches)


def _bare_calls(
    order: list[Choice], ranked: list[Ranked], floor: float, request: RecallRequest, kit: Kit
) -> set[Choice]:
    """Messages that only call a tool, where the result behind them is relevant itself: that tells more."""
    found: set[Choice] = set()
    for number, scope in enumerate(request.scopes):
        sketches, after = ranked[number].table.sketches, ranked[number].table.next.tolist()
        told = {
            row for row, one in enumerate(sketches) if one.role == "tool" and ranked[number].relevance[row] >= floor
        }
        likely = {one.id: one for one in order if one.scope == number and after[one.row] in told} if told else {}
        messages = [item_to_message(item) for item in kit.items.get_many(scope, list(likely))] if likely else []
        found |= {likely[one.id] for one in messages if one.id and one.calls and not one.text}
    return found


def _joined(hits: dict[Choice, Hit], further: dict[Choice, Hit], chosen: Chosen, n: int) -> dict[Choice, Hit]:
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


def _hits(
    chosen: Chosen, request: RecallRequest, kit: Kit, gathered: list[Gathered], ranked: list[Ranked]
) -> dict[Choice, Hit]:
    hits: dict[Choice, Hit] = {}
    for number, scope in enumerate(request.scopes):
        mine = [choice for choice in chosen.taken if choice.scope == number]
        items, outdated = fetch(scope, [choice.id for choice in mine], kit)
        for choice in mine:
            if choice.id in items:
                marks = [mark for mark in outdated.get(choice.id, ()) if request.at is None or mark.until <= request.at]
                passage = _passage(choice, items[choice.id], scope, (gathered[number], ranked[number]), kit)
                hit = hit_of(choice, ranked[number], items[choice.id], passage, marks)
                shared = scope if number else None
                hits[choice] = replace(hit, found_by=gathered[number].arms_of(choice.id), scope=shared)
    return {choice: hits[choice] for choice in chosen.taken if choice in hits}


def _passage(choice: Choice, item: Item, scope: Scope, found: tuple[Gathered, Ranked], kit: Kit) -> int:
    """The one with the words; of a document that has few of them, the nearest in meaning."""
    gathered, ranked = found
    if item.kind == "message" or ranked.table.cover[choice.row] >= ENOUGH_WORDS:
        return int(ranked.table.passage[choice.row])
    return nearest_passage(scope, item, gathered.vector, kit)
