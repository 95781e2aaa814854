"""A process that gives every item vectors of another model, or that asks questions meanwhile, until it is stopped."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from engrain_conformance.embedder import HashEmbedder

from engrain import Memory
from engrain.core.model.queries import EmbeddingModel, EmbedKind, VectorQuery
from engrain.core.model.results import Progress


class Marked(HashEmbedder):
    """An embedder whose vectors show who made them: the sign of the first number is the model's."""

    def __init__(self, name: str, pause: float = 0.0) -> None:
        super().__init__(name)
        self._pause = pause
        self.sign = 1.0 if name == "old" else -1.0

    def embed(self, texts: Sequence[str], kind: EmbedKind) -> npt.NDArray[np.float32]:
        if kind == "document":
            time.sleep(self._pause * len(texts))
        rows = super().embed(texts, kind)
        rows[:, 0] = self.sign * 0.2
        return np.asarray(rows / np.linalg.norm(rows, axis=1, keepdims=True), dtype=np.float32)

    @property
    def model(self) -> EmbeddingModel:
        return self._model


class Watched:
    """A vector index that looks at every question: its vector and what it is compared with are of one model."""

    def __init__(self, vectors: Any, store: Any) -> None:
        self._vectors, self._store = vectors, store
        self.models: list[str] = []

    def _check(self, query: VectorQuery) -> None:
        old = query.model.startswith("old")
        assert (query.vector[0] > 0) == old, "the vector of one model is compared with those of another"
        self.models.append("old" if old else "new")

    def nearest(self, query: VectorQuery) -> Any:
        self._check(query)
        found = self._vectors.nearest(query)
        for rows in self._store.vectors(query.scope, found.ids, query.model).values():
            signs = {float(np.frombuffer(row, dtype="<f4")[0]) > 0 for row in rows.rows}
            assert signs == {query.model.startswith("old")}
        return found

    def cosines(self, query: VectorQuery, ids: Sequence[str]) -> list[float]:
        self._check(query)
        found: list[float] = self._vectors.cosines(query, ids)
        return found


def opened(store: str, *, pause: float = 0.0, background: bool = False) -> Memory:
    return Memory(
        store,
        user="ana",
        embedder=Marked("new", pause),
        settings={"embedder": {"before": Marked("old")}},
        background=background,
    )


def _telling(rounds: int) -> Progress:
    """Tells how many were made; after some rounds it stands still, so that it is not over when the kill comes."""
    left = iter(range(rounds))

    def told(stage: str, made: int, total: int | None) -> None:
        print(made, flush=True)  # noqa: T201
        if next(left, None) is None:
            time.sleep(600)

    return told


def main(store: str, what: str) -> None:
    if what == "reembed":
        with opened(store, pause=0.002) as memory:
            memory.store.maintain(memory.scope, reembed=True, progress=_telling(3))
        return
    with opened(store) as memory:
        asked = 0
        while True:
            asked += 1
            number = asked % 100
            hits = memory.recall(f"What about the lighthouse {number}?").hits
            assert hits, "every question is answered"
            print(asked, flush=True)  # noqa: T201
            time.sleep(0.02)


if __name__ == "__main__":
    main(*sys.argv[1:])
