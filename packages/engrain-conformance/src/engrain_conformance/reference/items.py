"""Items and session logs in memory."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from typing import Any

from engrain.core.clock import to_micros
from engrain.core.errors import Conflict, EngrainError
from engrain.core.identity import Scope
from engrain.core.model.filters import Filter, matches_filter
from engrain.core.model.items import Item, Vectors
from engrain.core.model.plans import Applied, Plan, Request
from engrain.core.model.queries import (
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
    Summary,
    UnembeddedItem,
    UnprocessedSession,
)
from engrain.core.text.passages import index_words
from engrain.core.text.tokenizer import fold_entity
from engrain.ports.items import Answer
from engrain_conformance.reference.state import (
    ChangeRow,
    State,
    StateHolder,
    StoredRow,
    get_summary,
    is_held,
    reads,
    reads_all,
    record_audit,
    writes,
)
from engrain_conformance.reference.writes import Transaction


class ReferenceItems(StateHolder):
    @writes
    def apply(self, state: State, plan: Plan) -> Applied:
        applied = Transaction(state, plan.scope, self.now(), self.ids).run(plan)
        gone = [outcome for outcome in applied.outcomes if outcome.status == "forgotten" and not applied.repeated]
        if gone:
            items, cut = (
                sum(1 + len(removal.others) for removal in gone),
                sum(len(removal.marked) for removal in gone),
            )
            record_audit(state, self.now(), "forget", {"items": items, "cut": cut})
        return applied

    def apply_many(self, plans: Sequence[Plan]) -> list[Applied | EngrainError]:
        answers: list[Applied | EngrainError] = []
        for plan in plans:
            try:
                answers.append(self.apply(plan))
            except EngrainError as exc:
                answers.append(exc)
        return answers

    @reads
    def answer(self, state: State, scope: Scope, request: Request | None) -> Applied | None:
        if request is None:
            return None
        return Transaction(state, scope, self.now(), self.ids).find_answer(request.id, request.asked)

    def once(self, scope: Scope, request: Request | None, do: Callable[[], Applied]) -> Applied:
        if request is None:
            return do()

        def answer_or_do() -> Applied:
            self._state.check_writable(scope)
            return self.answer(scope, request) or self._store_answer(scope, request, do())

        return self.in_transaction(answer_or_do)

    def in_transaction(self, do: Callable[[], Answer]) -> Answer:
        with self.whole() as before:
            try:
                return do()
            except BaseException:
                self._state = before  # every write replaced it by a changed copy
                raise

    @writes
    def _store_answer(self, state: State, scope: Scope, request: Request, answer: Applied) -> Applied:
        Transaction(state, scope, self.now(), self.ids).store_answer(request, answer)
        return answer

    @writes
    def drop_answers(self, state: State, before: datetime) -> int:
        old = [
            key
            for key, (_, answer) in state.requests.items()
            if state.answered.get(key, before) < before and answer.seq != 0 and not is_held(state, key[0])
        ]
        for key in old:
            del state.requests[key], state.answered[key]
        return len(old)

    @reads
    def current_time(self, state: State) -> int:
        return to_micros(state.newest)

    @reads
    def get_many(self, state: State, scope: Scope, ids: Sequence[str]) -> list[Item]:
        found = (state.find_item(scope, id) for id in ids)
        return [stored.item for stored in found if stored]

    @reads
    def page(self, state: State, query: ListQuery) -> list[Item]:
        at = self.now(query.at)
        shown = [
            stored.item
            for stored in reversed(state.list_items(query.scope))
            if (query.history or stored.item.visible(at))
            and matches_filter(query.where, stored.item)
            and (query.after is None or stored.item.id < query.after)
        ]
        return shown[: query.limit]

    @reads
    def slots(self, state: State, scope: Scope, prefix: str, at: datetime | None) -> list[Item]:
        moment = self.now(at)
        visible = (stored.item for stored in state.list_items(scope) if stored.item.visible(moment))
        named = [item for item in visible if item.slot is not None and item.slot.startswith(prefix)]
        return sorted(named, key=lambda item: item.slot or "")

    def slot(self, scope: Scope, name: str, at: datetime | None) -> Item | None:
        return next((item for item in self.slots(scope, name, at) if item.slot == name), None)

    @reads
    def history(self, state: State, scope: Scope, slot: str) -> list[Item]:
        versions = [stored.item for stored in state.list_items(scope) if stored.item.slot == slot]
        return sorted(versions, key=lambda item: (item.valid_from, item.id))

    @reads
    def corrected(self, state: State, scope: Scope, id: str) -> list[Item]:
        chain = [id] if state.find_item(scope, id) else []
        found: list[Item] = []
        for version in chain:
            old = [each.item for each in state.list_items(scope) if each.item.replaced_by == version]
            found += [item for item in old if item.retracted_at is not None]
            chain += [item.id for item in found if item.id not in chain]
        return sorted(found, key=lambda item: item.id, reverse=True)

    def count(self, query: ListQuery) -> int:
        return len(self.page(replace(query, limit=sys.maxsize, after=None)))

    @reads
    def about(self, state: State, scope: Scope, entity: str, at: datetime | None) -> list[Item]:
        moment = self.now(at)
        name = fold_entity(entity)
        visible = (stored.item for stored in reversed(state.list_items(scope)) if stored.item.visible(moment))
        return [
            item
            for item in visible
            if item.relation and name in (fold_entity(item.relation.subject), fold_entity(item.relation.object))
        ]

    @reads
    def lineage(self, state: State, scope: Scope, ids: Sequence[str]) -> list[ItemCitation]:
        edges = dict.fromkeys(_list_citations(state, scope))
        return [edge for edge in edges if edge.item in ids or edge.cite.item in ids]

    @reads
    def speakers(self, state: State, scope: Scope) -> frozenset[str]:
        return frozenset(stored.item.speaker for stored in state.list_items(scope) if stored.item.speaker is not None)

    @reads
    def sketches(self, state: State, query: SketchQuery) -> list[Sketch]:
        at = self.now(query.at)
        seeds = [stored.item for stored in state.list_items(query.scope) if stored.item.id in query.ids]
        return [
            _make_sketch(stored)
            for stored in state.list_items(query.scope)
            if any(stored.item.id == seed.id or _is_neighbour(stored.item, seed, query.reach) for seed in seeds)
            and stored.item.visible(at)
            and matches_filter(query.where, stored.item)
        ]

    @reads
    def having(
        self, state: State, scope: Scope, traits: int, where: Filter | None, limit: int, at: datetime | None
    ) -> list[str]:
        moment = self.now(at)
        having = (stored.item for stored in reversed(state.list_items(scope)) if stored.traits & traits)
        return [item.id for item in having if item.visible(moment) and matches_filter(where, item)][:limit]

    @reads
    def outdated(self, state: State, scope: Scope, ids: Sequence[str]) -> list[OutdatedSpan]:
        now = self.now()
        wanted = [edge for edge in _list_citations(state, scope) if edge.cite.item in ids and not edge.cite.wordless]
        spans = {
            (edge.item, edge.cite.item, *edge.cite.find_span(len(state.items[edge.cite.item].item.text)))
            for edge in wanted
        }
        found = []
        for citing, cited, start, end in spans:
            until = _find_end(state.items[citing].item, now)
            if until:
                current = _find_successor(state, state.items[citing], now)
                text, by = (current.text, current.id) if current else (None, None)
                found.append(OutdatedSpan(cited, start, end, until, text, by))
        return sorted(found, key=lambda one: (list(ids).index(one.id), *one[1:4], one.now or ""))

    @reads
    def changes(self, state: State, scope: Scope, since: int, limit: int) -> Changes:
        later = sorted(change for change in state.changes.values() if change.scope == scope and change.seq > since)
        complete = len(later) <= limit
        seen = max(since, state.seq) if complete else later[limit - 1].seq
        return Changes(
            seen, tuple(ItemChange(change.seq, change.id, change.deleted) for change in later[:limit]), complete
        )

    @reads
    def scopes(self, state: State) -> list[Scope]:
        return list(state.scopes())

    @reads_all
    def removed(self, state: State) -> list[str]:
        return [change.id for change in state.changes.values() if change.deleted]

    @reads
    def newest(self, state: State, scope: Scope) -> int:
        return state.seq

    @reads
    def unembedded(self, state: State, model: str, limit: int) -> list[UnembeddedItem]:
        missing = [item for _, item in sorted(state.items.items()) if model not in item.vectors]
        return [
            UnembeddedItem(
                pending.scope, pending.item.id, pending.item.text, pending.item.kind, pending.hash, pending.item.slot
            )
            for pending in missing[:limit]
        ]

    @writes
    def touch(self, state: State, scope: Scope, ids: Sequence[str]) -> None:
        for stored in filter(None, (state.find_item(scope, id) for id in dict.fromkeys(ids))):
            used = replace(stored.item, access_count=stored.item.access_count + 1, last_accessed=self.now())
            state.items[used.id] = replace(stored, item=used)

    def purge(self) -> bool:
        with self.reading():
            return True

    @reads
    def vectors(self, state: State, scope: Scope, ids: Sequence[str], model: str) -> dict[str, Vectors]:
        known = {id: state.items[id].vectors for id in ids if state.find_item(scope, id)}
        return {id: Vectors(model, rows[model]) for id, rows in known.items() if model in rows}

    @reads
    def models(self, state: State) -> dict[str, int]:
        return dict(Counter(model for item in state.items.values() for model in item.vectors))

    @writes
    def drop_model(self, state: State, model: str, limit: int) -> int:
        having = [id for id, item in state.items.items() if model in item.vectors][:limit]
        for id in having:
            rest = {name: rows for name, rows in state.items[id].vectors.items() if name != model}
            state.items[id] = replace(state.items[id], vectors=rest)
            state.seq += 1
            state.changes[id] = ChangeRow(state.seq, state.items[id].scope, id, False)
        return len(having)

    @writes
    def outbox(self, state: State, target: str, limit: int, scope: Scope | None = None) -> list[OutboxEntry]:
        settled = state.settled.setdefault(target, 0)
        waiting = sorted(
            (change for change in state.changes.values() if change.seq > settled and scope in (None, change.scope)),
            key=lambda one: one.seq,
        )
        return [OutboxEntry(entry.seq, entry.scope, entry.id, entry.deleted) for entry in waiting[:limit]]

    @writes
    def settle(self, state: State, target: str, seq: int) -> None:
        state.settled[target] = max(seq, state.settled.get(target, 0))

    @reads
    def status(self, state: State, model: str | None = None) -> StoreStatus:
        items = list(state.items.values())
        return StoreStatus(
            backend="reference",
            location="this process",
            schema=1,
            items=len(items),
            open_items=sum(item.item.open for item in items),
            scopes=len({item.scope for item in items}),
            bytes=sum(len(item.item.text.encode()) for item in items),
            seq=state.seq,
            unembedded=sum(model not in item.vectors if model else not item.vectors for item in items),
            purge_pending=False,
            records=len(state.records),
        )

    @reads
    def check(self, state: State) -> list[Finding]:
        return [Finding("items", "pass", f"{len(state.items):,} items in this process's memory; none on disk.")]

    @writes
    def rebuild(self, state: State) -> int:
        for id, item in list(state.items.items()):
            state.items[id] = replace(item, words=index_words(item.item.text, item.item.speaker, item.item.slot))
        return len(state.items)

    def close(self) -> None:
        with self._lock:
            self._closed = True


def _list_citations(state: State, scope: Scope) -> Iterator[ItemCitation]:
    for stored in state.list_items(scope):
        for source in stored.item.sources:
            for cite in source.cites:
                yield ItemCitation(stored.item.id, cite)


def _is_neighbour(item: Item, seed: Item, reach: int) -> bool:
    if item.session is None or item.session != seed.session or item.place is None or seed.place is None:
        return False
    return abs(item.place - seed.place) <= reach


def _make_sketch(stored: StoredRow) -> Sketch:
    item = stored.item
    names = ("id", "kind", "session", "place", "speaker", "role", "importance", "pinned", "trust", "source")
    values: dict[str, Any] = {name: getattr(item, name) for name in names}
    occurred = (item.occurred_at or item.recorded_at).timestamp()
    return Sketch(occurred_at=occurred, traits=stored.traits, passages=stored.words.passages, **values)


def _find_end(item: Item, now: datetime) -> datetime | None:
    """The time when an item was replaced or corrected."""
    if item.retracted_at is not None:
        return item.retracted_at
    return item.valid_to if item.valid_to is not None and item.valid_to <= now else None


def _find_successor(state: State, stored: StoredRow, now: datetime) -> Item | None:
    """What replaced an item: the slot's current value, or the last correction."""
    if stored.item.slot is not None:
        same = (item.item for item in state.list_items(stored.scope) if item.item.slot == stored.item.slot)
        return next((item for item in same if item.visible(now)), None)
    following = stored.item
    while following.replaced_by in state.items:
        following = state.items[following.replaced_by or ""].item
    return following if following.visible(now) else None


class ReferenceSessions(StateHolder):
    @reads
    def length(self, state: State, scope: Scope, session: str) -> int:
        return state.lengths.get((scope, session), 0)

    @reads
    def read(self, state: State, scope: Scope, session: str, start: int, limit: int) -> list[Item]:
        return [item for item in _list_messages(state, scope, session) if (item.place or 0) >= start][:limit]

    @reads
    def last(self, state: State, scope: Scope, session: str, n: int) -> list[Item]:
        messages = _list_messages(state, scope, session)
        return messages[max(0, len(messages) - n) :]

    @reads
    def sessions(self, state: State, scope: Scope, limit: int) -> list[str]:
        standing = (stored.item for stored in state.list_items(scope) if stored.item.retracted_at is None)
        held = {item.session for item in standing if item.session is not None}
        return sorted(held, key=lambda session: -state.last_writes[scope, session])[:limit]

    @reads
    def summary(self, state: State, scope: Scope, session: str) -> Summary | None:
        stored = get_summary(state, scope, session)
        return stored if stored.version else None

    @writes
    def summarize(self, state: State, scope: Scope, session: str, summary: Summary) -> None:
        if summary.version != get_summary(state, scope, session).version + 1:
            raise Conflict(f"the summary of session {session!r} has moved on: read it again.")
        state.summaries[scope, session] = summary

    @reads
    def progress(self, state: State, scope: Scope, session: str, work: str) -> int:
        return state.progress.get((scope, session, work), 0)

    @writes
    def advance(self, state: State, scope: Scope, session: str, work: str, upto: int) -> None:
        mark = (scope, session, work)
        state.progress[mark] = max(upto, state.progress.get(mark, 0))

    @reads
    def behind(self, state: State, scope: Scope, work: str, limit: int) -> list[UnprocessedSession]:
        own = [length for length in state.lengths if length[0] == scope]
        newest = sorted(own, key=lambda one: -state.last_writes[one])
        seen = (UnprocessedSession(*id, state.progress.get((*id, work), 0), state.lengths[id]) for id in newest)
        return [progress for progress in seen if progress.upto < progress.length][:limit]


def _list_messages(state: State, scope: Scope, session: str) -> list[Item]:
    inside = (stored.item for stored in state.list_items(scope) if stored.item.session == session)
    standing = [item for item in inside if item.kind == "message" and item.retracted_at is None]
    return sorted(standing, key=lambda item: item.place or 0)
