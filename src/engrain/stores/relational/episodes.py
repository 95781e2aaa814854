"""Episodes: what happened in a session, over an item or on its own."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from engrain.core.clock import to_micros
from engrain.core.identity import Scope
from engrain.core.model.sessions import Episode, RawOutput
from engrain.stores.relational.dialect import Deferred, Dialect, Transaction
from engrain.stores.relational.holds import check_hold, load_scopes_on_hold
from engrain.stores.relational.rows import read_episode
from engrain.stores.relational.writes import add_episode

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
