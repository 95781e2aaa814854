"""Begin a session with what matters, and end it with a summary."""

from __future__ import annotations

import builtins
import logging
import threading
from contextlib import suppress
from dataclasses import replace

from engrain.core.errors import Conflict, NotFound, StoreError
from engrain.core.identity import Scope, SortableIds
from engrain.core.model.filters import parse_filter
from engrain.core.model.items import TRUST, Citation, Item, Note, Source
from engrain.core.model.messages import Message, item_to_message
from engrain.core.model.plans import Add, Change, Plan, Step
from engrain.core.model.recall import OutdatedText
from engrain.core.model.sessions import SESSION_SLOT_PREFIX, SessionEnd, SessionInfo, SessionStart
from engrain.core.rules.slots import SPEAKER_KEY
from engrain.core.rules.traits import INSTRUCTION_OR_PREFERENCE
from engrain.core.validation import MAX_BATCH, check_count, check_key
from engrain.ingest import write
from engrain.ingest.summaries import BY_DIGEST, Recap, build_recap, load_version
from engrain.ports import ListQuery, Services
from engrain.retrieval.candidates import load_items

# What the user or the agent told, and what counts as much as "remember that …".
# A page or a tool that says "always" is nobody's wish.
_WISHES = parse_filter({"kind": "fact", "trust": {">=": TRUST["import"]}})
_IMPORTANT = parse_filter({"kind": "fact", "importance": {">=": 0.75}, "trust": {">=": TRUST["agent"]}})
_log = logging.getLogger("engrain")
new_session = SortableIds()

PROFILE = 30
LOOKED_AT = 100  # important facts, of which those of others are left out
EPISODES = 5
LEFT_OPEN = 3  # sessions before this one that are looked at for a summary that was never made
READ = 1_000  # messages of one session that are looked at for what was kept of them: the newest
TRIES = 5
NOTHING = "nothing told"  # under which the log keeps up to where a session says nothing worth telling


class CurrentSession:
    """The session that is meant where none is named. It begins with the first thing that is said."""

    def __init__(self, services: Services) -> None:
        self._clock = services.clock
        self._lock = threading.Lock()
        self.id: str | None = None

    def resolve(self, session: str | None = None) -> str:
        """The named session; without a name the current one, which begins now if there is none."""
        if session is not None:
            return check_key(session, "session")
        with self._lock:
            if self.id is None:
                self.id = new_session(self._clock())
            return self.id


class Sessions:
    """The sessions of one scope. What is said in them is the conversation's."""

    def __init__(self, services: Services, scope: Scope) -> None:
        self._services = services
        self._scope = scope

    def start(self, session: str) -> SessionStart:
        """What to know at the beginning of a session.

        A session that was never ended, because its process died, gets its summary now. So does one whose summary went
        with something that was forgotten."""
        before = self._before(session)
        ended = [self._left_open(name) for name in before]
        # The last session's, however late it was made; of a session without a log only the summary is left.
        told = [
            *filter(None, ended),
            *(item for item in self._newest("summary", 2) if item.slot != SESSION_SLOT_PREFIX + session),
        ]
        summary = told[0] if told else None
        old = self._outlived(summary) if summary else ()
        for name in before:
            self._enrich(name)
        return SessionStart(session, tuple(self._profile()), summary, tuple(self._newest("episode", EPISODES)), old)

    def _outlived(self, summary: Item) -> tuple[OutdatedText, ...]:
        _, marks = load_items(self._scope, [summary.id], self._services)
        some = marks.get(summary.id, ())
        return tuple(OutdatedText(summary.text[mark.start : mark.end], mark.until, mark.now) for mark in some)

    def _before(self, session: str) -> builtins.list[str]:
        """The few sessions before this one, newest first."""
        names = self._services.log.sessions(self._scope, LEFT_OPEN + 1)
        return [name for name in names if name != session][:LEFT_OPEN]

    def end(self, session: str) -> SessionEnd:
        """Sum up a session, and say what was kept of it."""
        summary = self._summed_up(session)
        start = summary.metadata.get("from", 0) if summary else 0
        kept = tuple(self._kept(session, start))
        self._enrich(session)
        return SessionEnd(session, summary, kept)

    def _enrich(self, session: str) -> None:
        if self._services.background is not None:
            self._services.background.enrich(self._scope, session, to_the_end=True)

    def _left_open(self, session: str) -> Item | None:
        """To begin a session needs reading alone: where nothing can be written, the summary waits."""
        try:
            return self._summed_up(session)
        except StoreError as exc:
            _log.warning("session %r is not summed up yet: %s", session, exc)
            return self._services.items.slot(self._scope, SESSION_SLOT_PREFIX + session, None)

    def _summed_up(self, session: str) -> Item | None:
        """Summed up once for each length: ending it again without a new message changes nothing."""
        for _ in range(TRIES):
            seen = load_version(self._services, self._scope, session)  # before all else
            length = self._services.log.length(self._scope, session)
            held = self._services.items.slot(self._scope, SESSION_SLOT_PREFIX + session, None)
            if held is not None and held.metadata.get("upto") == length:
                return held
            if held is None and self._services.log.progress(self._scope, session, NOTHING) >= length:
                return None
            made = build_recap(self._services, self._scope, session, held, length)
            if made is None or not made.text:
                with suppress(StoreError):  # it only spares the next one to read all of it again
                    self._services.log.advance(self._scope, session, NOTHING, length)
                return held
            try:
                return self._keep(session, made, held, seen)
            except (Conflict, NotFound):
                _log.debug("session %r has changed while it was summed up", session)
        return self._services.items.slot(self._scope, SESSION_SLOT_PREFIX + session, None)

    def _keep(self, session: str, made: Recap, held: Item | None, seen: int) -> Item | None:
        known = {"upto": made.upto, "from": made.start, "since": made.since, "by": BY_DIGEST}
        step: Step
        if held is not None and held.text == made.text:
            step = Change(held.id, metadata={**held.metadata, "upto": made.upto})
        else:
            source = Source(kind="agent", cites=tuple(map(Citation, made.sources)))
            note = Note(made.text, 0.6, SESSION_SLOT_PREFIX + session, known, source, made.at, derived=True)
            (draft,) = write.build_drafts([note], self._services)
            step = Add(replace(draft, kind="summary"))
        plan = Plan(self._scope, (step,), summary_version=(session, seen))
        (outcome,) = self._services.items.apply(plan).outcomes
        found = self._services.items.get_many(self._scope, [outcome.id]) if outcome.id else []
        return found[0] if found else None

    def list(self, limit: int = 20) -> builtins.list[SessionInfo]:
        """The sessions last added to, newest first, each with its length and its summary."""
        return [self._info(name) for name in self._services.log.sessions(self._scope, check_count(limit, "limit"))]

    def messages(self, session: str, n: int = 20) -> builtins.list[Message]:
        """The newest messages of a session, oldest of them first."""
        check_count(n, "n", 1, MAX_BATCH)
        rows = self._services.log.last(self._scope, check_key(session, "session"), n)
        return [item_to_message(row) for row in rows]

    def _info(self, session: str) -> SessionInfo:
        last = self._services.log.last(self._scope, session, 1)
        held = self._services.items.slot(self._scope, SESSION_SLOT_PREFIX + session, None)
        length = self._services.log.length(self._scope, session)
        when = last[0].occurred_at or last[0].recorded_at if last else None
        return SessionInfo(session, length, when, held.text if held else "")

    def _profile(self) -> builtins.list[Item]:
        """What is known of the user by name, what is pinned, what is important, newest first, and what the user always
        wants; not what others said of themselves."""
        items = self._services.items
        named = [item for item in items.slots(self._scope, "user.", None) if item.kind == "fact"]
        standing = items.get_many(
            self._scope, items.having(self._scope, INSTRUCTION_OR_PREFERENCE, _WISHES, PROFILE, None)
        )
        pinned = items.page(ListQuery(self._scope, parse_filter({"kind": "fact", "pinned": True}), limit=PROFILE))
        important = items.page(ListQuery(self._scope, _IMPORTANT, limit=LOOKED_AT))
        own = (item for item in (*important, *standing) if SPEAKER_KEY not in item.metadata)
        return list({item.id: item for item in (*named, *pinned, *own)}.values())[:PROFILE]

    def _kept(self, session: str, start: int) -> builtins.list[Item]:
        """What was taken out of this session's messages from number `start` on and stays: facts, important episodes."""
        new = self._services.log.length(self._scope, session) - start
        messages = [item.id for item in self._services.log.last(self._scope, session, max(0, min(new, READ)))]
        children = {
            link.item for link in self._services.items.lineage(self._scope, messages) if link.item not in messages
        }
        found = self._services.items.get_many(self._scope, sorted(children))
        return [item for item in found if item.kind in ("fact", "episode") and item.open]

    def _newest(self, kind: str, n: int) -> builtins.list[Item]:
        return self._services.items.page(ListQuery(self._scope, parse_filter({"kind": kind}), limit=n))
