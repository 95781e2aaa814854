"""The tiers of memory, and the limits of each: items, tokens and time."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType


@dataclass(frozen=True, slots=True)
class WindowLimits:
    """The limits of a conversation window, beyond which its older part is summarized.

    It is summarized beyond `max_items`, from `summarize_from` on, or at the share `summarize_at` of `max_tokens`.
    The newest `keep_recent` stay as they are. The summary counts against `max_tokens`.
    """

    max_items: int
    max_tokens: int
    summarize_at: float
    summarize_from: int
    keep_recent: int


WORKING_LIMITS = WindowLimits(max_items=20, max_tokens=8_000, summarize_at=0.80, summarize_from=20, keep_recent=5)
CONVERSATION_LIMITS = WindowLimits(
    max_items=50, max_tokens=10_000, summarize_at=0.80, summarize_from=30, keep_recent=10
)


@dataclass(frozen=True, slots=True)
class Tier:
    """The limits of one kind of memory. None means no limit."""

    ttl_seconds: int | None = None
    max_items: int | None = None
    window: WindowLimits | None = None


TIERS: Mapping[str, Tier] = MappingProxyType(
    {
        "working": Tier(max_items=WORKING_LIMITS.max_items, window=WORKING_LIMITS),
        "conversation": Tier(max_items=CONVERSATION_LIMITS.max_items, window=CONVERSATION_LIMITS),
        "episodic": Tier(ttl_seconds=86_400, max_items=1_000),
        **dict.fromkeys(("semantic", "procedural", "files"), Tier()),
    }
)
