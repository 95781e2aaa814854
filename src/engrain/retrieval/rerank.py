"""Look at the best candidates again, for a thorough recall: compare them word by word, and ask a reranker."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from engrain.core.errors import EmbedderFailed, EngrainError, RerankerFailed
from engrain.core.model.recall import Degraded
from engrain.core.text.passages import split_passages
from engrain.ports.reranker import check_scores
from engrain.ports.search import PartEmbedder, find_part_embedder
from engrain.ports.timed_call import call_within
from engrain.retrieval.ranking import Ranking

if TYPE_CHECKING:
    from engrain.core.identity import Scope
    from engrain.core.model.items import Item
    from engrain.ports import Services
    from engrain.ports.reranker import Reranker
    from engrain.retrieval.query import Question
    from engrain.retrieval.ranking import Floats

POOL_SIZE = 30
MAX_LOADED = 60  # of which the short ones are compared
# A longer text keeps its place: the best match of each word says little among many words.
MAX_CHARACTERS, MAX_WORDS = 300, 64
MAX_BEFORE_CHARACTERS = 400  # of the turn before, for the reranker
MIN_SHORT_SHARE = 0.75  # of the best 30: among longer texts the short ones alone would change places
USUAL_MATCH, USUAL_REVERSE = 0.33, 0.35  # in a candidate that is not the answer
# Learnt like the weights of ranking.py, and with them: the words compared stand in for a part of these.
MATCH_WEIGHT, BEFORE_WEIGHT, AFTER_WEIGHT, REVERSE_WEIGHT = 11.6, 5.7, 1.3, -3.6
REWEIGHTED = {
    "meaning": 0.3, "words": 0.78, "cover": 0.2, "words before": 0.3, "cover before": 0.7, "words after": 0.3,
}  # fmt: skip
MAX_DEVIATIONS = 1.5  # that a reranker may move a candidate: one high score among zeros must not decide alone

NOTHING_TO_ADD = "the embedder has no vectors of words, and no reranker is set"


def rerank(
    ranking: Ranking, question: Question, scope: Scope, services: Services
) -> tuple[Ranking, tuple[Degraded, ...]]:
    """Return the ranking with the scores of its best candidates changed, and what could not be done for it."""
    parts, reranker = find_part_embedder(services.embedder), services.reranker
    if parts is None and reranker is None:
        return ranking, (Degraded("thorough comparison", NOTHING_TO_ADD),)
    best = np.argsort(ranking.score)[::-1][:MAX_LOADED].tolist()
    rows = dict.fromkeys([*best, *_list_around(best, ranking)])
    ids = ranking.table.items.ids
    loaded = {one.id: one for one in services.items.get_many(scope, [ids[row] for row in rows])}
    items = {row: loaded[ids[row]] for row in rows if ids[row] in loaded}
    notes: list[Degraded] = []
    text = services.redact(question.text) if services.redact else question.text
    if parts is not None:
        try:
            ranking = _compare_words(ranking, [row for row in best if row in items], items, text, parts)
        except EmbedderFailed as exc:
            notes.append(Degraded("thorough comparison", str(exc)))
    if reranker is not None and items:
        try:
            ranking = _mix_scores(ranking, items, text, reranker, services.reranker_seconds)
        except (RerankerFailed, TimeoutError) as exc:
            late = f"{reranker.name} did not answer within {services.reranker_seconds:g} s"
            notes.append(Degraded("reranker", late if isinstance(exc, TimeoutError) else str(exc)))
    return ranking, tuple(notes)


def _compare_words(
    ranking: Ranking, best: Sequence[int], items: dict[int, Item], text: str, parts: PartEmbedder
) -> Ranking:
    """Add how well each word of the question is met in a short text, in the turn before it and in the reply.

    These two need not be among the best themselves. Words of the text that the question nearly repeats count against
    it: it may be the same question.
    """
    is_short = [len(items[row].text) <= MAX_CHARACTERS for row in best]
    pool = [row for row, short in zip(best, is_short, strict=True) if short][:POOL_SIZE]
    around = [row for row in _list_around(pool, ranking) if row in items and len(items[row].text) <= MAX_CHARACTERS]
    if sum(is_short[:POOL_SIZE]) < MIN_SHORT_SHARE * len(is_short[:POOL_SIZE]):
        return ranking
    compared = list(dict.fromkeys((*pool, *around)))
    asked, *vectors = parts.embed_words([text, *(items[row].text for row in compared)], MAX_WORDS)
    if not len(asked):
        return ranking
    cosines = {row: asked @ words.T for row, words in zip(compared, vectors, strict=True) if len(words)}
    met = {row: one.max(axis=1).astype(np.float64) for row, one in cosines.items()}
    pool = [row for row in pool if row in cosines]
    own, before, after, reverse = np.zeros((4, len(ranking.score)))
    table = ranking.table
    for row in pool:
        own[row], reverse[row] = met[row].mean() - USUAL_MATCH, cosines[row].max(axis=0).mean() - USUAL_REVERSE
        before[row], after[row] = (
            np.maximum(met[row], met[other]).mean() - met[row].mean() if (other := int(others[row])) in met else 0.0
            for others in (table.replies_to, table.reply)
        )
    changed = ranking.parts.copy()
    for name, factor in REWEIGHTED.items():
        changed[pool, ranking.names.index(name)] *= factor
    added = {
        "words compared": MATCH_WEIGHT * own + REVERSE_WEIGHT * reverse,
        "words compared before": BEFORE_WEIGHT * before,
        "words compared after": AFTER_WEIGHT * after,
    }
    return _add_parts(replace(ranking, parts=changed), added)


def _list_around(rows: Sequence[int], ranking: Ranking) -> list[int]:
    """Return the turns that these reply to, and the replies to them."""
    table = ranking.table
    return [row for row in (*table.replies_to[rows].tolist(), *table.reply[rows].tolist()) if row >= 0]


def _add_parts(ranking: Ranking, added: dict[str, Floats]) -> Ranking:
    parts = np.column_stack([ranking.parts, *added.values()])
    return replace(ranking, score=parts.sum(axis=1), parts=parts, names=(*ranking.names, *added))


def _mix_scores(ranking: Ranking, items: dict[int, Item], text: str, reranker: Reranker, seconds: float) -> Ranking:
    """Add the reranker's scores of the best candidates, on the scale of ours. On its own it would order them worse."""
    pool = [row for row in np.argsort(ranking.score)[::-1].tolist() if row in items][:POOL_SIZE]
    texts = [_render_candidate(row, ranking, items) for row in pool]
    theirs = np.array(call_within(seconds, lambda: _call_reranker(reranker, text, texts)))
    spread = theirs.std()
    if len(pool) < 2 or spread < 1e-9:
        return ranking
    added = np.zeros(len(ranking.score))
    moved = np.clip((theirs - theirs.mean()) / spread, -MAX_DEVIATIONS, MAX_DEVIATIONS)
    added[pool] = ranking.score[pool].std() * moved
    return _add_parts(ranking, {"reranker": added})


def _render_candidate(row: int, ranking: Ranking, items: dict[int, Item]) -> str:
    """Return a candidate's text, or its best passage, behind the turn that it replies to."""
    table, item = ranking.table, items[row]
    spans = split_passages(item.text)
    text = item.text[slice(*spans[min(int(table.passage[row]), len(spans) - 1)])] if len(spans) > 1 else item.text
    before = items.get(int(table.replies_to[row]))
    turns = [(before, before.text[-MAX_BEFORE_CHARACTERS:]), (item, text)] if before else [(item, text)]
    return "\n".join(f"{name}: {said}" if (name := one.speaker or one.role) else said for one, said in turns)


def _call_reranker(reranker: Reranker, query: str, texts: Sequence[str]) -> list[float]:
    """Turn every failure of a foreign reranker into RerankerFailed."""
    try:
        return check_scores(reranker.score(query, texts), texts, reranker.name)
    except EngrainError as exc:
        raise RerankerFailed(str(exc)) from exc
    except Exception as exc:
        raise RerankerFailed(f"{reranker.name} failed: {type(exc).__name__}: {exc}") from exc
