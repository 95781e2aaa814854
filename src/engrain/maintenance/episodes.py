"""Plan the passes over episodes: keep the important ones, remove the expired ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial

from engrain.core.model.items import RESERVED_KEY, Citation, Item, Note, Source
from engrain.core.model.plans import Add, Plan
from engrain.core.model.results import MaintenanceAction
from engrain.core.model.retention import TIERS
from engrain.core.model.sessions import Episode, EpisodeDraft
from engrain.core.rules.episode_importance import MIN_PROMOTED_IMPORTANCE
from engrain.ingest import episodes as ingest
from engrain.ingest.write import build_drafts
from engrain.ingest.write_messages import commit_plan
from engrain.maintenance.passes import NO_LIMIT, REMOVED, MaintenanceContext, MaintenancePass, ReportProgress

PAGE_SIZE = 500
_BEGINNING = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class EpisodeEntries:
    """All stored entries of a scope, expired or not, and the log rows of those that may be removed or promoted."""

    entries: tuple[Episode, ...]
    rows: dict[str, Item]
    began: int  # the store's last change before they were read

    def text(self, entry: Episode) -> str:
        row = self.rows.get(entry.item or "")
        return row.text if row else entry.text


def plan_episode_passes(context: MaintenanceContext) -> list[MaintenancePass]:
    """Plan promotion, expiry, trimming and orphan removal in this order, each after the one before."""
    loaded = _load_entries(context)
    promoted = [entry for entry in loaded.entries if _should_last(entry) and loaded.text(entry)]
    lasting = {entry.id for entry in promoted}
    after_promotion = [replace(entry, expires_at=None) if entry.id in lasting else entry for entry in loaded.entries]
    removable = [] if context.is_on_hold else after_promotion
    expired = [entry for entry in removable if not entry.alive(context.now)] if not context.clock_jumped else []
    alive = [entry for entry in removable if entry.alive(context.now)]
    surplus = _find_surplus(alive)
    trimmed = {entry.id for entry in surplus}
    # In another store an entry stays when its log row is forgotten.
    orphans = [
        entry
        for entry in (alive if not context.services.same_store else ())
        if entry.id not in trimmed and entry.item is not None and entry.item not in loaded.rows
    ]
    return [
        _plan_promotion(context, loaded, promoted),
        _plan_expiry(context, loaded, expired),
        _plan_trim(context, loaded, surplus),
        _plan_orphan_removal(context, orphans),
    ]


def _load_entries(context: MaintenanceContext) -> EpisodeEntries:
    began, episodes = context.services.items.current_time(), context.services.episodes
    entries = () if episodes is None else tuple(episodes.recent(context.scope, None, NO_LIMIT, _BEGINNING))
    wanted: Sequence[Episode] = entries
    if context.services.same_store:  # entries of forgotten rows are gone already
        ending = [entry for entry in entries if _should_last(entry) or not entry.alive(context.now)]
        wanted = [*ending, *_find_surplus(entries)]
    ids = list(dict.fromkeys(entry.item for entry in wanted if entry.item))
    rows = context.services.items.get_many(context.scope, ids) if ids else []
    return EpisodeEntries(entries, {row.id: row for row in rows}, began)


def _should_last(entry: Episode) -> bool:
    """True for an important entry that still expires. `record` makes such entries lasting, other writers may not."""
    return entry.importance >= MIN_PROMOTED_IMPORTANCE and entry.expires_at is not None


def _plan_promotion(context: MaintenanceContext, loaded: EpisodeEntries, entries: Sequence[Episode]) -> MaintenancePass:
    def act(report: ReportProgress) -> None:
        for entry in entries:
            _promote_entry(context, entry, loaded)
            report(1)

    why = f"of importance %.2f: from {MIN_PROMOTED_IMPORTANCE:g} on it lasts"
    actions = tuple(
        MaintenanceAction("keep", entry.id, why % entry.importance, loaded.text(entry)) for entry in entries
    )
    return MaintenancePass("promoted", actions, ("kept", "keep"), "episode", "for good, as knowledge", act)


def _promote_entry(context: MaintenanceContext, entry: Episode, loaded: EpisodeEntries) -> None:
    assert context.services.episodes is not None
    row = loaded.rows.get(entry.item or "")
    source = replace(row.sources[0], cites=(Citation(row.id),)) if row and row.sources else Source(kind="agent")
    known = {"episode": entry.kind, ingest.WHY: entry.data.get(ingest.WHY, [])}
    note = Note(loaded.text(entry), entry.importance, metadata={RESERVED_KEY: known}, source=source)
    (draft,) = build_drafts([note], context.services)
    raw = ingest.build_raw(context.services.episodes.raw(context.scope, entry.id, context.now), entry.happened_at)
    lasting = EpisodeDraft(replace(entry, expires_at=None), raw)
    step = Add(replace(draft, kind="episode"))
    plan = Plan(context.scope, (step,), episodes=(lasting,), began=loaded.began)
    commit_plan(plan, context.services)


def _plan_expiry(context: MaintenanceContext, loaded: EpisodeEntries, expired: Sequence[Episode]) -> MaintenancePass:
    """Plan the expiry of this scope alone. A run over all scopes lets the store expire all, old raw outputs too."""

    def act(report: ReportProgress) -> None:
        for start in range(0, len(expired), PAGE_SIZE):
            _remove(context, expired[start : start + PAGE_SIZE], report)

    actions = tuple(
        MaintenanceAction(
            "remove", entry.id, f"its time was over {entry.expires_at:%Y-%m-%d %H:%M}", loaded.text(entry)
        )
        for entry in expired
    )
    qualifier = "whose time is over, and raw outputs past theirs"
    return MaintenancePass("expired", actions, REMOVED, "episode", qualifier, act)


def _remove(context: MaintenanceContext, entries: Sequence[Episode], report: ReportProgress) -> None:
    if context.services.episodes is not None:
        context.services.episodes.remove(context.scope, [entry.id for entry in entries])
    report(len(entries))


def _find_surplus(entries: Sequence[Episode]) -> list[Episode]:
    """Find entries beyond the limit of a session. Each write keeps the limit; an earlier one may have been higher."""
    most = TIERS["episodic"].max_items or NO_LIMIT
    sessions: dict[str, list[Episode]] = {}
    for entry in entries:  # newest first
        sessions.setdefault(entry.session, []).append(entry)
    return [entry for found in sessions.values() for entry in found[most:]]


def _plan_trim(context: MaintenanceContext, loaded: EpisodeEntries, surplus: Sequence[Episode]) -> MaintenancePass:
    most = TIERS["episodic"].max_items or NO_LIMIT

    def act(report: ReportProgress) -> None:
        for session in dict.fromkeys(entry.session for entry in surplus):
            if context.services.episodes is not None:
                context.services.episodes.trim(context.scope, session, most)
        report(len(surplus))

    why = f"beyond the newest {most:,} of session %s"
    actions = tuple(MaintenanceAction("remove", entry.id, why % entry.session, loaded.text(entry)) for entry in surplus)
    return MaintenancePass("trimmed", actions, REMOVED, "episode", f"beyond the newest {most:,} of a session", act)


def _plan_orphan_removal(context: MaintenanceContext, orphans: Sequence[Episode]) -> MaintenancePass:
    actions = tuple(MaintenanceAction("remove", entry.id, "its words were forgotten") for entry in orphans)
    act = partial(_remove, context, orphans)
    return MaintenancePass("tidied", actions, REMOVED, "episode", "whose words were forgotten", act)
