"""Ids that sort by the time they were made."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from datetime import datetime

from engrain.core.clock import to_micros

IdSource = Callable[[datetime], str]

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's base 32: no i, l, o, u
LENGTH = 26


class SortableIds:
    """26 characters: 52 bits of microseconds, then 78 random ones; rising within one process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = 0

    def __call__(self, moment: datetime) -> str:
        fresh = (max(0, to_micros(moment)) << 78) | int.from_bytes(os.urandom(10), "big") >> 2
        with self._lock:
            self._last = fresh if fresh > self._last else self._last + 1 + int.from_bytes(os.urandom(4), "big")
            return _base32(self._last)


def _base32(number: int) -> str:
    letters = []
    for _ in range(LENGTH):
        number, rest = divmod(number, 32)
        letters.append(_ALPHABET[rest])
    return "".join(reversed(letters))
