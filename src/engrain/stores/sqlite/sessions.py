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
from engrain.stores.sqlite.engine import Connection
from engrain.stores.sqlite.handle import Handle
from engrain.stores.sqlite.rows import as_json, items_of
from engrain.stores.sqlite.sql import load

_SQL = load("sessions.sql")


class Sessions(Handle):
    if TYPE_CHECKING:

        def apply(self, plan: Plan) -> Applied: ...

    def append(self, scope: Scope, session: str, drafts: Sequence[Draft], expect: int | None) -> Applied:
        steps = tuple(Add(_message(draft, session)) for draft in drafts)
        return self.apply(Plan(scope, steps, expect=None if expect is None else (session, expect)))

    def length(self, scope: Scope, session: str) -> int:
        with self._reading() as db:
            rows = db.rows(_SQL["length"], (self._scope(db, scope), session))
        return int(rows[0][0]) if rows else 0

    def read(self, scope: Scope, session: str, start: int, limit: int) -> list[Item]:
        with self._reading() as db:
            rows = db.rows(_SQL["read"], (self._scope(db, scope), session, start, limit))
            return self._touches.shown(scope.id, items_of(db, rows))

    def last(self, scope: Scope, session: str, n: int) -> list[Item]:
        with self._reading() as db:
            rows = db.rows(_SQL["last"], (self._scope(db, scope), session, n))
            return self._touches.shown(scope.id, items_of(db, rows[::-1]))

    def sessions(self, scope: Scope, limit: int) -> list[str]:
        with self._reading() as db:
            return [name for (name,) in db.rows(_SQL["sessions"], (self._scope(db, scope), limit))]

    def summary(self, scope: Scope, session: str) -> Summary | None:
        with self._reading() as db:
            rows = db.rows(_SQL["summary"], (self._scope(db, scope), session))
            first = 0 if rows else _first_version(db, self._key, scope, session)
        return Summary(*rows[0]) if rows else Summary("", 0, first) if first else None

    def summarize(self, scope: Scope, session: str, summary: Summary) -> None:
        with self._writing() as db:
            number = self._scope_or_new(db, scope)
            check_version(version_of(db, self._key, scope, number, session), session, summary.version - 1)
            values = {"text": summary.text, "upto": summary.upto, "version": summary.version, "by": summary.by}
            db.run(_SQL["summarize"], {**values, "scope": number, "session": session})

    def progress(self, scope: Scope, session: str, work: str) -> int:
        with self._reading() as db:
            rows = db.rows(_SQL["progress"], (self._scope(db, scope), session, work))
        return int(rows[0][0]) if rows else 0

    def advance(self, scope: Scope, session: str, work: str, upto: int) -> None:
        with self._writing() as db:
            db.run(_SQL["advance"], (self._scope_or_new(db, scope), session, work, upto))

    def behind(self, scope: Scope, work: str, limit: int) -> list[UnprocessedSession]:
        with self._reading() as db:
            rows = db.rows(_SQL["behind"], (self._scope(db, scope), work, limit))
        return [UnprocessedSession(scope, *row) for row in rows]


def version_of(db: Connection, key: bytes, scope: Scope, number: int, session: str) -> int:
    stored = db.rows(_SQL["version"], (number, session))
    return int(stored[0][0]) if stored else _first_version(db, key, scope, session)


def _first_version(db: Connection, key: bytes, scope: Scope, session: str) -> int:
    ((at,),) = db.rows(_SQL["erased_at"], (as_json(hash_session_subjects(key, scope, session)),))
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
