"""Scopes of memories, and ids that sort by time."""

from __future__ import annotations

import hashlib
import os
import random
import threading
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache

from engrain.core.clock import to_micros
from engrain.core.errors import EmptyText, InvalidInput
from engrain.core.validation import check_name

IdSource = Callable[[datetime], str]

_ALPHABET = "0123456789abcdefghjkmnpqrstvwxyz"  # Crockford's base 32: no i, l, o, u
ID_LENGTH = 26
# Two letters at a time: a quarter of the time of one by one.
_PAIRS = [first + second for first in _ALPHABET for second in _ALPHABET]
_PAIR_SHIFTS = range((ID_LENGTH - 2) * 5, -1, -10)


class SortableIds:
    """Make ids of 26 characters: 52 bits of microseconds, then 78 random bits. They rise within one process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._last = 0

    def __call__(self, when: datetime) -> str:
        first = max(0, to_micros(when)) << 78
        with self._lock:
            if first > self._last:
                self._last = first | int.from_bytes(os.urandom(10), "big") >> 2
            else:
                # No system call, which lets other threads in for each of many ids. It is seeded anew after a fork.
                self._last += 1 + random.getrandbits(32)
            number = self._last
        return "".join([_PAIRS[number >> shift & 1023] for shift in _PAIR_SHIFTS])


def is_sortable_id(name: str) -> bool:
    """Tell if a name has the form of an id, rather than one that a person would give."""
    return len(name) == ID_LENGTH and any(map(str.isdigit, name)) and set(name) <= set(_ALPHABET)


@dataclass(frozen=True, slots=True)
class Scope:
    """The owner of a memory, matched exactly. `user=None` is its own scope, not a wildcard."""

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
        return _hash_scope(self.tenant, self.agent, self.user)

    def __str__(self) -> str:
        named = (("tenant", self.tenant), ("agent", self.agent), ("user", self.user))
        return ", ".join(f"{name}={value}" for name, value in named if value is not None) or "no owner"


@lru_cache(maxsize=1_000)
def _hash_scope(*parts: str | None) -> str:
    # Length-prefixed, so that ("ab", "c") and ("a", "bc") differ, and "" differs from a missing part.
    digest = hashlib.blake2b(digest_size=16)
    for part in parts:
        raw = b"" if part is None else part.encode()
        digest.update(b"-" if part is None else b"%d:" % len(raw))
        digest.update(raw)
    return digest.hexdigest()


def hash_keyed(key: bytes, *parts: str) -> str:
    """Hash the parts with the store's key. Without the key the hash tells nothing."""
    digest = hashlib.blake2b(key=key, digest_size=16)
    for part in parts:
        raw = part.encode()
        digest.update(b"%d:" % len(raw) + raw)
    return digest.hexdigest()


def check_scope(tenant: str | None, agent: str | None, user: str | None) -> Scope:
    for name, value in (("tenant", tenant), ("agent", agent), ("user", user)):
        # Nearly always an unset variable: all users would share one memory.
        if value == "":
            raise EmptyText(f"{name} is empty. Leave it out for a memory that has none.")
    return Scope(tenant, agent, user)


def check_reads(reads: object) -> tuple[Scope, ...]:
    if isinstance(reads, (list, tuple)) and all(isinstance(scope, Scope) for scope in reads):
        return tuple(dict.fromkeys(reads))
    raise InvalidInput(f"reads takes a list of Scopes, such as [Scope(agent='team')], not {reads!r}.")
