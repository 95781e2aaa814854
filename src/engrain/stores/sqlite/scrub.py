"""Overwrite what is left in the unused parts of a database file's pages."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator

from engrain.core.errors import StoreError

# secure_delete overwrites a deleted row where it stands. But when SQLite balances its pages, a row moves and its old
# bytes stay in the free middle of the page that it left, beyond the reach of any later delete (seen: 8 of 602 forgotten
# texts). VACUUM would help, at ten times the time and three times the space.
_LEAVES = (10, 13)
_TREES = (2, 5, *_LEAVES)
_CHUNK = 256
# A page of another kind begins with the number of a page: below this it cannot look like a page of a tree.
MOST_PAGES = 2 << 24


def scrub(file: int) -> int:
    """How many pages were cleaned. Nobody may write to the file meanwhile, and its log must be empty."""
    head = _read(file, 100, 0)
    size = int.from_bytes(head[16:18], "big")
    size = 65536 if size == 1 else size
    usable = size - head[20]
    if os.fstat(file).st_size // size >= MOST_PAGES:
        raise StoreError("the file is too large to clean its pages one by one. Run VACUUM on it.")
    cleaned = 0
    for number, page in _pages(file, size):
        holes = list(_holes(page, 100 if number == 0 else 0, usable))
        for start, end in holes:
            _write(file, bytes(end - start), number * size + start)
        cleaned += bool(holes)
    if cleaned:
        os.fsync(file)
    return cleaned


def _pages(file: int, size: int) -> Iterator[tuple[int, bytes]]:
    number = 0
    while chunk := _read(file, size * _CHUNK, number * size):
        for start in range(0, len(chunk) - size + 1, size):
            yield number, chunk[start : start + size]
            number += 1
        if len(chunk) < size * _CHUNK:
            return


def _holes(page: bytes, header: int, usable: int) -> Iterator[tuple[int, int]]:
    """The unused spans of a page that hold something: between the cell pointers and the cells, and freed cells."""
    kind = page[header]
    if kind not in _TREES:
        return
    block = int.from_bytes(page[header + 1 : header + 3], "big")
    cells = int.from_bytes(page[header + 3 : header + 5], "big")
    end = int.from_bytes(page[header + 5 : header + 7], "big") or 65536
    start = header + (8 if kind in _LEAVES else 12) + 2 * cells
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


if sys.platform == "win32":

    def _read(file: int, size: int, at: int) -> bytes:
        os.lseek(file, at, os.SEEK_SET)
        return os.read(file, size)

    def _write(file: int, what: bytes, at: int) -> int:
        os.lseek(file, at, os.SEEK_SET)
        return os.write(file, what)

else:
    _read, _write = os.pread, os.pwrite
