"""Session logs in memory: the oracle of the SessionLog port."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from engrain.core.errors import Conflict, InvalidInput
from engrain.core.identity import Scope
from engrain.core.model.items import Draft, Item, SessionPosition
from engrain.core.model.plans import Add, Applied, Plan
from engrain.ports import Summary, UnprocessedSession
from engrain_conformance.reference.state import Holder, State
from engrain_conformance.reference.work import stored_summary
from engrain_conformance.reference.writing import Transaction


class Sessions(Holder):
    def append(self, scope: Scope, session: str, drafts: Sequence[Draft], expect: int | None) -> Applied:
        steps = tuple(Add(_placed(draft, session)) for draft in drafts)
        plan = Plan(scope, steps, expect=None if expect is None else (session, expect))
        with self.writing() as state:
            return Transaction(state, scope, self.now(), self._ids, self._key).run(plan)

    def length(self, scope: Scope, session: str) -> int:
        with self.reading() as state:
            return state.numbers.get((scope, session), 0)

    def read(self, scope: Scope, session: str, start: int, limit: int) -> list[Item]:
        with self.reading() as state:
            return [item for item in _messages(state, scope, session) if (item.place or 0) >= start][:limit]

    def last(self, scope: Scope, session: str, n: int) -> list[Item]:
        with self.reading() as state:
            messages = _messages(state, scope, session)
            return messages[max(0, len(messages) - n) :]

    def sessions(self, scope: Scope, limit: int) -> list[str]:
        with self.reading() as state:
            standing = (one.item for one in state.within(scope) if one.item.retracted_at is None)
            held = {item.session for item in standing if item.session is not None}
            return sorted(held, key=lambda session: -state.written[scope, session])[:limit]

    def summary(self, scope: Scope, session: str) -> Summary | None:
        with self.reading() as state:
            stored = stored_summary(state, self._key, scope, session)
            return stored if stored.version else None

    def summarize(self, scope: Scope, session: str, summary: Summary) -> None:
        with self.writing() as state:
            if summary.version != stored_summary(state, self._key, scope, session).version + 1:
                raise Conflict(f"the summary of session {session!r} has moved on: read it again.")
            state.summaries[scope, session] = summary

    def progress(self, scope: Scope, session: str, work: str) -> int:
        with self.reading() as state:
            return state.marks.get((scope, session, work), 0)

    def advance(self, scope: Scope, session: str, work: str, upto: int) -> None:
        with self.writing() as state:
            mark = (scope, session, work)
            state.marks[mark] = max(upto, state.marks.get(mark, 0))

    def behind(self, scope: Scope, work: str, limit: int) -> list[UnprocessedSession]:
        with self.reading() as state:
            own = [one for one in state.numbers if one[0] == scope]
            newest = sorted(own, key=lambda one: -state.written[one])
            seen = (UnprocessedSession(*one, state.marks.get((*one, work), 0), state.numbers[one]) for one in newest)
            return [one for one in seen if one.upto < one.length][:limit]


def _placed(draft: Draft, session: str) -> Draft:
    place = draft.place or SessionPosition(session)
    if draft.kind != "message":
        raise InvalidInput(f'a session log takes drafts of kind "message", not {draft.kind!r}.')
    if place.session != session or place.number is not None:
        raise InvalidInput(f"a message of session {session!r} takes that session's next number.")
    return replace(draft, place=place)


def _messages(state: State, scope: Scope, session: str) -> list[Item]:
    inside = (one.item for one in state.within(scope) if one.item.session == session)
    standing = [item for item in inside if item.kind == "message" and item.retracted_at is None]
    return sorted(standing, key=lambda item: item.place or 0)
