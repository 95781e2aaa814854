"""Overwrite what is left in the unused parts of a database file's pages."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Iterator

# secure_delete overwrites a deleted row where it stands. But when SQLite balances its pages, a row moves and its old
# bytes stay in the free middle of the page that it left, beyond the reach of any later delete (seen: 8 of 602 forgotten
# texts). VACUUM would help, at ten times the time and three times the space.
_LEAVES = (10, 13)
_TREES = (2, 5, *_LEAVES)
_CHUNK = 256


def scrub(file: int, first: int = 0, seconds: float = math.inf) -> int | None:
    """From a page on, as far as the time goes: the page to go on from, or None after the last.

    Nobody may write to the file meanwhile, and its log must be empty.
    """
    head = _read(file, 100, 0)
    size = int.from_bytes(head[16:18], "big")
    size = 65536 if size == 1 else size
    kinds = _kinds(head, os.fstat(file).st_size // size)
    ends = time.monotonic() + seconds
    wrote, left = False, None
    for number, page in _pages(file, size, first):
        if number % _CHUNK == 0 and number > first and time.monotonic() >= ends:
            left = number
            break
        for start, end in _holes(page, 100 if number == 0 else 0, size - head[20], kinds):
            _write(file, bytes(end - start), number * size + start)
            wrote = True
    if wrote:
        os.fsync(file)
    return left


def _kinds(head: bytes, pages: int) -> frozenset[int]:
    """First bytes that only pages of a tree have.

    A page of another kind begins with the number of a page, whose first byte grows with the file; in a file that
    vacuums itself, some begin with a number up to 5. Where it cannot be told, the page is left as it is.
    """
    highest = max(pages >> 24, 5 if any(head[52:56]) else 0)
    return frozenset(kind for kind in _TREES if kind > highest)


def _pages(file: int, size: int, first: int) -> Iterator[tuple[int, bytes]]:
    number = first
    while chunk := _read(file, size * _CHUNK, number * size):
        for start in range(0, len(chunk) - size + 1, size):
            yield number, chunk[start : start + size]
            number += 1
        if len(chunk) < size * _CHUNK:
            return


def _holes(page: bytes, header: int, usable: int, kinds: frozenset[int]) -> Iterator[tuple[int, int]]:
    """The unused spans of a page that hold something: between the cell pointers and the cells, and freed cells."""
    kind = page[header]
    if kind not in kinds:
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
