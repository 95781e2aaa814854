"""Everything that is read from the items: by id, by page, by slot, by lineage, by change."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from engrain.core.clock import from_micros
from engrain.core.identity import Scope
from engrain.core.model.items import Citation, Item, Vectors
from engrain.ports import Changes, ItemChange, ItemCitation, ListQuery, OutboxEntry, OutdatedSpan, UnembeddedItem
from engrain.stores.relational.rows import read_items
from engrain.stores.sqlite.connection import Connection, Row
from engrain.stores.sqlite.filters import where_sql
from engrain.stores.sqlite.handle import Handle
from engrain.stores.sqlite.rows import as_json
from engrain.stores.sqlite.sql import load

_SQL = load("queries.sql")
_LAST = 2**63 - 1


class Reads(Handle):
    def moment(self) -> int:
        ((_, newest),) = self.snapshot(lambda db: db.rows(_SQL["counters"]))
        return int(newest)

    def get_many(self, scope: Scope, ids: Sequence[str]) -> list[Item]:
        def load(db: Connection) -> list[Item]:
            return read_items(db.rows(_SQL["items_by_id"], (self._scope(db, scope), as_json(ids))))

        by_id = {item.id: item for item in self._touches.shown(scope.id, self.snapshot(load))}
        return [by_id[one] for one in ids if one in by_id]

    def page(self, query: ListQuery) -> list[Item]:
        where, filters = where_sql(query.where)

        def load(db: Connection) -> list[Item]:
            number = self._scope(db, query.scope)
            if number is None:
                return []
            values = filters | {
                "scope": number,
                "history": query.history,
                "at": self._micros(db, query.at),
                "before": self._before(db, number, query.after),
                "limit": query.limit,
            }
            return read_items(db.rows(_SQL["page"].replace("{where}", where), values))

        return self._touches.shown(query.scope.id, self.snapshot(load))

    def _before(self, db: Connection, scope: int, after: str | None) -> int:
        if after is None:
            return _LAST
        rows = db.rows(_SQL["number_of"], {"scope": scope, "id": after})
        if not rows:
            rows = db.rows(_SQL["number_before"], (scope, after))
        return int(rows[0][0])

    def slots(self, scope: Scope, prefix: str, at: datetime | None) -> list[Item]:
        def load(db: Connection) -> list[Item]:
            values = {"scope": self._scope(db, scope), "prefix": prefix, "at": self._micros(db, at)}
            return read_items(db.rows(_SQL["slots"], values))

        return self._touches.shown(scope.id, self.snapshot(load))

    def slot(self, scope: Scope, name: str, at: datetime | None) -> Item | None:
        def load(db: Connection) -> list[Item]:
            values = {"scope": self._scope(db, scope), "slot": name, "at": self._micros(db, at)}
            return read_items(db.rows(_SQL["slot"], values))

        return next(iter(self._touches.shown(scope.id, self.snapshot(load))), None)

    def history(self, scope: Scope, slot: str) -> list[Item]:
        def load(db: Connection) -> list[Item]:
            return read_items(db.rows(_SQL["history"], (self._scope(db, scope), slot)))

        return self._touches.shown(scope.id, self.snapshot(load))

    def corrected(self, scope: Scope, id: str) -> list[Item]:
        def load(db: Connection) -> list[Item]:
            return read_items(db.rows(_SQL["corrected"], {"scope": self._scope(db, scope), "id": id}))

        return self._touches.shown(scope.id, self.snapshot(load))

    def count(self, query: ListQuery) -> int:
        where, filters = where_sql(query.where)

        def count(db: Connection) -> int:
            scope, at = self._scope(db, query.scope), self._micros(db, query.at)
            values = filters | {"scope": scope, "history": query.history, "at": at}
            ((found,),) = db.rows(_SQL["count"].replace("{where}", where), values)
            return int(found)

        return self.snapshot(count)

    def about(self, scope: Scope, entity: str, at: datetime | None) -> list[Item]:
        def load(db: Connection) -> list[Item]:
            values = {"scope": self._scope(db, scope), "name": entity.casefold(), "at": self._micros(db, at)}
            return read_items(db.rows(_SQL["about"], values))

        return self._touches.shown(scope.id, self.snapshot(load))

    def lineage(self, scope: Scope, ids: Sequence[str]) -> list[ItemCitation]:
        rows = self.snapshot(
            lambda db: db.rows(_SQL["lineage"], {"scope": self._scope(db, scope), "ids": as_json(ids)})
        )
        return [ItemCitation(item, Citation(cited, start, end)) for item, cited, start, end in rows]

    def outdated(self, scope: Scope, ids: Sequence[str]) -> list[OutdatedSpan]:
        def load(db: Connection) -> list[OutdatedSpan]:
            number, at = self._scope(db, scope), self._micros(db)
            rows = db.rows(_SQL["outdated"], {"scope": number, "ids": as_json(ids), "at": at})
            found = []
            for cited, start, end, until, item, slot in rows:
                where = {"scope": number, "at": at, "slot": slot, "n": item}
                holds = db.rows(_SQL["chain_end" if slot is None else "slot_holder"], where)
                found.append(OutdatedSpan(cited, start, end, from_micros(until), holds[0][0] if holds else None))
            return found

        order = {id_: place for place, id_ in reversed(list(enumerate(ids)))}
        return sorted(self.snapshot(load), key=lambda one: (order[one.id], one.start, one.end, one.until))

    def changes(self, scope: Scope, since: int, limit: int) -> Changes:
        def load(db: Connection) -> tuple[list[Row], int]:
            values = {"scope": self._scope(db, scope), "since": since, "limit": limit + 1}
            rows = db.rows(_SQL["changes"], values)
            ((seq, _),) = db.rows(_SQL["counters"])
            return rows, seq

        rows, seq = self.snapshot(load)
        found = tuple(ItemChange(changed, id_, bool(gone)) for changed, id_, gone in rows[:limit])
        if len(rows) <= limit:
            return Changes(max(since, seq), found)
        return Changes(found[-1].seq if found else since, found, complete=False)

    def scopes(self) -> list[Scope]:
        return [Scope(*names) for names in self.snapshot(lambda db: db.rows(_SQL["scopes"]))]

    def removed(self) -> list[str]:
        return [id_ for (id_,) in self.snapshot(lambda db: db.rows(_SQL["removed"]))]

    def newest(self, scope: Scope) -> int:
        ((seq, _),) = self.snapshot(lambda db: db.rows(_SQL["counters"]))
        return int(seq)

    def unembedded(self, model: str, limit: int) -> list[UnembeddedItem]:
        def load(db: Connection) -> list[Row]:
            known = db.rows(_SQL["model_number"], (model,))
            return db.rows(_SQL["unembedded"], {"model": known[0][0] if known else 0, "limit": limit})

        return [
            UnembeddedItem(Scope(tenant, agent, user), id_, text, kind, hash_.hex(), slot)
            for tenant, agent, user, id_, text, kind, hash_, slot in self.snapshot(load)
        ]

    def touch(self, scope: Scope, ids: Sequence[str]) -> None:
        at = self.snapshot(self._micros)
        if not self._site.read_only:
            self._touches.add(scope.id, dict.fromkeys(ids), at)

    def vectors(self, scope: Scope, ids: Sequence[str], model: str) -> dict[str, Vectors]:
        def load(db: Connection) -> list[Row]:
            values = {"scope": self._scope(db, scope), "ids": as_json(ids), "model": model}
            return db.rows(_SQL["vectors_of"], values)

        rows = self.snapshot(load)
        return {id: Vectors(model, _split(windows, 4 * dimension)) for id, dimension, windows in rows}

    def outbox(self, target: str, limit: int, scope: Scope | None = None) -> list[OutboxEntry]:
        def load(db: Connection) -> tuple[bool, list[Row]]:
            known = db.rows(_SQL["target"], (target,))
            values = {"since": known[0][0] if known else 0, "limit": limit, "scope": scope and scope.id}
            ((newest, _),) = db.rows(_SQL["counters"])
            # Mostly there is nothing: a look at every scope would take longer, the more there are.
            return bool(known), db.rows(_SQL["outbox"], values) if newest > values["since"] else []

        known, rows = self.snapshot(load)
        if not known:
            self.transaction(lambda db: db.run(_SQL["add_target"], (target,)))
        return [OutboxEntry(seq, Scope(*owner), item, bool(gone)) for seq, item, gone, *owner in rows]

    def settle(self, target: str, seq: int) -> None:
        self.transaction(lambda db: db.run(_SQL["settle"], {"name": target, "seq": seq}))


def _split(windows: bytes, size: int) -> tuple[bytes, ...]:
    return tuple(windows[start : start + size] for start in range(0, len(windows), size))
