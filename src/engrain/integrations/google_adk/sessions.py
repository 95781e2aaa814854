"""EngrainSessionService: sessions of Google ADK in the memories of their users."""

from __future__ import annotations

import asyncio
import json
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from google.adk.errors.already_exists_error import AlreadyExistsError
from google.adk.errors.session_not_found_error import SessionNotFoundError
from google.adk.events.event import Event
from google.adk.sessions.base_session_service import BaseSessionService, GetSessionConfig, ListSessionsResponse
from google.adk.sessions.session import Session
from google.adk.sessions.state import State

from engrain.core.errors import Conflict
from engrain.core.model.records import Record, RecordDraft, RecordKey
from engrain.integrations.memory_owners import AnyStore, open_store
from engrain.integrations.record_decoding import check_object, decoding, find_next_number, read_object
from engrain.integrations.record_reader import iterate_records
from engrain.memory.memory import Memory

SPACE = "google adk"
SESSION, EVENT = "session", "event"
_STATE: RecordKey = ("state",)  # of a user, or of an app
_DIGITS = 12  # of an event's number, so that keys order as the numbers do
Values = dict[str, Any]


class EngrainSessionService(BaseSessionService):
    """A session service for Runner(session_service=…). Each user of an app has a memory, with the app as its agent.

    The state of an app is kept in a memory without a user. Events of one session that two programs append at once are
    all kept.
    """

    def __init__(self, store: AnyStore, *, tenant: str | None = None) -> None:
        self._store, self._tenant = open_store(store), tenant

    async def create_session(
        self, *, app_name: str, user_id: str, state: Values | None = None, session_id: str | None = None
    ) -> Session:
        return await asyncio.to_thread(self._create, app_name, user_id, state or {}, session_id)

    async def get_session(
        self, *, app_name: str, user_id: str, session_id: str, config: GetSessionConfig | None = None
    ) -> Session | None:
        return await asyncio.to_thread(self._get, app_name, user_id, session_id.strip(), config)

    async def list_sessions(self, *, app_name: str, user_id: str | None = None) -> ListSessionsResponse:
        found = await asyncio.to_thread(lambda: list(self._iterate(app_name, user_id)))
        return ListSessionsResponse(sessions=sorted(found, key=lambda one: (one.last_update_time, one.user_id, one.id)))

    async def delete_session(self, *, app_name: str, user_id: str, session_id: str) -> None:
        memory = self._open(app_name, user_id)
        drops = [(kind, session_id.strip()) for kind in (SESSION, EVENT)]
        await asyncio.to_thread(memory.records.write, SPACE, drops=drops)

    async def get_user_state(self, *, app_name: str, user_id: str) -> Values:
        return await asyncio.to_thread(lambda: _read_state(self._open(app_name, user_id)))

    async def append_event(self, session: Session, event: Event) -> Event:
        if event.partial:
            return event
        memory = self._open(session.app_name, session.user_id)
        if await asyncio.to_thread(self._has_event, memory, session, event):
            return event
        event = await super().append_event(session=session, event=event)
        session.last_update_time = event.timestamp
        await asyncio.to_thread(self._append, memory, session, event)
        return event

    def _create(self, app_name: str, user_id: str, state: Values, session_id: str | None) -> Session:
        memory = self._open(app_name, user_id)
        id = (session_id or "").strip() or str(uuid.uuid4())
        own, of_user, of_app = _split_state(state)
        body = json.dumps({"state": own, "last_update_time": time.time()}).encode()

        def make(stored: Record | None) -> list[RecordDraft]:
            if stored:
                raise AlreadyExistsError(f"Session with id {id} already exists.")
            return [RecordDraft((SESSION, id), body)]

        _write_with_state(memory, (SESSION, id), make, of_user)
        self._update_app(app_name, of_app)
        found = self._get(app_name, user_id, id, None)
        assert found is not None
        return found

    def _get(self, app_name: str, user_id: str, id: str, config: GetSessionConfig | None) -> Session | None:
        memory = self._open(app_name, user_id)
        stored = memory.records.read(SPACE, [(SESSION, id)])
        if not stored:
            return None
        session = self._make_session(app_name, user_id, stored[0])
        recent = config.num_recent_events if config else None
        session.events = [_read_event(one) for one in _scan_events(memory, id, recent)]
        if config and config.after_timestamp is not None:
            late = [n for n, event in enumerate(session.events) if event.timestamp < config.after_timestamp]
            session.events = session.events[late[-1] + 1 :] if late else session.events
        return session

    def _iterate(self, app_name: str, user_id: str | None) -> Iterator[Session]:
        users = [user_id]
        if user_id is None:
            found = self._store.find_records(SPACE, (SESSION,), tenant=self._tenant)
            users = [scope.user for scope in found if scope.agent == app_name]
        for user in users:
            for one in iterate_records(self._open(app_name, user).records, SPACE, (SESSION,)):
                yield self._make_session(app_name, user or "", one)

    def _make_session(self, app_name: str, user_id: str, stored: Record) -> Session:
        values = read_object(stored)
        of_app, of_user = _read_state(self._open(app_name, None)), _read_state(self._open(app_name, user_id))
        state = {
            **_read_own_state(stored),
            **{State.APP_PREFIX + name: value for name, value in of_app.items()},
            **{State.USER_PREFIX + name: value for name, value in of_user.items()},
        }
        with decoding(stored.key):
            updated = values["last_update_time"]
            return Session(app_name=app_name, user_id=user_id, id=stored.key[1], state=state, last_update_time=updated)

    def _has_event(self, memory: Memory, session: Session, event: Event) -> bool:
        """Tell whether the same event is there already. SessionNotFoundError without the session."""
        if not memory.records.read(SPACE, [(SESSION, session.id)]):
            raise SessionNotFoundError(f"Session {session.id} not found.")
        latest = memory.records.scan(SPACE, (EVENT, session.id), limit=20, order="descending")
        return any(_read_event(one) == event for one in latest)

    def _append(self, memory: Memory, session: Session, event: Event) -> None:
        own, of_user, of_app = _split_state(event.actions.state_delta if event.actions else {})
        body = event.model_dump_json(by_alias=True, exclude_none=True).encode()

        def change(stored: Record | None) -> list[RecordDraft]:
            if not stored:
                raise SessionNotFoundError(f"Session {session.id} not found.")
            last = memory.records.scan(SPACE, (EVENT, session.id), limit=1, order="descending")
            number = find_next_number(last[0].key if last else None, _DIGITS)
            after = {"state": {**_read_own_state(stored), **own}, "last_update_time": event.timestamp}
            key = (EVENT, session.id, f"{number:0{_DIGITS}}")
            return [RecordDraft(key, body), RecordDraft(stored.key, json.dumps(after).encode())]

        _write_with_state(memory, (SESSION, session.id), change, of_user)
        self._update_app(session.app_name, of_app)

    def _update_app(self, app_name: str, more: Values) -> None:
        if more:
            _write_with_state(self._open(app_name, None), _STATE, lambda stored: [], more)

    def _open(self, app_name: str, user_id: str | None) -> Memory:
        return self._store.memory(user=user_id, agent=app_name, tenant=self._tenant)


def _split_state(state: Mapping[str, Any]) -> tuple[Values, Values, Values]:
    """Return what belongs to the session, the user and the app. Temporary values belong to nobody."""
    own, of_user, of_app = Values(), Values(), Values()
    for name, value in state.items():
        if name.startswith(State.APP_PREFIX):
            of_app[name.removeprefix(State.APP_PREFIX)] = value
        elif name.startswith(State.USER_PREFIX):
            of_user[name.removeprefix(State.USER_PREFIX)] = value
        elif not name.startswith(State.TEMP_PREFIX):
            own[name] = value
    return own, of_user, of_app


def _read_event(record: Record) -> Event:
    with decoding(record.key):
        return Event.model_validate_json(record.body)


def _read_own_state(stored: Record) -> Values:
    """Return the values of a session that belong to it alone."""
    return check_object(read_object(stored).get("state"), stored.key)


def _read_state(memory: Memory) -> Values:
    found = memory.records.read(SPACE, [_STATE])
    return read_object(found[0]) if found else {}


def _write_with_state(
    memory: Memory, key: RecordKey, change: Callable[[Record | None], list[RecordDraft]], more: Values
) -> None:
    """Write what `change` makes of a record, and more values of the memory's state, in one transaction."""
    while True:
        found = {one.key: one for one in memory.records.read(SPACE, [key, _STATE])}
        state = {**(read_object(found[_STATE]) if _STATE in found else {}), **more}
        drafts = [*change(found.get(key)), *([RecordDraft(_STATE, json.dumps(state).encode())] if more else [])]
        expected = [(one, found[one].hash if one in found else None) for one in ({key, _STATE} if more else {key})]
        try:
            return memory.records.write(SPACE, drafts, expect=expected)
        except Conflict:  # somebody else wrote one of them just now
            continue


def _scan_events(memory: Memory, session: str, recent: int | None) -> list[Record]:
    if recent == 0:
        return []
    if recent is not None:
        return memory.records.scan(SPACE, (EVENT, session), limit=recent, order="descending")[::-1]
    return list(iterate_records(memory.records, SPACE, (EVENT, session)))
