"""The audit log in the store's file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
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
from engrain.stores.sqlite.engine import Connection, Row
from engrain.stores.sqlite.sql import load

if TYPE_CHECKING:
    from engrain.stores.sqlite.handle import Handle

_SQL = load("audit.sql")
_QUERIES = load("queries.sql")
_ALL = 1 << 62
PAGE = 10_000


class SqliteAudit:
    def __init__(self, store: Handle) -> None:
        self._store = store

    def append(self, what: str, details: Mapping[str, Any], subject: str | None = None) -> AuditEntry:
        with self._store._writing() as db:
            return self.write(db, what, details, subject)

    def write(self, db: Connection, what: str, details: Mapping[str, Any], subject: str | None = None) -> AuditEntry:
        """Inside a transaction."""
        key = self._store._key
        ((last,),) = db.rows(_SQL["last"])
        entry = make_entry(
            key, audit.find_end(key, head_of(db), last), from_micros(self._store._micros(db)), what, subject, details
        )
        row = (entry.n, to_micros(entry.at), what, subject, encode_details(details), entry.previous, entry.hash)
        db.run(_SQL["add"], row)
        head = seal_head(key, entry.n, entry.hash)
        db.run(_QUERIES["set_meta"], ("audit", audit.write_head(head)))
        return entry

    def entries(self, after: int, limit: int) -> list[AuditEntry]:
        with self._store._reading() as db:
            return [entry_of(row) for row in db.rows(_SQL["entries"], (after, limit))]

    def verify(self) -> AuditResult:
        with self._store._reading() as db:
            return verify_log(self._store._key, _all(db), head_of(db), bool(db.rows(_SQL["begun"])))


def _all(db: Connection) -> Iterator[AuditEntry]:
    """A page at a time."""
    after = -_ALL
    while rows := db.rows(_SQL["entries"], (after, PAGE)):
        yield from map(entry_of, rows)
        after = rows[-1][0]


def head_of(db: Connection) -> AuditHead:
    rows = db.rows(_QUERIES["meta"], ("audit",))
    return audit.read_head(rows[0][0]) if rows else AuditHead()


def entry_of(row: Row) -> AuditEntry:
    return audit.row_to_entry(row)
