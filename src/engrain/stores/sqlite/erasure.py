"""Erasure in a file: the texts to search it for afterwards, its copies and its bytes."""

from __future__ import annotations

from collections.abc import Iterator

from engrain.core.model.erasure import Subject
from engrain.core.model.plans import Forget
from engrain.stores.relational.audit import Audit
from engrain.stores.relational.dialect import Dialect, Transaction
from engrain.stores.relational.erasure import Erasures
from engrain.stores.relational.forget import find_part, find_removal, find_requests
from engrain.stores.relational.scopes import find_user_scopes
from engrain.stores.sqlite.erasure_scan import find_copies, read_bytes
from engrain.stores.sqlite.lock import FileLock
from engrain.stores.sqlite.opening import StoreFile
from engrain.stores.sqlite.pool import Pool

_CHUNK_BYTES, _OVERLAP_BYTES = 1 << 24, 64
_VECTOR = 64  # bytes that tell one from another
_WHOLE_VECTOR = 1 << 30
# Table by table, the columns in which something was said or named.
_TEXTS: dict[str, tuple[str, ...]] = {
    "item": ("text", "metadata", "speaker", "role", "slot", "subject", "relation", "object"),
    "source": ("name",),
    "session": ("session",),
    "summary": ("text",),
    "episode": ("text", "data", "key"),
    "raw_text": ("text",),
    "request": ("id",),
    "trial": ("note", "task"),
    "task": ("task", "goal", "outcome", "worker"),
    "step": ("name", "input", "key", "error", "result"),
    "snapshot": ("body",),
    "large_result": ("body",),
    "event": ("event", "payload"),
}


class SqliteErasures(Erasures):
    deletes_at_begin = concurrent_writers = False

    def __init__(self, dialect: Dialect, audit: Audit, file: StoreFile, lock: FileLock | None, pool: Pool) -> None:
        super().__init__(dialect, audit)
        self._file, self._lock, self._pool = file, lock, pool

    def copies(self) -> list[str]:
        return [str(path) for path in find_copies(self._file, self._dialect.key)]

    def raw(self) -> Iterator[bytes]:
        return read_bytes(self._file, self._lock, self._pool, _CHUNK_BYTES, _OVERLAP_BYTES)

    def search_terms(self, subject: Subject | None) -> Iterator[bytes]:
        return iter(self._dialect.read(None, lambda tx: list(_load_pieces(tx, subject))))


def _load_pieces(tx: Transaction, subject: Subject | None) -> Iterator[bytes]:
    if subject is None:
        yield from (text.encode() for (text,) in tx.rows("load_own_texts") if text)
        yield from _load_scope_pieces(tx, None)
    elif subject.by == "user":
        for row in find_user_scopes(tx, subject):
            yield from _load_scope_pieces(tx, int(row.key))
    else:
        yield from _load_part_pieces(tx.within(subject.scope), subject)


def _load_scope_pieces(tx: Transaction, key: int | None) -> Iterator[bytes]:
    """Everything that was said or named in one scope, or in all."""
    yield from (name.encode() for row in tx.rows("load_scope_names", key=key) for name in row if name)
    load = tx.dialect.statements["load_column"]
    for table, columns in _TEXTS.items():
        for column in columns:
            rows = tx.rows(load.fill(table=table, column=column), key=key)
            yield from (text.encode() for (text,) in rows)
    # The beginning of a vector may be alike in different scopes.
    most = _WHOLE_VECTOR if key is None else _VECTOR
    yield from (bytes(start) for (start,) in tx.rows("load_vector_pieces", key=key, most=most))


def _load_part_pieces(tx: Transaction, subject: Subject) -> Iterator[bytes]:
    """Texts of some items with what hangs on them, and of what a session has besides."""
    if subject.by == "id":
        found = {one.n: one.id for one in find_removal(tx, Forget(subject.name)).items}
    else:
        yield subject.name.encode()
        numbers = {row[1]: row[0] for row in tx.rows("load_item_lineage")}
        found = {numbers[id_]: id_ for id_ in find_part(tx, subject).deleted}
    yield from (id_.encode() for id_ in find_requests(tx, found.values()))
    yield from (text.encode() for (text,) in tx.rows("load_item_texts", numbers=found))
    yield from (bytes(start) for (start,) in tx.rows("load_item_vector_pieces", numbers=found, most=_VECTOR))
    if subject.by == "session":
        yield from (text.encode() for (text,) in tx.rows("load_session_texts", session=subject.name))
