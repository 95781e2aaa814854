"""How much each tier keeps and for how long: its limits, and the settings of the lifecycle."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from datetime import datetime
from types import MappingProxyType
from typing import Any

from engrain.core.errors import ConfigError, UnknownKey
from engrain.core.model.items import Item


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


DAY_SECONDS = 86_400.0
_EXAMPLES = {"days": 7, "hours": 24, "minutes": 60}
_FOLDERS = ("backup_folder", "mirror")
# Longer times are outside the calendar.
_MAX_BY_UNIT = {"days": 100_000, "hours": 24 * 100_000, "minutes": 1_440 * 100_000}


@dataclass(frozen=True, slots=True)
class Policies:
    """The table [lifecycle] of a settings file. Days, hours and minutes may be fractions.

    - Knowledge is removed if its importance is below `consolidate_below`, it was used fewer than `consolidate_used`
      times and it is older than `consolidate_days`. `consolidate_below = 0` removes nothing.
    - Importance halves in `half_life_days` without use; 0 means never.
    - Tasks are kept for `task_days` after their end.
    - The answer to a request id is known for `request_days`: repeated later, it is a new request.
    - `backup_folder` gets a backup every `backup_hours`; the newest `backup_keep` are kept.
    - `mirror` is a folder with a MEMORY.md in sync. {user}, {agent} or {tenant} in it gives each memory its own.
    - `drop_old_vectors` removes another model's vectors once every item has those of the current model.
    - A program that keeps a memory open maintains the store every `every_minutes`; 0 means never.
    """

    consolidate_below: float = 0.3
    consolidate_used: int = 2
    consolidate_days: float = 7.0
    half_life_days: float = 0.0
    task_days: float = 7.0
    request_days: float = 30.0
    backup_folder: str = ""
    backup_hours: float = 24.0
    backup_keep: int = 7
    mirror: str = ""
    drop_old_vectors: bool = False
    every_minutes: float = 0.0


def check_policies(settings: Mapping[str, Any], where: str = "[lifecycle]") -> Policies:
    """Return checked settings. A missing setting has its default."""
    if not isinstance(settings, Mapping):
        raise ConfigError(f'{where} must have names and values, such as {{"every_minutes": 60}}, not {settings!r}.')
    known = {setting.name: type(setting.default) for setting in fields(Policies)}
    values = dict(settings)
    for name, value in settings.items():
        if name not in known:
            raise UnknownKey(f"{where}: unknown key {name!r}. Known: {', '.join(known)}.")
        if name in _FOLDERS and isinstance(value, os.PathLike):
            values[name] = os.fspath(value)
        _check_policy(name, values[name], known[name], where)
    made = Policies(**values)
    if made.backup_hours * (made.backup_keep + 1) > _MAX_BY_UNIT["hours"]:
        raise ConfigError(f"{where}: backup_keep is too many for one every {made.backup_hours:g} hours: give fewer.")
    return made


def fade_importance(importance: float, unused_seconds: float, uses: int, half_life_days: float) -> float:
    """Return the importance after a time without use. Each use makes it fade half a half-life slower."""
    if half_life_days <= 0:
        return importance
    life = half_life_days * DAY_SECONDS * (1 + uses / 2)
    return float(importance * 0.5 ** (max(0.0, unused_seconds) / life))


def remaining_importance(item: Item, now: datetime, half_life_days: float) -> float:
    """Return the importance after the time since the item was last used or stated. A pinned item keeps all of it."""
    unused = (now - max(item.recorded_at, item.last_accessed or item.recorded_at)).total_seconds()
    return (
        item.importance if item.pinned else fade_importance(item.importance, unused, item.access_count, half_life_days)
    )


def _check_policy(name: str, value: object, wanted: type, where: str) -> None:
    number = wanted in (int, float)
    fits = isinstance(value, (int, float) if wanted is float else wanted)
    if not fits or (number and isinstance(value, bool)):
        raise ConfigError(f"{where}: {name} must be {_describe_wanted(name, wanted)}, not {value!r}.")
    most = _MAX_BY_UNIT.get(name.rpartition("_")[2], 1_000_000_000)
    if number and not 0 <= value <= most:  # type: ignore[operator]
        raise ConfigError(f"{where}: {name} must be from 0 to {most:,}, not {value!r}.")
    if name == "consolidate_below" and value > 1:  # type: ignore[operator]
        raise ConfigError(f"{where}: {name} is an importance, from 0 to 1, not {value!r}.")
    if name == "backup_keep" and value == 0:
        raise ConfigError(f"{where}: backup_keep must be at least 1.")
    if name == "backup_hours" and value == 0:
        # Every run would take one, and soon all kept backups would be of the same hour.
        raise ConfigError(f"{where}: backup_hours must be more than 0. For no backups, leave out backup_folder.")
    if name in _FOLDERS and value and ("\x00" in str(value) or not str(value).strip()):
        raise ConfigError(f"{where}: {name} must be the path of a folder, not {value!r}.")
    if name == "mirror":
        from engrain.core.markdown.layout import check_folder_pattern

        check_folder_pattern(str(value), where)


def _describe_wanted(name: str, kind: type) -> str:
    unit = name.rpartition("_")[2]
    if unit in _EXAMPLES:
        return f"a number of {unit}, such as {_EXAMPLES[unit]}"
    return {float: "a number", int: "a whole number", bool: "true or false"}.get(kind, "a text in quotes")
