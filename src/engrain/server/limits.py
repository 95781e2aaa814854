"""Limits of each key: requests a second and at a time, items and bytes a day."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from engrain.server.keys import KeyLimits
from engrain.server.problems import limit_problem

_DAY = 86_400.0
MIN_BURST = 1.0


@dataclass
class TokenBucket:
    """`rate` tokens a second, and at most `size` at once. An empty bucket says how long to wait."""

    rate: float
    size: float
    level: float = -1.0
    at: float = 0.0

    def take(self, count: float, now: float) -> float:
        """Take tokens and return 0; or take none and return the seconds until there are enough."""
        self.level = self.size if self.level < 0 else min(self.size, self.level + (now - self.at) * self.rate)
        self.at = now
        # A request for more than the whole bucket waits until it is full, and leaves a debt.
        wanted = min(count, self.size)
        if self.level < wanted:
            return (wanted - self.level) / self.rate
        self.level = max(0.0, self.level - count)
        return 0.0


@dataclass
class KeyUse:
    """The use of one key by this server."""

    limits: KeyLimits
    concurrent: int = 0
    buckets: dict[str, TokenBucket] = field(default_factory=dict)

    def __enter__(self) -> None:
        self.concurrent += 1

    def __exit__(self, *_: object) -> None:
        self.concurrent -= 1


class Limiter:
    """Count the use of each key. Threads may share it."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._uses: dict[str, KeyUse] = {}

    def admit(self, key: str, limits: KeyLimits) -> KeyUse:
        """Admit a request, which is in progress while the result is entered; or raise 429 with the seconds to wait."""
        use = self._find(key, limits)
        if limits.concurrent_requests is not None and use.concurrent >= limits.concurrent_requests:
            raise limit_problem(f"this key has {limits.concurrent_requests:,} requests in progress already.", 1)
        if (rate := limits.requests_per_second) is not None:
            self._take(use, "requests", 1, TokenBucket(rate, max(MIN_BURST, rate)))
        return use

    def charge(self, key: str, limits: KeyLimits, *, items: int = 0, size: int = 0) -> None:
        """Count written items and bytes, or raise 429 before anything is written."""
        use = self._find(key, limits)
        for name, count, most in (("items", items, limits.items_per_day), ("bytes", size, limits.bytes_per_day)):
            if most is not None and count:
                self._take(use, name, count, TokenBucket(most / _DAY, float(most)))

    def _find(self, key: str, limits: KeyLimits) -> KeyUse:
        use = self._uses.get(key)
        if use is None or (use.limits is not limits and use.limits != limits):  # the limits of the key were changed
            use = self._uses[key] = KeyUse(limits, use.concurrent if use else 0)
        return use

    def _take(self, use: KeyUse, name: str, count: float, new: TokenBucket) -> None:
        with self._lock:
            wait = use.buckets.setdefault(name, new).take(count, self._clock())
        if wait:
            raise limit_problem(f"this key has used up its {name} for now: {new.size:,.0f} at once.", wait)
