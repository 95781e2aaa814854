"""Select the hits to return: relevant, at most n, not all of one source, and few of untrusted texts."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import repeat
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from engrain.core.model.items import TRUST
from engrain.core.model.recall import (
    Reason,
)
from engrain.core.rules.own_words import PASTED
from engrain.retrieval.query import Question
from engrain.retrieval.ranking import Ranking

SESSION_PENALTY = 0.3  # for each further item of a session already picked, when the question wants a list
SPREAD_POOL_SIZE = 60
MIN_TRUST = TRUST["agent"]  # pages, tools, files and pasted texts are below it: anybody may have written them
MAX_UNTRUSTED_SHARE = 0.4  # of the hits and of the budget, while trusted hits are relevant


class Candidate(NamedTuple):
    """A ranked candidate of one scope."""

    scope: int
    row: int
    id: str
    score: float
    relevance: float
    source: str | None
    trusted: bool = True


# A quarter of the time of Candidate(…), which calls into Python for each.
_make_candidate: Callable[[tuple[Any, ...]], Candidate] = partial(tuple.__new__, Candidate)


@dataclass(frozen=True, slots=True)
class Selection:
    selected: list[Candidate]
    omitted: dict[Reason, list[Candidate]]


def list_candidates(ranking: Ranking, scope: int, question: Question) -> list[Candidate]:
    """List all candidates of a scope, best first; a newer id wins a tie."""
    items, score = ranking.table.items, ranking.score
    places = score.argsort()[::-1]
    order: list[int] = places.tolist()
    ordered = score[places]
    if (ordered[1:] == ordered[:-1]).any():
        order.sort(key=lambda row: (score[row], items.ids[row]), reverse=True)
    if question.wants_several:
        order = _spread_sessions(order, ranking)
    if "summary" in question.asks:
        order = _add_replies(order, ranking.table.reply.tolist())
    places = np.array(order, dtype=np.int64)
    ids = map(items.ids.__getitem__, order)
    columns = (score, ranking.relevance, items.source, _find_trusted(ranking))
    values = (column[places].tolist() for column in columns)
    return list(map(_make_candidate, zip(repeat(scope, len(order)), order, ids, *values, strict=True)))


def _find_trusted(ranking: Ranking) -> npt.NDArray[np.bool_]:
    """Tell for each row if only the user or the program can have written it.

    A pasted message is not the user's, and an assistant's answer to a tool's result may repeat that result.
    """
    items, before = ranking.table.items, ranking.table.previous
    trusted: npt.NDArray[np.bool_] = (items.trust >= MIN_TRUST) & (items.traits & PASTED == 0)
    is_tool = items.role == "tool"
    if is_tool.any():
        trusted &= ~((items.role == "assistant") & (before >= 0) & is_tool[before]).astype(bool)
    return trusted


def merge_scopes(scopes: Sequence[list[Candidate]]) -> list[Candidate]:
    """Merge by relevance, keeping each scope's own order."""
    if len(scopes) == 1:
        return scopes[0]
    left = [deque(one) for one in scopes if one]
    merged: list[Candidate] = []
    while left:
        best = max(left, key=lambda candidates: candidates[0].relevance)  # the first of equals
        merged.append(best.popleft())
        left = left if best else [one for one in left if one]
    return merged


def count_untrusted_places(n: int) -> int:
    """Return how many of n hits may be untrusted while trusted ones are relevant. The best hit may always be."""
    return max(1, int(n * MAX_UNTRUSTED_SHARE))


def select_candidates(candidates: Sequence[Candidate], n: int, floor: float, usual_floor: float) -> Selection:
    """Select the first n above the floor, with limits for untrusted candidates and for each named source.

    A source gets at most half of the places while others are relevant. All untrusted candidates together get
    MAX_UNTRUSTED_SHARE while trusted ones are relevant, whatever their sources are called.
    A substitute must pass the usual floor, even if the caller has turned the floor off.
    """
    above = [one for one in candidates if one.relevance >= floor]
    best = above[:n]
    picked, deferred = _pick_within_limits(above, len(best), usual_floor)
    # The ranking's order stays: a substitute does not inherit the position of the one it replaced.
    selected = [one for one in above if one in picked] if deferred else best
    replaced = {one: deferred[one] for one in best if one not in picked} if deferred else {}
    omitted: dict[Reason, list[Candidate]] = {
        "floor": [one for one in candidates if one.relevance < floor],
        "n": [one for one in above[n:] if one not in picked] if deferred else above[n:],
        "source": [one for one, reason in replaced.items() if reason == "source"],
        "trust": [one for one, reason in replaced.items() if reason == "trust"],
        "budget": [],
    }
    return Selection(selected, omitted)


def _pick_within_limits(
    above: Sequence[Candidate], size: int, usual_floor: float
) -> tuple[set[Candidate], dict[Candidate, Reason]]:
    """Pick candidates in order, and defer those beyond a limit. If too few are left, deferred ones fill the places."""
    picked: set[Candidate] = set()
    deferred: dict[Candidate, Reason] = {}
    counts: Counter[str | None] = Counter()
    untrusted = count_untrusted_places(size)
    for place, one in enumerate(above):
        if len(picked) == size:
            break
        if place >= size and one.relevance < usual_floor:
            continue
        if not one.trusted and not untrusted:
            deferred[one] = "trust"
        elif one.source is not None and counts[one.source] >= (size + 1) // 2:
            deferred[one] = "source"
        else:
            picked.add(one)
            counts[one.source] += 1
            untrusted -= not one.trusted
    # Trusted ones come first here too: a limit for sources must not make room for untrusted texts.
    fillers = sorted(deferred, key=lambda one: not (one.trusted and one.relevance >= usual_floor))
    picked.update(fillers[: size - len(picked)])
    return picked, deferred


def _add_replies(order: list[int], reply: list[int]) -> list[int]:
    """Put the reply to each turn behind it: a summary needs both."""
    pairs = ((row, reply[row]) for row in order)
    return list(dict.fromkeys(row for pair in pairs for row in pair if row >= 0))


def _spread_sessions(order: list[int], ranking: Ranking) -> list[int]:
    pool, rest = np.array(order[:SPREAD_POOL_SIZE], dtype=np.int64), order[SPREAD_POOL_SIZE:]
    session = ranking.table.items.session[pool]
    score = ranking.score[pool].copy()
    picked: list[int] = []
    for _ in range(len(pool)):
        best = int(np.argmax(score))
        picked.append(int(pool[best]))
        score[best] = -np.inf
        if session[best] >= 0:
            score[session == session[best]] -= SESSION_PENALTY
    return picked + rest
