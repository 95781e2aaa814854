"""Record the events of coding sessions, and answer those that ask for context."""

from __future__ import annotations

import json
import logging
import math
import threading
import time
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import datetime
from typing import Any

from engrain.connect.commands import fixes, is_work
from engrain.connect.connect_home import HEARD_FILE, ConnectHome, is_off, write_file
from engrain.connect.events import HookEvent, make_output, read_event
from engrain.connect.repository import Repository, find_repository, make_scopes
from engrain.connect.sentence_kinds import SentenceJudge
from engrain.connect.session_state import Failure, SessionState, SessionStates
from engrain.connect.session_texts import CODING, SESSION, Block, build_prompt_block, build_start_block
from engrain.connect.spool import clean, put_event, take_events
from engrain.connect.what_to_keep import PERSONAL, Excerpt, Kind, read_answer, read_prompt
from engrain.core.errors import Conflict, InvalidInput, StoreError
from engrain.core.model.items import Citation, SessionPosition, Source, SourceKind
from engrain.memory import Memory, Store
from engrain.ports.search import find_span_pooling

MAX_SEEN = 512
MAX_ERROR_CHARACTERS = 1_500
MAX_LOGGED_CHARACTERS = 20_000
HEARD_SECONDS = 5.0
REPEAT_SECONDS = 3.0
LATE_SECONDS = 3_600.0
ANSWER_SECONDS = 3.0  # in which a client writes its last answer after its session ended
UNDATED = ("command", "file")  # they come up every day
SESSIONS_FILE = "sessions.json"
_IMPORTANCE: Mapping[Kind, float] = {
    **dict.fromkeys(("rule", "wish", "correction"), 0.8), **dict.fromkeys(("decision", "cause", "fix"), 0.7),
    "command": 0.6, "file": 0.5,
}  # fmt: skip
_log = logging.getLogger("engrain")


class EventRecorder:
    """Handle the events of every client and repository on one open store."""

    def __init__(self, store: Store, home: ConnectHome, user: str | None = None) -> None:
        self._store = store
        self._home = home
        self._user = user
        pooling = find_span_pooling(store.services.embedder)
        self._judge = SentenceJudge(pooling.read_text) if pooling else None
        self._sessions = SessionStates(home.folder / SESSIONS_FILE)
        self._seen: OrderedDict[str, float] = OrderedDict()
        self._heard: dict[str, float] = {}
        self._lock = threading.Lock()

    def answer(self, message: Mapping[str, Any]) -> dict[str, Any]:
        """Handle an event of the hook, and return the output for its client."""
        message = clean(dict(message))
        event = read_event(message)
        if event is None:
            return {}
        self._note_heard(event.client)
        if event.lacks_answer:
            put_event(self._home, message)  # read again when the client has ended
            return {}
        try:
            return make_output(event.client, event.name, self._record(event).text)
        except StoreError as exc:
            _log.warning("an event of %s waits in the spool: %s", event.client, exc)
            put_event(self._home, message)
            return {}

    def take_spooled(self) -> int:
        """Record the events that waited in the spool, and return their number."""
        taken = 0
        for path, message in take_events(self._home):
            try:
                event = read_event(message)
                if event and event.lacks_answer and time.time() - path.stat().st_mtime < ANSWER_SECONDS:
                    continue
                if event:
                    self._record(event, show=False)
            except StoreError as exc:
                _log.warning("the spool waits: %s", exc)
                return taken
            except Exception:  # noqa: BLE001  # a defect: the events behind this one must not wait for it
                _log.exception("a spooled event is dropped")
            path.unlink(missing_ok=True)
            taken += 1
        return taken

    def save_sessions(self) -> None:
        """Keep what running sessions were shown for the next process."""
        self._sessions.save()

    def load(self, events: Iterable[HookEvent]) -> int:
        """Record events of a transcript, and return their number. Those that hooks recorded already change nothing."""
        count = 0
        for event in events:
            self._handle(_clean_event(event), find_repository(event.folder), show=False)
            count += 1
        return count

    def _record(self, event: HookEvent, show: bool = True) -> Block:
        repository = find_repository(event.folder)
        return Block() if is_off(self._home, repository.name) else self._handle(event, repository, show)

    def _handle(self, event: HookEvent, repository: Repository, show: bool) -> Block:
        """Handle an event once. One that no retry can store is dropped: the session must go on."""
        own, personal = make_scopes(repository, self._user)
        memory = self._store.memory(agent=own.agent, user=own.user, reads=[personal])
        wishes = self._store.memory(user=personal.user)
        writer = EventWriter(event, repository, memory, wishes, self._judge)
        state = self._sessions.get(f"{own}/{event.session}")
        with state.lock:  # the same event may come again, from the spool or another hook, before it is stored
            if not self._is_new(event):
                return Block()
            try:
                return self._write(event, writer, state, show)
            except Conflict:
                return Block()  # stored already, by an earlier process
            except InvalidInput as exc:
                _log.warning("an event of %s is dropped: %s", event.client, exc)
                return Block()
            except BaseException:
                self._seen.pop(event.request, None)
                raise

    def _write(self, event: HookEvent, writer: EventWriter, state: SessionState, show: bool) -> Block:
        block, memory, count = Block(), writer.memory, self._store.services.count_tokens
        if event.kind == "start" and show:
            state.shown.clear()  # after /compact or a resume the client has nothing of it any more
            block = build_start_block(memory, writer.wishes, count)
        elif event.kind == "prompt":
            if show:
                block = build_prompt_block(memory, event.text, event.session, state.shown, count)
            writer.write_prompt()
        elif event.kind in ("answer", "subagent"):
            writer.write_answer()
        elif event.kind == "tool":
            writer.write_command(state)
        elif event.kind == "end":
            with suppress(Conflict):  # the answer was recorded already, when the agent stopped
                if event.text:
                    writer.write_answer()
            memory.sessions.end_if_writable(event.session)
        state.note_shown({**block.items, **writer.written})
        return block

    def _is_new(self, event: HookEvent) -> bool:
        """False for an event that came already: a client may have our hook twice, as a plugin and in its settings."""
        at = time.monotonic()
        with self._lock:
            since = at - self._seen.get(event.request, -math.inf)
            self._seen[event.request] = at
            if len(self._seen) > MAX_SEEN:
                self._seen.popitem(last=False)
        # A session may start again, after /compact, and its end brings Copilot's answer again.
        return event.kind == "end" or since >= (REPEAT_SECONDS if event.kind == "start" else math.inf)

    def _note_heard(self, client: str) -> None:
        now = time.time()
        with self._lock:
            if now - self._heard.get(client, 0) < HEARD_SECONDS:
                return
            self._heard[client] = now
            with suppress(OSError):  # a full disk: the status is not worth an event
                write_file(self._home.folder / HEARD_FILE, json.dumps(self._heard).encode())


def _clean_event(event: HookEvent) -> HookEvent:
    parts = clean({"text": event.text, "command": event.command, "output": event.output})
    return replace(event, **parts)


class EventWriter:
    """Write one event: its words into the log, and what follows from them as facts that cite these words."""

    def __init__(
        self, event: HookEvent, repository: Repository, memory: Memory, wishes: Memory, judge: SentenceJudge | None
    ) -> None:
        self._event = event
        self._judge = judge
        self._repository = repository
        self.memory = memory
        self.wishes = wishes
        self.written: dict[str, str] = {}  # texts by id: the session said these itself

    def write_prompt(self) -> None:
        found = read_prompt(self._event.text, self._judge)  # first: the message is embedded in the same pass
        row = self._write_message("user", "user")
        for number, kept in enumerate(found):
            self._write_fact(kept, row, "user", number)

    def write_answer(self) -> None:
        found = [] if self._event.kind == "subagent" else read_answer(self._event.text, self._judge)
        row = self._write_message("assistant", "agent")
        for number, kept in enumerate(found):
            self._write_fact(kept, row, "agent", number)

    def write_command(self, state: SessionState) -> None:
        """Keep a failed command as an error, what then worked as its solution, and commands worth knowing."""
        event = self._event
        if event.failed:
            error = f"`{event.command}` failed: {event.output[-MAX_ERROR_CHARACTERS:]}".rstrip(": ")
            about: dict[str, Any] = {"metadata": self._describe(), "occurred_at": event.at}
            id = self.memory.episodic.record_error(error, session=event.session, request_id=event.request, **about)
            self.written[id] = error
            state.note_failure(Failure(id, event.command, event.output[-MAX_ERROR_CHARACTERS:]))
            return
        self._resolve(state)
        if is_work(event.command, event.output):
            kept = Excerpt("command", event.command, 0, len(event.command))
            self._write_fact(kept, None, "tool", 0)

    def _resolve(self, state: SessionState) -> None:
        for number, failure in enumerate(reversed(state.failures)):
            if fixes(failure.command, failure.output, self._event.command, next_command=number == 0):
                text = f"`{self._event.command}` worked."
                self.memory.episodic.record_resolution(failure.id, text, request_id=f"{self._event.request}:fix")
                state.failures.remove(failure)
                return

    def _write_message(self, role: str, kind: SourceKind) -> str:
        event = self._event
        speaker = "subagent" if event.kind == "subagent" else None
        id = self.memory.remember(
            event.text[:MAX_LOGGED_CHARACTERS],
            position=SessionPosition(event.session, role=role, speaker=speaker),
            source=Source(event.session, kind),
            metadata=self._describe(),
            occurred_at=event.at,
            request_id=self._event.request,
        )
        self.written[id] = event.text
        return id

    def _write_fact(self, kept: Excerpt, row: str | None, kind: SourceKind, number: int) -> None:
        personal = kept.kind in PERSONAL
        # A citation stays in its scope: a personal wish names the session alone.
        uncited = row is None or personal or kept.end > MAX_LOGGED_CHARACTERS
        cites = () if row is None or uncited else (Citation(row, kept.start, kept.end),)
        source = Source(self._event.session, kind, cites)
        id = (self.wishes if personal else self.memory).remember(
            kept.text,
            importance=_IMPORTANCE[kept.kind],
            source=source,
            metadata={**self._describe(), CODING: kept.kind, SESSION: self._event.session},
            occurred_at=self._date(kept),
            request_id=f"{self._event.request}:{number}",
        )
        self.written[id] = kept.text

    def _date(self, kept: Excerpt) -> datetime | None:
        """The date of a fact from the past. Without one, the same words again are the same fact."""
        at = self._event.at
        is_past = at is not None and time.time() - at.timestamp() > LATE_SECONDS
        return at if is_past and kept.kind not in UNDATED else None

    def _describe(self) -> dict[str, Any]:
        known = {"client": self._event.client, "branch": self._repository.branch}
        return {name: value for name, value in known.items() if value}
