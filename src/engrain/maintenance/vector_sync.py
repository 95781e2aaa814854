"""Bring what changes to the vector server, in the background while the memory is open."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection
from typing import Any

from engrain.core.errors import EngrainError, StoreClosed
from engrain.core.identity import Scope
from engrain.ports import Feed

BATCH = 256
IDLE = 0.5  # seconds between two looks into the outbox
PAUSE, LONGEST_PAUSE = 0.5, 30.0
LEAVE = 2.0  # seconds that closing gives to what is still to come

_log = logging.getLogger("engrain")


class VectorSync:
    """One thread. It is resumable: what the server has taken is settled in the item store."""

    def __init__(self, feed: Feed | None, enabled: bool) -> None:
        self._feed = feed
        self._enabled = enabled and feed is not None
        self._stop = threading.Event()
        self._fed = 0
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        if self._enabled:
            self._thread = threading.Thread(target=self._work, name="engrain-feed", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """A short program may end before the first look: what it wrote goes along, if the server is there."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        ends = time.monotonic() + LEAVE
        try:
            while self._feed is not None and time.monotonic() < ends and self._feed.feed(BATCH):
                pass
        except EngrainError as exc:
            _log.info("what is left goes to the vector server another time: %s", exc)

    def brought(self, scope: Scope, items: Collection[str]) -> bool:
        """Everything, now; False if these are still to come: the server cannot take them or is far behind, or the
        store's role may not look through all scopes, and another feeds it."""
        try:
            ends = time.monotonic() + LEAVE
            while self._feed is not None and self._feed.feed(BATCH):
                if time.monotonic() > ends:
                    return False
            return self._feed is None or not self._feed.lacks(scope, items)
        except EngrainError as exc:
            _log.warning("the vector server still has what was removed, until it answers: %s", exc)
            return False

    def state(self) -> dict[str, Any]:
        return {} if self._feed is None else {**self._feed.state(), "fed": self._fed}

    def _work(self) -> None:
        pause = PAUSE
        while self._feed is not None and not self._stop.is_set():
            try:
                fed = self._feed.feed(BATCH)
            except StoreClosed:
                return
            except EngrainError as exc:
                # `status` says why, and how far behind the server stays meanwhile.
                _log.info("the vector server is fed again later: %s", exc)
                self._stop.wait(pause)
                pause = min(2 * pause, LONGEST_PAUSE)
                continue
            self._fed += fed
            pause = PAUSE
            if not fed:
                self._stop.wait(IDLE)
