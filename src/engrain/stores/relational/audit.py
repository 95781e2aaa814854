"""Append to the audit log and verify it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from engrain.core.clock import from_micros, to_micros
from engrain.core.model.audit import (
    AuditEntry,
    AuditHead,
    AuditResult,
    encode_details,
    find_end,
    make_entry,
    read_head,
    row_to_entry,
    seal_head,
    verify_log,
    write_head,
)
from engrain.stores.relational.dialect import Dialect, Transaction

_BEFORE_ALL = -(1 << 62)
_PAGE = 10_000


class Audit:
    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect

    def append(self, what: str, details: Mapping[str, Any], subject: str | None = None) -> AuditEntry:
        encode_details(details)  # bad input is refused before a transaction begins
        return self._dialect.write(None, lambda tx: self.write(tx, what, details, subject))

    def write(self, tx: Transaction, what: str, details: Mapping[str, Any], subject: str | None = None) -> AuditEntry:
        """Append inside a transaction. Others who append wait for its end."""
        key = self._dialect.key
        tx.run("create_audit_head")
        ((head,),) = tx.rows("lock_audit_head")
        ((last,),) = tx.rows("find_last_audit_entry")
        entry = make_entry(key, find_end(key, read_head(head), last), from_micros(tx.now()), what, subject, details)
        values = {"n": entry.n, "at": to_micros(entry.at), "what": what, "subject": subject}
        hashes = {"previous": entry.previous, "hash": entry.hash}
        tx.run("add_audit_entry", **values, **hashes, details=encode_details(details))
        tx.run("store_audit_head", value=write_head(seal_head(key, entry.n, entry.hash)))
        return entry

    def entries(self, after: int, limit: int) -> list[AuditEntry]:
        return [row_to_entry(row) for row in self._dialect.ask(None, "load_audit_entries", after=after, limit=limit)]

    def verify(self) -> AuditResult:
        def do(tx: Transaction) -> AuditResult:
            expected = bool(tx.rows("find_audited_act"))
            return verify_log(self._dialect.key, _read_all(tx), load_head(tx), expected)

        return self._dialect.read(None, do)


def load_head(tx: Transaction) -> AuditHead:
    rows = tx.rows("load_audit_head")
    return read_head(rows[0][0]) if rows else AuditHead()


def _read_all(tx: Transaction) -> Iterator[AuditEntry]:
    after = _BEFORE_ALL
    while rows := tx.rows("load_audit_entries", after=after, limit=_PAGE):
        yield from map(row_to_entry, rows)
        after = rows[-1][0]
