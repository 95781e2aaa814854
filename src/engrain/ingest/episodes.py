"""Build entries of episodic memory from events, and lasting items from important ones."""

from __future__ import annotations

import logging
from datetime import datetime, timedelta
from typing import Any

from engrain.core.errors import ConfigError
from engrain.core.model.items import RESERVED_KEY, Note, Source
from engrain.core.model.retention import TIERS
from engrain.core.model.sessions import Episode, RawOutput
from engrain.core.rules.episode_importance import EpisodeEvent, ImportanceScore, make_repeat_key, score_importance
from engrain.ingest.tool_output import RAW_LIFETIME
from engrain.ports import Services
from engrain.ports.sessions import Episodes

TIER = TIERS["episodic"]
ENTRY_LIFETIME = timedelta(seconds=TIER.ttl_seconds or 0)
MAX_ENTRIES = TIER.max_items or 0
NOVELTY_ROWS = 6  # last rows of the session with which a new text is compared
_log = logging.getLogger("engrain")
# Keys of an entry's data.
WHY, TOOL, ROLE, FAILED, RESOLVES, RESOLVED = "why", "tool", "role", "failed", "resolves", "resolved"


def require_episodes(services: Services) -> Episodes:
    if services.episodes is None:
        raise ConfigError("no store for episodes is configured. Use a SQLite file, or set a store for `episodic`.")
    return services.episodes


def build_entry(happened: EpisodeEvent, session: str, at: datetime, item: str, tool: str | None = None) -> Episode:
    """Build the entry of a log row. It expires after a day unless it is important. Its empty id becomes the row's."""
    scored = score_importance(happened)
    data: dict[str, Any] = {WHY: list_reasons(scored), ROLE: happened.role, TOOL: tool, FAILED: happened.failed or None}
    return Episode(
        id="",
        session=session,
        kind=happened.kind,
        text="",
        importance=scored.importance,
        happened_at=at,
        expires_at=None if scored.promotes else at + ENTRY_LIFETIME,
        data={name: value for name, value in data.items() if value is not None},
        item=item,
        key=make_repeat_key(happened.kind, happened.text, tool or happened.role, happened.failed),
    )


def build_raw(text: str | None, at: datetime) -> RawOutput | None:
    return None if text is None else RawOutput(text, at + RAW_LIFETIME)


def build_lasting_note(happened: EpisodeEvent, source: Source) -> Note:
    """Build the item that an important event becomes if the gate kept no fact of it.

    Its source cites the log rows, so that forgetting them forgets it too. It never brings back a forgotten text.
    Without a time of its own, the same words again are the same item.
    """
    scored = score_importance(happened)
    return Note(
        happened.text,
        scored.importance,
        metadata={RESERVED_KEY: {"episode": happened.kind, WHY: list_reasons(scored)}},
        source=source,
        derived=True,
    )


def list_reasons(scored: ImportanceScore) -> list[list[Any]]:
    """Return the reasons in the form that an entry's data and an item's metadata store."""
    return [[name, part] for name, part in scored.reasons]
