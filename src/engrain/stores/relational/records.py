"""Records: opaque bodies by key."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from itertools import groupby

from engrain.core.clock import from_micros, to_micros
from engrain.core.errors import Conflict, NotFound
from engrain.core.identity import Scope
from engrain.core.model.records import (
    Record,
    RecordKey,
    RecordScan,
    RecordWrite,
    ScanOrder,
    decode_key,
    describe_conflict,
    encode_key,
    find_range,
    hash_body,
)
from engrain.stores.relational.dialect import Dialect, Transaction
from engrain.stores.relational.rows import Row, read_time, write_time
from engrain.stores.relational.scopes import check_hold
from engrain.stores.relational.sessions import delete_in_batches

_AFTER_ALL = 1 << 62
_SCANS: dict[ScanOrder, str] = {
    "ascending": "scan_records_ascending",
    "descending": "scan_records_descending",
    "newest": "scan_records_newest",
}


class Records:
    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect

    def write(self, scope: Scope, write: RecordWrite) -> None:
        # Hashed before the writer is asked: a body may have 16 MB.
        rows = [
            {
                "space": write.space,
                "key": encode_key(draft.key),
                "expires_at": write_time(draft.expires_at),
                "hash": bytes.fromhex(hash_body(draft.body)),
                "body": draft.body,
            }
            for draft in write.puts
        ]

        def do(tx: Transaction) -> None:
            tx.lock_holds(tx.owner)
            _, now = tx.begin_write()
            _check_expected(tx, write)
            for prefix in write.drops:
                _drop(tx, write.space, prefix)
            for keep, some in groupby(zip(rows, write.puts, strict=True), key=lambda pair: pair[1].keep):
                tx.many("keep_record" if keep else "put_record", [{**row, "at": now} for row, _ in some])
            if tx.changes:
                tx.end_write()

        self._dialect.write(scope, do)

    def read(self, scope: Scope, space: str, keys: Sequence[RecordKey]) -> list[Record]:
        wanted = [encode_key(key) for key in keys]
        rows = self._dialect.ask(scope, "load_records", space=space, keys=wanted, at=None) if keys else []
        found = {row[0]: row for row in rows}
        return [_read_record(found[key]) for key in wanted if key in found]

    def scan(self, scope: Scope, scan: RecordScan) -> list[Record]:
        low, high = find_range(scan.prefix, scan.order, scan.after)
        values = {"space": scan.space, "low": low, "high": high, "limit": scan.limit, "at": None}

        def do(tx: Transaction) -> list[Record]:
            if scan.order == "newest":
                values["before"] = _AFTER_ALL if scan.after is None else _find_change(tx, scan.space, scan.after)
            return [_read_record(row) for row in tx.rows(_SCANS[scan.order], **values)]

        return self._dialect.read(scope, do)

    def keys(self, scope: Scope, scan: RecordScan) -> list[RecordKey]:
        low, high = find_range(scan.prefix, after=scan.after)
        values = {"space": scan.space, "low": low, "high": high, "limit": scan.limit, "at": None}
        return [decode_key(key) for (key,) in self._dialect.ask(scope, "list_record_keys", **values)]

    def drop(self, scope: Scope, space: str, prefix: RecordKey = ()) -> int:
        def do(tx: Transaction) -> int:
            tx.lock_holds(tx.owner)
            tx.lock_scope()
            removed = _drop(tx, space, prefix)
            if removed:
                tx.mark_purge()
            return removed

        return self._dialect.write(scope, do)

    def find(self, tenant: str | None, space: str, prefix: RecordKey) -> list[Scope]:
        low, high = find_range(prefix)
        values = {"tenant": tenant, "space": space, "low": low, "high": high, "at": None}
        return [Scope(*names) for names in self._dialect.ask(None, "find_record_scopes", **values)]

    def count(self, scope: Scope | None = None) -> int:
        statement = "count_all_records" if scope is None else "count_scope_records"
        return int(self._dialect.ask(scope, statement)[0][0])

    def expired(self, scope: Scope, now: datetime) -> list[tuple[str, RecordKey, datetime]]:
        rows = self._dialect.ask(scope, "list_expired_records", at=to_micros(now))
        return [(space, decode_key(key), from_micros(end)) for space, key, end in rows]

    def expire(self, now: datetime) -> int:
        return delete_in_batches(self._dialect, "delete_expired_records", now)


def _check_expected(tx: Transaction, write: RecordWrite) -> None:
    if not write.expect:
        return
    keys = [encode_key(key) for key, _ in write.expect]
    rows = tx.rows("load_record_hashes", space=write.space, keys=keys, at=None)
    found = {key: bytes(digest).hex() for key, digest in rows}
    for key, digest in write.expect:
        if found.get(encode_key(key)) != digest:
            raise Conflict(describe_conflict(write.space, key, digest))


def _drop(tx: Transaction, space: str, prefix: RecordKey) -> int:
    low, high = find_range(prefix)
    removed = len(tx.rows("delete_records", space=space, low=low, high=high))
    if removed:
        check_hold(tx)
    return removed


def _find_change(tx: Transaction, space: str, key: RecordKey) -> int:
    rows = tx.rows("find_record_change", space=space, key=encode_key(key))
    if not rows:
        raise NotFound(f"the record {'/'.join(key)!r} to go on from is gone. Scan from the beginning.")
    return int(rows[0][0])


def _read_record(row: Row) -> Record:
    key, body, at, expires_at = row
    return Record(decode_key(key), bytes(body), from_micros(at), read_time(expires_at))
