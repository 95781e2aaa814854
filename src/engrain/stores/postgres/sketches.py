"""Load what ranking needs to know of items, without their texts."""

from __future__ import annotations

from datetime import datetime
from typing import Any

from engrain.core.identity import Scope
from engrain.core.model.filters import Filter
from engrain.core.model.queries import Sketch, SketchQuery
from engrain.stores.postgres.dialect import PostgresDialect
from engrain.stores.postgres.filters import build_where
from engrain.stores.relational.rows import Row, write_time


class SketchSearch:
    dialect: PostgresDialect

    def speakers(self, scope: Scope) -> frozenset[str]:
        return frozenset(name for (name,) in self.dialect.ask(scope, "list_speakers"))

    def sketches(self, query: SketchQuery) -> list[Sketch]:
        asked = {"ids": query.ids, "reach": query.reach, "at": write_time(query.at)}
        return [_read_sketch(row) for row in self._ask_where(query.scope, "load_sketches", query.where, asked)]

    def having(self, scope: Scope, traits: int, where: Filter | None, limit: int, at: datetime | None) -> list[str]:
        asked = {"traits": traits, "limit": limit, "at": write_time(at)}
        return [id_ for (id_,) in self._ask_where(scope, "list_items_with_traits", where, asked)]

    def _ask_where(self, scope: Scope, statement: str, where: Filter | None, asked: dict[str, Any]) -> list[Row]:
        test, values = build_where(where)
        return self.dialect.ask(scope, self.dialect.statements[statement].fill(where=test), **asked, **values)


def _read_sketch(row: Row) -> Sketch:
    values = list(row)
    values[6] /= 1e6
    return Sketch(*values)
