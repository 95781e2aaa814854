"""The contract of records: opaque bodies by key, which frameworks keep beside a memory."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from engrain.core.identity import Scope
from engrain.core.model.records import Record, RecordKey, RecordScan, RecordWrite


class Records(Protocol):
    """Bodies of bytes under (scope, space, key). If one store has all the ports, this one is its `records`.

    A key has several parts and orders part by part, by code point. A prefix is the first parts of keys. An expired
    record reads as if it did not exist. A record of the space ATTACHMENTS is removed together with the item whose id is
    the first part of its key, or when all words of that item are forgotten. Input has been checked
    (core.model.records).
    """

    def write(self, scope: Scope, write: RecordWrite) -> None:
        """Drop everything under the prefixes in `drops`, then put the drafts, in one transaction.

        A put replaces the body and counts as a new writing. With `keep`, a record that exists stays as it is.
        Conflict, and nothing changes, if the record of an expected key has another hash, or exists where None is
        expected. OnHold if records would be dropped under a hold; a put is written.
        """

    def read(self, scope: Scope, space: str, keys: Sequence[RecordKey]) -> list[Record]:
        """Return the records of these keys, in the order of the keys. A key without a record is left out."""

    def scan(self, scope: Scope, scan: RecordScan) -> list[Record]:
        """Return the records under a prefix by key, or with "newest" in the order of writing, newest first.

        With `after`, go on behind the record of this key. With "newest", NotFound if that record is gone.
        """

    def keys(self, scope: Scope, scan: RecordScan) -> list[RecordKey]:
        """Return the keys under a prefix, ascending, without reading bodies. With `after`, those behind this key."""

    def drop(self, scope: Scope, space: str, prefix: RecordKey = ()) -> int:
        """Drop everything under a prefix, and return how many records there were.

        Their bytes go with the next purge. OnHold under a hold.
        """

    def find(self, tenant: str | None, space: str, prefix: RecordKey) -> list[Scope]:
        """Return the tenant's scopes that have records under a prefix. For operators: it crosses scopes."""

    def count(self, scope: Scope | None = None) -> int:
        """Count the records of a scope in all spaces, or those of the store. Expired ones count until they are gone."""

    def expired(self, scope: Scope, now: datetime) -> list[tuple[str, RecordKey, datetime]]:
        """Return the space, the key and the end of each record of a scope whose time is over; none under a hold."""

    def expire(self, now: datetime) -> int:
        """Remove the records of all scopes whose time is over, but none under a hold. Return how many there were."""
