"""Follow relations one step from what was found."""

from __future__ import annotations

from collections.abc import Mapping

from engrain.core.filters import matches
from engrain.core.items import Item
from engrain.core.recalled import Hit, RecallRequest
from engrain.core.scope import Scope
from engrain.ports import Kit
from engrain.recall.gather import filter_of
from engrain.recall.pack import Choice

LEADS = 3  # relations among the hits whose entities are followed
FURTHER = 5  # relations of one entity that are looked at
PASSED_ON = 0.7  # of the relevance of the relation that led there


def around(hits: Mapping[Choice, Hit], request: RecallRequest, kit: Kit) -> dict[Choice, Hit]:
    """Relations that share an entity with one of the hits, each with a part of that hit's relevance."""
    found: dict[Choice, Hit] = {}
    leads = [(choice, hit) for choice, hit in hits.items() if hit.item.relation]
    known = {hit.item.id for hit in hits.values()}
    for lead, hit in leads[:LEADS]:
        for item in _beside(hit.item, request.scopes[lead.scope], request, kit):
            if item.id not in known:
                known.add(item.id)
                choice = Choice(
                    lead.scope, -len(known), item.id, lead.score * PASSED_ON, lead.relevance * PASSED_ON, item.source
                )
                arms = {"relation": round(choice.score, 4)}
                found[choice] = Hit(
                    item, item.text, (0, len(item.text)), choice.score, choice.relevance, ("relation",), arms,
                    scope=hit.scope,
                )  # fmt: skip
    return found


def _beside(item: Item, scope: Scope, request: RecallRequest, kit: Kit) -> list[Item]:
    assert item.relation
    where = filter_of(request)
    ends = (item.relation.object, item.relation.subject)
    near = [one for end in ends for one in kit.items.about(scope, end, request.at)[:FURTHER]]
    return [one for one in near if matches(where, one)]
