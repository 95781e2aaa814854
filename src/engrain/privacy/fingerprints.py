"""Look for texts in the bytes of files without keeping the texts: by keyed prints of a few windows of each."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

WINDOW = 12  # bytes; a shorter text or name cannot be told from chance
DIFFERENT = 5  # bytes; a window of zeros is everywhere
PAGE = 2_000  # bytes; less than half of a page
MOST = 400_000
_STEP = 1 << 20
_BITS = 22

Hashes = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Prints:
    """The key is of this erasure alone, and goes with it: nobody can ask later whether a text was there."""

    first: int
    second: int
    hashes: Hashes

    def __len__(self) -> int:
        return len(self.hashes)

    def __bytes__(self) -> bytes:
        head = np.array([self.first, self.second], dtype="<u8")
        return head.tobytes() + self.hashes.astype("<u8").tobytes()

    def without(self, shared: Hashes) -> Prints:
        return Prints(self.first, self.second, np.setdiff1d(self.hashes, shared))


def prints_from(raw: bytes) -> Prints:
    """None from nothing: of a server none are taken."""
    if not raw:
        return Prints(1, 1, np.empty(0, dtype=np.uint64))
    numbers = np.frombuffer(raw, dtype="<u8")
    return Prints(int(numbers[0]), int(numbers[1]), numbers[2:].copy())


def prints_of(pieces: Iterable[bytes]) -> Prints:
    """Of the beginning, the end and two windows between of each piece, and of a long one of so many that each page of a
    file that it fills has one; of each window once."""
    windows: set[bytes] = set()
    for piece in pieces:
        last = len(piece) - WINDOW
        if last >= 0 and len(windows) < MOST:
            starts = {0, last // 3, 2 * last // 3, last, *range(0, last, PAGE)}
            found = (piece[start : start + WINDOW] for start in starts)
            windows.update(window for window in found if len(set(window)) >= DIFFERENT)
    first, second = (int.from_bytes(os.urandom(8), "little") | 1 for _ in range(2))
    rows = np.frombuffer(b"".join(windows), dtype=np.uint8).reshape(-1, WINDOW)
    ahead, behind = (np.ascontiguousarray(rows[:, start : start + 8]).view("<u8").ravel() for start in (0, WINDOW - 8))
    return Prints(first, second, np.unique(_mixed(first, second, ahead, behind)))


def looked_for(prints: Prints, chunks: Iterable[bytes]) -> tuple[Hashes, int]:
    """Which of the prints are somewhere in these bytes, and how many bytes were looked at."""
    table = np.zeros(1 << _BITS, dtype=np.bool_)
    table[prints.hashes >> np.uint64(64 - _BITS)] = True
    found: list[Hashes] = []
    size = 0
    for chunk in chunks:
        size += len(chunk)
        for part in _parts(chunk) if len(prints) else ():
            hashes = _hashed(prints, part)
            likely = hashes[table[hashes >> np.uint64(64 - _BITS)]]
            if len(likely):
                found.append(np.intersect1d(likely, prints.hashes))
    return (np.unique(np.concatenate(found)) if found else np.empty(0, dtype=np.uint64)), size


def joined(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Small pieces as large ones, with a gap between that no window bridges unseen."""
    waiting: list[bytes] = []
    size = 0
    for piece in pieces:
        waiting.append(piece)
        size += len(piece) + 1
        if size >= _STEP:
            yield b"\xff".join(waiting)
            waiting, size = [], 0
    if waiting:
        yield b"\xff".join(waiting)


def _parts(chunk: bytes) -> Iterator[npt.NDArray[np.uint8]]:
    whole = np.frombuffer(chunk, dtype=np.uint8)
    for start in range(0, max(len(whole) - WINDOW + 1, 0), _STEP):
        yield whole[start : start + _STEP + WINDOW - 1]


def _hashed(prints: Prints, part: npt.NDArray[np.uint8]) -> Hashes:
    """Of every window, wherever it begins."""
    hashes: list[Hashes] = []
    for start in range(min(8, len(part) - WINDOW + 1)):
        size = 8 * ((len(part) - start - WINDOW) // 8 + 1)
        ahead, behind = (part[at : at + size].view("<u8") for at in (start, start + WINDOW - 8))
        hashes.append(_mixed(prints.first, prints.second, ahead, behind))
    return np.concatenate(hashes) if hashes else np.empty(0, dtype=np.uint64)


def _mixed(first: int, second: int, ahead: Hashes, behind: Hashes) -> Hashes:
    """A window's first eight bytes and its last eight, each times a secret odd number."""
    with np.errstate(over="ignore"):
        mixed = ahead * np.uint64(first) ^ (behind * np.uint64(second)) >> np.uint64(7)
        return mixed * np.uint64(second)
