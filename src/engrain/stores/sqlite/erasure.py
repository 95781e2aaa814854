"""Erasure in a file: the texts to search it for afterwards, its copies and its bytes."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from engrain.core.errors import StoreError
from engrain.core.model.erasure import Subject
from engrain.core.model.plans import Forget
from engrain.stores.relational.audit import Audit
from engrain.stores.relational.dialect import Dialect, Transaction
from engrain.stores.relational.erasure import Erasures
from engrain.stores.relational.forget import find_part, find_removal, find_requests
from engrain.stores.relational.scopes import find_user_scopes
from engrain.stores.sqlite.connection import Connection
from engrain.stores.sqlite.lock import FileLock, read_at
from engrain.stores.sqlite.opening import StoreFile, as_immutable, find_open_files
from engrain.stores.sqlite.pool import Pool
from engrain.stores.sqlite.schema import APPLICATION_ID, open_outside
from engrain.stores.sqlite.syntax import load_sql

_SQL = load_sql()
_CHUNK_BYTES, _OVERLAP_BYTES = 1 << 24, 64
MAX_DECRYPTED_BYTES = 1_000_000_000  # an encrypted store is decrypted in memory and nowhere else
_SECTOR_BYTES = 512  # the smallest page: the size of a database is a multiple of it
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
    "record": ("space", "key", "body"),
}


class SqliteErasures(Erasures):
    deletes_at_begin = concurrent_writers = False

    def __init__(self, dialect: Dialect, audit: Audit, file: StoreFile, lock: FileLock | None, pool: Pool) -> None:
        super().__init__(dialect, audit)
        self._file, self._lock, self._pool = file, lock, pool

    def copies(self) -> list[str]:
        return [str(path) for path in _find_copies(self._file, self._dialect.key)]

    def raw(self) -> Iterator[bytes]:
        return _read_bytes(self._file, self._lock, self._pool)

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
            yield from (text if isinstance(text, bytes) else text.encode() for (text,) in rows)
    # The beginning of a vector may be alike in different scopes.
    most = _WHOLE_VECTOR if key is None else _VECTOR
    yield from (bytes(start) for (start,) in tx.rows("load_vector_pieces", key=key, most=most) if start)


def _load_part_pieces(tx: Transaction, subject: Subject) -> Iterator[bytes]:
    """Texts of some items with what hangs on them, and of what a session has besides."""
    if subject.by == "id":
        found = {item.n: item.id for item in find_removal(tx, Forget(subject.name)).items}
    else:
        yield subject.name.encode()
        numbers = {row[1]: row[0] for row in tx.rows("load_item_lineage")}
        found = {numbers[id_]: id_ for id_ in find_part(tx, subject).deleted}
    yield from (id_.encode() for id_ in find_requests(tx, found.values()))
    yield from (text.encode() for (text,) in tx.rows("load_item_texts", numbers=found))
    yield from (bytes(start) for (start,) in tx.rows("load_item_vector_pieces", numbers=found, most=_VECTOR))
    if subject.by == "session":
        yield from (text.encode() for (text,) in tx.rows("load_session_texts", session=subject.name))


def _read_bytes(file: StoreFile, lock: FileLock | None, pool: Pool) -> Iterator[bytes]:
    """Every byte of the store's files, in chunks that overlap. An encrypted store is decrypted.

    An encrypted store that is too large for the memory yields nothing."""
    if file.key is not None:
        pages = pool.run_bare(_decrypt)
        yield from (pages[at : at + _CHUNK_BYTES] for at in range(0, len(pages), _CHUNK_BYTES - _OVERLAP_BYTES))
        return
    if file.path and lock:
        number = lock.queue.database(file.path)
        # Not through a file of our own: closing it would drop the locks of every connection of this process.
        yield from _read_chunks(number, _OVERLAP_BYTES)
    # The shared memory beside the log holds page numbers and no content, and has locks on it as well.
    for path in file.files():
        if path != file.path and not path.name.endswith(("-shm", "-lock")):
            with contextlib.suppress(FileNotFoundError), path.open("rb") as sibling:
                yield from _read_chunks(sibling.fileno(), _OVERLAP_BYTES)


def _read_chunks(number: int, overlap: int) -> Iterator[bytes]:
    """The content of a file. Holes are left out: a sparse file of terabytes is quick to make and slow to read."""
    start = 0
    while (span := _find_data(number, start)) and (chunk := read_at(number, min(_CHUNK_BYTES, span[1]), span[0])):
        yield chunk
        start = span[0] + len(chunk) - (overlap if len(chunk) == _CHUNK_BYTES else 0)


def _find_data(number: int, start: int) -> tuple[int, int] | None:
    """The next place with content, and how many bytes of it there are; None at the end of the file."""
    if not hasattr(os, "SEEK_DATA"):
        return start, _CHUNK_BYTES
    try:
        begin = os.lseek(number, start, os.SEEK_DATA)
        return begin, os.lseek(number, begin, os.SEEK_HOLE) - begin
    except OSError as exc:
        if exc.errno == errno.ENXIO:
            return None
        return start, _CHUNK_BYTES  # of a file system that cannot tell


def _decrypt(db: Connection) -> bytes:
    ((count,),), ((page_bytes,),) = db.rows("pragma page_count"), db.rows("pragma page_size")
    return db.pages() if count * page_bytes <= MAX_DECRYPTED_BYTES else b""


def _find_copies(file: StoreFile, key: bytes) -> list[Path]:
    """The databases with this store's key in them that are not its own files. Encrypted ones cannot be recognized."""
    if file.path is None:
        return []
    own, opened = set(file.files()), find_open_files()
    databases = _find_databases(file.path.parent, opened)
    return sorted(path for path in databases if path not in own and _is_copy(path, file, key))


def _find_databases(folder: Path, opened: set[tuple[int, int]]) -> Iterator[Path]:
    for path in folder.iterdir():
        try:
            status = path.lstat()
            plain = stat.S_ISREG(status.st_mode) and status.st_size and status.st_size % _SECTOR_BYTES == 0
            if plain and (status.st_dev, status.st_ino) not in opened and _is_store(path):
                yield path
        except OSError:
            continue  # it went meanwhile, or may not be read


def _is_store(path: Path) -> bool:
    with path.open("rb") as file:
        head = file.read(100)
    return head.startswith(b"SQLite format 3\x00") and head[68:72] == APPLICATION_ID.to_bytes(4, "big")


def _is_copy(path: Path, store: StoreFile, key: bytes) -> bool:
    """By the key in its table. A file that is damaged, half-written or not ours is read byte by byte."""
    try:
        with open_outside(as_immutable(replace(store, path=path, key=None))) as (db, _):
            found = db.rows(_SQL["find_meta"], {"name": "key"})
    except (StoreError, UnicodeError):
        found = []
    return found[0][0] == key.hex() if found else _contains(path, key.hex().encode())


def _contains(path: Path, key: bytes) -> bool:
    with path.open("rb") as file:
        return any(key in chunk for chunk in _read_chunks(file.fileno(), len(key)))
