"""Items in memory: the oracle of the ItemStore port."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime

from engrain.core.clock import to_micros
from engrain.core.identity import Scope
from engrain.core.model.filters import Filter, matches_filter
from engrain.core.model.items import Item, Vectors
from engrain.core.model.plans import Applied, Plan
from engrain.core.text.passages import index_words
from engrain.ports import (
    Changes,
    Finding,
    ItemChange,
    ItemCitation,
    ListQuery,
    OutboxEntry,
    OutdatedSpan,
    Sketch,
    SketchQuery,
    StoreStatus,
    UnembeddedItem,
)
from engrain_conformance.reference.audit import record
from engrain_conformance.reference.cutting import span
from engrain_conformance.reference.state import Changed, Holder, State, Stored
from engrain_conformance.reference.writing import Transaction


class Items(Holder):
    def apply(self, plan: Plan) -> Applied:
        with self.writing() as state:
            applied = Transaction(state, plan.scope, self.now(), self._ids, self._key).run(plan)
            gone = [one for one in applied.outcomes if one.status == "forgotten" and not applied.repeated]
            if gone:
                items, cut = sum(1 + len(one.others) for one in gone), sum(len(one.marked) for one in gone)
                record(state, self, "forget", {"items": items, "cut": cut})
            return applied

    def moment(self) -> int:
        with self.reading() as state:
            return to_micros(state.newest)

    def get_many(self, scope: Scope, ids: Sequence[str]) -> list[Item]:
        with self.reading() as state:
            found = (state.known(scope, id) for id in ids)
            return [stored.item for stored in found if stored]

    def page(self, query: ListQuery) -> list[Item]:
        with self.reading() as state:
            at = self.now(query.at)
            shown = [
                one.item
                for one in reversed(state.within(query.scope))
                if (query.history or one.item.visible(at))
                and matches_filter(query.where, one.item)
                and (query.after is None or one.item.id < query.after)
            ]
            return shown[: query.limit]

    def slots(self, scope: Scope, prefix: str, at: datetime | None) -> list[Item]:
        with self.reading() as state:
            moment = self.now(at)
            visible = (one.item for one in state.within(scope) if one.item.visible(moment))
            named = [item for item in visible if item.slot is not None and item.slot.startswith(prefix)]
            return sorted(named, key=lambda item: item.slot or "")

    def slot(self, scope: Scope, name: str, at: datetime | None) -> Item | None:
        return next((item for item in self.slots(scope, name, at) if item.slot == name), None)

    def history(self, scope: Scope, slot: str) -> list[Item]:
        with self.reading() as state:
            versions = [one.item for one in state.within(scope) if one.item.slot == slot]
            return sorted(versions, key=lambda item: (item.valid_from, item.id))

    def corrected(self, scope: Scope, id: str) -> list[Item]:
        with self.reading() as state:
            chain = [id] if state.known(scope, id) else []
            found: list[Item] = []
            for one in chain:
                old = [each.item for each in state.within(scope) if each.item.replaced_by == one]
                found += [item for item in old if item.retracted_at is not None]
                chain += [item.id for item in found if item.id not in chain]
            return sorted(found, key=lambda item: item.id, reverse=True)

    def count(self, query: ListQuery) -> int:
        return len(self.page(replace(query, limit=sys.maxsize, after=None)))

    def about(self, scope: Scope, entity: str, at: datetime | None) -> list[Item]:
        with self.reading() as state:
            moment = self.now(at)
            name = entity.casefold()
            visible = (one.item for one in reversed(state.within(scope)) if one.item.visible(moment))
            return [
                item
                for item in visible
                if item.relation and name in (item.relation.subject.casefold(), item.relation.object.casefold())
            ]

    def lineage(self, scope: Scope, ids: Sequence[str]) -> list[ItemCitation]:
        with self.reading() as state:
            edges = dict.fromkeys(_edges(state, scope))
            return [edge for edge in edges if edge.item in ids or edge.cite.item in ids]

    def speakers(self, scope: Scope) -> frozenset[str]:
        with self.reading() as state:
            return frozenset(one.item.speaker for one in state.within(scope) if one.item.speaker is not None)

    def sketches(self, query: SketchQuery) -> list[Sketch]:
        with self.reading() as state:
            at = self.now(query.at)
            seeds = [one.item for one in state.within(query.scope) if one.item.id in query.ids]
            return [
                _sketch(one)
                for one in state.within(query.scope)
                if any(one.item.id == seed.id or _near(one.item, seed, query.reach) for seed in seeds)
                and one.item.visible(at)
                and matches_filter(query.where, one.item)
            ]

    def having(self, scope: Scope, traits: int, where: Filter | None, limit: int, at: datetime | None) -> list[str]:
        with self.reading() as state:
            moment = self.now(at)
            having = (one.item for one in reversed(state.within(scope)) if one.traits & traits)
            return [item.id for item in having if item.visible(moment) and matches_filter(where, item)][:limit]

    def outdated(self, scope: Scope, ids: Sequence[str]) -> list[OutdatedSpan]:
        with self.reading() as state:
            now = self.now()
            wanted = [edge for edge in _edges(state, scope) if edge.cite.item in ids and not edge.cite.wordless]
            spans = {
                (edge.item, edge.cite.item, *span(edge.cite, state.items[edge.cite.item].item.text)) for edge in wanted
            }
            found = []
            for citing, cited, start, end in spans:
                until = _until(state.items[citing].item, now)
                if until:
                    found.append(OutdatedSpan(cited, start, end, until, _holding(state, state.items[citing], now)))
            return sorted(found, key=lambda one: (list(ids).index(one.id), *one[1:4], one.now or ""))

    def changes(self, scope: Scope, since: int, limit: int) -> Changes:
        with self.reading() as state:
            later = sorted(one for one in state.changes.values() if one.scope == scope and one.seq > since)
            complete = len(later) <= limit
            seen = max(since, state.seq) if complete else later[limit - 1].seq
            return Changes(seen, tuple(ItemChange(one.seq, one.id, one.gone) for one in later[:limit]), complete)

    def scopes(self) -> list[Scope]:
        with self.reading() as state:
            return list(state.scopes())

    def removed(self) -> list[str]:
        with self.whole() as state:
            return [one.id for one in state.changes.values() if one.gone]

    def newest(self, scope: Scope) -> int:
        with self.reading() as state:
            return state.seq

    def unembedded(self, model: str, limit: int) -> list[UnembeddedItem]:
        with self.reading() as state:
            missing = [one for _, one in sorted(state.items.items()) if model not in one.vectors]
            return [
                UnembeddedItem(one.scope, one.item.id, one.item.text, one.item.kind, one.hash, one.item.slot)
                for one in missing[:limit]
            ]

    def touch(self, scope: Scope, ids: Sequence[str]) -> None:
        with self.writing() as state:
            for stored in filter(None, (state.known(scope, id) for id in dict.fromkeys(ids))):
                used = replace(stored.item, access_count=stored.item.access_count + 1, last_accessed=self.now())
                state.items[used.id] = replace(stored, item=used)

    def purge(self) -> bool:
        with self.reading():
            return True

    def vectors(self, scope: Scope, ids: Sequence[str], model: str) -> dict[str, Vectors]:
        with self.reading() as state:
            known = {id: state.items[id].vectors for id in ids if state.known(scope, id)}
            return {id: Vectors(model, rows[model]) for id, rows in known.items() if model in rows}

    def models(self) -> dict[str, int]:
        with self.reading() as state:
            return dict(Counter(model for one in state.items.values() for model in one.vectors))

    def drop_model(self, model: str, limit: int) -> int:
        with self.writing() as state:
            having = [id for id, one in state.items.items() if model in one.vectors][:limit]
            for id in having:
                rest = {name: rows for name, rows in state.items[id].vectors.items() if name != model}
                state.items[id] = replace(state.items[id], vectors=rest)
                state.seq += 1
                state.changes[id] = Changed(state.seq, state.items[id].scope, id, False)
            return len(having)

    def outbox(self, target: str, limit: int, scope: Scope | None = None) -> list[OutboxEntry]:
        with self.writing() as state:
            settled = state.settled.setdefault(target, 0)
            waiting = sorted(
                (one for one in state.changes.values() if one.seq > settled and scope in (None, one.scope)),
                key=lambda one: one.seq,
            )
            return [OutboxEntry(one.seq, one.scope, one.id, one.gone) for one in waiting[:limit]]

    def settle(self, target: str, seq: int) -> None:
        with self.writing() as state:
            state.settled[target] = max(seq, state.settled.get(target, 0))

    def status(self, model: str | None = None) -> StoreStatus:
        with self.reading() as state:
            items = list(state.items.values())
            return StoreStatus(
                backend="reference",
                location="this process",
                schema=1,
                items=len(items),
                open_items=sum(one.item.open for one in items),
                scopes=len({one.scope for one in items}),
                bytes=sum(len(one.item.text.encode()) for one in items),
                seq=state.seq,
                unembedded=sum(model not in one.vectors if model else not one.vectors for one in items),
                purge_pending=False,
            )

    def check(self) -> list[Finding]:
        with self.reading() as state:
            return [Finding("items", "pass", f"{len(state.items):,} items in this process's memory; none on disk.")]

    def rebuild(self) -> int:
        with self.writing() as state:
            for id, one in list(state.items.items()):
                state.items[id] = replace(one, words=index_words(one.item.text, one.item.speaker, one.item.slot))
            return len(state.items)

    def close(self) -> None:
        with self._lock:
            self._closed = True


def _edges(state: State, scope: Scope) -> Iterator[ItemCitation]:
    for stored in state.within(scope):
        for source in stored.item.sources:
            for cite in source.cites:
                yield ItemCitation(stored.item.id, cite)


def _near(item: Item, seed: Item, reach: int) -> bool:
    if item.session is None or item.session != seed.session or item.place is None or seed.place is None:
        return False
    return abs(item.place - seed.place) <= reach


def _sketch(stored: Stored) -> Sketch:
    item = stored.item
    return Sketch(
        item.id,
        item.kind,
        item.session,
        item.place,
        item.speaker,
        item.role,
        (item.occurred_at or item.recorded_at).timestamp(),
        stored.traits,
        stored.words.passages,
        item.importance,
        item.pinned,
        item.trust,
        item.source,
    )


def _until(item: Item, now: datetime) -> datetime | None:
    """When an item ceased to hold, if it was replaced or corrected."""
    if item.retracted_at is not None:
        return item.retracted_at
    return item.valid_to if item.valid_to is not None and item.valid_to <= now else None


def _holding(state: State, stored: Stored, now: datetime) -> str | None:
    """What is said now in the place of an item: by the slot's holder, or by the end of the chain of corrections."""
    if stored.item.slot is not None:
        same = (one.item for one in state.within(stored.scope) if one.item.slot == stored.item.slot)
        return next((item.text for item in same if item.visible(now)), None)
    following = stored.item
    while following.replaced_by in state.items:
        following = state.items[following.replaced_by or ""].item
    return following.text if following.visible(now) else None
