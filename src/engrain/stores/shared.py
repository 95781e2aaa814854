"""One connection to a vector server for all memories of a process that use it."""

from __future__ import annotations

import threading
from collections.abc import Callable

from engrain.ports import VectorServer

_guard = threading.Lock()
_open: dict[str, tuple[VectorServer, int]] = {}


def borrow(key: str, make: Callable[[], VectorServer]) -> VectorServer:
    """The one that is open under this key, or a new one; each borrower gives it back once."""
    with _guard:
        server, users = _open.get(key) or (make(), 0)
        _open[key] = server, users + 1
        return server


def give_back(key: str) -> None:
    """The last one closes it."""
    with _guard:
        server, users = _open.pop(key)
        if users > 1:
            _open[key] = server, users - 1
        else:
            server.close()
