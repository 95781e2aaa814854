"""Named statements, from the .sql files beside this one."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from engrain.stores.relational.rows import EPISODE_COLUMNS, TASK_COLUMNS
from engrain.stores.sql import statements
from engrain.stores.sqlite.fragments import ITEM, SOURCES

VISIBLE = (
    "item.retracted_at is null and item.valid_from <= :at and (item.valid_to is null or :at < item.valid_to) "
    "and (item.expires_at is null or :at < item.expires_at)"
)


@cache
def load(name: str) -> Mapping[str, str]:
    """{item} and {episode} stand for the columns of one, {visible} for the test that an item holds at :at."""
    parts = {"item": ITEM, "sources": SOURCES, "episode": EPISODE_COLUMNS, "task": TASK_COLUMNS, "visible": VISIBLE}
    return statements("engrain.stores.sqlite", name, parts)
