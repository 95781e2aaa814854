"""Session logs in memory: the oracle of the SessionLog port."""

from __future__ import annotations

from engrain.core.errors import Conflict
from engrain.core.identity import Scope
from engrain.core.model.items import Item
from engrain.ports import Summary, UnprocessedSession
from engrain_conformance.reference.state import Holder, State
from engrain_conformance.reference.work import stored_summary


class Sessions(Holder):
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


def _messages(state: State, scope: Scope, session: str) -> list[Item]:
    inside = (one.item for one in state.within(scope) if one.item.session == session)
    standing = [item for item in inside if item.kind == "message" and item.retracted_at is None]
    return sorted(standing, key=lambda item: item.place or 0)
