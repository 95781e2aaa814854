"""Report the status of an opened store."""

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
from engrain.maintenance.passes import list_scopes
from engrain.maintenance.workers import Workers
from engrain.ports import Services
from engrain.privacy.erasure_requests import find_hold

MAX_COUNT = 1_000  # counting further would read everything
_PROCEDURES = parse_filter({"kind": "procedure"})


def read_status(workers: Workers, scope: Scope | None) -> Status:
    """Return the status of one scope, or of the whole store."""
    services = workers.services
    model = services.embedder.model
    store = services.items.status(model.key)
    background = read_background_state(workers)
    if scope is None:
        counts = {"memories": len(list_scopes(services))}
        return Status("", store.open_items, asdict(store), asdict(model), background, workers.model_use(), counts)
    items = services.items.count(ListQuery(scope))
    hold = find_hold(services, scope)
    counts_of = count_parts(services, scope)
    return Status(str(scope), items, asdict(store), asdict(model), background, workers.model_use(), counts_of, hold)


def read_background_state(workers: Workers) -> dict[str, Any]:
    """Return the state of the workers, the running erasures, and the servers that do not answer."""
    services = workers.services
    return {
        **workers.state(),
        "erasures": list_running_erasures(services),
        "unavailable": {server.where: server.last_error for server in services.servers if server.last_error},
    }


def count_parts(services: Services, scope: Scope) -> dict[str, int | None]:
    """Count what a scope has besides items; None if its store does not answer or does not exist."""
    episodes, journal, records = services.episodes, services.journal, services.records
    counts: Mapping[str, Callable[[], Any]] = {
        "sessions": lambda: len(services.log.sessions(scope, MAX_COUNT)),
        "episodes": lambda: episodes and len(episodes.recent(scope, None, MAX_COUNT, services.clock())),
        "procedures": lambda: services.items.count(ListQuery(scope, _PROCEDURES)),
        "records": lambda: records and records.count(scope),
        "tasks": lambda: journal and len(journal.tasks(TaskQuery(scope, (), limit=MAX_COUNT))),
    }
    return {name: _count_or_none(count) for name, count in counts.items()}


def list_running_erasures(services: Services) -> list[dict[str, Any]]:
    """List the incomplete erasures: nobody finds the data any more, but its bytes may still exist."""
    try:
        running = services.erasing.running() if services.erasing else []
    except StoreError:
        return []
    return [{"id": erasure.id, "by": erasure.by, "stage": erasure.stage, "since": erasure.at} for erasure in running]


def _count_or_none(count: Callable[[], Any]) -> int | None:
    try:
        found = count()
    except StoreError:
        return None
    return found if isinstance(found, int) else None
