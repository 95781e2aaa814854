"""Read all records of a space, page by page."""

from __future__ import annotations

from collections.abc import Iterator

from engrain.core.model.records import Record, RecordKey
from engrain.tiers.records import ScopedRecords

_BODIES, _KEYS = 500, 10_000  # of a page


def iterate_records(records: ScopedRecords, space: str, prefix: RecordKey = ()) -> Iterator[Record]:
    """Yield the records under a prefix, by key."""
    after: RecordKey | None = None
    while page := records.scan(space, prefix, limit=_BODIES, after=after):
        yield from page
        after = page[-1].key


def iterate_keys(records: ScopedRecords, space: str, prefix: RecordKey = ()) -> Iterator[RecordKey]:
    after: RecordKey | None = None
    while page := records.keys(space, prefix, limit=_KEYS, after=after):
        yield from page
        after = page[-1]
