"""The kinds of memory as data: what each holds, how much of it, for how long, and where it is kept."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

from engrain.core.errors import InvalidInput


@dataclass(frozen=True, slots=True)
class Window:
    """How much stays word for word before what is older becomes a summary.

    It does so with more than `max_items`, from `summarize_from` on, or at the share `summarize_at` of `max_tokens`;
    the newest `keep_recent` stay as they are. The summary counts against `max_tokens`.
    """

    max_items: int
    max_tokens: int
    summarize_at: float
    summarize_from: int
    keep_recent: int


@dataclass(frozen=True, slots=True)
class Tier:
    """One kind of memory. None means no limit; `at_scale` are the stores for when one machine is not enough."""

    name: str
    holds: str
    lives: str
    found_by: str
    store: str
    at_scale: tuple[str, ...] = ()
    ttl_seconds: int | None = None
    max_items: int | None = None
    max_tokens: int | None = None
    summarize_at: float | None = None
    summarize_from: int | None = None
    keep_recent: int | None = None

    @property
    def window(self) -> Window:
        """The limits of a tier that summarises, as plain numbers."""
        if self.max_items is None or self.max_tokens is None or self.keep_recent is None:
            raise InvalidInput(f"{self.name} memory has no window: it does not summarise.")
        return Window(
            max_items=self.max_items,
            max_tokens=self.max_tokens,
            summarize_at=1.0 if self.summarize_at is None else self.summarize_at,
            summarize_from=self.max_items if self.summarize_from is None else self.summarize_from,
            keep_recent=self.keep_recent,
        )


_ALL = (
    Tier(
        "working",
        holds="task, goal, subgoals, results, scratchpad and variables; a buffer of the newest items",
        lives="the task",
        found_by="order",
        store="process",
        max_items=20,
        max_tokens=8_000,
        summarize_at=0.80,
        keep_recent=5,
    ),
    Tier(
        "conversation",
        holds="messages: a window for the model, and the whole log that everything else cites",
        lives="window: the session; log: kept",
        found_by="order; across sessions by meaning and words",
        store="sqlite",
        at_scale=("postgresql",),
        max_items=50,
        max_tokens=10_000,
        summarize_at=0.80,
        summarize_from=30,
        keep_recent=10,
    ),
    Tier(
        "episodic",
        holds="turns, tool calls, decisions, errors and their resolutions; the newest of each session",
        lives="24 hours unless important, time-decayed",
        found_by="recency",
        store="sqlite",
        at_scale=("redis",),
        ttl_seconds=86_400,
        max_items=1_000,
    ),
    Tier(
        "semantic",
        holds="facts, preferences, knowledge, relations",
        lives="until forgotten",
        found_by="meaning, words, slot",
        store="sqlite",
        at_scale=("postgresql", "qdrant", "chroma"),
    ),
    Tier(
        "procedural",
        holds="named ways of doing things, their versions, and how often each succeeded",
        lives="until replaced",
        found_by="key, goal",
        store="sqlite",
        at_scale=("postgresql",),
    ),
    Tier(
        "files",
        holds="SOUL.md (identity), MEMORY.md (curated facts), memory/YYYY-MM-DD.md (daily log)",
        lives="until edited",
        found_by="name",
        store="folder",
    ),
)

TIERS: Mapping[str, Tier] = MappingProxyType({tier.name: tier for tier in _ALL})
