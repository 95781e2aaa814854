"""The fragments of shared statements in Postgres."""

from __future__ import annotations

from engrain.stores.relational.rows import EPISODE_COLUMNS, ITEM_COLUMNS, STEP_COLUMNS, TASK_COLUMNS
from engrain.stores.relational.statements import Syntax

# As rows.read_sources reads them.
SOURCES = """(select json_agg(json_build_array(source.kind, source.name,
      (select json_agg(json_build_array(cited.id, citation.span_start, citation.span_end) order by citation.n)
        from citation join item as cited on cited.scope = citation.scope and cited.n = citation.cited
        where citation.scope = source.scope and citation.item = source.item and citation.number = source.number))
    order by source.number) from source where source.scope = item.scope and source.item = item.n)"""
ITEM = f"{ITEM_COLUMNS},\n  {SOURCES}"
_NOW = """greatest(coalesce(cast(:clock as bigint),
  (extract(epoch from statement_timestamp()) * 1000000)::bigint), last_value)"""
_SERVER_CLOCK = "(extract(epoch from clock_timestamp()) * 1000000)::bigint"
_VISIBLE = """item.retracted_at is null and item.valid_from <= {at} and (item.valid_to is null or {at} < item.valid_to)
  and (item.expires_at is null or {at} < item.expires_at)"""
SYNTAX = Syntax(
    "engrain.stores.postgres",
    {
        "item": ITEM,
        "sources": SOURCES,
        "episode": EPISODE_COLUMNS,
        "task": TASK_COLUMNS,
        "step": STEP_COLUMNS,
        "visible": _VISIBLE,
        # At a moment that is known already.
        "visible_at": _VISIBLE.replace("{at}", "cast(:at as bigint)"),
        # One moment for all of the statement.
        "at": f"(select coalesce(cast(:at as bigint), {_NOW}) from clock)",
        "now": f"(select {_NOW} from clock)",
        # The time to record.
        "tick": "tick(cast(:clock as bigint))",
        "wall_clock": f"coalesce(cast(:clock as bigint), {_SERVER_CLOCK})",
        "lease_clock": f"case when cast(:clock as bigint) is null then {_SERVER_CLOCK} end",
        "may_be_stale": "coalesce(lease_clock <= {lease_clock}, lease_until <= {now}, false)",
        "change": "nextval('change')",
        "in": "= any(:$)",
        "not_in": "<> all(:$)",
        "scope_in": "= any(cast(:$ as uuid[]))",
        "not_scope_in": "<> all(cast(:$ as uuid[]))",
        "scope_ids": "= any(cast(:$ as uuid[]))",
        # The scope's column of the table itself, so that its own index gives the order.
        "scope_order": "$.scope",
        "scope_value": "cast(:$ as uuid)",
        "scope_key": "replace(cast($.scope as text), '-', '')",
        "within": "scope.state = 0 and (cast(:within as uuid) is null or $.scope = cast(:within as uuid))",
        "index_columns": ", words, filters",
        "index_values": ", :words, cast(:filters as jsonb)",
        "index_update": ", words = excluded.words, filters = excluded.filters",
        "item_id": "(scope, id)",
        "find_text": "strpos",
        "ordered_join": "join",
        "same": "is not distinct from",
        "greatest": "greatest",
        "least": "least",
        "for_update": "for update",
        "skip_locked": "for update skip locked",
        "+": "",
        "intact": "true",  # a server has checksums of its pages
        "indexed_by": "",
    },
    pyformat=True,
)
