"""Measures of a ranking: recall, NDCG, reciprocal rank, recall in a budget."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

CHARACTERS_PER_TOKEN = 4


@dataclass(frozen=True, slots=True)
class FoundDocument:
    """One returned item: its document, the characters returned, and the characters of the whole text."""

    doc: str
    size: int
    whole: int


@dataclass(frozen=True, slots=True)
class Scores:
    """One question's measures, or the means over many. `rb1000_whole` counts every document in full."""

    r5: float
    r10: float
    ndcg10: float
    mrr: float
    rb1000: float
    rb1000_whole: float


def recall_at(docs: Sequence[str], gold: frozenset[str], k: int) -> float:
    """The share of the gold among the first k documents."""
    return len(gold.intersection(docs[:k])) / len(gold)


def ndcg_at(docs: Sequence[str], gold: frozenset[str], k: int) -> float:
    gain = sum(1 / math.log2(rank + 2) for rank, doc in enumerate(list(dict.fromkeys(docs))[:k]) if doc in gold)
    return gain / sum(1 / math.log2(rank + 2) for rank in range(min(k, len(gold))))


def reciprocal_rank(docs: Sequence[str], gold: frozenset[str]) -> float:
    return next((1 / rank for rank, doc in enumerate(docs, 1) if doc in gold), 0.0)


def recall_in_budget(sizes: Iterable[tuple[str, int]], gold: frozenset[str], tokens: int) -> float:
    """The share of the gold whose text lies within the first `tokens`, in rank order; `sizes` are in characters."""
    left = tokens * CHARACTERS_PER_TOKEN
    inside = set()
    for doc, size in sizes:
        left -= size
        if left < 0:
            break
        inside.add(doc)
    return len(gold & inside) / len(gold)


def score(top: Sequence[str], long: Sequence[FoundDocument], gold: frozenset[str]) -> Scores:
    """`top` are the documents of a call for ten; `long` those of a call for enough to fill the budget."""
    return Scores(
        r5=recall_at(top, gold, 5),
        r10=recall_at(top, gold, 10),
        ndcg10=ndcg_at(top, gold, 10),
        mrr=reciprocal_rank(top, gold),
        rb1000=recall_in_budget([(one.doc, one.size) for one in long], gold, 1_000),
        rb1000_whole=recall_in_budget([(one.doc, one.whole) for one in long], gold, 1_000),
    )


def mean(scores: Sequence[Scores]) -> Scores:
    names = Scores.__slots__
    return Scores(**{name: math.fsum(getattr(one, name) for one in scores) / len(scores) for name in names})
