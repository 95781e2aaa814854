"""Repositories of connected coding agents: what is kept of each, and what a session there is told."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import datetime

from starlette.responses import Response

from engrain import Item, Scope
from engrain.ui.addresses import write_owner
from engrain.ui.page_request import Visit

MAX_SHOWN = 60
MAX_READ = 300
MAX_RULES = 5
KIND = "coding"  # the key of metadata by which `engrain connect` names what it kept
TOLD = ("rule", "correction", "decision")


@dataclass(frozen=True)
class Repository:
    """A repository, the number of its items, and the newest of what holds in it."""

    scope: Scope
    address: str
    items: int
    counts: list[tuple[str, int]]
    rules: list[Item]
    last_at: datetime | None


def show_repositories(visit: Visit) -> Response:
    named = [info for info in visit.store.memories() if info.agent]
    named.sort(key=lambda info: -info.items)
    found = [repository for info in named[:MAX_SHOWN] if (repository := _read(visit, info.scope, info.items))]
    found.sort(key=lambda repository: repository.last_at.timestamp() if repository.last_at else 0, reverse=True)
    return visit.page("repositories.html", repositories=found, more=len(named) > MAX_SHOWN, most=MAX_SHOWN)


def _read(visit: Visit, scope: Scope, items: int) -> Repository | None:
    """Read the newest facts; None for the memory of an agent that is not about a repository."""
    memory = visit.store.memory(user=scope.user, agent=scope.agent, tenant=scope.tenant)
    facts = memory.list({"kind": "fact", f"metadata.{KIND}": {"exists": True}}, limit=MAX_READ)
    newest = next(iter(memory.list(limit=1)), None)
    is_coding = bool(facts) or (newest is not None and "client" in newest.metadata)
    if newest is None or not is_coding:
        return None
    counts = Counter(str(item.metadata[KIND]) for item in facts).most_common()
    rules = [item for item in facts if item.metadata[KIND] in TOLD][:MAX_RULES]
    return Repository(scope, f"/{write_owner(scope)}", items, counts, rules, newest.recorded_at)
