"""Work that waits for nobody: items without a vector get one in the background while the memory is open."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import isfinite
from typing import TYPE_CHECKING, Any

from engrain.core.errors import EmbedderFailed, EngrainError
from engrain.core.model.queries import EmbeddingModel, EmbedKind
from engrain.ingest import write
from engrain.ports import Embedder, Services, UnembeddedItem
from engrain.ports.search import VectorModels

if TYPE_CHECKING:
    from engrain.ports import Matrix


# Whoever does not take this takes nothing.
PLAIN = "tea"


class Embedding:
    """`refused` has the texts that the embedder failed at while it took others, by id, with what it said."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self.refused: dict[str, str] = {}

    def some(self, limit: int) -> list[str]:
        """The ids of those that got a vector; none if only refused ones are left. EmbedderFailed if it takes none."""
        began = self._services.items.moment()
        while missing := self._missing(limit):
            try:
                write.embed_items(self._services, missing, began)
            except EmbedderFailed:
                self._services.embedder.embed([PLAIN], "document")
                if made := self._one_by_one(missing, began):
                    return made
            else:
                return [one.id for one in missing]
        return []

    @property
    def trouble(self) -> str:
        """What is told of the refused ones, naming the first of them."""
        if not self.refused:
            return ""
        count, (id, why) = len(self.refused), next(iter(self.refused.items()))
        return f"{count:,} text{'s' * (count != 1)} not taken by the embedder, such as that of {id}: {why}"

    def left(self) -> bool:
        return bool(self._missing(1))

    def _missing(self, limit: int) -> list[UnembeddedItem]:
        found = self._services.items.unembedded(self._services.embedder.model.key, limit + len(self.refused))
        return [one for one in found if one.id not in self.refused][:limit]

    def _one_by_one(self, missing: Sequence[UnembeddedItem], began: int) -> list[str]:
        made: list[str] = []
        for one in missing:
            try:
                write.embed_items(self._services, [one], began)
            except EmbedderFailed as exc:
                self.refused[one.id] = str(exc)
            else:
                made.append(one.id)
        return made


BATCH = 32
PAUSE, LONGEST_PAUSE = 0.2, 60.0
LOOK = 5.0  # seconds between two looks whether a change of the model is over

_log = logging.getLogger("engrain")


class WatchedEmbedder:
    """An embedder that wakes the upkeep when it could not embed something to be kept, or always."""

    def __init__(self, embedder: Embedder, wake: Callable[[], None], always: bool = False) -> None:
        self._embedder = embedder
        self._wake = wake
        self._always = always

    @property
    def model(self) -> EmbeddingModel:
        return self._embedder.model

    def windows(self, text: str) -> list[str]:
        return self._embedder.windows(text)

    def embed(self, texts: Sequence[str], kind: EmbedKind) -> Matrix:
        try:
            rows = self._checked(texts, kind)
        except EmbedderFailed:
            if kind == "document":
                self._wake()
            raise
        if self._always and kind == "document":
            self._wake()
        return rows

    def _checked(self, texts: Sequence[str], kind: EmbedKind) -> Matrix:
        """An embedder of somebody else may do anything; whatever it does costs no text and stops no round."""
        name, wanted = self.model.name, (len(texts), self.model.dimension)
        try:
            rows = self._embedder.embed(texts, kind)
            if getattr(rows, "shape", None) != wanted:
                raise EmbedderFailed(f"The embedder {name} returned {getattr(rows, 'shape', rows)!r}, not {wanted}.")
            if not isfinite(float(rows.sum())):
                raise EmbedderFailed(f"The embedder {name} returned a value that is not a finite number.")
        except EngrainError:
            raise
        except Exception as exc:
            raise EmbedderFailed(f"The embedder {name} failed: {type(exc).__name__}: {exc}") from exc
        return rows


class ChangingEmbedder:
    """The embedder before, until the present one has made vectors of everything; then that one. What belongs together
    asks for `settled` once, so that no answer and no write mixes the two."""

    def __init__(self, services: Services, wake: Callable[[], None]) -> None:
        assert services.before is not None
        self._services = services
        self._new = WatchedEmbedder(services.embedder, wake)
        # A text that is kept by the model before is to have a vector of the new one as well, soon after.
        self._old = WatchedEmbedder(services.before, wake, always=True)
        self._settled = self._old
        self._looked = 0.0
        self.look()

    @property
    def settled(self) -> WatchedEmbedder:
        # Another process may have finished what this one began.
        if self._settled is self._old and time.monotonic() - self._looked > LOOK:
            self.look()
        return self._settled

    def look(self) -> None:
        """Change over, once every item has a vector of the new model, or more of them than have one of the old."""
        self._looked = time.monotonic()
        if self._settled is self._old and self._complete():
            self._settled = self._new

    def _complete(self) -> bool:
        new, old = self._new.model.key, self._old.model.key
        if not self._services.items.unembedded(new, 1):
            return True
        if not isinstance(self._services.items, VectorModels):
            return False
        counts = self._services.items.models()
        return counts.get(new, 0) >= counts.get(old, 0)

    @property
    def model(self) -> EmbeddingModel:
        return self.settled.model

    def windows(self, text: str) -> list[str]:
        return self.settled.windows(text)

    def embed(self, texts: Sequence[str], kind: EmbedKind) -> Matrix:
        return self.settled.embed(texts, kind)


class EmbeddingWorker:
    """One thread, only while there is something to do. It is resumable: what is done is in the store."""

    def __init__(self, services: Services, enabled: bool) -> None:
        self._services = services
        self._enabled = enabled
        self._stop = threading.Event()
        self._guard = threading.Lock()
        self._embedded = 0
        self._error: str | None = None
        self._thread: threading.Thread | None = None
        self.embedder = (
            ChangingEmbedder(services, self.wake) if services.before else WatchedEmbedder(services.embedder, self.wake)
        )
        self._target = WatchedEmbedder(services.embedder, lambda: None)
        self._embedding = Embedding(replace(services, embedder=self._target))

    @property
    def target(self) -> Embedder:
        """The embedder whose vectors everything is to have in the end."""
        return self._target

    def start(self) -> None:
        if self._enabled and self._services.items.unembedded(self._services.embedder.model.key, 1):
            self.wake()

    def wake(self) -> None:
        with self._guard:
            if self._enabled and not self._stop.is_set() and not self._running():
                self._thread = threading.Thread(target=self._work, name="engrain-upkeep", daemon=True)
                self._thread.start()

    def stop(self) -> None:
        with self._guard:
            self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def change_over(self) -> None:
        """To the new model, if there is one and it is ready."""
        if isinstance(self.embedder, ChangingEmbedder):
            self.embedder.look()

    def state(self) -> dict[str, Any]:
        return {"running": self._running(), "embedded": self._embedded, "error": self._error}

    def _running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _work(self) -> None:
        pause = PAUSE
        self._embedding.refused.clear()  # another time it may take them
        try:
            while not self._stop.is_set():
                try:
                    made = len(self._embedding.some(BATCH))
                except EmbedderFailed as exc:
                    self._error = str(exc)
                    # It was woken by a failure: the text that failed may not be written yet, and comes up next time.
                    self._stop.wait(pause)
                    pause = min(2 * pause, LONGEST_PAUSE)
                    continue
                self._embedded += made
                self._error, pause = self._embedding.trouble or None, PAUSE
                if not made:
                    self.change_over()
                    if self._stop.wait(PAUSE) or not self._embedding.left():
                        return
        except EngrainError as exc:
            self._error = str(exc)
            _log.warning("embedding in the background stopped: %s", exc)
