"""The audit log on the server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from engrain.core.clock import from_micros, to_micros
from engrain.core.model import audit
from engrain.core.model.audit import (
    AuditEntry,
    AuditHead,
    AuditResult,
    encode_details,
    make_entry,
    seal_head,
    verify_log,
)
from engrain.stores.postgres.link import Db, Row
from engrain.stores.postgres.sql import load

if TYPE_CHECKING:
    from engrain.stores.postgres.handle import Handle

_SQL = load("erasing.sql")
_ALL = 1 << 62


class PostgresAudit:
    def __init__(self, store: Handle) -> None:
        self._store = store

    def append(self, what: str, details: Mapping[str, Any], subject: str | None = None) -> AuditEntry:
        encode_details(details)
        return self._store._writing(None, lambda db: self.write(db, what, details, subject))

    def write(self, db: Db, what: str, details: Mapping[str, Any], subject: str | None = None) -> AuditEntry:
        """Inside a transaction: others who append wait for its end."""
        db.run(_SQL["first_head"])
        ((head,),) = db.rows(_SQL["lock_head"])
        key = self._store._key
        ((last,),) = db.rows(_SQL["last_entry"])
        end = audit.find_end(key, audit.read_head(head), last)
        entry = make_entry(key, end, from_micros(self._store._micros(db)), what, subject, details)
        row = (entry.n, to_micros(entry.at), what, subject, encode_details(details), entry.previous, entry.hash)
        db.run(_SQL["add_entry"], row)
        db.run(_SQL["set_head"], (audit.write_head(seal_head(key, entry.n, entry.hash)),))
        return entry

    def entries(self, after: int, limit: int) -> list[AuditEntry]:
        rows = self._store._reading(None, lambda db: db.rows(_SQL["entries"], (after, limit)))
        return [entry_of(row) for row in rows]

    def verify(self) -> AuditResult:
        def do(db: Db) -> tuple[list[Row], AuditHead, bool]:
            return db.rows(_SQL["entries"], (-_ALL, _ALL)), head_of(db), bool(db.rows(_SQL["begun"]))

        rows, head, begun = self._store._reading(None, do)
        return verify_log(self._store._key, map(entry_of, rows), head, begun)


def head_of(db: Db) -> AuditHead:
    rows = db.rows(_SQL["head"])
    return audit.read_head(rows[0][0]) if rows else AuditHead()


def entry_of(row: Row) -> AuditEntry:
    return audit.row_to_entry(row)
