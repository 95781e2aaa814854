"""What happened in sessions, beside the items in the same database."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from engrain.core.clock import from_micros, to_micros
from engrain.core.errors import NotFound
from engrain.core.identity import Scope
from engrain.core.model.retention import TIERS
from engrain.core.model.sessions import merge_episodes
from engrain.ports import Episode, RawOutput
from engrain.stores.postgres.link import Db, Row
from engrain.stores.postgres.rows import metadata_text, micros_of, moment
from engrain.stores.postgres.sql import load

if TYPE_CHECKING:
    from engrain.stores.postgres.handle import Handle

_SQL = load("episodes.sql")


class Owner(NamedTuple):
    """A scope's id, and the keyed hash by which a hold on its user is known."""

    id: str
    mark: str


class PostgresEpisodes:
    """A view of the store: its `expire` is not that of the tasks."""

    def __init__(self, store: Handle) -> None:
        self._store = store

    def add(self, scope: Scope, episode: Episode, raw: RawOutput | None = None) -> Episode:
        def do(db: Db) -> Episode:
            self._store.erasing.hold_stays(db, scope)
            self._store._lock_scope(db, scope)
            return keep(db, self._owner(scope), episode, raw)

        return self._store._writing(scope, do)

    def recent(self, scope: Scope, session: str | None, n: int, now: datetime) -> list[Episode]:
        values = {"scope": scope.id, "session": session, "at": to_micros(now), "limit": n}
        statement = _SQL["recent" if session is None else "recent_in"]
        return [episode_of(row) for row in self._store._asked(scope, statement, values)]

    def raw(self, scope: Scope, id: str, now: datetime) -> str | None:
        values = {"scope": scope.id, "id": id, "at": to_micros(now)}
        rows = self._store._asked(scope, _SQL["raw"], values)
        return rows[0][0] if rows else None

    def remove(self, scope: Scope, ids: Sequence[str]) -> int:
        def do(db: Db) -> int:
            self._store.erasing.hold_stays(db, scope)
            self._store._lock_scope(db, scope)
            self._store.erasing.check_held(db, scope)
            gone = len(db.rows(_SQL["drop"], (scope.id, list(ids))))
            if gone:
                db.run(_SQL["sweep_later"])
            return gone

        return self._store._writing(scope, do)

    def trim(self, scope: Scope, session: str, keep: int) -> int:
        def do(db: Db) -> int:
            self._store.erasing.hold_stays(db, scope)
            self._store._lock_scope(db, scope)
            return len(_trimmed(db, self._owner(scope), session, keep))

        return self._store._writing(scope, do)

    def expire(self, now: datetime) -> int:
        def do(db: Db) -> int:
            values = (to_micros(now), self._store.erasing.held_scopes(db))
            db.run(_SQL["drop_raw"], values)
            return len(db.rows(_SQL["expire"], values))

        return self._store._writing(None, do)

    def _owner(self, scope: Scope) -> Owner:
        return Owner(scope.id, self._store.erasing.user_mark(scope))


def keep(db: Db, owner: Owner, episode: Episode, raw: RawOutput | None) -> Episode:
    """Inside a transaction in which a hold stays as it is and that has locked the scope."""
    if episode.item is not None and not db.rows(_SQL["known"], (owner.id, episode.item)):
        raise NotFound(f"the item {episode.item!r} of the episode is not in this scope.")
    same: list[Episode] = []
    if episode.key is not None:
        asked = {
            "scope": owner.id,
            "mark": owner.mark,
            "session": episode.session,
            "key": episode.key,
            "id": episode.id,
        }
        rows = db.rows(_SQL["same"], {**asked, "at": to_micros(episode.happened_at)})
        same = [episode_of(row) for row in rows]
    stands = merge_episodes(episode, same)
    db.run(_SQL["drop"], (owner.id, [one.id for one in (episode, *same)]))
    insert(db, owner.id, stands, raw)
    most = TIERS["episodic"].max_items
    if most is not None:
        db.run(_SQL["trim"], {"scope": owner.id, "mark": owner.mark, "session": episode.session, "keep": most})
    return stands


def insert(db: Db, owner: str, episode: Episode, raw: RawOutput | None) -> None:
    db.run(_SQL["add"], columns(owner, episode, raw))


def columns(owner: str, episode: Episode, raw: RawOutput | None) -> dict[str, Any]:
    """The row of an episode."""
    names = ("id", "session", "kind", "text", "importance", "count", "item", "key")
    return {
        **{name: getattr(episode, name) for name in names},
        "scope": owner,
        "happened_at": to_micros(episode.happened_at),
        "expires_at": micros_of(episode.expires_at),
        "data": metadata_text(episode.data),
        "raw": raw.text if raw else None,
        "raw_until": to_micros(raw.expires_at) if raw else None,
    }


def _trimmed(db: Db, owner: Owner, session: str, keep: int) -> list[Row]:
    return db.rows(_SQL["trim"], {"scope": owner.id, "mark": owner.mark, "session": session, "keep": keep})


def episode_of(row: Row) -> Episode:
    id_, session, kind, text, importance, happened, expires, count, data, item, key = row
    return Episode(
        id_, session, kind, text, importance, from_micros(happened), moment(expires), count, json.loads(data), item, key
    )
