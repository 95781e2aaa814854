"""Give items the vectors of their texts, many at once."""

from __future__ import annotations

from collections.abc import Sequence

from engrain.core.model.items import Vectors
from engrain.core.model.plans import Embed, Outcome, OutcomeStatus
from engrain.stores.postgres.index_rows import replace_vectors
from engrain.stores.postgres.sql import load
from engrain.stores.postgres.work import Work

_SQL = load("index.sql")


def embed_all(work: Work, steps: Sequence[Embed]) -> tuple[Outcome, ...]:
    rows = work.db.rows(_SQL["hashes"], (work.owner, [step.id for step in steps]))
    known = {id_: (n, hash_.hex()) for id_, n, hash_ in rows}
    given: dict[tuple[int, str], Vectors] = {}
    outcomes = []
    for step in steps:
        n, hash_ = known.get(step.id, (0, None))
        if hash_ == step.hash:
            given[n, step.vectors.model] = step.vectors
        status: OutcomeStatus = "missing" if hash_ is None else "changed" if hash_ == step.hash else "stale"
        outcomes.append(Outcome(step.id, status))
    if given:
        replace_vectors(work, given)
        work.change(_SQL["mark_items"], ([n for n, _ in given],))
    return tuple(outcomes)
