"""Named statements, from the .sql files beside this one."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache

from engrain.stores.sql import statements

# What rows.py reads, in its order. Sources come along as JSON: [[kind, name, [[cited, start, end], …]], …].
ITEM = """item.n, item.id, item.kind, item.text, item.importance, item.recorded_at, item.valid_from, item.valid_to,
  item.occurred_at, item.slot, item.metadata, item.trust, item.session, item.place, item.speaker, item.role,
  item.subject, item.relation, item.object, item.pinned, item.replaced_by, item.retracted_at, item.expires_at,
  item.access_count, item.last_accessed,
  (select json_agg(json_build_array(source.kind, source.name,
      (select json_agg(json_build_array(cited.id, cite."from", cite."to") order by cite.n)
        from cite join item as cited on cited.n = cite.cited
        where cite.item = source.item and cite.number = source.number))
    order by source.number) from source where source.item = item.n)"""
VISIBLE = (
    "item.retracted_at is null and item.valid_from <= %(at)s and (item.valid_to is null or %(at)s < item.valid_to) "
    "and (item.expires_at is null or %(at)s < item.expires_at)"
)
TASK = (
    'task.n, scope.tenant, scope.agent, scope."user", task.task, goal, version, status, epoch, worker, until, '
    "started_at, ended_at, outcome, deadline, snapshot.body, until_mark"
)
EPISODE = "id, session, kind, text, importance, happened_at, expires_at, count, data, item, key"
_PARTS = {"item": ITEM, "visible": VISIBLE, "task": TASK, "episode": EPISODE}


@cache
def load(name: str) -> Mapping[str, str]:
    """{item}, {task} and {episode} stand for the columns of one, {visible} for the test that an item holds at `at`."""
    return statements("engrain.stores.postgres", name, _PARTS)
