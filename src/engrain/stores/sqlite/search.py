"""Search the index of a scope."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from engrain.core.identity import Scope
from engrain.core.model.filters import Filter
from engrain.ports import Nearest, Sketch, SketchQuery, VectorQuery, WordMatches, WordQuery
from engrain.stores.sqlite.handle import Handle


class Search(Handle):
    def nearest(self, query: VectorQuery) -> Nearest:
        return self._index.nearest(query)

    def cosines(self, query: VectorQuery, ids: Sequence[str]) -> list[float]:
        return self._index.cosines(query, ids)

    def best(self, query: WordQuery) -> WordMatches:
        return self._index.best(query)

    def counts(self, query: WordQuery, ids: Sequence[str]) -> WordMatches:
        return self._index.counts(query, ids)

    def sketches(self, query: SketchQuery) -> list[Sketch]:
        return self._index.sketches(query)

    def having(self, scope: Scope, traits: int, where: Filter | None, limit: int, at: datetime | None) -> list[str]:
        return self._index.having(scope, traits, where, limit, at)

    def speakers(self, scope: Scope) -> frozenset[str]:
        return self._index.speakers(scope)
