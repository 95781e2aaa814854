"""Search files for texts without keeping the texts, by keyed fingerprints of a few windows of each."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

WINDOW_BYTES = 12  # a shorter text or name would be found by chance
MIN_DISTINCT_BYTES = 5  # in a window: a window of zeros is everywhere
SAMPLE_STEP_BYTES = 2_000  # less than half of a page
MAX_WINDOWS = 400_000
_CHUNK_BYTES = 1 << 20
_TABLE_BITS = 22

Hashes = npt.NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class Fingerprints:
    """The fingerprints of one erasure, under a key that is deleted with it: nobody can test a text later."""

    first: int
    second: int
    hashes: Hashes

    def __len__(self) -> int:
        return len(self.hashes)

    def __bytes__(self) -> bytes:
        head = np.array([self.first, self.second], dtype="<u8")
        return head.tobytes() + self.hashes.astype("<u8").tobytes()

    def without(self, shared: Hashes) -> Fingerprints:
        return Fingerprints(self.first, self.second, np.setdiff1d(self.hashes, shared))


def load_fingerprints(raw: bytes) -> Fingerprints:
    """Load stored fingerprints. Empty bytes give none: a server's data has none."""
    if not raw:
        return Fingerprints(1, 1, np.empty(0, dtype=np.uint64))
    numbers = np.frombuffer(raw, dtype="<u8")
    return Fingerprints(int(numbers[0]), int(numbers[1]), numbers[2:].copy())


def compute_fingerprints(pieces: Iterable[bytes]) -> Fingerprints:
    """Compute the fingerprints of each piece: its beginning, its end, two windows between.

    A long piece gets one window for each page of a file that it fills.
    """
    windows: set[bytes] = set()
    for piece in pieces:
        last = len(piece) - WINDOW_BYTES
        if last >= 0 and len(windows) < MAX_WINDOWS:
            starts = {0, last // 3, 2 * last // 3, last, *range(0, last, SAMPLE_STEP_BYTES)}
            found = (piece[start : start + WINDOW_BYTES] for start in starts)
            windows.update(window for window in found if len(set(window)) >= MIN_DISTINCT_BYTES)
    first, second = (int.from_bytes(os.urandom(8), "little") | 1 for _ in range(2))
    rows = np.frombuffer(b"".join(windows), dtype=np.uint8).reshape(-1, WINDOW_BYTES)
    ahead, behind = (
        np.ascontiguousarray(rows[:, start : start + 8]).view("<u8").ravel() for start in (0, WINDOW_BYTES - 8)
    )
    return Fingerprints(first, second, np.unique(_mix_halves(first, second, ahead, behind)))


def scan_chunks(prints: Fingerprints, chunks: Iterable[bytes]) -> tuple[Hashes, int]:
    """Return the fingerprints found in these bytes, and how many bytes were searched."""
    table = np.zeros(1 << _TABLE_BITS, dtype=np.bool_)
    table[prints.hashes >> np.uint64(64 - _TABLE_BITS)] = True
    found: list[Hashes] = []
    size = 0
    for chunk in chunks:
        size += len(chunk)
        for part in _split_chunk(chunk) if len(prints) else ():
            hashes = _hash_windows(prints, part)
            likely = hashes[table[hashes >> np.uint64(64 - _TABLE_BITS)]]
            if len(likely):
                found.append(np.intersect1d(likely, prints.hashes))
    return (np.unique(np.concatenate(found)) if found else np.empty(0, dtype=np.uint64)), size


def find_traces(prints: Fingerprints, raw: Iterable[bytes], stored: Iterable[bytes]) -> tuple[Hashes, Hashes, int]:
    """Return the fingerprints in the raw bytes, those that stored data has too, and how many bytes were searched."""
    found, size = scan_chunks(prints, raw)
    # After the raw bytes, so that data written during the search is included.
    shared = scan_chunks(prints, join_pieces(stored))[0] if len(found) else found
    return found, shared, size


def join_pieces(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """Join small pieces into large chunks, separated by a byte that no text has."""
    waiting: list[bytes] = []
    size = 0
    for piece in pieces:
        waiting.append(piece)
        size += len(piece) + 1
        if size >= _CHUNK_BYTES:
            yield b"\xff".join(waiting)
            waiting, size = [], 0
    if waiting:
        yield b"\xff".join(waiting)


def _split_chunk(chunk: bytes) -> Iterator[npt.NDArray[np.uint8]]:
    whole = np.frombuffer(chunk, dtype=np.uint8)
    for start in range(0, max(len(whole) - WINDOW_BYTES + 1, 0), _CHUNK_BYTES):
        yield whole[start : start + _CHUNK_BYTES + WINDOW_BYTES - 1]


def _hash_windows(prints: Fingerprints, part: npt.NDArray[np.uint8]) -> Hashes:
    """Hash the windows at every offset."""
    hashes: list[Hashes] = []
    for start in range(min(8, len(part) - WINDOW_BYTES + 1)):
        size = 8 * ((len(part) - start - WINDOW_BYTES) // 8 + 1)
        ahead, behind = (part[at : at + size].view("<u8") for at in (start, start + WINDOW_BYTES - 8))
        hashes.append(_mix_halves(prints.first, prints.second, ahead, behind))
    return np.concatenate(hashes) if hashes else np.empty(0, dtype=np.uint64)


def _mix_halves(first: int, second: int, ahead: Hashes, behind: Hashes) -> Hashes:
    """Mix a window's first and last eight bytes, each multiplied by a secret odd number."""
    with np.errstate(over="ignore"):
        mixed = ahead * np.uint64(first) ^ (behind * np.uint64(second)) >> np.uint64(7)
        return mixed * np.uint64(second)
