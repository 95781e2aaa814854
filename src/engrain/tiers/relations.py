"""Relations between two entities: Ana works at Acme."""

from __future__ import annotations

import builtins
from collections.abc import Mapping
from typing import Any

from engrain.core.clock import Time
from engrain.core.identity import Scope
from engrain.core.model.filters import parse_filter
from engrain.core.model.items import Item, Note, Relation, Source
from engrain.core.validation import MAX_BATCH, check_count, check_key
from engrain.ports import ListQuery, Services
from engrain.tiers.semantic import SemanticMemory
from engrain.tiers.slots import moment_of

_RELATIONS = parse_filter({"kind": "relation"})


class Relations:
    """The relations of one scope. Each is an item whose text is the three words."""

    def __init__(self, services: Services, scope: Scope) -> None:
        self._services = services
        self._scope = scope

    def add(
        self,
        subject: str,
        relation: str,
        object: str,
        *,
        importance: float = 0.5,
        metadata: Mapping[str, Any] | None = None,
        source: str | Source | None = None,
        request_id: str | None = None,
    ) -> str:
        """Keep a relation: relations.add("Ana", "works at", "Acme"). Returns its id."""
        between = Relation(subject, relation, object)
        note = Note(f"{subject} {relation} {object}", importance, None, metadata, source, relation=between)
        return SemanticMemory(self._services, self._scope).remember(note, request_id)

    def about(self, entity: str, *, as_of: Time | None = None) -> builtins.list[Item]:
        """The relations that an entity is part of, newest first."""
        return self._services.items.about(self._scope, check_key(entity, "entity"), moment_of(as_of))

    def list(self, *, as_of: Time | None = None, limit: int = 100, after: str | None = None) -> builtins.list[Item]:
        """All relations, newest first. For the next page pass the last id as `after`."""
        check_count(limit, "limit", 1, MAX_BATCH)
        query = ListQuery(self._scope, _RELATIONS, moment_of(as_of), False, limit, after)
        return self._services.items.page(query)
