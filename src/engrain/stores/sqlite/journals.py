"""Refuse a rollback journal that engrain did not write: SQLite obeys it before anything can be checked."""

from __future__ import annotations

import os
import struct
from pathlib import Path

from engrain.core.errors import NotADatabase

_MAGIC = bytes.fromhex("d9d505f920a163d7")
_HEAD_BYTES, _END_BYTES = 20, 16
_MAX_SECTOR_BYTES = 4_096  # before the first page of a journal
# Logs are numbered from a random number on, so that one of another store, or of a copy, is told from our own.
FIRST_LOG = 1 << 32  # stores of before counted from 0
_RANDOM = f"{FIRST_LOG} + (random() & {(1 << 61) - 1})"
RENUMBER_LOGS = f"update counter set logs = {_RANDOM} where n = 0"
NEXT_LOG = f"update counter set logs = iif(logs < {FIRST_LOG}, {_RANDOM}, logs + 1) where n = 0"
_OPEN_FILES = ("/proc/self/fd", "/dev/fd")


def check_journal(path: Path, has_log: bool) -> None:
    """NotADatabase for a journal that deletes another file, empties the store, or is beside a store with a log.

    A journal can name another file, which SQLite deletes once it has undone the writes in the journal. It does so for
    transactions over several files, and engrain makes none. Before that it writes the pages of the journal into the
    store, and cuts it to the number of pages that the journal names. engrain writes a new store as one file, so that
    none of its journals names zero. `has_log`: this process would open the store with a write-ahead log.
    """
    journal = path.with_name(path.name + "-journal")
    try:
        with journal.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            head = os.pread(file.fileno(), _HEAD_BYTES, 0)
            tail = os.pread(file.fileno(), _END_BYTES, max(0, size - _END_BYTES))
    except FileNotFoundError:
        return
    if len(head) < _HEAD_BYTES or len(tail) < _END_BYTES:
        return  # nothing to undo: empty, or another process ended its transaction just now
    start, _, _, pages = struct.unpack(">8sIII", head)
    length, _, end = struct.unpack(">II8s", tail)
    if end == _MAGIC and length:
        raise NotADatabase(
            f"{journal} names another file, for SQLite to delete it: engrain did not write it. Move it away."
        )
    if start == _MAGIC and not pages and path.is_file() and path.stat().st_size:
        raise NotADatabase(f"{journal} would empty the store: engrain did not write it. Move it away.")
    if start == _MAGIC and has_log and _is_foreign(path, size, pages):
        raise NotADatabase(f"{journal} is not of this store, which has a write-ahead log instead. Move it away.")


def _is_foreign(path: Path, size: int, pages: int) -> bool:
    """A store with a write-ahead log has a journal only while it changes to or from that log, of its first page."""
    if not path.is_file() or (path.stat().st_dev, path.stat().st_ino) in find_open_files():
        return False  # a store that is open here was looked at before
    with path.open("rb") as file:
        page_bytes, *versions = struct.unpack(">16xHBB", file.read(20).ljust(20, b"\0"))
    page_bytes = 65_536 if page_bytes == 1 else page_bytes
    one_page = size <= _MAX_SECTOR_BYTES + page_bytes + 8
    return versions == [2, 2] and not (one_page and pages * page_bytes == path.stat().st_size)


def find_open_files() -> set[tuple[int, int]]:
    """The files that this process has open. Reading and closing one of them would drop its locks."""
    folder = next((folder for folder in _OPEN_FILES if os.path.isdir(folder)), None)
    found = set()
    for name in os.listdir(folder) if folder else ():
        try:
            status = os.fstat(int(name))
        except (OSError, ValueError):
            continue  # closed meanwhile
        found.add((status.st_dev, status.st_ino))
    return found
