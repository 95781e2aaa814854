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
# What episodes.py reads, in its order.
EPISODE = (
    "episode.id, episode.session, episode.kind, episode.text, episode.importance, episode.happened_at, "
    "episode.expires_at, episode.count, episode.data, (select item.id from item where item.n = episode.item), "
    "episode.key"
)


@cache
def load(name: str) -> Mapping[str, str]:
    """{item} and {episode} stand for the columns of one, {visible} for the test that an item holds at :at."""
    return statements("engrain.stores.sqlite", name, {"item": ITEM, "episode": EPISODE, "visible": VISIBLE})
