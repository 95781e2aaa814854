"""Everything that is read from the items: by id, by page, by slot, by lineage, by change."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from engrain.core.clock import from_micros
from engrain.core.identity import Scope
from engrain.core.model.items import Citation, Item, Vectors
from engrain.ports import Changes, ItemChange, ItemCitation, ListQuery, OutboxEntry, OutdatedSpan, UnembeddedItem
from engrain.stores.sqlite.engine import Connection
from engrain.stores.sqlite.filters import where_sql
from engrain.stores.sqlite.handle import Handle
from engrain.stores.sqlite.rows import as_json, items_of
from engrain.stores.sqlite.sql import load

_SQL = load("queries.sql")
_LAST = 2**63 - 1


class Reads(Handle):
    def moment(self) -> int:
        with self._reading() as db:
            ((_, newest),) = db.rows(_SQL["counters"])
            return int(newest)

    def get_many(self, scope: Scope, ids: Sequence[str]) -> list[Item]:
        with self._reading() as db:
            number = self._scope(db, scope)
            if number is None:
                return []
            found = items_of(db, db.rows(_SQL["items_by_id"], (number, as_json(ids))))
        by_id = {item.id: item for item in self._touches.shown(scope.id, found)}
        return [by_id[one] for one in ids if one in by_id]

    def page(self, query: ListQuery) -> list[Item]:
        where, values = where_sql(query.where)
        with self._reading() as db:
            number = self._scope(db, query.scope)
            if number is None:
                return []
            values |= {
                "scope": number,
                "history": query.history,
                "at": self._micros(db, query.at),
                "before": self._before(db, number, query.after),
                "limit": query.limit,
            }
            found = items_of(db, db.rows(_SQL["page"].replace("{where}", where), values))
        return self._touches.shown(query.scope.id, found)

    def _before(self, db: Connection, scope: int, after: str | None) -> int:
        if after is None:
            return _LAST
        rows = db.rows(_SQL["number_of"], {"scope": scope, "id": after})
        if not rows:
            rows = db.rows(_SQL["number_before"], (scope, after))
        return int(rows[0][0])

    def slots(self, scope: Scope, prefix: str, at: datetime | None) -> list[Item]:
        with self._reading() as db:
            values = {"scope": self._scope(db, scope), "prefix": prefix, "at": self._micros(db, at)}
            return self._touches.shown(scope.id, items_of(db, db.rows(_SQL["slots"], values)))

    def slot(self, scope: Scope, name: str, at: datetime | None) -> Item | None:
        with self._reading() as db:
            values = {"scope": self._scope(db, scope), "slot": name, "at": self._micros(db, at)}
            found = items_of(db, db.rows(_SQL["slot"], values))
        return next(iter(self._touches.shown(scope.id, found)), None)

    def history(self, scope: Scope, slot: str) -> list[Item]:
        with self._reading() as db:
            rows = db.rows(_SQL["history"], (self._scope(db, scope), slot))
            return self._touches.shown(scope.id, items_of(db, rows))

    def corrected(self, scope: Scope, id: str) -> list[Item]:
        with self._reading() as db:
            rows = db.rows(_SQL["corrected"], {"scope": self._scope(db, scope), "id": id})
            return self._touches.shown(scope.id, items_of(db, rows))

    def count(self, query: ListQuery) -> int:
        where, values = where_sql(query.where)
        with self._reading() as db:
            values |= {"scope": self._scope(db, query.scope), "history": query.history}
            values |= {"at": self._micros(db, query.at)}
            ((found,),) = db.rows(_SQL["count"].replace("{where}", where), values)
        return int(found)

    def about(self, scope: Scope, entity: str, at: datetime | None) -> list[Item]:
        with self._reading() as db:
            values = {"scope": self._scope(db, scope), "name": entity.casefold(), "at": self._micros(db, at)}
            return self._touches.shown(scope.id, items_of(db, db.rows(_SQL["about"], values)))

    def lineage(self, scope: Scope, ids: Sequence[str]) -> list[ItemCitation]:
        with self._reading() as db:
            rows = db.rows(_SQL["lineage"], {"scope": self._scope(db, scope), "ids": as_json(ids)})
        return [ItemCitation(item, Citation(cited, start, end)) for item, cited, start, end in rows]

    def outdated(self, scope: Scope, ids: Sequence[str]) -> list[OutdatedSpan]:
        with self._reading() as db:
            number, at = self._scope(db, scope), self._micros(db)
            rows = db.rows(_SQL["outdated"], {"scope": number, "ids": as_json(ids), "at": at})
            found = []
            for cited, start, end, until, item, slot in rows:
                where = {"scope": number, "at": at, "slot": slot, "n": item}
                holds = db.rows(_SQL["chain_end" if slot is None else "slot_holder"], where)
                found.append(OutdatedSpan(cited, start, end, from_micros(until), holds[0][0] if holds else None))
        order = {id_: place for place, id_ in reversed(list(enumerate(ids)))}
        return sorted(found, key=lambda one: (order[one.id], one.start, one.end, one.until))

    def changes(self, scope: Scope, since: int, limit: int) -> Changes:
        with self._reading() as db:
            values = {"scope": self._scope(db, scope), "since": since, "limit": limit + 1}
            rows = db.rows(_SQL["changes"], values)
            ((seq, _),) = db.rows(_SQL["counters"])
        found = tuple(ItemChange(changed, id_, bool(gone)) for changed, id_, gone in rows[:limit])
        if len(rows) <= limit:
            return Changes(max(since, seq), found)
        return Changes(found[-1].seq if found else since, found, complete=False)

    def scopes(self) -> list[Scope]:
        with self._reading() as db:
            return [Scope(*names) for names in db.rows(_SQL["scopes"])]

    def removed(self) -> list[str]:
        with self._reading() as db:
            return [id_ for (id_,) in db.rows(_SQL["removed"])]

    def newest(self, scope: Scope) -> int:
        with self._reading() as db:
            ((seq, _),) = db.rows(_SQL["counters"])
        return int(seq)

    def unembedded(self, model: str, limit: int) -> list[UnembeddedItem]:
        with self._reading() as db:
            known = db.rows(_SQL["model_number"], (model,))
            rows = db.rows(_SQL["unembedded"], {"model": known[0][0] if known else 0, "limit": limit})
        return [
            UnembeddedItem(Scope(tenant, agent, user), id_, text, kind, hash_.hex(), slot)
            for tenant, agent, user, id_, text, kind, hash_, slot in rows
        ]

    def touch(self, scope: Scope, ids: Sequence[str]) -> None:
        with self._reading() as db:
            at = self._micros(db)
        if not self._site.read_only:
            self._touches.add(scope.id, dict.fromkeys(ids), at)

    def vectors(self, scope: Scope, ids: Sequence[str], model: str) -> dict[str, Vectors]:
        with self._reading() as db:
            values = {"scope": self._scope(db, scope), "ids": as_json(ids), "model": model}
            rows = db.rows(_SQL["vectors_of"], values)
        return {id: Vectors(model, _split(windows, 4 * dimension)) for id, dimension, windows in rows}

    def outbox(self, target: str, limit: int, scope: Scope | None = None) -> list[OutboxEntry]:
        with self._reading() as db:
            known = db.rows(_SQL["target"], (target,))
            values = {"since": known[0][0] if known else 0, "limit": limit, "scope": scope and scope.id}
            ((newest, _),) = db.rows(_SQL["counters"])
            # Mostly there is nothing: a look at every scope would take longer, the more there are.
            rows = db.rows(_SQL["outbox"], values) if newest > values["since"] else []
        if not known:
            with self._writing() as db:
                db.run(_SQL["add_target"], (target,))
        return [OutboxEntry(seq, Scope(*owner), item, bool(gone)) for seq, item, gone, *owner in rows]

    def settle(self, target: str, seq: int) -> None:
        with self._writing() as db:
            db.run(_SQL["settle"], {"name": target, "seq": seq})


def _split(windows: bytes, size: int) -> tuple[bytes, ...]:
    return tuple(windows[start : start + size] for start in range(0, len(windows), size))
