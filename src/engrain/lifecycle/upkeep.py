"""Work that waits for nobody: items without a vector get one in the background while the memory is open."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from engrain.capture import write
from engrain.core.embedding import EmbeddingModel, EmbedKind
from engrain.core.errors import EmbedderFailed, EngrainError
from engrain.ports import Embedder, Kit

if TYPE_CHECKING:
    from engrain.ports import Matrix

BATCH = 32
PAUSE, LONGEST_PAUSE = 0.2, 60.0

_log = logging.getLogger("engrain")


class WatchedEmbedder:
    """An embedder that says so when it could not embed something to be kept."""

    def __init__(self, embedder: Embedder, failed: Callable[[], None]) -> None:
        self._embedder = embedder
        self._failed = failed

    @property
    def model(self) -> EmbeddingModel:
        return self._embedder.model

    def windows(self, text: str) -> list[str]:
        return self._embedder.windows(text)

    def embed(self, texts: Sequence[str], kind: EmbedKind) -> Matrix:
        try:
            return self._embedder.embed(texts, kind)
        except EmbedderFailed:
            if kind == "document":
                self._failed()
            raise


class Upkeep:
    """One thread, only while there is something to do. It is resumable: what is done is in the store."""

    def __init__(self, kit: Kit, enabled: bool) -> None:
        self._kit = kit
        self._enabled = enabled
        self._stop = threading.Event()
        self._guard = threading.Lock()
        self._embedded = 0
        self._error: str | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        if self._enabled and self._kit.items.unembedded(self._kit.embedder.model.key, 1):
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

    def state(self) -> dict[str, Any]:
        return {"running": self._running(), "embedded": self._embedded, "error": self._error}

    def _running(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def _work(self) -> None:
        pause = PAUSE
        try:
            while not self._stop.is_set():
                try:
                    made = write.embed_missing(self._kit, BATCH)
                except EmbedderFailed as exc:
                    self._error = str(exc)
                    # It was woken by a failure: the text that failed may not be written yet, and comes up next time.
                    self._stop.wait(pause)
                    pause = min(2 * pause, LONGEST_PAUSE)
                    continue
                self._embedded += made
                self._error, pause = None, PAUSE
                if not made and (self._stop.wait(PAUSE) or not self._left()):
                    return
        except EngrainError as exc:
            self._error = str(exc)
            _log.warning("embedding in the background stopped: %s", exc)

    def _left(self) -> bool:
        return bool(self._kit.items.unembedded(self._kit.embedder.model.key, 1))
