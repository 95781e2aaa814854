"""Named statements, from the .sql files beside this one."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from engrain.stores.sql import statements

# What rows.py reads, in its order.
ITEM = (
    "item.n, item.id, item.kind, item.text, item.importance, item.recorded_at, item.valid_from, item.valid_to, "
    "item.occurred_at, item.slot, item.metadata, item.trust, item.session, item.place, item.speaker, item.role, "
    "item.subject, item.relation, item.object, item.pinned, item.replaced_by, item.retracted_at, item.expires_at, "
    "item.access_count, item.last_accessed"
)
VISIBLE = (
    "item.retracted_at is null and item.valid_from <= :at and (item.valid_to is null or :at < item.valid_to) "
    "and (item.expires_at is null or :at < item.expires_at)"
)


@cache
def load(name: str) -> Mapping[str, str]:
    """{item} stands for the columns of an item, {visible} for the test that it holds at :at."""
    return statements("engrain.stores.sqlite", name, {"item": ITEM, "visible": VISIBLE})
