"""The log of a session: its messages in order, its rolling summary, and how far work on it has come."""

from __future__ import annotations

from dataclasses import asdict

from engrain.core.errors import Conflict
from engrain.core.identity import Scope
from engrain.core.model.erasure import first_summary_version, hash_session_subjects
from engrain.core.model.items import Item
from engrain.core.model.queries import Summary, UnprocessedSession
from engrain.stores.relational.dialect import Dialect, Transaction
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
