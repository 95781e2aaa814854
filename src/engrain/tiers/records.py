"""Records of one scope: opaque bodies by key, for frameworks that keep their own data in a memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import get_args

from engrain.core.errors import ConfigError, Conflict, InvalidInput, StoreCorrupt
from engrain.core.identity import Scope
from engrain.core.model.items import Note, check_note
from engrain.core.model.plans import Add, Forget, Outcome, Plan
from engrain.core.model.records import (
    MAX_SCAN,
    Expected,
    Record,
    RecordDraft,
    RecordKey,
    RecordScan,
    RecordWrite,
    ScanOrder,
    check_drafts,
    check_expected,
    check_prefix,
    check_record_key,
    check_space,
)
from engrain.core.validation import check_count, check_list
from engrain.ingest.write import build_drafts
from engrain.ports import Services
from engrain.ports.items import Records
from engrain.tiers.semantic import finish_forgetting


class ScopedRecords:
    """The records of one scope. A space keeps those of one program apart; a key has several parts.

    Nothing in a body is searched, redacted or shown to a model. Export, copy, erasure and holds include it.
    """

    def __init__(self, services: Services, scope: Scope) -> None:
        self._services, self._scope = services, scope

    def write(
        self,
        space: str,
        puts: Sequence[RecordDraft] = (),
        *,
        drops: Sequence[RecordKey] = (),
        expect: Sequence[Expected] = (),
    ) -> None:
        """Drop everything under the prefixes in `drops`, then put the drafts, in one transaction.

        Conflict, and nothing changes, unless each key in `expect` has the body with this hash (Record.hash), or no
        record where None is expected.
        """
        prefixes = [check_record_key(prefix, "prefix") for prefix in check_list(drops, "drops")]
        write = RecordWrite(check_space(space), check_drafts(puts), prefixes, check_expected(expect))
        self._port.write(self._scope, write)

    def read(self, space: str, keys: Sequence[RecordKey]) -> list[Record]:
        """Return the records of these keys, in the order of the keys. A key without a record is left out."""
        wanted = [check_record_key(key) for key in check_list(keys, "keys")]
        return self._port.read(self._scope, check_space(space), wanted)

    def scan(
        self,
        space: str,
        prefix: RecordKey = (),
        *,
        limit: int = 1_000,
        order: ScanOrder = "ascending",
        after: RecordKey | None = None,
    ) -> list[Record]:
        """Return the records under a prefix by key, or with "newest" in the order of writing, newest first.

        For the next page pass the last key as `after`.
        """
        if order not in get_args(ScanOrder):
            raise InvalidInput(f"order must be one of {', '.join(get_args(ScanOrder))}, not {order!r:.80}.")
        behind = None if after is None else check_record_key(after, "after")
        limit = check_count(limit, "limit", 1, MAX_SCAN)
        start = check_prefix(prefix)
        return self._port.scan(self._scope, RecordScan(check_space(space), start, limit, order, behind))

    def keys(
        self, space: str, prefix: RecordKey = (), *, limit: int = MAX_SCAN, after: RecordKey | None = None
    ) -> list[RecordKey]:
        """Return the keys under a prefix, in order, without reading bodies."""
        behind = None if after is None else check_record_key(after, "after")
        limit = check_count(limit, "limit", 1, MAX_SCAN)
        scan = RecordScan(check_space(space), check_prefix(prefix), limit, after=behind)
        return self._port.keys(self._scope, scan)

    def now(self) -> datetime:
        """Return the store's time, by which records expire."""
        return self._services.clock()

    def drop(self, space: str, prefix: RecordKey = ()) -> int:
        """Drop everything under a prefix down to the bytes, and return how many records there were.

        OnHold under a legal hold. `write(drops=…)` leaves the bytes to the store, and so is faster.
        """
        removed = self._port.drop(self._scope, check_space(space), check_prefix(prefix))
        if removed:
            self._services.items.purge()
        return removed

    def indexed(self, space: str) -> IndexedRecords:
        """Return the records of a space that are written together with texts, so that recall finds them."""
        return IndexedRecords(self._services, self._scope, space, self._port)

    @property
    def _port(self) -> Records:
        return require_records(self._services)


def require_records(services: Services) -> Records:
    """Return the port; ConfigError if the store has none."""
    if services.records is None:
        raise ConfigError("this store keeps no records. Use a SQLite file or Postgres.")
    return services.records


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
        return [_decode(record) for record in self._records.read(self._scope, self._space, wanted)]

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
            before = {record.key: record for record in self._records.read(self._scope, self._space, wanted)}
            drafts = change({key: _decode(record) for key, record in before.items()})
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
        added = [Add(draft) for draft in build_drafts([check_note(note) for note in notes], self._services)]
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
    head, _, body = record.body.partition(b"\n")
    try:
        items = json.loads(head)
    except (ValueError, RecursionError):
        items = None
    if not isinstance(items, list) or not all(isinstance(id, str | None) for id in items):
        raise StoreCorrupt(f"record {record.key} does not begin with the ids of its items. Run: engrain doctor.")
    return IndexedRecord(record.key, body, tuple(items), record.written_at, record.expires_at)
