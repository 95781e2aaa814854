"""Remove the bytes of forgotten rows from every file of the store."""

from __future__ import annotations

import contextlib
import math
import os
import time
from collections.abc import Iterator
from pathlib import Path

from engrain.core.errors import EngrainError, StoreBusy, StoreError
from engrain.stores.sqlite.checksums import build_commit_count, list_triggers
from engrain.stores.sqlite.connection import Connection
from engrain.stores.sqlite.lock import FileLock, read_at, write_at
from engrain.stores.sqlite.opening import BUSY_MILLISECONDS, StoreFile
from engrain.stores.sqlite.pool import Pool
from engrain.stores.sqlite.syntax import load_sql
from engrain.stores.sqlite.writer import LOCK_SECONDS, WriteQueue

_SQL = load_sql()
_WAIT_FOR_READERS_MILLISECONDS = 250
_RETRY_SECONDS = 1.0
# Pages are cleaned for so long before other writers have their turn; a caller waits so long for the last page.
SLICE_SECONDS = 0.5
_MAX_WAIT_SECONDS = 10.0
# secure_delete overwrites a deleted row where it stands. But when SQLite balances its pages, a row moves and its old
# bytes stay in the free middle of the page that it left, beyond the reach of any later delete (seen: 8 of 602 forgotten
# texts). VACUUM would help, at ten times the time and three times the space.
_LEAF_PAGES = (10, 13)
_TREE_PAGES = (2, 5, *_LEAF_PAGES)
CHUNK_PAGES = 256


class Purge:
    """A mark in table meta says that a purge is pending, so that a crash does not lose it."""

    def __init__(self, writer: WriteQueue, pool: Pool, file: StoreFile, lock: FileLock | None) -> None:
        self._writer = writer
        self._pool = pool
        self._file = file
        self._lock = lock
        self._tried_at = 0.0
        self._cleaned: tuple[int, int] = (0, 0)  # the mark, and the first page that is not cleaned for it
        self.pending = False

    def expect(self) -> None:
        """A transaction that forgets has set the mark."""
        self._tried_at = time.monotonic()  # the caller's own purge comes first
        self.pending = True

    def after_commit(self, db: Connection) -> None:
        """Try again after a reader was in the way: the callers of this commit have their answers."""
        if not self.pending or time.monotonic() - self._tried_at < _RETRY_SECONDS:
            return
        self._tried_at = time.monotonic()
        with contextlib.suppress(EngrainError):  # it is still pending, and the next commits try again
            self._step(db, wait=False)

    def run(self, wait: bool = False) -> bool:
        """True if no forgotten bytes are left."""
        if self._file.read_only:
            return True
        self._tried_at = time.monotonic()
        self._pool.reclaim()
        ends = time.monotonic() + (_MAX_WAIT_SECONDS if wait else 0)
        while (done := self._writer.run_alone(lambda db: self._step(db, wait))) is None:
            if time.monotonic() >= ends:
                return False
        return done

    def _step(self, db: Connection, wait: bool) -> bool | None:
        """Clean for a while, in the thread that writes, outside any transaction. None if pages are left."""
        with self._lock.hold(LOCK_SECONDS) if self._lock else contextlib.nullcontext():
            marked = db.rows(_SQL["find_meta"], {"name": "purge"})
            if not _empty_log(db, _WAIT_FOR_READERS_MILLISECONDS if wait else 0):
                return False
            if marked:
                try:
                    done = self._clean(int(marked[0][0]))
                except OSError as exc:
                    raise StoreError(f"{self._file.path} could not be cleaned: {exc.strerror}. Try again.") from exc
                if not done:
                    return done
            self.pending = False  # here, where nobody can set another mark meanwhile
            return True

    def _clean(self, mark: int) -> bool | None:
        """Remove copies made before an upgrade, and the unused bytes of every page."""
        if not _remove_files(self._file.own_copies()):
            return False
        # A new connection: the old one remembers pages as they were and would write them back. Its commit makes every
        # other connection read its pages again.
        db = self._writer.reopen()
        if self._file.key is not None:
            # An encrypted page cannot be cleaned from outside: every page is rewritten.
            db.run("vacuum")
            if not _empty_log(db, _WAIT_FOR_READERS_MILLISECONDS):
                return False
        db.add_triggers(list_triggers())
        db.begin_writing()
        next_page = None
        if self._file.key is None and self._file.path and self._lock:
            if self._file.log_size():
                return False
            # A write between two slices cannot bring back rows that were forgotten before the first slice.
            cleaned_for, first = self._cleaned
            file = self._lock.queue.database(self._file.path)
            next_page = overwrite_unused_bytes(file, first if cleaned_for == mark else 0, SLICE_SECONDS)
        db.run(_SQL["delete_meta" if next_page is None else "set_meta"], {"name": "purge", "value": mark})
        self._cleaned = mark, next_page or 0
        db.count_commit(build_commit_count())
        db.commit()
        return True if next_page is None else None


def _remove_files(paths: list[Path]) -> bool:
    for path in paths:
        with contextlib.suppress(OSError):
            path.unlink()
    return not any(path.exists() for path in paths)


def _empty_log(db: Connection, patience: int) -> bool:
    """Bring the whole log into the file and truncate it. True at once with a rollback journal."""
    db.rows(f"pragma busy_timeout = {patience}")
    try:
        ((busy, _, _),) = db.rows("pragma wal_checkpoint(truncate)")
        return not busy
    except StoreBusy:
        return False
    finally:
        with contextlib.suppress(EngrainError):
            db.rows(f"pragma busy_timeout = {BUSY_MILLISECONDS}")


def overwrite_unused_bytes(file: int, first: int = 0, seconds: float = math.inf) -> int | None:
    """Overwrite the unused parts of pages, as far as the time goes: the next page, or None after the last.

    Nobody may write to the file meanwhile, and its log must be empty.
    """
    head = read_at(file, 100, 0)
    size = int.from_bytes(head[16:18], "big")
    size = 65536 if size == 1 else size
    # The count in the head holds where both change counters agree. A file may be longer, and even sparse.
    pages = os.fstat(file).st_size // size
    if head[24:28] == head[92:96]:
        pages = min(pages, int.from_bytes(head[28:32], "big"))
    kinds = find_tree_bytes(head, pages)
    ends = time.monotonic() + seconds
    wrote, next_page = False, None
    for number, page in _read_pages(file, size, range(first, pages)):
        if number % CHUNK_PAGES == 0 and number > first and time.monotonic() >= ends:
            next_page = number
            break
        for start, end in _find_holes(page, 100 if number == 0 else 0, size - head[20], kinds):
            write_at(file, bytes(end - start), number * size + start)
            wrote = True
    if wrote:
        os.fsync(file)
    return next_page


def find_tree_bytes(head: bytes, pages: int) -> frozenset[int]:
    """First bytes that only pages of a tree have.

    A page of another kind begins with the number of a page, whose first byte grows with the file; in a file that
    vacuums itself, some begin with a number up to 5. Where it cannot be told, the page is left as it is.
    """
    highest = max(pages >> 24, 5 if any(head[52:56]) else 0)
    return frozenset(kind for kind in _TREE_PAGES if kind > highest)


def _read_pages(file: int, size: int, numbers: range) -> Iterator[tuple[int, bytes]]:
    for first in numbers[::CHUNK_PAGES]:
        chunk = read_at(file, size * min(CHUNK_PAGES, numbers.stop - first), first * size)
        for start in range(0, len(chunk) - size + 1, size):
            yield first + start // size, chunk[start : start + size]


def _find_holes(page: bytes, header: int, usable: int, kinds: frozenset[int]) -> Iterator[tuple[int, int]]:
    """The unused spans of a page that are not zero: between the cell pointers and the cells, and freed cells."""
    kind = page[header]
    if kind not in kinds:
        return
    block = int.from_bytes(page[header + 1 : header + 3], "big")
    cells = int.from_bytes(page[header + 3 : header + 5], "big")
    end = int.from_bytes(page[header + 5 : header + 7], "big") or 65536
    start = header + (8 if kind in _LEAF_PAGES else 12) + 2 * cells
    if start < end <= usable and page.count(0, start, end) != end - start:
        yield start, end
    while end <= block <= usable - 4:
        following = int.from_bytes(page[block : block + 2], "big")
        last = block + int.from_bytes(page[block + 2 : block + 4], "big")
        if last <= usable and page.count(0, block + 4, last) < last - block - 4:
            yield block + 4, last
        if following <= block:
            return
        block = following
