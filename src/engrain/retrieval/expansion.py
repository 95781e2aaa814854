"""Follow relations one step from what was found."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator, Mapping

from engrain.core.identity import Scope
from engrain.core.model.filters import matches_filter
from engrain.core.model.items import Item
from engrain.core.model.recall import Hit, RecallRequest
from engrain.ports import Services
from engrain.retrieval.candidates import build_filter
from engrain.retrieval.selection import Candidate

MAX_FOLLOWED_RELATIONS = 3  # relations among the hits whose entities are followed
MAX_RELATIONS_PER_ENTITY = 5  # relations of one entity that are looked at
INHERITED_RELEVANCE = 0.7  # of the relevance of the relation that led there


def expand_relations(hits: Mapping[Candidate, Hit], request: RecallRequest, services: Services) -> dict[Candidate, Hit]:
    """Relations that share an entity with one of the hits, each with a part of that hit's relevance."""
    found: dict[Candidate, Hit] = {}
    leads = [(choice, hit) for choice, hit in hits.items() if hit.item.relation]
    known = {hit.item.id for hit in hits.values()}
    for lead, hit in leads[:MAX_FOLLOWED_RELATIONS]:
        for item in _find_related(hit.item, request.scopes[lead.scope], request, services):
            if item.id not in known:
                known.add(item.id)
                choice = Candidate(
                    lead.scope,
                    -len(known),
                    item.id,
                    lead.score * INHERITED_RELEVANCE,
                    lead.relevance * INHERITED_RELEVANCE,
                    item.source,
                )
                arms = {"relation": round(choice.score, 4)}
                found[choice] = Hit(
                    item, item.text, (0, len(item.text)), choice.score, choice.relevance, ("relation",), arms,
                    scope=hit.scope,
                )  # fmt: skip
    return found


def _find_related(item: Item, scope: Scope, request: RecallRequest, services: Services) -> list[Item]:
    assert item.relation
    where = build_filter(request)
    ends = (item.relation.object, item.relation.subject)
    near = [one for end in ends for one in services.items.about(scope, end, request.at)[:MAX_RELATIONS_PER_ENTITY]]
    return [one for one in near if matches_filter(where, one)]


# A fact that was taken from at least so much of a message leaves nothing of it to tell.
MIN_CITED_SHARE = 0.6
# Only words on which nothing can turn: "is" and "was", "on" and "off", "my" and "your" are two things.
_FILLER_WORDS = frozenset(("a", "an", "the", "that", "please", "just", "really", "very"))
# Marks at the edge of a word that say nothing. All others may: C++ and C, -5 and 5, a question, 5' and 5".
_OPENING_MARKS = re.compile(r"""^[("'“‘«\[]+""")
_CLOSING_MARKS = re.compile(r"""(?:[.,;:!…”’»)\]]|(?<!\d)["'])+$""")


def find_duplicates(hits: Mapping[Candidate, Hit]) -> dict[Candidate, Candidate]:
    """Each hit that is a double, with the one that stands for it.

    The later of two with the same words in the same order, whatever the punctuation; a message next to what was taken
    from most of it. Slots are apart: the same value of two slots is two facts.
    """
    found: dict[Candidate, Candidate] = {}
    first: dict[tuple[object, ...], Candidate] = {}
    taken = _find_cited_messages(hits)
    for choice, hit in hits.items():
        words = (hit.item.slot, hit.scope, *_normalize_words(hit.text))
        other = taken.get(hit.item.id) or first.setdefault(words, choice)
        if other != choice and other not in found:
            found[choice] = other
    return found


def _normalize_words(text: str) -> Iterator[str]:
    """As it is written, endings and capitals too: a university is no universe, and IT not it."""
    for place, word in enumerate(unicodedata.normalize("NFC", text).split()):
        bare = _CLOSING_MARKS.sub("", _OPENING_MARKS.sub("", word))
        bare = bare if place else bare[:1].lower() + bare[1:]
        if bare and bare not in _FILLER_WORDS:
            yield bare


def _find_cited_messages(hits: Mapping[Candidate, Hit]) -> dict[str, Candidate]:
    """The messages among the hits that another hit cites, nearly or quite as a whole."""
    messages = {hit.item.id: len(hit.item.text) for hit in hits.values() if hit.item.kind == "message"}
    return {
        cite.item: choice
        for choice, hit in hits.items()
        for source in hit.item.sources
        for cite in source.cites
        if hit.item.kind != "summary"
        and cite.item in messages
        and (cite.start is None or cite.end is None or cite.end - cite.start >= MIN_CITED_SHARE * messages[cite.item])
    }
