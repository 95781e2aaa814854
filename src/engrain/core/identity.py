"""Ids that sort by the time they were made."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache

from engrain.core.clock import to_micros
from engrain.core.validation import check_name

IdSource = Callable[[datetime], str]

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's base 32: no i, l, o, u
ID_LENGTH = 26


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
    for _ in range(ID_LENGTH):
        number, rest = divmod(number, 32)
        letters.append(_ALPHABET[rest])
    return "".join(reversed(letters))


@dataclass(frozen=True, slots=True)
class Scope:
    """(tenant, agent, user), matched exactly. A missing part is a value of its own, never "any"."""

    tenant: str | None = None
    agent: str | None = None
    user: str | None = None

    def __post_init__(self) -> None:
        for part in ("tenant", "agent", "user"):
            value = getattr(self, part)
            if value is not None:
                check_name(value, part)

    @property
    def id(self) -> str:
        return _id(self.tenant, self.agent, self.user)

    def __str__(self) -> str:
        named = (("tenant", self.tenant), ("agent", self.agent), ("user", self.user))
        return ", ".join(f"{name}={value}" for name, value in named if value is not None) or "no owner"


@lru_cache(maxsize=1_000)
def _id(*parts: str | None) -> str:
    # Length-prefixed, so that ("ab", "c") and ("a", "bc") differ, and "" differs from a missing part.
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        raw = b"" if part is None else part.encode()
        digest.update(b"-" if part is None else b"%d:" % len(raw))
        digest.update(raw)
    return digest.hexdigest()
