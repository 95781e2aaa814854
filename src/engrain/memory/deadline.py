"""Give a recall a deadline: an embedder that is not waited for, so that words alone are searched instead."""

from __future__ import annotations

import contextvars
import threading
import time
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from engrain.core.errors import EmbedderFailed
from engrain.core.model.queries import EmbeddingModel, EmbedKind
from engrain.core.model.recall import Degraded, Recall, RecallRequest
from engrain.ports import Services
from engrain.ports.search import Embedder, pin_embedder
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

    def embed(self, texts: Sequence[str], kind: EmbedKind) -> Matrix:
        answers: list[Matrix | BaseException] = []

        def run() -> None:
            try:
                answers.append(self._embedder.embed(texts, kind))
            except BaseException as exc:  # noqa: BLE001  # raised again in the thread that waits
                answers.append(exc)

        if not self.is_late:
            context = contextvars.copy_context()
            thread = threading.Thread(target=context.run, args=(run,), daemon=True)
            thread.start()
            thread.join(max(0.0, self._end - time.monotonic()))
            self.is_late = not answers
        if self.is_late:
            raise EmbedderFailed("the embedder did not answer before the deadline.")
        if isinstance(answers[0], BaseException):
            raise answers[0]
        return answers[0]
