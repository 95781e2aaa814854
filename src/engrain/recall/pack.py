"""Choose what is returned: above the floor, as many as asked for, within the budget, not all from one source."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from engrain.core.items import Item
from engrain.core.passages import passages
from engrain.core.recalled import Hit, LeftOut, Outlived, Reason, Recall, block
from engrain.core.tokens import CountTokens
from engrain.ports import Outdated
from engrain.recall.rank import Ranked

SPREAD = 0.3  # what each further item of a session already picked loses, where a question wants a list
SPREAD_POOL = 60
SHOWN = 3
# A message a little longer than a passage is returned whole: cutting it would save nothing.
WHOLE = 700


class Choice(NamedTuple):
    """A candidate of one scope, in the order of that scope."""

    scope: int
    row: int
    id: str
    score: float
    relevance: float
    source: str | None


@dataclass(frozen=True, slots=True)
class Chosen:
    taken: list[Choice]
    left: dict[Reason, list[Choice]]


def choices(ranked: Ranked, scope: int, spread: bool) -> list[Choice]:
    """All candidates of a scope, best first; a newer id wins a tie."""
    sketches, score, relevance = ranked.table.sketches, ranked.score.tolist(), ranked.relevance.tolist()
    order = sorted(range(len(sketches)), key=[(s, one.id) for s, one in zip(score, sketches, strict=True)].__getitem__)
    order.reverse()
    if spread:
        order = _spread(order, ranked)
    return [Choice(scope, row, sketches[row].id, score[row], relevance[row], sketches[row].source) for row in order]


def merge(scopes: Sequence[list[Choice]]) -> list[Choice]:
    """Each scope keeps its own order; between scopes the more relevant goes first."""
    if len(scopes) == 1:
        return scopes[0]
    heads = [0] * len(scopes)
    merged: list[Choice] = []
    while True:
        open_scopes = [number for number, head in enumerate(heads) if head < len(scopes[number])]
        if not open_scopes:
            return merged
        best = max(open_scopes, key=lambda number: (scopes[number][heads[number]].relevance, -number))
        merged.append(scopes[best][heads[best]])
        heads[best] += 1


def choose(candidates: Sequence[Choice], n: int, floor: float, usual_floor: float) -> Chosen:
    """The first n above the floor, no named source with more than half of them while others have something to say."""
    above = [one for one in candidates if one.relevance >= floor]
    taken, set_back = _shared(above[:n], above[n:], usual_floor)
    picked = {(one.scope, one.row) for one in taken}
    known = picked | {(one.scope, one.row) for one in set_back}
    left: dict[Reason, list[Choice]] = {
        "floor": [one for one in candidates if one.relevance < floor],
        "n": [one for one in above if (one.scope, one.row) not in known],
        "source": set_back,
        "budget": [],
    }
    return Chosen([one for one in above if (one.scope, one.row) in picked], left)


def _shared(taken: list[Choice], waiting: list[Choice], usual_floor: float) -> tuple[list[Choice], list[Choice]]:
    """Swap the last of a source that has more than its share for the best of the others.

    Only what passes the usual floor has something to say, even where the caller has turned the floor off.
    """
    share = max(1, (len(taken) + 1) // 2)
    counts = Counter(one.source for one in taken if one.source is not None)
    speaking = [one for one in waiting if one.relevance >= usual_floor]
    set_back: list[Choice] = []
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


def hit_of(choice: Choice, ranked: Ranked, item: Item, passage: int, outdated: Sequence[Outdated]) -> Hit:
    start, end = _span(item.text, passage)
    parts = ranked.parts[choice.row].tolist()
    arms = {name: round(part, 4) for name, part in zip(ranked.names, parts, strict=True) if abs(part) > 5e-5}
    outlived = tuple(
        Outlived(item.text[mark.start : mark.end], mark.until, mark.now)
        for mark in outdated
        if mark.start < end and mark.end > start
    )
    text = item.text[start:end]
    return Hit(item, text, (start, end), choice.score, choice.relevance, arms=arms, outlived=outlived)


def pack(hits: Mapping[Choice, Hit], chosen: Chosen, budget: int | None, count_tokens: CountTokens) -> Recall:
    """As many of the hits, in order, as fit into the budget, however small it is."""
    kept: list[Choice] = []
    cut: list[Choice] = []
    used = 0
    for choice, hit in hits.items():
        size = 0 if budget is None else count_tokens(f"{hit}\n")
        if budget is not None and used + size > budget and (used + count_tokens(str(hit)) > budget):
            cut.append(choice)
            continue
        used += size
        kept.append(choice)
    text = block(tuple(hits[choice] for choice in kept))
    tokens = count_tokens(text) if kept else 0
    while kept and budget is not None and tokens > budget:
        cut.append(kept.pop())
        text = block(tuple(hits[choice] for choice in kept))
        tokens = count_tokens(text) if kept else 0
    left = {**chosen.left, "budget": cut}
    return Recall(tuple(hits[choice] for choice in kept), tokens, _left_out(left))


def _left_out(left: Mapping[Reason, list[Choice]]) -> tuple[LeftOut, ...]:
    found = []
    for reason, some in left.items():
        if some:
            best = sorted(some, key=lambda one: one.relevance, reverse=True)
            found.append(LeftOut(reason, len(some), tuple(one.id for one in best[:SHOWN]), round(best[0].relevance, 4)))
    return tuple(found)


def _span(text: str, number: int) -> tuple[int, int]:
    if len(text) <= WHOLE:
        return 0, len(text)
    spans = passages(text)
    return spans[min(number, len(spans) - 1)] if spans else (0, len(text))


def _spread(order: list[int], ranked: Ranked) -> list[int]:
    pool, rest = np.array(order[:SPREAD_POOL], dtype=np.int64), order[SPREAD_POOL:]
    session = ranked.table.session[pool]
    score = ranked.score[pool].copy()
    picked: list[int] = []
    for _ in range(len(pool)):
        best = int(np.argmax(score))
        picked.append(int(pool[best]))
        score[best] = -np.inf
        if session[best] >= 0:
            score[session == session[best]] -= SPREAD
    return picked + rest
