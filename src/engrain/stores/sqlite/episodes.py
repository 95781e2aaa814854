"""Episodes in the store's file: what happened, over the rows of the log or on its own."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from engrain.core.clock import from_micros, to_micros
from engrain.core.errors import InvalidInput, NotFound
from engrain.core.identity import Scope
from engrain.core.model.retention import TIERS
from engrain.core.model.sessions import merge_episodes
from engrain.ports import Episode, EpisodeDraft, RawOutput
from engrain.stores.sqlite.engine import Connection, Row
from engrain.stores.sqlite.holding import check_held, held, held_scopes
from engrain.stores.sqlite.rows import as_json, metadata_text, micros_of, moment
from engrain.stores.sqlite.sql import load
from engrain.stores.sqlite.work import Work, item_number, known_item

if TYPE_CHECKING:
    from engrain.stores.sqlite.handle import Handle

_SQL = load("episodes.sql")
_BATCH = 1_000


class SqliteEpisodes:
    """A view of the store: its `expire` is not that of the tasks."""

    def __init__(self, store: Handle) -> None:
        self._store = store

    def add(self, scope: Scope, episode: Episode, raw: RawOutput | None = None) -> Episode:
        with self._store._writing() as db:
            number = self._store._scope_or_new(db, scope)
            item = None if episode.item is None else known_item(db, number, episode.item)
            return _keep(db, number, episode, item, raw)

    def recent(self, scope: Scope, session: str | None, n: int, now: datetime) -> list[Episode]:
        at = to_micros(now)
        with self._store._reading() as db:
            number = self._store._scope(db, scope)
            if session is None:
                return [episode_of(row) for row in db.rows(_SQL["recent"], (number, at, n))]
            return [episode_of(row) for row in db.rows(_SQL["recent_of"], (number, session, at, n))]

    def raw(self, scope: Scope, id: str, now: datetime) -> str | None:
        with self._store._reading() as db:
            values = {"scope": self._store._scope(db, scope), "id": id, "now": to_micros(now)}
            rows = db.rows(_SQL["raw"], values)
        return rows[0][0] if rows else None

    def remove(self, scope: Scope, ids: Sequence[str]) -> int:
        with self._store._writing() as db:
            number = self._store._scope(db, scope)
            check_held(db, number)
            gone = db.run(_SQL["remove"], (number, as_json(ids)))
            if gone:
                self._store._purge.mark(db)
            return gone

    def trim(self, scope: Scope, session: str, keep: int) -> int:
        with self._store._writing() as db:
            return _trim(db, self._store._scope(db, scope), session, keep)

    def expire(self, now: datetime) -> int:
        self._in_batches("expire_raw", now)
        return self._in_batches("expire", now)

    def _in_batches(self, statement: str, now: datetime) -> int:
        """Each in a transaction of its own: other writers come in between."""
        over = 0
        while True:
            with self._store._writing() as db:
                gone = db.run(_SQL[statement], (to_micros(now), as_json(held_scopes(db)), _BATCH))
            over += gone
            if gone < _BATCH:
                return over


def happen(work: Work, happening: EpisodeDraft) -> None:
    """An episode of a plan, after the plan's steps."""
    episode, number = happening.episode, None
    if episode.item is not None:
        item = work.given.get(episode.item, episode.item)
        number = None if item is None else item_number(work.db, work.scope_n, item)
        if item is None or number is None:
            if episode.item in work.given:
                return  # kept out, or gone
            raise NotFound(f"there is no item {episode.item!r} in this scope.")
        episode = replace(episode, item=item, id=episode.id or item)
    if not episode.id:
        raise InvalidInput("an episode without an item needs an id of its own.")
    _keep(work.db, work.scope_n, episode, number, happening.raw)


def _keep(db: Connection, scope: int, episode: Episode, item: int | None, raw: RawOutput | None) -> Episode:
    happened = to_micros(episode.happened_at)
    if episode.key is not None and not held(db, scope):
        rows = db.rows(_SQL["same"], (scope, episode.session, episode.key, episode.id, happened))
        same = [episode_of(row) for row in rows]
        episode = merge_episodes(episode, same)
        for one in same:
            db.run(_SQL["drop"], (scope, one.id))
    row = (
        scope, item, happened, micros_of(episode.expires_at), episode.count, episode.importance, episode.id,
        episode.session, episode.kind, episode.key, metadata_text(episode.data), episode.text,
    )  # fmt: skip
    if not db.run(_SQL["add"], row):
        db.run(_SQL["drop"], (scope, episode.id))
        db.run(_SQL["add"], row)
    if raw:
        db.run(_SQL["add_raw"], (scope, episode.id, to_micros(raw.expires_at), raw.text))
    most = TIERS["episodic"].max_items
    if most is not None:
        _trim(db, scope, episode.session, most)
    return episode


def _trim(db: Connection, scope: int | None, session: str, keep: int) -> int:
    rows = db.rows(_SQL["how_many"], (scope, session))
    over = rows[0][0] - keep if rows else 0
    if over <= 0 or held(db, scope):
        return 0
    return db.run(_SQL["drop_oldest"], {"scope": scope, "session": session, "over": over})


def episode_of(row: Row) -> Episode:
    id_, session, kind, text, importance, happened, expires, count, data, item, key = row
    return Episode(
        id_, session, kind, text, importance, from_micros(happened), moment(expires), count,
        {} if data == "{}" else json.loads(data), item, key,
    )  # fmt: skip
