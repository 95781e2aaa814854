"""Count what a memory holds besides items."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from engrain.core.errors import StoreError
from engrain.core.identity import Scope
from engrain.core.model.filters import parse_filter
from engrain.core.model.queries import ListQuery
from engrain.core.model.tasks import TaskQuery
from engrain.ports import Services

MOST = 1_000  # to count further would read all of it


def held(services: Services, scope: Scope) -> dict[str, int | None]:
    """How many of each; None where the store that has them does not answer, or there is none for them."""
    book, journal = services.episodes, services.journal
    ways = ListQuery(scope, parse_filter({"kind": "procedure"}))
    counts: Mapping[str, Callable[[], Any]] = {
        "sessions": lambda: len(services.log.sessions(scope, MOST)),
        "episodes": lambda: book and len(book.recent(scope, None, MOST, services.clock())),
        "procedures": lambda: services.items.count(ways),
        "tasks": lambda: journal and len(journal.tasks(TaskQuery(scope, (), limit=MOST))),
    }
    return {name: _counted(count) for name, count in counts.items()}


def under_way(services: Services) -> list[dict[str, Any]]:
    """The erasures that are not complete yet, whoever began them: nobody finds the data, and its bytes may be there."""
    try:
        running = services.erasing.running() if services.erasing else []
    except StoreError:
        return []
    return [{"id": one.id, "by": one.by, "stage": one.stage, "since": one.at} for one in running]


def _counted(count: Callable[[], Any]) -> int | None:
    try:
        found = count()
    except StoreError:
        return None
    return found if isinstance(found, int) else None
