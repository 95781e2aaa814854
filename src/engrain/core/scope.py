"""The wall between memories: who a memory belongs to."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from functools import lru_cache

from engrain.core.text import checked_name


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
                checked_name(value, part)

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
