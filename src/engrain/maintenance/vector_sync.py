"""Send changes to the vector server, in the background while the store is open."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Collection
from functools import partial
from typing import Any

from engrain.core.errors import EngrainError, StoreClosed, raise_interrupt, tolerate
from engrain.core.identity import Scope
from engrain.ports.search import Feed

BATCH_SIZE = 256
POLL_SECONDS = 0.5  # between two reads of the outbox
FIRST_PAUSE_SECONDS, MAX_PAUSE_SECONDS = 0.5, 30.0
STOP_TIMEOUT_SECONDS = 2.0  # closing gives this long to the rest of the outbox

_log = logging.getLogger("engrain")


def push_changes(feed: Feed | None, scope: Scope, items: Collection[str]) -> bool:
    """Send everything to the vector server now. False if these items are still to come.

    The server may be unavailable or far behind, or the store's role may not read all scopes.
    """
    try:
        return feed is None or (_send_all(feed) and not feed.lacks(scope, items))
    except EngrainError as exc:
        raise_interrupt(exc)
        _log.warning("the vector server still has removed items, until it answers: %s", exc)
        return False


def _send_all(feed: Feed) -> bool:
    """Send the outbox; False if the time is up before it is empty."""
    ends = time.monotonic() + STOP_TIMEOUT_SECONDS
    while time.monotonic() < ends:
        if not feed.feed(BATCH_SIZE):
            return True
    return False


class VectorSync:
    """One thread. It can be stopped at any time: the item store records what the server has."""

    def __init__(self, feed: Feed | None, enabled: bool) -> None:
        self._feed = feed
        self._enabled = enabled and feed is not None
        self._stop = threading.Event()
        self._sent = 0
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        if self._enabled:
            self._thread = threading.Thread(target=self._work, name="engrain-feed", daemon=True)
            self._thread.start()

    def stop(self) -> None:
        """Stop the thread and send the rest: a short program may end before the first poll."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join()
        with tolerate(EngrainError, report=partial(_log.info, "the rest goes to the vector server another time: %s")):
            if self._feed is not None:
                _send_all(self._feed)

    def state(self) -> dict[str, Any]:
        return {} if self._feed is None else {**self._feed.state(), "fed": self._sent}

    def _work(self) -> None:
        pause = FIRST_PAUSE_SECONDS
        while self._feed is not None and not self._stop.is_set():
            try:
                sent = self._feed.feed(BATCH_SIZE)
            except StoreClosed:
                return
            except EngrainError as exc:
                # `status` reports the error, and how far behind the server is.
                _log.info("the vector server is tried again later: %s", exc)
                self._stop.wait(pause)
                pause = min(2 * pause, MAX_PAUSE_SECONDS)
                continue
            self._sent += sent
            pause = FIRST_PAUSE_SECONDS
            if not sent:
                self._stop.wait(POLL_SECONDS)
