"""Named statements, from the .sql files beside this one."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from engrain.stores.postgres.fragments import ITEM
from engrain.stores.relational.rows import EPISODE_COLUMNS, TASK_COLUMNS
from engrain.stores.sql import statements

VISIBLE = (
    "item.retracted_at is null and item.valid_from <= %(at)s and (item.valid_to is null or %(at)s < item.valid_to) "
    "and (item.expires_at is null or %(at)s < item.expires_at)"
)
_PARTS = {"item": ITEM, "visible": VISIBLE, "task": TASK_COLUMNS, "episode": EPISODE_COLUMNS}


@cache
def load(name: str) -> Mapping[str, str]:
    """{item}, {task} and {episode} stand for the columns of one, {visible} for the test that an item holds at `at`."""
    return statements("engrain.stores.postgres", name, _PARTS)
