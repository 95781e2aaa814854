"""Sessions and episodes: the log's sessions, their progress, and the events of episodic memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, replace
from datetime import datetime

from engrain.core.clock import to_micros
from engrain.core.errors import Conflict, InvalidInput, NotFound
from engrain.core.identity import Scope
from engrain.core.model.erasure import first_summary_version, hash_session_subjects
from engrain.core.model.items import Item
from engrain.core.model.queries import Summary, UnprocessedSession
from engrain.core.model.retention import TIERS
from engrain.core.model.sessions import Episode, EpisodeDraft, RawOutput, merge_episodes
from engrain.stores.relational.dialect import Deferred, Dialect, Transaction
from engrain.stores.relational.rows import read_episode, write_episode
from engrain.stores.relational.scopes import check_hold, load_scopes_on_hold
from engrain.stores.relational.usage import UsageCounts


class Sessions:
    """The session log of a store. Messages are added through `apply`."""

    dialect: Dialect
    usage: UsageCounts

    def length(self, scope: Scope, session: str) -> int:
        rows = self.dialect.ask(scope, "find_session_length", session=session)
        return int(rows[0][0]) if rows else 0

    def read(self, scope: Scope, session: str, start: int, limit: int) -> list[Item]:
        rows = self.dialect.ask(scope, "load_messages", session=session, start=start, limit=limit)
        return self.usage.read_items(scope, rows)

    def last(self, scope: Scope, session: str, n: int) -> list[Item]:
        rows = self.dialect.ask(scope, "load_last_messages", session=session, limit=n)
        return self.usage.read_items(scope, rows[::-1])

    def sessions(self, scope: Scope, limit: int) -> list[str]:
        return [name for (name,) in self.dialect.ask(scope, "list_sessions", limit=limit)]

    def summary(self, scope: Scope, session: str) -> Summary | None:
        return self.dialect.read(scope, lambda tx: _load_summary(tx, scope, session))

    def summarize(self, scope: Scope, session: str, summary: Summary) -> None:
        def do(tx: Transaction) -> None:
            tx.lock_scope()
            check_summary_version(tx, scope, session, summary.version - 1)
            tx.run("store_summary", session=session, **asdict(summary))

        self.dialect.write(scope, do)

    def progress(self, scope: Scope, session: str, work: str) -> int:
        rows = self.dialect.ask(scope, "load_progress", session=session, work=work)
        return int(rows[0][0]) if rows else 0

    def advance(self, scope: Scope, session: str, work: str, upto: int) -> None:
        def do(tx: Transaction) -> None:
            tx.lock_scope()
            tx.run("advance_progress", session=session, work=work, upto=upto)

        self.dialect.write(scope, do, repeat=True)

    def behind(self, scope: Scope, work: str, limit: int) -> list[UnprocessedSession]:
        rows = self.dialect.ask(scope, "list_sessions_behind", work=work, limit=limit)
        return [UnprocessedSession(scope, *row) for row in rows]


def check_summary_version(tx: Transaction, scope: Scope, session: str, version: int) -> None:
    """Conflict unless the stored summary has this version. No version comes back after an erasure."""
    summary = _load_summary(tx, scope, session)
    found = summary.version if summary else 0
    if version != found:
        raise Conflict(f"the summary of session {session!r} has version {found}: read it again.")


def _load_summary(tx: Transaction, scope: Scope, session: str) -> Summary | None:
    """The stored summary, or an empty one after an erasure."""
    rows = tx.rows("load_summary", session=session)
    if rows:
        return Summary(*rows[0])
    ((erased,),) = tx.rows("find_erasure_time", hashes=hash_session_subjects(tx.dialect.key, scope, session))
    return Summary("", 0, first_summary_version(erased)) if erased else None


_BATCH = 1_000


class Episodes:
    def __init__(self, dialect: Dialect) -> None:
        self._dialect = dialect

    def add(self, scope: Scope, episode: Episode, raw: RawOutput | None = None) -> Episode:
        def do(tx: Transaction) -> Episode:
            tx.lock_holds(tx.owner)
            tx.lock_scope()
            return add_episode(tx, episode, raw)

        return self._dialect.write(scope, do)

    def recent(self, scope: Scope, session: str | None, n: int, now: datetime) -> list[Episode]:
        values = {"at": to_micros(now), "limit": n}
        if session is None:
            rows = self._dialect.ask(scope, "load_recent_episodes", **values)
        else:
            rows = self._dialect.ask(scope, "load_recent_session_episodes", session=session, **values)
        return [read_episode(row) for row in rows]

    def raw(self, scope: Scope, id: str, now: datetime) -> str | None:
        rows = self._dialect.ask(scope, "load_raw_text", id=id, at=to_micros(now))
        return rows[0][0] if rows else None

    def remove(self, scope: Scope, ids: Sequence[str]) -> int:
        def do(tx: Transaction) -> int:
            tx.lock_holds(tx.owner)
            tx.lock_scope()
            check_hold(tx)
            removed = len(tx.rows("delete_episodes", ids=ids))
            if removed:
                tx.mark_purge()
            return removed

        return self._dialect.write(scope, do)

    def trim(self, scope: Scope, session: str, keep: int) -> int:
        def do(tx: Transaction) -> int | Deferred[int]:
            tx.lock_holds(tx.owner)
            tx.lock_scope()
            return Deferred(tx.ask("trim_episodes", session=session, keep=keep), len)

        return self._dialect.write(scope, do)

    def expire(self, now: datetime) -> int:
        delete_in_batches(self._dialect, "delete_expired_raw_texts", now)
        return delete_in_batches(self._dialect, "delete_expired_episodes", now)


def delete_in_batches(dialect: Dialect, statement: str, now: datetime) -> int:
    """Delete expired rows but those on hold. Each batch is a transaction, so that other writers come in between."""

    def do(tx: Transaction) -> int | Deferred[int]:
        on_hold = load_scopes_on_hold(tx)
        return Deferred(tx.ask(statement, at=to_micros(now), limit=_BATCH, on_hold=on_hold), len)

    total = 0
    while (deleted := dialect.write(None, do)) == _BATCH:
        total += deleted
    return total + deleted


def add_planned_episode(tx: Transaction, draft: EpisodeDraft, ids_by_step: Mapping[str, str | None]) -> None:
    """Add an episode of a plan, after its steps. `ids_by_step` maps a reference to a step to the id of its item."""
    episode, raw = draft.episode, draft.raw
    if episode.item is not None and episode.item in ids_by_step:
        id_ = ids_by_step[episode.item]
        item = None if id_ is None else _find_item(tx, id_)
        if id_ is not None and item is not None:  # neither kept out nor forgotten by a later step
            _store_episode(tx, replace(episode, item=id_, id=episode.id or id_), item, raw)
        return
    episode = replace(episode, id=episode.id or episode.item or "")
    if not episode.id:
        raise InvalidInput("an episode without an item needs an id of its own.")
    add_episode(tx, episode, raw)


def add_episode(tx: Transaction, episode: Episode, raw: RawOutput | None) -> Episode:
    """Add an episode inside a transaction that has locked the owner and the scope.

    Earlier episodes of the same key become part of it: the answer is the stored one."""
    item = None if episode.item is None else _find_item(tx, episode.item)
    if episode.item is not None and item is None:
        raise NotFound(f"there is no item {episode.item!r} in this scope.")
    return _store_episode(tx, episode, item, raw)


def _find_item(tx: Transaction, id_: str) -> int | None:
    rows = tx.rows("find_item", id=id_)
    return int(rows[0][0]) if rows else None


def _store_episode(tx: Transaction, episode: Episode, item: int | None, raw: RawOutput | None) -> Episode:
    if episode.key is not None:
        at = to_micros(episode.happened_at)
        rows = tx.rows("load_same_episodes", session=episode.session, key=episode.key, id=episode.id, at=at)
        earlier = [read_episode(row) for row in rows]
        episode = merge_episodes(episode, earlier)
        for older in earlier:
            tx.run("delete_episode", id=older.id)
    tx.run("delete_episode", id=episode.id)
    tx.run("add_episode", **write_episode(episode, item))
    if raw:
        tx.run("add_raw_text", id=episode.id, expires_at=to_micros(raw.expires_at), text=raw.text)
    most = TIERS["episodic"].max_items
    if most is not None:
        tx.run("trim_episodes", session=episode.session, keep=most)
    return episode
