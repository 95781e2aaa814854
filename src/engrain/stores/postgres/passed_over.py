"""Look for rows that an erasure has passed over: of a scope by the tables that there are, of a part by query."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from engrain.core.clock import to_micros
from engrain.core.model.erasure import Erasure, Impact, Subject, first_summary_version
from engrain.stores.postgres.link import Db
from engrain.stores.postgres.sql import load

_SQL = load("erasing.sql")


def put_aside(db: Db, new: Sequence[str], old: Sequence[str]) -> None:
    """A user who comes back does not meet them, and the look afterwards does."""
    moved = (
        "update {0} set scope = pair.new from unnest(%s::uuid[], %s::uuid[]) as pair (new, old) where scope = pair.old"
    )
    for (table,) in db.rows(_SQL["scoped"]):
        db.run(moved.format(table), (list(new), list(old)))


def passed_over(db: Db, ids: Sequence[str]) -> dict[str, int]:
    """Not by the list that the erasure goes by: that is what is to be checked."""
    sql = "select count(*) from {} where scope = any(%s::uuid[])"
    return {table: db.rows(sql.format(table), (list(ids),))[0][0] for (table,) in db.rows(_SQL["scoped"])}


def left_of(db: Db, reach: Impact, part: Subject, erasure: Erasure) -> dict[str, int]:
    """Of what is in reach of a part now, how much is from before its erasure."""
    scope, at = part.scope.id, to_micros(erasure.at)
    named = {"item": reach.ids, "source": reach.kept}
    left = {kind: db.rows(_SQL["old_items"], (scope, list(ids), at))[0][0] for kind, ids in named.items()}
    if part.by == "session":
        values = {
            "scope": scope,
            "session": part.name,
            "mark": erasure.mark,
            "at": at,
            "version": first_summary_version(at),
        }
        left |= dict(db.rows(_SQL["session_left"], values))
    return left


def add(total: dict[str, int], more: Mapping[str, int]) -> None:
    for kind, count in more.items():
        total[kind] = total.get(kind, 0) + count
