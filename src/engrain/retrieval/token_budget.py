"""Build the hits of an answer, and pack them into its token budget: whole, cut to their best sentences, or left out."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from operator import attrgetter
from typing import NamedTuple

from engrain.core.identity import Scope
from engrain.core.model.items import Item
from engrain.core.model.queries import OutdatedSpan
from engrain.core.model.recall import (
    ContextFact,
    Hit,
    Omitted,
    OutdatedText,
    Reason,
    Recall,
    Section,
    choose_heading,
    render_block,
)
from engrain.core.text.passages import find_sentence_spans, split_passages
from engrain.core.text.tokenizer import extract_terms
from engrain.core.tokens import CountTokens
from engrain.retrieval.duplicates import MIN_CITED_SHARE
from engrain.retrieval.ranking import Ranking
from engrain.retrieval.selection import MAX_UNTRUSTED_SHARE, Candidate, Selection

MAX_OMITTED_IDS = 3
# A message a little longer than a passage is returned whole: cutting it would save nothing.
MAX_WHOLE_CHARACTERS = 700
MAX_CONTEXT_SHARE = 0.4  # of the budget, for the current session and recent events
MIN_SUBSTITUTE_SHARE = 0.5  # of the relevance of a hit that did not fit: a less relevant one does not replace it


@dataclass(frozen=True, slots=True)
class TokenBudget:
    """The tokens that the block may have, and the query's terms, by which a long hit is shortened."""

    tokens: int | None  # None: no limit
    count: CountTokens
    terms: frozenset[int] = frozenset()

    def fit_hit(self, hit: Hit, used: int) -> Hit | None:
        """Return the hit, whole or shortened to its best sentences, or None if there is no room for it."""
        if self._fits(hit, used):
            return hit
        spans = find_sentence_spans(hit.item.text, *hit.span)
        matches = [len(self.terms.intersection(extract_terms(hit.item.text[left:right]))) for left, right in spans]
        if len(spans) < 2:
            return None
        first = last = max(range(len(spans)), key=lambda number: (matches[number], -number))
        fitting: Hit | None = None
        while self._fits(shorter := shorten_hit(hit, (spans[first][0], spans[last][1])), used):
            fitting = shorter
            # Only adjacent sentences join, so that the text stays in one piece.
            after = matches[last + 1] if last + 1 < len(spans) else 0
            before = matches[first - 1] if first > 0 else 0
            if not after and not before:
                break
            first, last = (first, last + 1) if after >= before else (first - 1, last)
        return fitting

    def fit_context(self, context: tuple[Section, ...]) -> tuple[Section, ...]:
        """Shorten each section from its end until it fits into its part of the context's share.

        The parts are even. A section that needs less leaves the rest to those behind it.
        """
        if self.tokens is None or not context:
            return context
        left, shortened = int(self.tokens * MAX_CONTEXT_SHARE), []
        for number, section in enumerate(context):
            room, lines = left // (len(context) - number), section.lines
            while lines and self.count(str(Section(section.title, lines))) > room:
                lines = lines[:-1]
            if lines:
                shortened.append(Section(section.title, lines))
                left -= self.count(str(shortened[-1]))
        return tuple(shortened)

    def _fits(self, hit: Hit, used: int) -> bool:
        return self.tokens is None or used + self.count(str(hit)) <= self.tokens


class HitOrigin(NamedTuple):
    """The arms that found a hit, the scope that shares it, and whether something newer was said of its matter."""

    found_by: tuple[str, ...] = ()
    scope: Scope | None = None
    earlier: bool = False


def build_hit(
    candidate: Candidate,
    ranking: Ranking,
    item: Item,
    passage: int,
    outdated: Sequence[OutdatedSpan],
    origin: HitOrigin = HitOrigin(),  # noqa: B008 - frozen
) -> Hit:
    start, end = _locate_passage(item.text, passage)
    parts = ranking.parts[candidate.row].tolist()
    named = zip(ranking.names, parts, strict=True)
    score_parts = {name: round(part, 4) for name, part in named if not -5e-5 <= part <= 5e-5}
    outdated_texts = tuple(
        OutdatedText(item.text[mark.start : mark.end], mark.until, mark.now, mark.by)
        for mark in outdated
        if mark.start < end and mark.end > start
    )
    text = item.text[start:end]
    return Hit(
        item, text, (start, end), candidate.score, candidate.relevance, origin.found_by, score_parts,
        outdated_texts, origin.scope, earlier=origin.earlier,
    )  # fmt: skip


def pack_hits(
    hits: Mapping[Candidate, Hit],
    selection: Selection,
    budget: TokenBudget,
    context: tuple[Section, ...] = (),
    facts: Sequence[ContextFact] = (),
) -> Recall:
    """Pack as many hits, in order, as fit into the budget, however small it is."""
    context = budget.fit_context(context)
    hits = _mark_in_context(hits, facts, context)
    packed, cut = (dict(hits), []) if budget.tokens is None else _fit_hits(hits, budget, context)
    shown = [packed[one] for one in hits if one in packed]
    # A tokenizer may count joined lines higher than the sum of their counts.
    while budget.tokens is not None and packed and budget.count(render_block(context, shown)) > budget.tokens:
        cut.append(packed.popitem()[0])
        shown = [packed[one] for one in hits if one in packed]
    text = render_block(context, shown)
    tokens = budget.count(text) if text else 0
    return Recall(tuple(shown), tokens, _summarize_omitted({**selection.omitted, "budget": cut}), context)


def _fit_hits(
    hits: Mapping[Candidate, Hit], budget: TokenBudget, context: tuple[Section, ...]
) -> tuple[dict[Candidate, Hit], list[Candidate]]:
    """Return the hits that fit into the budget, and those that do not.

    A hit that does not fit is shortened to its best sentences. If even those are too long, no far less relevant hit
    takes its place, nor one that no longer holds: a model would take it for the answer.
    """
    packed: dict[Candidate, Hit] = {}
    cut: list[Candidate] = []
    titles: set[str] = set()
    used = budget.count(render_block(context, ()))
    for candidate in _order_for_packing(hits, budget):
        hit = hits[candidate]
        if hit.in_context:  # costs nothing
            packed[candidate] = hit
            continue
        # A long text of a stranger must not keep out what the user said.
        best_cut = max((one.relevance for one in cut if one.trusted or not candidate.trusted), default=0.0)
        title = choose_heading(hit)
        heading = 0 if title in titles else budget.count(f"\n## {title}\n")
        blocked = candidate.relevance < MIN_SUBSTITUTE_SHARE * best_cut or (
            hit.stale and 0 < candidate.relevance <= best_cut
        )
        fitting = None if blocked else budget.fit_hit(hit, used + heading)
        if fitting is None:
            cut.append(candidate)
            continue
        packed[candidate] = fitting
        titles.add(title)
        used += heading + budget.count(f"{fitting}\n")
    return packed, cut


def _mark_in_context(
    hits: Mapping[Candidate, Hit], facts: Sequence[ContextFact], context: tuple[Section, ...]
) -> Mapping[Candidate, Hit]:
    """Mark the hits that the context tells: its facts, and the messages that these cite for the most part."""
    lines = {line for section in context for line in section.lines}
    items = [fact.item for fact in facts if fact.line in lines]
    ids, cited = {item.id for item in items}, Counter[str]()
    for cite in (cite for item in items for source in item.sources for cite in source.cites):
        cited[cite.item] += MAX_WHOLE_CHARACTERS if cite.start is None or cite.end is None else cite.end - cite.start
    if not items:
        return hits
    return {
        candidate: replace(hit, in_context=True)
        if hit.item.id in ids
        or (hit.item.kind == "message" and cited[hit.item.id] >= MIN_CITED_SHARE * len(hit.item.text))
        else hit
        for candidate, hit in hits.items()
    }


def _order_for_packing(hits: Mapping[Candidate, Hit], budget: TokenBudget) -> list[Candidate]:
    """Put untrusted hits last that do not fit into their share of the budget."""
    if budget.tokens is None or all(one.trusted for one in hits):
        return list(hits)
    room = budget.tokens * MAX_UNTRUSTED_SHARE
    first: list[Candidate] = []
    last: list[Candidate] = []
    for candidate, hit in hits.items():
        cost = 0 if candidate.trusted else budget.count(f"{hit}\n")
        (first if cost <= room else last).append(candidate)
        room -= cost if cost <= room else 0
    return first + last


def shorten_hit(hit: Hit, span: tuple[int, int]) -> Hit:
    """Return the hit with only a part of its text. A mark stays while any place that it may mean is in that part."""
    start, end = span
    item = hit.item
    outdated = tuple(
        old
        for old in hit.outdated
        if any(place.start() < end and place.end() > start for place in re.finditer(re.escape(old.text), item.text))
    )
    return replace(hit, text=item.text[start:end], span=span, outdated=outdated)


def _summarize_omitted(left: Mapping[Reason, list[Candidate]]) -> tuple[Omitted, ...]:
    found = []
    for reason, some in left.items():
        if some:
            best = sorted(some, key=attrgetter("relevance"), reverse=True)
            # Rounded down, so that a relevance below the floor never reads as equal to it.
            relevance = math.floor(best[0].relevance * 10_000) / 10_000
            found.append(Omitted(reason, len(some), tuple(one.id for one in best[:MAX_OMITTED_IDS]), relevance))
    return tuple(found)


def _locate_passage(text: str, number: int) -> tuple[int, int]:
    if len(text) <= MAX_WHOLE_CHARACTERS:
        return 0, len(text)
    spans = split_passages(text)
    return spans[min(number, len(spans) - 1)] if spans else (0, len(text))
