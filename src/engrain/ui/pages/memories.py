"""The memories of the store, to switch between them."""

from __future__ import annotations

import time

from starlette.responses import Response

from engrain import MemoryInfo
from engrain.ui.addresses import write_owner
from engrain.ui.page_request import Visit, describe_owner

MAX_SHOWN = 60
CACHE_SECONDS = 5.0


def show_memories(visit: Visit) -> Response:
    """The memories whose name has the searched words, the largest first."""
    wanted = visit.query("text").lower()
    found = [
        (scope, info, write_owner(scope))
        for info in _list_memories(visit)
        if wanted in describe_owner(scope := info.scope).lower()
    ]
    found.sort(key=lambda pair: (-pair[1].items, str(pair[0])))
    return visit.fragment(
        "_memories.html", memories=found[:MAX_SHOWN], more=max(0, len(found) - MAX_SHOWN), text=visit.query("text")
    )


def _list_memories(visit: Visit) -> list[MemoryInfo]:
    """Counting the items of many memories takes a while; each letter of a search must not repeat it."""
    at, known = visit.ui.cache.get("memories", (0.0, []))
    if time.monotonic() - at > CACHE_SECONDS:
        known = visit.store.memories()
        visit.ui.cache["memories"] = (time.monotonic(), known)
    return list(known)
