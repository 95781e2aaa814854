"""The log of a session: its messages in order, and its rolling summary."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from engrain.core.errors import Conflict, InvalidInput
from engrain.core.identity import Scope
from engrain.core.model.erasure import first_summary_version, hash_session_subjects
from engrain.core.model.items import Draft, Item, SessionPosition
from engrain.core.model.plans import Add, Applied, Plan
from engrain.ports import Summary, UnprocessedSession
from engrain.stores.postgres.handle import Handle
from engrain.stores.postgres.link import Db
from engrain.stores.postgres.rows import item_of
from engrain.stores.postgres.sql import load

_SQL = load("sessions.sql")


class Sessions(Handle):
    if TYPE_CHECKING:

        def apply(self, plan: Plan) -> Applied: ...

    def append(self, scope: Scope, session: str, drafts: Sequence[Draft], expect: int | None) -> Applied:
        steps = tuple(Add(_message(draft, session)) for draft in drafts)
        return self.apply(Plan(scope, steps, expect=None if expect is None else (session, expect)))

    def length(self, scope: Scope, session: str) -> int:
        rows = self._asked(scope, _SQL["length"], (scope.id, session))
        return int(rows[0][0]) if rows else 0

    def read(self, scope: Scope, session: str, start: int, limit: int) -> list[Item]:
        rows = self._asked(scope, _SQL["read"], (scope.id, session, start, limit))
        return self._touches.shown(scope, [item_of(row) for row in rows])

    def last(self, scope: Scope, session: str, n: int) -> list[Item]:
        rows = self._asked(scope, _SQL["last"], (scope.id, session, n))
        return self._touches.shown(scope, [item_of(row) for row in rows[::-1]])

    def sessions(self, scope: Scope, limit: int) -> list[str]:
        rows = self._asked(scope, _SQL["sessions"], {"scope": scope.id, "limit": limit})
        return [name for (name,) in rows]

    def summary(self, scope: Scope, session: str) -> Summary | None:
        rows = self._asked(scope, _SQL["summary"], (scope.id, session))
        if rows:
            return Summary(*rows[0])
        ((at,),) = self._asked(scope, _SQL["erased_at"], (hash_session_subjects(self._key, scope, session),))
        return Summary("", 0, first_summary_version(at)) if at else None

    def summarize(self, scope: Scope, session: str, summary: Summary) -> None:
        def do(db: Db) -> None:
            self._lock_scope(db, scope)
            check_version(version_of(db, self._key, scope, session), session, summary.version - 1)
            values = {"text": summary.text, "upto": summary.upto, "version": summary.version}
            values |= {"by": summary.by}
            db.run(_SQL["summarize"], {**values, "scope": scope.id, "session": session})

        self._writing(scope, do)

    def progress(self, scope: Scope, session: str, work: str) -> int:
        rows = self._asked(scope, _SQL["progress"], (scope.id, session, work))
        return int(rows[0][0]) if rows else 0

    def advance(self, scope: Scope, session: str, work: str, upto: int) -> None:
        def do(db: Db) -> None:
            self._lock_scope(db, scope)
            db.run(_SQL["advance"], (scope.id, session, work, upto))

        self._writing(scope, do, "repeat")

    def behind(self, scope: Scope, work: str, limit: int) -> list[UnprocessedSession]:
        rows = self._asked(scope, _SQL["behind"], (work, scope.id, limit))
        return [UnprocessedSession(scope, *row) for row in rows]


def version_of(db: Db, key: bytes, scope: Scope, session: str) -> int:
    stored = db.rows(_SQL["version"], (scope.id, session))
    if stored and stored[0][0]:
        return int(stored[0][0])
    ((at,),) = db.rows(_SQL["erased_at"], (hash_session_subjects(key, scope, session),))
    return first_summary_version(at)


def check_version(found: int, session: str, version: int) -> None:
    if version != found:
        raise Conflict(f"the summary of session {session!r} has version {found}: read it again.")


def _message(draft: Draft, session: str) -> Draft:
    place = draft.place or SessionPosition(session)
    if draft.kind != "message":
        raise InvalidInput(f"a session holds messages, not a {draft.kind}.")
    if place.session != session or place.number is not None:
        raise InvalidInput(f"a message appended to {session!r} takes the next place there: name no other.")
    return replace(draft, place=place)
