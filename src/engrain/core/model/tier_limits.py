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
    """One kind of memory. None means no limit. `at_scale` names the stores for more than one machine."""

    name: str
    holds: str
    lives: str
    found_by: str
    store: str
    at_scale: tuple[str, ...] = ()
    ttl_seconds: int | None = None
    max_items: int | None = None
    window: WindowLimits | None = None


_ALL = (
    Tier("working", "task, goal, subgoals, results, scratchpad and variables; a buffer of the newest items",
         "the task", "order", "process", max_items=WORKING_LIMITS.max_items, window=WORKING_LIMITS),
    Tier("conversation", "messages: a window for the model, and the whole log that everything else cites",
         "window: the session; log: kept", "order; across sessions by meaning and words", "sqlite", ("postgresql",),
         max_items=CONVERSATION_LIMITS.max_items, window=CONVERSATION_LIMITS),
    Tier("episodic", "turns, tool calls, decisions, errors and their resolutions; the newest of each session",
         "24 hours unless important, time-decayed", "recency", "sqlite", ("redis",),
         ttl_seconds=86_400, max_items=1_000),
    Tier("semantic", "facts, preferences, knowledge, relations",
         "until forgotten", "meaning, words, slot", "sqlite", ("postgresql", "qdrant", "chroma")),
    Tier("procedural", "named ways of doing things, their versions, and how often each succeeded",
         "until replaced", "key, goal", "sqlite", ("postgresql",)),
    Tier("files", "SOUL.md (identity), MEMORY.md (curated facts), memory/YYYY-MM-DD.md (daily log)",
         "until edited", "name", "folder"),
)  # fmt: skip

TIERS: Mapping[str, Tier] = MappingProxyType({tier.name: tier for tier in _ALL})
