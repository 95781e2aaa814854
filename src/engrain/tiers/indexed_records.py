"""Records that recall finds: the texts of a record are items, which are written and forgotten together with it."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from engrain.core.errors import Conflict
from engrain.core.identity import Scope
from engrain.core.model.items import Note, check_note
from engrain.core.model.plans import Add, Forget, Outcome, Plan
from engrain.core.model.records import (
    Record,
    RecordDraft,
    RecordKey,
    RecordScan,
    RecordWrite,
    ScanOrder,
    check_drafts,
    check_prefix,
    check_record_key,
    check_space,
)
from engrain.core.validation import check_list
from engrain.ingest.write import build_drafts
from engrain.ports import Services
from engrain.ports.records import Records
from engrain.tiers.semantic import finish_forgetting

_PAGE = 500


@dataclass(frozen=True, slots=True)
class IndexedDraft:
    """A body to write, and the notes by which recall finds it."""

    key: RecordKey
    body: bytes
    notes: Sequence[Note] = ()
    expires_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class IndexedRecord:
    """A stored body, and the ids of the items that were made of its notes."""

    key: RecordKey
    body: bytes
    items: tuple[str, ...]
    written_at: datetime
    expires_at: datetime | None = None


Change = Callable[[Mapping[RecordKey, IndexedRecord]], Sequence[IndexedDraft]]


class IndexedRecords:
    """The indexed records of one space of a scope. No key is the prefix of another one."""

    def __init__(self, services: Services, scope: Scope, space: str, records: Records) -> None:
        self._services, self._scope, self._space = services, scope, check_space(space)
        self._records = records

    def read(self, keys: Sequence[RecordKey]) -> list[IndexedRecord]:
        """Return the records of these keys, in the order of the keys. A key without a record is left out."""
        wanted = [check_record_key(key) for key in check_list(keys, "keys")]
        return [_decode(one) for one in self._records.read(self._scope, self._space, wanted)]

    def iterate(
        self, prefix: RecordKey = (), order: ScanOrder = "newest", page_size: int = _PAGE
    ) -> Iterator[IndexedRecord]:
        """Yield the records under a prefix by key, or with "newest" in the order of writing, newest first."""
        scan = RecordScan(self._space, check_prefix(prefix), page_size, order)
        while page := self._records.scan(self._scope, scan):
            yield from map(_decode, page)
            scan = replace(scan, after=page[-1].key)

    def update(self, keys: Sequence[RecordKey], change: Change) -> None:
        """Replace the records of these keys by the drafts that `change` makes of them, in one transaction.

        A key without a draft is dropped. Items of the records before are forgotten, down to the bytes. `change` is
        called again if somebody else wrote one of the records meanwhile. OnHold under a legal hold, if items would be
        forgotten or records dropped.
        """
        wanted = [check_record_key(key) for key in check_list(keys, "keys")]
        while True:
            began = self._services.items.current_time()
            before = {one.key: one for one in self._records.read(self._scope, self._space, wanted)}
            drafts = change({key: _decode(one) for key, one in before.items()})
            try:
                outcomes = self._replace(before, wanted, drafts, began)
            except Conflict:  # somebody else wrote one of them just now
                continue
            removed = before.keys() - {draft.key for draft in drafts}
            if removed or any(outcome.status == "forgotten" for outcome in outcomes):
                finish_forgetting(outcomes, self._scope, self._services)
            return

    def _replace(
        self, before: Mapping[RecordKey, Record], keys: Iterable[RecordKey], drafts: Sequence[IndexedDraft], began: int
    ) -> Sequence[Outcome]:
        now = self._services.clock()
        # With a date, equal texts of two records stay two items.
        notes = [replace(note, occurred_at=note.occurred_at or now) for draft in drafts for note in draft.notes]
        added = [Add(one) for one in build_drafts([check_note(note) for note in notes], self._services)]
        gone = [Forget(id) for record in before.values() for id in _decode(record).items]
        expected = [(key, before[key].hash if key in before else None) for key in keys]
        written = {draft.key for draft in drafts}

        def write_all() -> Sequence[Outcome]:
            plan = Plan(self._scope, (*gone, *added), began=began)
            outcomes = self._services.items.apply(plan).outcomes if plan.steps else ()
            ids = iter([outcome.id for outcome in outcomes[len(gone) :]])
            puts = check_drafts([encode_draft(draft, [next(ids) for _ in draft.notes]) for draft in drafts])
            drops = [key for key in before if key not in written]
            self._records.write(self._scope, RecordWrite(self._space, puts, drops, expected))
            return outcomes

        return self._services.items.in_transaction(write_all)


def encode_draft(draft: IndexedDraft, items: Sequence[str | None]) -> RecordDraft:
    """Return the record of a body, with the ids of the items that are forgotten together with it."""
    return RecordDraft(draft.key, json.dumps(items).encode() + b"\n" + draft.body, expires_at=draft.expires_at)


def _decode(record: Record) -> IndexedRecord:
    items, _, body = record.body.partition(b"\n")
    return IndexedRecord(record.key, body, tuple(json.loads(items)), record.written_at, record.expires_at)
