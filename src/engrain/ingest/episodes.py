"""Build entries of episodic memory from events, and lasting items from important ones."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from engrain.core.clock import to_micros
from engrain.core.errors import ConfigError, StoreError, raise_interrupt
from engrain.core.identity import Scope
from engrain.core.model.erasure import find_owner, make_erased_error
from engrain.core.model.items import RESERVED_KEY, Draft, Note, Source
from engrain.core.model.plans import Applied, Plan, refer_to_step
from engrain.core.model.retention import TIERS
from engrain.core.model.sessions import Episode, EpisodeDraft, RawOutput
from engrain.core.rules.importance import EpisodeEvent, ImportanceScore, make_repeat_key, score_importance
from engrain.ingest import write
from engrain.ingest.tool_output import RAW_LIFETIME
from engrain.ports import Services
from engrain.ports.sessions import Episodes

TIER = TIERS["episodic"]
ENTRY_LIFETIME = timedelta(seconds=TIER.ttl_seconds or 0)
MAX_ENTRIES = TIER.max_items or 0
NOVELTY_ROWS = 6  # last rows of the session with which a new text is compared
# Keys of an entry's data.
WHY, TOOL, ROLE, FAILED, RESOLVES, RESOLVED = "why", "tool", "role", "failed", "resolves", "resolved"

_log = logging.getLogger("engrain")


def require_episodes(services: Services) -> Episodes:
    if services.episodes is None:
        raise ConfigError("no store for episodes is configured. Use a SQLite file, or set a store for `episodic`.")
    return services.episodes


def load_recent_texts(services: Services, scope: Scope, session: str) -> list[str]:
    """Return the session's last texts, with which the next one is compared for novelty."""
    return [item.text for item in services.log.last(scope, session, NOVELTY_ROWS)]


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


def build_episode_drafts(
    rows: Sequence[Note], lasting: Sequence[Note], services: Services
) -> tuple[list[Draft], list[Draft]]:
    """Build the drafts of log rows and of lasting items, embedded in one call."""
    made = write.build_drafts([*rows, *lasting], services)
    return made[: len(rows)], [replace(draft, kind="episode") for draft in made[len(rows) :]]


def list_reasons(scored: ImportanceScore) -> list[list[Any]]:
    """Return the reasons in the form that an entry's data and an item's metadata store."""
    return [[name, part] for name, part in scored.reasons]


def commit_plan(plan: Plan, services: Services) -> Applied:
    """Apply the plan in one transaction if one store holds items and episodes.

    Otherwise the items are written first, because they must not be lost.
    """
    if services.same_store or not plan.episodes:
        return services.items.apply(plan)
    store = require_episodes(services)
    applied = services.items.apply(replace(plan, episodes=()))
    ids = {refer_to_step(step): outcome.id for step, outcome in enumerate(applied.outcomes)}
    added: list[str] = []
    for happening in plan.episodes:
        try:
            added += _add_entry(happening, ids, plan.scope, store, applied.repeated)
        except StoreError as exc:
            raise_interrupt(exc)
            # The rows and lasting items are stored: an error here would make the caller write them again.
            _log.warning("an entry of episodic memory was not written: %s", exc)
    if added and _was_erased_meanwhile(plan, services):
        # The user's rows are erased, and the erasure passed this store before the entries arrived.
        store.remove(plan.scope, added)
        raise make_erased_error()
    return applied


def _was_erased_meanwhile(plan: Plan, services: Services) -> bool:
    user, erasing = find_owner(plan.scope), services.erasing
    if plan.began is None or user is None or erasing is None:
        return False
    mark, done = erasing.mark(user), erasing.erased(user)
    times = [one.at for one in erasing.running() if one.mark == mark] + ([done.at] if done else [])
    return any(to_micros(at) >= plan.began for at in times)


def _add_entry(
    happening: EpisodeDraft, ids: dict[str, str | None], scope: Scope, store: Episodes, repeated: bool
) -> list[str]:
    """Write one entry. Return its id, or nothing if its row is missing or the entry exists."""
    episode = happening.episode
    item = ids.get(episode.item, episode.item) if episode.item else None
    if episode.item and item is None:
        return []
    whole = replace(episode, item=item, id=episode.id or item or "")
    # A repeated request may have stopped before its entry was written. A second write would count the event twice.
    if repeated:
        recent = store.recent(scope, whole.session, MAX_ENTRIES, whole.happened_at)
        if any(one.id == whole.id for one in recent):
            return []
    store.add(scope, whole, happening.raw)
    return [whole.id]
