"""Records of one scope: opaque bodies by key, for frameworks that keep their own data in a memory."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, get_args

from engrain.core.errors import ConfigError, InvalidInput
from engrain.core.identity import Scope
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
from engrain.ports import Services
from engrain.ports.records import Records

if TYPE_CHECKING:
    from engrain.tiers.indexed_records import IndexedRecords


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
        from engrain.tiers.indexed_records import IndexedRecords

        return IndexedRecords(self._services, self._scope, space, self._port)

    @property
    def _port(self) -> Records:
        return require_records(self._services)


def require_records(services: Services) -> Records:
    """Return the port; ConfigError if the store has none."""
    if services.records is None:
        raise ConfigError("this store keeps no records. Use a SQLite file or Postgres.")
    return services.records
