"""Work that waits for nobody: items without a vector get one in the background while the memory is open."""

from __future__ import annotations

import logging
import threading
from dataclasses import replace
from typing import Any

from engrain.core.answers import Status
from engrain.core.errors import EngrainError
from engrain.engine import Engine

BATCH = 32

_log = logging.getLogger("engrain")


class Upkeep:
    """One thread, only while there is something to do. It is resumable: what is done is in the store."""

    def __init__(self, engine: Engine, enabled: bool) -> None:
        self._engine = engine
        self._stop = threading.Event()
        self._embedded = 0
        self._error: str | None = None
        self._thread: threading.Thread | None = None
        if enabled and engine.kit.items.unembedded(engine.kit.embedder.model.key, 1):
            self._thread = threading.Thread(target=self._work, name="engrain-upkeep", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def shown(self, status: Status) -> Status:
        state: dict[str, Any] = {"embedded": self._embedded, "error": self._error}
        state["running"] = self._thread is not None and self._thread.is_alive()
        return replace(status, background=state)

    def _work(self) -> None:
        try:
            while not self._stop.is_set():
                made = self._engine.embed_missing(BATCH)
                self._embedded += made
                if not made:
                    return
        except EngrainError as exc:
            self._error = str(exc)
            _log.warning("embedding in the background stopped: %s", exc)
