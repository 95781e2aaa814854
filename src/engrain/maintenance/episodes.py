"""The passes over episodes: what matters is kept, what is over goes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial

from engrain.core.model.items import Citation, Item, Note, Source
from engrain.core.model.messages import RESERVED_KEY
from engrain.core.model.plans import Add, Plan
from engrain.core.model.results import MaintenanceAction
from engrain.core.model.retention import TIERS
from engrain.core.model.sessions import Episode, EpisodeDraft
from engrain.core.rules.importance import MIN_PROMOTED_IMPORTANCE
from engrain.ingest import episodes as made
from engrain.maintenance.passes import ALL, REMOVED, MaintenanceContext, MaintenancePass, Tell

PAGE = 500
_EVER = datetime.min.replace(tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class Book:
    """Every entry of the scope that is still in the store, expired or not, and the rows under those that may go or be
    kept for good."""

    entries: tuple[Episode, ...]
    rows: dict[str, Item]
    began: int  # the store's moment before it was read

    def text(self, entry: Episode) -> str:
        row = self.rows.get(entry.item or "")
        return row.text if row else entry.text


def passes(care: MaintenanceContext) -> list[MaintenancePass]:
    """In the order in which they are to be done: each sees the entries as those before it leave them."""
    book = _book(care)
    promoted = [one for one in book.entries if _left_behind(one) and book.text(one)]
    lasting = {one.id for one in promoted}
    kept = [replace(one, expires_at=None) if one.id in lasting else one for one in book.entries]
    going = [] if care.held else kept
    over = [one for one in going if not one.alive(care.now)] if not care.leapt else []
    alive = [one for one in going if one.alive(care.now)]
    surplus = _surplus(alive)
    beyond = {one.id for one in surplus}
    lost = [one for one in alive if one.id not in beyond and _lost(one, book, care)]
    return [_promote(care, book, promoted), _expire(care, book, over), _trim(care, book, surplus), _tidy(care, lost)]


def _book(care: MaintenanceContext) -> Book:
    began, episodes = care.services.items.moment(), care.services.episodes
    entries = () if episodes is None else tuple(episodes.recent(care.scope, None, ALL, _EVER))
    asked = entries if not care.services.same_store else [*filter(partial(_ending, care), entries), *_surplus(entries)]
    ids = list(dict.fromkeys(one.item for one in asked if one.item))
    return Book(entries, {row.id: row for row in care.services.items.get_many(care.scope, ids)} if ids else {}, began)


def _ending(care: MaintenanceContext, entry: Episode) -> bool:
    return _left_behind(entry) or not entry.alive(care.now)


def _left_behind(entry: Episode) -> bool:
    """What is important lasts from when it is written; one that came another way still has an end."""
    return entry.importance >= MIN_PROMOTED_IMPORTANCE and entry.expires_at is not None


def _promote(care: MaintenanceContext, book: Book, entries: Sequence[Episode]) -> MaintenancePass:
    def act(tell: Tell) -> None:
        for one in entries:
            _keep(care, one, book)
            tell(1)

    why = f"of importance %.2f: from {MIN_PROMOTED_IMPORTANCE:g} on it lasts"
    each = tuple(MaintenanceAction("keep", one.id, why % one.importance, book.text(one)) for one in entries)
    return MaintenancePass("promoted", each, ("kept", "keep"), "episode", "for good, as knowledge", act)


def _keep(care: MaintenanceContext, entry: Episode, book: Book) -> None:
    assert care.services.episodes is not None
    row = book.rows.get(entry.item or "")
    source = replace(row.sources[0], cites=(Citation(row.id),)) if row and row.sources else Source(kind="agent")
    known = {"episode": entry.kind, made.WHY: entry.data.get(made.WHY, [])}
    note = Note(book.text(entry), entry.importance, metadata={RESERVED_KEY: known}, source=source)
    _, drafts = made.build_episode_drafts([], [note], care.services)
    raw = made.build_raw(care.services.episodes.raw(care.scope, entry.id, care.now), entry.happened_at)
    lasting = EpisodeDraft(replace(entry, expires_at=None), raw)
    made.commit_plan(Plan(care.scope, tuple(map(Add, drafts)), episodes=(lasting,), began=book.began), care.services)


def _expire(care: MaintenanceContext, book: Book, over: Sequence[Episode]) -> MaintenancePass:
    """In all memories of the store, of which this one's are told; raw outputs past their own day go as well."""

    def act(tell: Tell) -> None:
        if care.services.episodes is not None:
            care.services.episodes.expire(care.now)
        tell(len(over))

    each = tuple(
        MaintenanceAction("remove", one.id, f"its time was over {one.expires_at:%Y-%m-%d %H:%M}", book.text(one))
        for one in over
    )
    return MaintenancePass(
        "expired", each, REMOVED, "episode", "whose time is over, and raw outputs past theirs", act, not care.leapt
    )


def own(care: MaintenanceContext, expire: MaintenancePass) -> MaintenancePass:
    """Of this memory alone: what matters in the others is not kept yet. Raw outputs wait for a round over all."""
    ids = [one.id for one in expire.each]

    def act(tell: Tell) -> None:
        for start in range(0, len(ids) if care.services.episodes else 0, PAGE):
            page = ids[start : start + PAGE]
            care.services.episodes.remove(care.scope, page)  # type: ignore[union-attr]
            tell(len(page))

    return replace(expire, act=act, always=False)


def _surplus(entries: Sequence[Episode]) -> list[Episode]:
    """A store keeps to the limit with each write; this is for entries of an earlier, higher one."""
    most = TIERS["episodic"].max_items or ALL
    sessions: dict[str, list[Episode]] = {}
    for one in entries:  # newest first
        sessions.setdefault(one.session, []).append(one)
    return [one for held in sessions.values() for one in held[most:]]


def _trim(care: MaintenanceContext, book: Book, surplus: Sequence[Episode]) -> MaintenancePass:
    most = TIERS["episodic"].max_items or ALL

    def act(tell: Tell) -> None:
        for session in dict.fromkeys(one.session for one in surplus):
            if care.services.episodes is not None:
                care.services.episodes.trim(care.scope, session, most)
        tell(len(surplus))

    why = f"beyond the newest {most:,} of session %s"
    each = tuple(MaintenanceAction("remove", one.id, why % one.session, book.text(one)) for one in surplus)
    return MaintenancePass("trimmed", each, REMOVED, "episode", f"beyond the newest {most:,} of a session", act)


def _lost(entry: Episode, book: Book, care: MaintenanceContext) -> bool:
    """Its log row was forgotten, and its episodes are in a store that does not see it."""
    return not care.services.same_store and entry.item is not None and entry.item not in book.rows


def _tidy(care: MaintenanceContext, lost: Sequence[Episode]) -> MaintenancePass:
    def act(tell: Tell) -> None:
        if care.services.episodes is not None:
            care.services.episodes.remove(care.scope, [one.id for one in lost])
        tell(len(lost))

    each = tuple(MaintenanceAction("remove", one.id, "its words were forgotten") for one in lost)
    return MaintenancePass("tidied", each, REMOVED, "episode", "whose words were forgotten", act)
