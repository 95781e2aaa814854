"""Episodic memory: recent events of the sessions, and the important ones that last."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Any

from engrain.core.clock import Time, check_time
from engrain.core.errors import EmptyText, InvalidInput, NotFound
from engrain.core.identity import Scope, SortableIds
from engrain.core.model.items import RESERVED_KEY, Citation, Item, Note, Source
from engrain.core.model.messages import EVENTS, Message, ToolCall, check_message, message_to_note
from engrain.core.model.plans import Add, Applied, Plan, Request, make_request, refer_to_step
from engrain.core.model.sessions import Episode, EpisodeDraft, Event, make_event
from engrain.core.rules.episode_importance import (
    EPISODE_KINDS,
    EpisodeEvent,
    EpisodeKind,
    make_repeat_key,
    measure_novelty,
    score_importance,
)
from engrain.core.validation import check_count, check_key, check_metadata, check_optional_key, check_text
from engrain.ingest import episodes, write, write_messages
from engrain.ingest.tool_output import shorten_output
from engrain.ports import Services
from engrain.ports.sessions import Episodes
from engrain.tiers.conversation import ConversationMemory
from engrain.tiers.session_lifecycle import CurrentSession

MAX_FOUND = 10_000
RECENT = timedelta(days=7)

_new_call_id = SortableIds()
_ROLES = {"turn": "user", "tool": "tool"}  # the agent notes all others


class EpisodicMemory:
    """The events in the sessions of one scope.

    Every entry refers to a log row, which has the words. The entry expires after a day unless it is important; the row
    stays.
    """

    def __init__(self, services: Services, scope: Scope, current: CurrentSession | None = None) -> None:
        self._services = services
        self._scope = scope
        self._current = current or CurrentSession(services)

    def record(
        self,
        what: str | EpisodeEvent,
        kind: EpisodeKind = "note",
        *,
        session: str | None = None,
        tool: str | None = None,
        failed: bool = False,
        request_id: str | None = None,
    ) -> str:
        """Keep an event, and return its id. An `EpisodeEvent` says more of it than a text and a kind.

        A long output of a tool is kept as its insight, and `raw` has the whole of it for a day. A repeated event is
        counted. An important one also becomes a lasting item, in the same transaction.
        """
        session = self._current.resolve(session)
        event = what if isinstance(what, EpisodeEvent) else EpisodeEvent(kind, what, failed=failed)
        if event.kind == "turn" and not event.explicit:
            # Like every message: the gate decides whether it asks to be remembered.
            episodes.require_episodes(self._services)
            message, options = Message(event.role or "user", event.text), write_messages.RecordOptions(request_id)
            return write_messages.record_messages([message], session, self._scope, self._services, options).ids[0]
        event, raw = self._complete_event(event, session, tool)
        row, now = _build_row(event, session, tool), event.occurred_at or self._services.clock()
        entry = episodes.build_entry(event, session, now, refer_to_step(0), tool)
        lasting = []
        if entry.expires_at is None:
            source = replace(_get_source(row), cites=(Citation(refer_to_step(0)),))
            lasting = [episodes.build_lasting_note(event, source)]
        request = make_request(request_id, "record", session, tool, event.kind, event.text)
        return self._commit(row, lasting, [EpisodeDraft(entry, episodes.build_raw(raw, now))], request)

    def record_tool_call(
        self,
        tool: str,
        arguments: Mapping[str, Any] | None = None,
        result: str = "",
        *,
        failed: bool = False,
        session: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        occurred_at: Time | None = None,
        request_id: str | None = None,
    ) -> str:
        """Keep a call and its result as two messages; `metadata` and `occurred_at` are those of both.

        A long result is shown as its insight; `raw(id)` has the whole for a day.
        """
        if arguments is not None and not isinstance(arguments, Mapping):
            raise InvalidInput(f"arguments must be a dict, not {type(arguments).__name__}.")
        call = ToolCall(f"call_{_new_call_id(self._services.clock())}", tool, dict(arguments or {}))
        about: dict[str, Any] = {"metadata": metadata or {}, "occurred_at": occurred_at}
        question = Message("assistant", calls=(call,), **about)
        answer = Message("tool", result, answers=call.id, tool=call.name, failed=failed, **about)
        conversation = ConversationMemory(self._services, self._scope, self._current.resolve(session))
        return conversation.add_many([question, answer], request_id=request_id)[-1]

    def record_decision(
        self, text: str, why: str = "", *, session: str | None = None, request_id: str | None = None
    ) -> str:
        """Keep a decision with its reasons. It always lasts."""
        reason = f"\nWhy: {check_text(why, 'why')}" if why else ""
        decision = _add_label("Decided", check_text(text)) + reason
        return self.record(decision, "decision", session=session, request_id=request_id)

    def record_error(
        self,
        error: str | BaseException,
        *,
        session: str | None = None,
        tool: str | None = None,
        cites: tuple[Citation, ...] = (),
        metadata: Mapping[str, Any] | None = None,
        occurred_at: Time | None = None,
        request_id: str | None = None,
    ) -> str:
        """Keep an error, and return its id for `record_resolution`.

        It is forgotten together with any item that it cites.
        """
        if not isinstance(error, (str, BaseException)):
            raise InvalidInput(f"an error is a text or an exception, not {type(error).__name__}.")
        text = error if isinstance(error, str) else f"{type(error).__name__}: {error}".removesuffix(": ")
        if not text.strip():
            raise EmptyText("the error is empty: say what went wrong.")
        at = None if occurred_at is None else check_time(occurred_at, "occurred_at")
        about: dict[str, Any] = {"occurred_at": at, "metadata": check_metadata(metadata)}
        failure = EpisodeEvent("error", _add_label("Error", text), failed=True, cites=cites, **about)
        return self.record(failure, session=session, tool=tool, request_id=request_id)

    def record_resolution(self, error: str, text: str, *, request_id: str | None = None) -> str:
        """Keep the solution of an error or a failed tool call. Both last as one item, which cites both rows."""
        request = make_request(request_id, "resolution", error, text)
        if first := self._services.items.answer(self._scope, request):
            return str(first.outcomes[0].id)
        failure = self._require_failure(check_key(error, "error"))
        session = str(failure.session)
        resolution = EpisodeEvent("resolution", _add_label("Resolved", check_text(text)))
        event, _ = self._complete_event(resolution, session, None)
        pair = EpisodeEvent("error", check_text(f"{failure.text}\n{event.text}"), failed=True, resolves=True)
        # It cites whole rows: forgetting the pair removes the words of both, forgetting one row leaves the other.
        source = replace(failure.sources[0], cites=(Citation(failure.id), Citation(refer_to_step(0))))
        lasting = episodes.build_lasting_note(pair, source)
        now = self._services.clock()
        new = episodes.build_entry(event, session, now, refer_to_step(0))
        new = replace(new, data={**new.data, episodes.RESOLVES: failure.id})
        drafts = [*self._resolve_entry(failure, now), EpisodeDraft(new)]
        return self._commit(_build_row(event, session, None), [lasting], drafts, request)

    def recent(self, n: int = 10, session: str | None = None) -> list[Event]:
        """Return the newest events of one session or of all, without expired and forgotten ones."""
        check_count(n, "n", 1, MAX_FOUND)
        check_optional_key(session, "session")
        now, limit = self._services.clock(), n
        while True:
            entries = self._episodes.recent(self._scope, session, limit, now)
            found = self._build_events(entries, now)
            if len(found) >= n or len(entries) < limit:
                return found[:n]
            limit *= 2  # some rows were forgotten in another store

    def important(self, n: int = 5, since: Time | timedelta = RECENT) -> list[Event]:
        """Return the most important recent events of all sessions, by remaining importance."""
        check_count(n, "n", 1, MAX_FOUND)
        now = self._services.clock()
        max_age = since if isinstance(since, timedelta) else now - check_time(since, "since")
        entries = self._episodes.recent(self._scope, None, MAX_FOUND, now)
        found = self._build_events([entry for entry in entries if now - entry.happened_at <= max_age], now)
        return sorted(found, key=lambda event: -event.decayed)[:n]

    def raw(self, id: str) -> str | None:
        """Return the whole of a long output; None if the entry shows all, or its day is over."""
        return self._episodes.raw(self._scope, check_key(id, "id"), self._services.clock())

    def explain(self, id: str) -> tuple[tuple[str, float], ...]:
        """Return the parts of an entry's importance, also of a repeated one; empty if there is no entry."""
        rows = self._services.items.get_many(self._scope, [check_key(id, "id")])
        now = self._services.clock()
        entries = [entry for row in rows if row.session for entry in self._list_session(row.session, now)]
        entry = next((entry for entry in entries if entry.id == id), None) or self._find_repeated(rows, entries)
        return make_event(entry, "", now).why if entry else ()

    def _find_repeated(self, rows: Sequence[Item], entries: Sequence[Episode]) -> Episode | None:
        """Find the entry of a repeated event, which refers to the last of its rows."""
        repeated = {entry.item: entry for entry in entries if entry.count > 1 and entry.item}
        current = self._load_current(list(repeated))
        for row in rows:
            for id, entry in repeated.items():
                if id in current and _repeat_key(row, entry) == _repeat_key(current[id], entry):
                    return entry
        return None

    def remove(self, ids: Sequence[str], *, request_id: str | None = None) -> int:
        """Remove the entries of these rows, if episodes are in another store than items."""
        items, request = self._services.items, make_request(request_id, "remove", list(ids))
        if first := items.answer(self._scope, request):
            return int(first.value)
        removed = self._episodes.remove(self._scope, ids)
        return int(items.once(self._scope, request, lambda: Applied(value=removed)).value)

    def _complete_event(self, event: EpisodeEvent, session: str, tool: str | None) -> tuple[EpisodeEvent, str | None]:
        """Check an event and fill in role and novelty. Return it with the whole output if that was shortened."""
        if event.kind not in EPISODE_KINDS:
            raise InvalidInput(f"unknown kind of episode {event.kind!r}. Known: {', '.join(EPISODE_KINDS)}.")
        if tool is not None:
            check_key(tool, "tool")
        if not isinstance(event.text, str):
            raise InvalidInput(f"an event's text must be a str, not {type(event.text).__name__}.")
        text = self._services.redact(event.text) if self._services.redact else event.text
        text, raw = shorten_output(text, tool, event.failed) if event.kind in ("tool", "error") else (text, None)
        novelty = event.novelty
        if novelty is None:
            recent = self._services.log.last(self._scope, session, episodes.NOVELTY_ROWS)
            novelty = measure_novelty(text, [row.text for row in recent])
        role = event.role or _ROLES.get(event.kind, "assistant")
        return replace(event, text=text, role=role, novelty=novelty), raw

    def _commit(
        self, row: Note, lasting: Sequence[Note], drafts: Sequence[EpisodeDraft], request: Request | None
    ) -> str:
        began = self._services.items.current_time()
        row_draft, *others = write.build_drafts([row, *lasting], self._services)
        steps = (Add(row_draft), *(Add(replace(draft, kind="episode")) for draft in others))
        asked = (request.id, request.asked) if request else (None, None)
        plan = Plan(self._scope, steps, asked[0], episodes=tuple(drafts), began=began, asked=asked[1])
        id = write_messages.commit_plan(plan, self._services).outcomes[0].id
        assert id is not None, "only derived items are rejected"
        return id

    def _require_failure(self, id: str) -> Item:
        rows = self._load_current([id])
        if id not in rows:
            raise NotFound(f"there is no error {id!r} in this memory. `record_error` returns the id of one.")
        known = rows[id].metadata.get(RESERVED_KEY)
        if not isinstance(known, dict) or not (known.get("event") == "error" or known.get("failed")):
            raise InvalidInput(f"{id!r} is not an error, nor a tool call that failed.")
        return rows[id]

    def _resolve_entry(self, failure: Item, now: datetime) -> list[EpisodeDraft]:
        """Build the lasting entry of a resolved error. The same error later is a new entry."""
        known = score_importance(EpisodeEvent("error", failure.text, failed=True, resolves=True))
        kind: EpisodeKind = "tool" if failure.role == "tool" else "error"
        key = make_repeat_key(kind, failure.text, failure.source or failure.role, failed=True)
        for entry in self._list_session(str(failure.session), now):
            # Also by the key: the entry of a repeated error refers to the later row.
            if entry.item == failure.id or entry.key == key:
                data = {**entry.data, episodes.WHY: episodes.list_reasons(known), episodes.RESOLVED: True}
                lasting = replace(entry, importance=known.importance, expires_at=None, key=None, data=data)
                raw = self._episodes.raw(self._scope, entry.id, now)
                return [EpisodeDraft(lasting, episodes.build_raw(raw, entry.happened_at))]
        return []

    def _list_session(self, session: str, now: datetime) -> list[Episode]:
        return self._episodes.recent(self._scope, session, episodes.MAX_ENTRIES, now)

    def _build_events(self, entries: Sequence[Episode], now: datetime) -> list[Event]:
        rows = self._load_current([entry.item for entry in entries if entry.item])
        texts = [rows[entry.item].text if entry.item in rows else entry.text for entry in entries]
        return [make_event(entry, text, now) for entry, text in zip(entries, texts, strict=True) if text]

    def _load_current(self, ids: Sequence[str]) -> dict[str, Item]:
        """Load these rows. A corrected row is replaced by its correction."""
        found = {item.id: item for item in self._services.items.get_many(self._scope, ids)} if ids else {}
        moved = {item.id: item.replaced_by for item in found.values() if item.retracted_at and item.replaced_by}
        later = self._load_current(list(moved.values())) if moved else {}
        current = {id: item for id, item in found.items() if not item.retracted_at}
        return current | {id: later[new] for id, new in moved.items() if new in later}

    @property
    def _episodes(self) -> Episodes:
        return episodes.require_episodes(self._services)


def _build_row(event: EpisodeEvent, session: str, tool: str | None) -> Note:
    by_tool = event.role == "tool"
    message = Message(
        role=event.role or "assistant",
        text=event.text,
        tool=tool if by_tool else None,
        failed=event.failed and by_tool,
        event=event.kind if event.kind in EVENTS else None,
        metadata=event.metadata,
        occurred_at=event.occurred_at,
    )
    note = message_to_note(check_message(message), session)
    source = _get_source(note) if tool is None else Source(tool, "tool")
    return replace(note, source=replace(source, cites=event.cites))


def _repeat_key(row: Item, entry: Episode) -> tuple[str | None, str]:
    kind: EpisodeKind = "error" if entry.data.get(episodes.FAILED) or entry.kind == "error" else "tool"
    return row.source or row.role, make_repeat_key(kind, row.text)


def _get_source(row: Note) -> Source:
    return row.source if isinstance(row.source, Source) else Source()


def _add_label(label: str, text: str) -> str:
    return text if text.casefold().startswith(f"{label}:".casefold()) else f"{label}: {text}"
