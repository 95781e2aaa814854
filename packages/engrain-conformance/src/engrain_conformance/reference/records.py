"""Records in memory."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime

from engrain.core.errors import Conflict, NotFound
from engrain.core.identity import Scope
from engrain.core.model.records import (
    ATTACHMENTS,
    Record,
    RecordKey,
    RecordScan,
    RecordWrite,
    ScanOrder,
    describe_conflict,
)
from engrain_conformance.reference.state import State, StateView, StoredRecord, check_not_held, is_held, reads, writes

Place = tuple[Scope, str, RecordKey]


class ReferenceRecords(StateView):
    @writes
    def write(self, state: State, scope: Scope, write: RecordWrite) -> None:
        state.check_writable(scope)
        now, space = self.holder.now(), write.space
        for key, digest in write.expect:
            found = self._find(state, scope, space, key)
            if (found.hash if found else None) != digest:
                raise Conflict(describe_conflict(space, key, digest))
        for prefix in write.drops:
            _drop(state, scope, _list_under(state, scope, space, prefix))
        for draft in write.puts:
            if not (draft.keep and self._find(state, scope, space, draft.key)):
                state.seq += 1
                record = Record(draft.key, draft.body, now, draft.expires_at)
                state.records[scope, space, draft.key] = StoredRecord(record, state.seq)
                state.newest = max(state.newest, now)

    @reads
    def read(self, state: State, scope: Scope, space: str, keys: Sequence[RecordKey]) -> list[Record]:
        return [found for key in keys if (found := self._find(state, scope, space, key))]

    @reads
    def scan(self, state: State, scope: Scope, scan: RecordScan) -> list[Record]:
        after, order = scan.after, scan.order
        stored = [state.records[place] for place in _list_under(state, scope, scan.space, scan.prefix)]
        if order == "newest":
            stored.sort(key=lambda one: one.rank, reverse=True)
            last = None if after is None else state.records.get((scope, scan.space, after))
            if after is not None and last is None:
                raise NotFound("the record to go on from is gone. Scan from the beginning.")
            rest = [record for record in stored if last is None or record.rank < last.rank]
        else:
            stored.sort(key=lambda one: one.record.key, reverse=order == "descending")
            rest = [record for record in stored if after is None or _is_behind(record.record.key, after, order)]
        now = self.holder.now()
        return [one.record for one in rest if _is_live(one.record, now)][: scan.limit]

    def keys(self, scope: Scope, scan: RecordScan) -> list[RecordKey]:
        return [one.key for one in self.scan(scope, scan)]

    @writes
    def drop(self, state: State, scope: Scope, space: str, prefix: RecordKey = ()) -> int:
        state.check_writable(scope)
        return _drop(state, scope, _list_under(state, scope, space, prefix))

    @reads
    def find(self, state: State, tenant: str | None, space: str, prefix: RecordKey) -> list[Scope]:
        tenants = [scope for scope in state.scopes() if scope.tenant == tenant]
        return [scope for scope in tenants if self.keys(scope, RecordScan(space, prefix, 1))]

    @reads
    def count(self, state: State, scope: Scope | None = None) -> int:
        return sum(scope in (None, owner) for owner, _, _ in state.records)

    @reads
    def expired(self, state: State, scope: Scope, now: datetime) -> list[tuple[str, RecordKey, datetime]]:
        over = sorted(place[1:] for place in self._list_expired(state, now) if place[0] == scope)
        ends = (state.records[scope, space, key].record.expires_at for space, key in over)
        return [(space, key, end) for (space, key), end in zip(over, ends, strict=True) if end]

    @writes
    def expire(self, state: State, now: datetime) -> int:
        over = self._list_expired(state, now)
        for place in over:
            del state.records[place]
        return len(over)

    def _find(self, state: State, scope: Scope, space: str, key: RecordKey) -> Record | None:
        stored = state.records.get((scope, space, key))
        return stored.record if stored and _is_live(stored.record, self.holder.now()) else None

    def _list_expired(self, state: State, now: datetime) -> list[Place]:
        over = [place for place, record in state.records.items() if not _is_live(record.record, now)]
        return [place for place in over if not is_held(state, place[0])]


def _is_live(record: Record, now: datetime) -> bool:
    return record.expires_at is None or now < record.expires_at


def _is_behind(key: RecordKey, after: RecordKey, order: ScanOrder) -> bool:
    return key > after if order == "ascending" else key < after


def _list_under(state: State, scope: Scope, space: str, prefix: RecordKey) -> list[Place]:
    return [place for place in state.records if place[:2] == (scope, space) and place[2][: len(prefix)] == prefix]


def _drop(state: State, scope: Scope, places: Iterable[Place]) -> int:
    removed = [state.records.pop(place) for place in places]
    if removed:
        check_not_held(state, scope)
    return len(removed)


def drop_attachments(state: State, scope: Scope, item: str) -> None:
    for place in _list_under(state, scope, ATTACHMENTS, (item,)):
        del state.records[place]
