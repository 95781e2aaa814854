"""Give a recall a deadline: an embedder that is not waited for, so that words alone are searched instead."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from engrain.core.errors import EmbedderFailed
from engrain.core.model.queries import EmbeddingModel, EmbedKind
from engrain.core.model.recall import Degraded, Recall, RecallRequest
from engrain.ports import Services
from engrain.ports.search import Embedder, pin_embedder
from engrain.ports.timed_call import call_within
from engrain.retrieval.search import search

if TYPE_CHECKING:
    from engrain.core.model.queries import Matrix


def search_until(request: RecallRequest, services: Services, seconds: float) -> Recall:
    """Search by meaning if the embedder answers in time, and else by words alone, which `degraded` then says."""
    embedder = _TimedEmbedder(pin_embedder(services.embedder), seconds)
    found = search(request, replace(services, embedder=embedder))
    if embedder.is_late:
        why = f"the embedder did not answer within {seconds:g} s"
        found = replace(found, degraded=(*found.degraded, Degraded("meaning", why)))
    return found


class _TimedEmbedder:
    """An embedder whose answer is waited for until a deadline. The late call itself goes on, and warms it up."""

    def __init__(self, embedder: Embedder, seconds: float) -> None:
        self._embedder = embedder
        self._end = time.monotonic() + seconds
        self.is_late = False

    @property
    def model(self) -> EmbeddingModel:
        return self._embedder.model

    def windows(self, text: str) -> list[str]:
        return self._embedder.windows(text)

    @property
    def unchecked(self) -> object:
        """The embedder behind this one, for what a thorough recall compares once the question is embedded."""
        return self if self.is_late else getattr(self._embedder, "unchecked", self._embedder)

    def embed(self, texts: Sequence[str], kind: EmbedKind) -> Matrix:
        late = EmbedderFailed("the embedder did not answer before the deadline.")
        if self.is_late:
            raise late
        try:
            return call_within(self._end - time.monotonic(), lambda: self._embedder.embed(texts, kind))
        except TimeoutError:
            self.is_late = True
            raise late from None
