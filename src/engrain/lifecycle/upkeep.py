"""Work that waits for nobody: items without a vector get one in the background while the memory is open."""

from __future__ import annotations

import logging
import threading
from typing import Any

from engrain.capture import write
from engrain.core.errors import EngrainError
from engrain.ports import Kit

BATCH = 32

_log = logging.getLogger("engrain")


class Upkeep:
    """One thread, only while there is something to do. It is resumable: what is done is in the store."""

    def __init__(self, kit: Kit) -> None:
        self._kit = kit
        self._stop = threading.Event()
        self._embedded = 0
        self._error: str | None = None
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        if self._kit.items.unembedded(self._kit.embedder.model.key, 1):
            self._thread = threading.Thread(target=self._work, name="engrain-upkeep", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        self._stop.set()
        if self._thread is not None:
            self._thread.join()

    def state(self) -> dict[str, Any]:
        running = self._thread is not None and self._thread.is_alive()
        return {"running": running, "embedded": self._embedded, "error": self._error}

    def _work(self) -> None:
        try:
            while not self._stop.is_set():
                made = write.embed_missing(self._kit, BATCH)
                self._embedded += made
                if not made:
                    return
        except EngrainError as exc:
            self._error = str(exc)
            _log.warning("embedding in the background stopped: %s", exc)
