"""Say how an opened store stands."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import Any

from engrain.core.errors import StoreError
from engrain.core.identity import Scope
from engrain.core.model.filters import parse_filter
from engrain.core.model.queries import ListQuery
from engrain.core.model.results import Status
from engrain.core.model.tasks import TaskQuery
from engrain.maintenance.clock_guard import memories
from engrain.maintenance.workers import Workers
from engrain.ports import Services
from engrain.privacy.holds import find_hold

MOST = 1_000  # to count further would read all of it
_PROCEDURES = parse_filter({"kind": "procedure"})


def read_status(workers: Workers, scope: Scope | None) -> Status:
    """Of one memory in its store, or of the whole store."""
    services = workers.services
    model = services.embedder.model
    store = services.items.status(model.key)
    background = background_state(workers)
    if scope is None:
        counts = {"memories": len(memories(services))}
        return Status("", store.open_items, asdict(store), asdict(model), background, workers.model_use(), counts)
    items = services.items.count(ListQuery(scope))
    hold = find_hold(services, scope)
    counts_of = count_parts(services, scope)
    return Status(str(scope), items, asdict(store), asdict(model), background, workers.model_use(), counts_of, hold)


def background_state(workers: Workers) -> dict[str, Any]:
    """The workers, the running erasures, and the servers that do not answer."""
    services = workers.services
    return {
        **workers.state(),
        "erasures": running_erasures(services),
        "away": {one.where: one.trouble for one in services.servers if one.trouble},
    }


def count_parts(services: Services, scope: Scope) -> dict[str, int | None]:
    """Sessions, episodes, procedures and tasks; None where the store that has them does not answer, or is none."""
    episodes, journal = services.episodes, services.journal
    counts: Mapping[str, Callable[[], Any]] = {
        "sessions": lambda: len(services.log.sessions(scope, MOST)),
        "episodes": lambda: episodes and len(episodes.recent(scope, None, MOST, services.clock())),
        "procedures": lambda: services.items.count(ListQuery(scope, _PROCEDURES)),
        "tasks": lambda: journal and len(journal.tasks(TaskQuery(scope, (), limit=MOST))),
    }
    return {name: _counted(count) for name, count in counts.items()}


def running_erasures(services: Services) -> list[dict[str, Any]]:
    """Those that are not complete yet, whoever began them: nobody finds the data, and its bytes may be there."""
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
