"""Expand the hits by relations that share an entity with them."""

from __future__ import annotations

from collections.abc import Mapping

from engrain.core.identity import Scope
from engrain.core.model.filters import matches_filter
from engrain.core.model.items import Item
from engrain.core.model.recall import Hit, RecallRequest
from engrain.ports import Services
from engrain.retrieval.candidates import build_filter
from engrain.retrieval.selection import Candidate

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
