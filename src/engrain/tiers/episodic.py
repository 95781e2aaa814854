"""Episodic memory: what happened lately, newest first, and what of it matters."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from engrain.core.clock import Time, check_time
from engrain.core.errors import EmptyText, InvalidInput, NotFound
from engrain.core.identity import Scope
from engrain.core.model.items import Citation, Item, Note, Source
from engrain.core.model.messages import EVENTS, RESERVED_KEY, Message, check_message, message_to_note
from engrain.core.model.plans import Add, Plan, refer_to_step
from engrain.core.model.sessions import Episode, EpisodeDraft, Event, make_event
from engrain.core.rules.importance import (
    EPISODE_KINDS,
    EpisodeEvent,
    EpisodeKind,
    make_repeat_key,
    measure_novelty,
    score_importance,
)
from engrain.core.validation import check_count, check_key, check_text
from engrain.ingest import episodes as made
from engrain.ingest import messages
from engrain.ingest.tool_output import shorten_output
from engrain.ports import Episodes, Services

MAX_FOUND = 10_000
LATELY = timedelta(days=7)

_ROLES = {"turn": "user", "tool": "tool"}  # all else is noted by the agent


class EpisodicMemory:
    """What happened in the sessions of one scope. Every entry stands over a log row, which has the words; the entry
    goes after a day unless it matters, the row stays."""

    def __init__(self, services: Services, scope: Scope) -> None:
        self._services = services
        self._scope = scope

    def record(
        self,
        what: str | EpisodeEvent,
        kind: EpisodeKind = "note",
        *,
        session: str,
        tool: str | None = None,
        failed: bool = False,
        request_id: str | None = None,
    ) -> str:
        """Keep what happened, and return its id. A `Happened` says more of it than a text and a kind.

        A long output of a tool is kept as its insight, and `raw` has the whole of it for a day. The same thing again
        is counted. What matters becomes an item that lasts, in the same transaction.
        """
        given = what if isinstance(what, EpisodeEvent) else EpisodeEvent(kind, what, failed=failed)
        if given.kind == "turn" and not given.explicit:
            return self._said(given, check_key(session, "session"), request_id)
        happened, raw = self._proved(given, check_key(session, "session"), tool)
        row, now = _row(happened, session, tool), self._services.clock()
        entry = made.build_entry(happened, session, now, refer_to_step(0), tool)
        kept = (
            [made.build_lasting_note(happened, replace(_source(row), cites=(Citation(refer_to_step(0)),)))]
            if entry.expires_at is None
            else []
        )
        return self._written(row, kept, [EpisodeDraft(entry, made.build_raw(raw, now))], request_id)

    def record_decision(self, text: str, why: str = "", *, session: str, request_id: str | None = None) -> str:
        """A decision always lasts, with its reasons."""
        said = _labelled("Decided", check_text(text))
        reason = f"\nWhy: {check_text(why, 'why')}" if why else ""
        return self.record(said + reason, "decision", session=session, request_id=request_id)

    def record_error(
        self,
        error: str | BaseException,
        *,
        session: str,
        tool: str | None = None,
        cites: tuple[Citation, ...] = (),
        request_id: str | None = None,
    ) -> str:
        """The id is what `record_resolution` takes once it is known what helped. It goes when something that it `cites`
        is forgotten."""
        if not isinstance(error, (str, BaseException)):
            raise InvalidInput(f"an error is a text or an exception, not {type(error).__name__}.")
        text = error if isinstance(error, str) else f"{type(error).__name__}: {error}".removesuffix(": ")
        if not text.strip():
            raise EmptyText("the error is empty: say what went wrong.")
        failure = EpisodeEvent("error", _labelled("Error", text), failed=True, cites=cites)
        return self.record(failure, session=session, tool=tool, request_id=request_id)

    def record_resolution(self, error: str, text: str, *, request_id: str | None = None) -> str:
        """What helped against an error, or a tool call that failed. From now on both matter: they last as one item,
        which cites both rows."""
        failure = self._failure(check_key(error, "error"))
        session = str(failure.session)
        happened, _ = self._proved(EpisodeEvent("resolution", _labelled("Resolved", check_text(text))), session, None)
        pair = EpisodeEvent("error", check_text(f"{failure.text}\n{happened.text}"), failed=True, resolves=True)
        # Whole rows: to forget the pair takes the words of both, to forget one row leaves the other as it is.
        kept = made.build_lasting_note(
            pair, replace(failure.sources[0], cites=(Citation(failure.id), Citation(refer_to_step(0))))
        )
        now = self._services.clock()
        new = made.build_entry(happened, session, now, refer_to_step(0))
        new = replace(new, data={**new.data, made.RESOLVES: failure.id})
        happenings = [*self._raised(failure, now), EpisodeDraft(new)]
        return self._written(_row(happened, session, None), [kept], happenings, request_id)

    def recent(self, n: int = 10, session: str | None = None) -> list[Event]:
        """The newest, of one session or of all; what has expired or was forgotten is not among them."""
        check_count(n, "n", 1, MAX_FOUND)
        if session is not None:
            check_key(session, "session")
        now, wanted = self._services.clock(), n
        while True:
            entries = self._book.recent(self._scope, session, wanted, now)
            found = self._events(entries, now)
            if len(found) >= n or len(entries) < wanted:
                return found[:n]
            wanted *= 2  # some rows were forgotten, in a store that does not tell this one

    def important(self, n: int = 5, since: Time | timedelta = LATELY) -> list[Event]:
        """What matters most of the last days, in all sessions: the highest importance left, the newer of equals."""
        check_count(n, "n", 1, MAX_FOUND)
        now = self._services.clock()
        oldest = since if isinstance(since, timedelta) else now - check_time(since, "since")
        entries = self._book.recent(self._scope, None, MAX_FOUND, now)
        found = self._events([one for one in entries if now - one.happened_at <= oldest], now)
        return sorted(found, key=lambda one: -one.decayed)[:n]

    def raw(self, id: str) -> str | None:
        """The whole of a long output, as long as it is kept; None if the entry shows all, or its day is over."""
        return self._book.raw(self._scope, check_key(id, "id"), self._services.clock())

    def why(self, id: str) -> tuple[tuple[str, float], ...]:
        """What the importance of an entry is made of, also of one that happened again since; empty if there is none any
        more."""
        rows = self._services.items.get_many(self._scope, [check_key(id, "id")])
        now = self._services.clock()
        entries = [one for row in rows if row.session for one in self._of_session(row.session, now)]
        own = next((one for one in entries if one.id == id), None) or self._again(rows, entries)
        return make_event(own, "", now).why if own else ()

    def _again(self, rows: Sequence[Item], entries: Sequence[Episode]) -> Episode | None:
        """The entry of something that happened again, which stands over the last of its rows."""
        later = {one.item: one for one in entries if one.count > 1 and one.item}
        said = self._standing(list(later))
        for row in rows:
            for id, one in later.items():
                if id in said and _key(row, one) == _key(said[id], one):
                    return one
        return None

    def remove(self, ids: Sequence[str]) -> int:
        """Let go of the entries over these rows: for a deployment whose episodes do not see what items forget."""
        return self._book.remove(self._scope, ids)

    def _said(self, turn: EpisodeEvent, session: str, request_id: str | None) -> str:
        """A turn goes the way of every message: the gate sees whether it asks to be remembered."""
        made.require_episodes(self._services)
        message = check_message(Message(turn.role or "user", turn.text))
        terms = messages.RecordOptions(_request(request_id))
        return messages.record_messages([message], session, self._scope, self._services, terms).ids[0]

    def _proved(self, given: EpisodeEvent, session: str, tool: str | None) -> tuple[EpisodeEvent, str | None]:
        """What happened with all that is to be known of it, and the whole output if it shows only a part."""
        if given.kind not in EPISODE_KINDS:
            raise InvalidInput(f"unknown kind of episode {given.kind!r}. Known: {', '.join(EPISODE_KINDS)}.")
        if tool is not None:
            check_key(tool, "tool")
        if not isinstance(given.text, str):
            raise InvalidInput(f"what happened must be a str, not {type(given.text).__name__}.")
        given = replace(given, text=self._services.redact(given.text)) if self._services.redact else given
        text, raw = (
            shorten_output(given.text, tool, given.failed) if given.kind in ("tool", "error") else (given.text, None)
        )
        new = given.novelty
        if new is None:
            new = measure_novelty(text, made.load_recent_texts(self._services, self._scope, session))
        role = given.role or _ROLES.get(given.kind, "assistant")
        return replace(given, text=text, role=role, novelty=new), raw

    def _written(
        self, row: Note, kept: Sequence[Note], happenings: Sequence[EpisodeDraft], request_id: str | None
    ) -> str:
        began = self._services.items.moment()
        rows, lasting = made.build_episode_drafts([row], kept, self._services)
        steps = tuple(map(Add, (*rows, *lasting)))
        plan = Plan(self._scope, steps, _request(request_id), episodes=tuple(happenings), began=began)
        id = made.commit_plan(plan, self._services).outcomes[0].id
        assert id is not None, "what is said now is never kept out"
        return id

    def _failure(self, id: str) -> Item:
        rows = self._standing([id])
        if id not in rows:
            raise NotFound(f"there is no error {id!r} in this memory. `record_error` returns the id of one.")
        known = rows[id].metadata.get(RESERVED_KEY)
        if not isinstance(known, dict) or not (known.get("event") == "error" or known.get("failed")):
            raise InvalidInput(f"{id!r} is not an error, nor a tool call that failed.")
        return rows[id]

    def _raised(self, failure: Item, now: datetime) -> list[EpisodeDraft]:
        """The entry of an error that was resolved: it stays, and the same error later is another one."""
        known = score_importance(EpisodeEvent("error", failure.text, failed=True, resolves=True))
        kind: EpisodeKind = "tool" if failure.role == "tool" else "error"
        key = make_repeat_key(kind, failure.text, failure.source or failure.role, failed=True)
        for one in self._of_session(str(failure.session), now):
            # By the key as well: if it happened again since, the entry stands over the later row.
            if one.item == failure.id or one.key == key:
                data = {**one.data, made.WHY: made.list_reasons(known), made.RESOLVED: True}
                raised = replace(one, importance=known.importance, expires_at=None, key=None, data=data)
                return [EpisodeDraft(raised, made.build_raw(self._book.raw(self._scope, one.id, now), one.happened_at))]
        return []

    def _of_session(self, session: str, now: datetime) -> list[Episode]:
        return self._book.recent(self._scope, session, made.MAX_ENTRIES, now)

    def _events(self, entries: Sequence[Episode], now: datetime) -> list[Event]:
        rows = self._standing([one.item for one in entries if one.item])
        texts = [rows[one.item].text if one.item in rows else one.text for one in entries]
        return [make_event(one, text, now) for one, text in zip(entries, texts, strict=True) if text]

    def _standing(self, ids: Sequence[str]) -> dict[str, Item]:
        """The rows of these ids; of a corrected one, its correction; none that is gone."""
        found = {item.id: item for item in self._services.items.get_many(self._scope, ids)} if ids else {}
        moved = {item.id: item.replaced_by for item in found.values() if item.retracted_at and item.replaced_by}
        later = self._standing(list(moved.values())) if moved else {}
        standing = {id: item for id, item in found.items() if not item.retracted_at}
        return standing | {id: later[new] for id, new in moved.items() if new in later}

    @property
    def _book(self) -> Episodes:
        return made.require_episodes(self._services)


def _row(happened: EpisodeEvent, session: str, tool: str | None) -> Note:
    by_tool = happened.role == "tool"
    message = Message(
        role=happened.role or "assistant",
        text=happened.text,
        tool=tool if by_tool else None,
        failed=happened.failed and by_tool,
        event=happened.kind if happened.kind in EVENTS else None,
    )
    note = message_to_note(check_message(message), session)
    source = _source(note) if tool is None else Source(tool, "tool")
    return replace(note, source=replace(source, cites=happened.cites))


def _key(row: Item, entry: Episode) -> tuple[str | None, str]:
    kind: EpisodeKind = "error" if entry.data.get(made.FAILED) or entry.kind == "error" else "tool"
    return row.source or row.role, make_repeat_key(kind, row.text)


def _request(request_id: str | None) -> str | None:
    return None if request_id is None else check_key(request_id, "request_id")


def _source(row: Note) -> Source:
    return row.source if isinstance(row.source, Source) else Source()


def _labelled(label: str, text: str) -> str:
    return text if text.casefold().startswith(f"{label}:".casefold()) else f"{label}: {text}"
