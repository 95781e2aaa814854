"""Choose what is returned: above the floor, as many as asked for, within the budget, not all from one source."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from engrain.core.model.items import Item
from engrain.core.model.recall import Hit, Omitted, OutdatedText, Reason, Recall, Section, choose_heading, render_block
from engrain.core.text.passages import find_sentence_spans, split_passages
from engrain.core.text.tokenizer import extract_terms
from engrain.core.tokens import CountTokens
from engrain.ports import OutdatedSpan
from engrain.retrieval.ranking import Ranking

SESSION_PENALTY = 0.3  # what each further item of a session already picked loses, where a question wants a list
SPREAD_POOL_SIZE = 60
MAX_OMITTED_IDS = 3
# A message a little longer than a passage is returned whole: cutting it would save nothing.
MAX_WHOLE_CHARACTERS = 700
MAX_CONTEXT_SHARE = 0.4  # of the budget, at most, goes to the session and to what happened last
MIN_SUBSTITUTE_SHARE = 0.5  # of the relevance of a hit that did not fit: less does not stand in for it


class Candidate(NamedTuple):
    """A candidate of one scope, in the order of that scope."""

    scope: int
    row: int
    id: str
    score: float
    relevance: float
    source: str | None


# A quarter of the time of Choice(…), which is a call into Python for each.
_make_candidate: Callable[[tuple[Any, ...]], Candidate] = partial(tuple.__new__, Candidate)


@dataclass(frozen=True, slots=True)
class TokenBudget:
    """How many tokens the block may have, None for any number, and the terms by which a long hit is cut."""

    tokens: int | None
    count: CountTokens
    terms: frozenset[int] = frozenset()

    def fit(self, hit: Hit, used: int) -> Hit | None:
        """The hit, whole or cut down, if there is room for it."""
        if self._fits(hit, used):
            return hit
        spans = find_sentence_spans(hit.item.text, *hit.span)
        worth = [len(self.terms.intersection(extract_terms(hit.item.text[left:right]))) for left, right in spans]
        if len(spans) < 2:
            return None
        first = last = max(range(len(spans)), key=lambda number: (worth[number], -number))
        found: Hit | None = None
        while self._fits(some := shorten_hit(hit, (spans[first][0], spans[last][1])), used):
            found = some
            # The better neighbour joins, as long as it has some of the words: the text stays in one piece.
            behind = worth[last + 1] if last + 1 < len(spans) else 0
            ahead = worth[first - 1] if first > 0 else 0
            if not behind and not ahead:
                break
            first, last = (first, last + 1) if behind >= ahead else (first - 1, last)
        return found

    def bound(self, context: tuple[Section, ...]) -> tuple[Section, ...]:
        """Of each section as many lines, from the first on, as fit into its even part of the context's share."""
        if self.tokens is None or not context:
            return context
        room = int(self.tokens * MAX_CONTEXT_SHARE) // len(context)
        bounded = []
        for section in context:
            lines = section.lines
            while lines and self.count(str(Section(section.title, lines))) > room:
                lines = lines[:-1]
            if lines:
                bounded.append(Section(section.title, lines))
        return tuple(bounded)

    def heading(self, title: str) -> int:
        return 0 if self.tokens is None else self.count(f"\n## {title}\n")

    def _fits(self, hit: Hit, used: int) -> bool:
        return self.tokens is None or used + self.count(str(hit)) <= self.tokens


@dataclass(frozen=True, slots=True)
class Selection:
    taken: list[Candidate]
    left: dict[Reason, list[Candidate]]


def list_candidates(ranked: Ranking, scope: int, spread: bool) -> list[Candidate]:
    """All candidates of a scope, best first; a newer id wins a tie."""
    sketches, score, relevance = ranked.table.sketches, ranked.score.tolist(), ranked.relevance.tolist()
    ids = [one.id for one in sketches]
    order: list[int] = np.argsort(ranked.score)[::-1].tolist()
    if len(set(score)) < len(score):
        order.sort(key=lambda row: (score[row], ids[row]), reverse=True)
    if spread:
        order = _spread_sessions(order, ranked)
    return [_make_candidate((scope, row, ids[row], score[row], relevance[row], sketches[row].source)) for row in order]


def merge_scopes(scopes: Sequence[list[Candidate]]) -> list[Candidate]:
    """Each scope keeps its own order; between scopes the more relevant goes first."""
    if len(scopes) == 1:
        return scopes[0]
    heads = [0] * len(scopes)
    merged: list[Candidate] = []
    while True:
        open_scopes = [number for number, head in enumerate(heads) if head < len(scopes[number])]
        if not open_scopes:
            return merged
        best = max(open_scopes, key=lambda number: (scopes[number][heads[number]].relevance, -number))
        merged.append(scopes[best][heads[best]])
        heads[best] += 1


def select_candidates(candidates: Sequence[Candidate], n: int, floor: float, usual_floor: float) -> Selection:
    """The first n above the floor, no named source with more than half of them while others have something to say."""
    above = [one for one in candidates if one.relevance >= floor]
    taken, set_back = _share_among_sources(above[:n], above[n:], usual_floor)
    left: dict[Reason, list[Candidate]] = {
        "floor": [one for one in candidates if one.relevance < floor],
        "n": above[n:],
        "source": set_back,
        "budget": [],
    }
    if set_back:
        # What came in for others stands behind what it came in for.
        picked = {(one.scope, one.row) for one in taken}
        taken = [one for one in above if (one.scope, one.row) in picked]
        left["n"] = [one for one in above[n:] if (one.scope, one.row) not in picked]
    return Selection(taken, left)


def _share_among_sources(
    taken: list[Candidate], waiting: list[Candidate], usual_floor: float
) -> tuple[list[Candidate], list[Candidate]]:
    """Swap the last of a source that has more than its share for the best of the others.

    Only what passes the usual floor has something to say, even where the caller has turned the floor off.
    """
    share = max(1, (len(taken) + 1) // 2)
    counts = Counter(one.source for one in taken if one.source is not None)
    speaking = [one for one in waiting if one.relevance >= usual_floor]
    set_back: list[Candidate] = []
    for place in reversed(range(len(taken))):
        source = taken[place].source
        if source is None or counts[source] <= share:
            continue
        other = next((one for one in speaking if one.source is None or counts[one.source] < share), None)
        if other is None:
            break
        speaking.remove(other)
        set_back.append(taken[place])
        taken[place] = other
        counts[source] -= 1
        if other.source is not None:
            counts[other.source] += 1
    return taken, set_back[::-1]


def build_hit(choice: Candidate, ranked: Ranking, item: Item, passage: int, outdated: Sequence[OutdatedSpan]) -> Hit:
    start, end = _locate_passage(item.text, passage)
    parts = ranked.parts[choice.row].tolist()
    arms = {name: round(part, 4) for name, part in zip(ranked.names, parts, strict=True) if abs(part) > 5e-5}
    outlived = tuple(
        OutdatedText(item.text[mark.start : mark.end], mark.until, mark.now)
        for mark in outdated
        if mark.start < end and mark.end > start
    )
    text = item.text[start:end]
    return Hit(item, text, (start, end), choice.score, choice.relevance, arms=arms, outlived=outlived)


def pack_hits(
    hits: Mapping[Candidate, Hit], chosen: Selection, budget: TokenBudget, context: tuple[Section, ...] = ()
) -> Recall:
    """As many of the hits, in order, as fit into the budget, however small it is.

    One that does not fit is cut down to its best sentences. If even those are too long, nothing that is far less
    relevant takes its place: a model would take it for the answer.
    """
    context = budget.bound(context)
    kept: dict[Candidate, Hit] = {}
    cut: list[Candidate] = []
    titles: set[str] = set()
    used = 0 if budget.tokens is None else budget.count(render_block(context, ()))
    for choice, hit in hits.items():
        missed = max((one.relevance for one in cut), default=0.0)
        heading = 0 if choose_heading(hit) in titles else budget.heading(choose_heading(hit))
        fitting = None if choice.relevance < MIN_SUBSTITUTE_SHARE * missed else budget.fit(hit, used + heading)
        if fitting is None:
            cut.append(choice)
            continue
        kept[choice] = fitting
        titles.add(choose_heading(hit))
        used += 0 if budget.tokens is None else heading + budget.count(f"{fitting}\n")
    text = render_block(context, kept.values())
    # Lines may count more together than apart.
    while budget.tokens is not None and kept and budget.count(text) > budget.tokens:
        cut.append(kept.popitem()[0])
        text = render_block(context, kept.values())
    tokens = budget.count(text) if text else 0
    return Recall(tuple(kept.values()), tokens, _omitted({**chosen.left, "budget": cut}), context)


def shorten_hit(hit: Hit, span: tuple[int, int]) -> Hit:
    """The same hit with less of its text. A mark stays if any of the words it may mean is still there."""
    start, end = span
    item = hit.item
    held = tuple(
        old
        for old in hit.outlived
        if any(at.start() < end and at.end() > start for at in re.finditer(re.escape(old.text), item.text))
    )
    return replace(hit, text=item.text[start:end], span=span, outlived=held)


def _omitted(left: Mapping[Reason, list[Candidate]]) -> tuple[Omitted, ...]:
    found = []
    for reason, some in left.items():
        if some:
            best = sorted(some, key=attrgetter("relevance"), reverse=True)
            found.append(
                Omitted(
                    reason, len(some), tuple(one.id for one in best[:MAX_OMITTED_IDS]), _round_down(best[0].relevance)
                )
            )
    return tuple(found)


def _round_down(share: float) -> float:
    """Rounded down: what is below the floor must not read as if it stood on it."""
    return math.floor(share * 10_000) / 10_000


def _locate_passage(text: str, number: int) -> tuple[int, int]:
    if len(text) <= MAX_WHOLE_CHARACTERS:
        return 0, len(text)
    spans = split_passages(text)
    return spans[min(number, len(spans) - 1)] if spans else (0, len(text))


def _spread_sessions(order: list[int], ranked: Ranking) -> list[int]:
    pool, rest = np.array(order[:SPREAD_POOL_SIZE], dtype=np.int64), order[SPREAD_POOL_SIZE:]
    session = ranked.table.session[pool]
    score = ranked.score[pool].copy()
    picked: list[int] = []
    for _ in range(len(pool)):
        best = int(np.argmax(score))
        picked.append(int(pool[best]))
        score[best] = -np.inf
        if session[best] >= 0:
            score[session == session[best]] -= SESSION_PENALTY
    return picked + rest
