"""Everything that is read from the items: by id, by page, by slot, by lineage, by change."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from engrain.core.clock import from_micros
from engrain.core.identity import Scope
from engrain.core.model.filters import Filter
from engrain.core.model.items import Citation, Item, Vectors
from engrain.ports import (
    Changes,
    ItemChange,
    ItemCitation,
    ListQuery,
    OutboxEntry,
    OutdatedSpan,
    Sketch,
    SketchQuery,
    UnembeddedItem,
)
from engrain.stores.postgres.arrays import sent_vector
from engrain.stores.postgres.filters import where_sql
from engrain.stores.postgres.handle import Handle
from engrain.stores.postgres.link import Db, Row
from engrain.stores.postgres.rows import item_of
from engrain.stores.postgres.sql import load

_SQL = load("queries.sql")
_MOST_TOUCHES = 1_000


class Reads(Handle):
    def moment(self) -> int:
        return int(self._asked(None, _SQL["last_moment"])[0][0])

    def get_many(self, scope: Scope, ids: Sequence[str]) -> list[Item]:
        found = self._items(scope, "items_by_id", (scope.id, list(ids)))
        by_id = {item.id: item for item in found}
        return [by_id[one] for one in ids if one in by_id]

    def page(self, query: ListQuery) -> list[Item]:
        more = {"after": query.after, "limit": query.limit}
        return self._shown(query.scope, self._listed(query, "page", more))

    def count(self, query: ListQuery) -> int:
        ((found,),) = self._listed(query, "count", {})
        return int(found)

    def _listed(self, query: ListQuery, name: str, more: Mapping[str, Any]) -> list[Row]:
        where, values = where_sql(query.where)
        asked = {**values, **more, "scope": query.scope.id, "history": query.history}
        return self._asked_at(query.scope, _SQL[name].replace("{where}", where), asked, query.at)

    def slots(self, scope: Scope, prefix: str, at: datetime | None) -> list[Item]:
        return self._items_at(scope, "slots", {"prefix": prefix}, at)

    def slot(self, scope: Scope, name: str, at: datetime | None) -> Item | None:
        return next(iter(self._items_at(scope, "slot", {"slot": name}, at)), None)

    def history(self, scope: Scope, slot: str) -> list[Item]:
        return self._items(scope, "history", (scope.id, slot))

    def corrected(self, scope: Scope, id: str) -> list[Item]:
        return self._items(scope, "corrected", {"scope": scope.id, "id": id})

    def about(self, scope: Scope, entity: str, at: datetime | None) -> list[Item]:
        return self._items_at(scope, "about", {"name": entity.casefold()}, at)

    def lineage(self, scope: Scope, ids: Sequence[str]) -> list[ItemCitation]:
        values = {"scope": scope.id, "ids": list(ids)}
        rows = self._asked(scope, _SQL["lineage"], values)
        return [ItemCitation(item, Citation(cited, start, end)) for item, cited, start, end in rows]

    def speakers(self, scope: Scope) -> frozenset[str]:
        rows = self._asked(scope, _SQL["speakers"], {"scope": scope.id})
        return frozenset(name for (name,) in rows)

    def sketches(self, query: SketchQuery) -> list[Sketch]:
        where, values = where_sql(query.where)
        asked = {**values, "scope": query.scope.id, "ids": list(query.ids), "reach": query.reach}
        statement = _SQL["sketches"].replace("{where}", where)
        return [_sketch(row) for row in self._asked_at(query.scope, statement, asked, query.at)]

    def having(self, scope: Scope, traits: int, where: Filter | None, limit: int, at: datetime | None) -> list[str]:
        test, values = where_sql(where)
        asked = {**values, "scope": scope.id, "traits": traits, "limit": limit}
        rows = self._asked_at(scope, _SQL["having"].replace("{where}", test), asked, at)
        return [id_ for (id_,) in rows]

    def outdated(self, scope: Scope, ids: Sequence[str]) -> list[OutdatedSpan]:
        found = []
        for cited, start, end, until, item, slot in self._asked_at(
            scope, _SQL["outdated"], {"scope": scope.id, "ids": list(ids)}
        ):
            name, more = ("chain_end", {"n": item}) if slot is None else ("slot_holder", {"slot": slot})
            holds = self._asked_at(scope, _SQL[name], {"scope": scope.id, **more})
            found.append(OutdatedSpan(cited, start, end, from_micros(until), holds[0][0] if holds else None))
        order = {id_: place for place, id_ in reversed(list(enumerate(ids)))}
        return sorted(found, key=lambda one: (order[one.id], one.start, one.end, one.until))

    def changes(self, scope: Scope, since: int, limit: int) -> Changes:
        def do(db: Db) -> tuple[list[Row], int]:
            rows = db.rows(_SQL["changes"], {"scope": scope.id, "since": since, "limit": limit + 1})
            newest = db.rows(_SQL["scope_seq"], (scope.id,))
            return rows, newest[0][0] if newest else 0

        rows, seq = self._reading(scope, do)
        found = tuple(ItemChange(changed, id_, gone) for changed, id_, gone in rows[:limit])
        if len(rows) <= limit:
            return Changes(max(since, seq), found)
        return Changes(found[-1].seq if found else since, found, complete=False)

    def scopes(self) -> list[Scope]:
        return [Scope(*names) for names in self._asked(None, _SQL["scopes"], ())]

    def removed(self) -> list[str]:
        return [id_ for (id_,) in self._asked(None, _SQL["removed"])]

    def newest(self, scope: Scope) -> int:
        found = self._asked(scope, _SQL["scope_seq"], (scope.id,))
        return int(found[0][0]) if found else 0

    def unembedded(self, model: str, limit: int) -> list[UnembeddedItem]:
        rows = self._asked(None, _SQL["unembedded"], {"model": model, "limit": limit})
        return [
            UnembeddedItem(Scope(tenant, agent, user), id_, text, kind, hash_.hex(), slot)
            for tenant, agent, user, id_, text, kind, hash_, slot in rows
        ]

    def vectors(self, scope: Scope, ids: Sequence[str], model: str) -> dict[str, Vectors]:
        values = {"scope": scope.id, "ids": list(ids), "model": model}
        windows: dict[str, tuple[bytes, ...]] = {}
        for id_, sent in self._asked(scope, _SQL["vectors_of"], values):
            windows[id_] = (*windows.get(id_, ()), sent_vector(sent).astype("<f4").tobytes())
        return {id_: Vectors(model, rows) for id_, rows in windows.items()}

    def touch(self, scope: Scope, ids: Sequence[str]) -> None:
        ((at,),) = self._asked(scope, _SQL["moment"], (self._clock_micros(),))
        if not self._read_only and self._touches.add(scope, dict.fromkeys(ids), at) > _MOST_TOUCHES:
            self._write_touches(scope)

    def outbox(self, target: str, limit: int, scope: Scope | None = None) -> list[OutboxEntry]:
        def do(db: Db) -> tuple[list[Row], bool]:
            known = db.rows(_SQL["target"], (target,))
            ((upto,),) = db.rows(_SQL["settled"])
            values = {"since": known[0][0] if known else 0, "upto": upto, "limit": limit}
            return db.rows(_SQL["outbox"], {**values, "scope": scope and scope.id}), bool(known)

        # Not one snapshot: the rows must be read after the number up to which they are complete. Of one scope under its
        # policy: a role that may not look through all of them still finds what the server has not taken yet.
        rows, known = self._reading(scope, do, mode="look")
        if not known:
            self._writing(None, lambda db: db.run(_SQL["add_target"], (target,)), "repeat")
        return [OutboxEntry(seq, Scope(*owner), item, gone) for seq, item, gone, *owner in rows]

    def settle(self, target: str, seq: int) -> None:
        self._writing(None, lambda db: db.run(_SQL["settle"], {"name": target, "seq": seq}), "repeat")

    def _items_at(self, scope: Scope, name: str, values: Mapping[str, Any], at: datetime | None) -> list[Item]:
        return self._shown(scope, self._asked_at(scope, _SQL[name], {**values, "scope": scope.id}, at))

    def _items(self, scope: Scope, name: str, values: Any) -> list[Item]:
        return self._shown(scope, self._asked(scope, _SQL[name], values))

    def _shown(self, scope: Scope, rows: Sequence[Row]) -> list[Item]:
        return self._touches.shown(scope, [item_of(row) for row in rows])


def _sketch(row: Row) -> Sketch:
    values = list(row)
    values[6] /= 1e6
    return Sketch(*values)
