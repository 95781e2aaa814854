"""Begin a session with what matters, and end it with a summary."""

from __future__ import annotations

import logging
from contextlib import suppress
from dataclasses import replace

from engrain.core.errors import Conflict, NotFound, StoreError
from engrain.core.identity import Scope
from engrain.core.model.filters import parse_filter
from engrain.core.model.items import TRUST, Citation, Item, Note, Source
from engrain.core.model.plans import Add, Change, Plan, Step
from engrain.core.model.recall import OutdatedText
from engrain.core.model.sessions import SESSION_SLOT_PREFIX, SessionEnd, SessionInfo, SessionStart
from engrain.core.rules.slots import SPEAKER_KEY
from engrain.core.rules.traits import INSTRUCTION_OR_PREFERENCE
from engrain.core.validation import check_count
from engrain.ingest import write
from engrain.ingest.summaries import BY_DIGEST, Recap, build_recap, load_version
from engrain.ports import ListQuery, Services
from engrain.retrieval.candidates import load_items

# What the user or the agent told, and what counts as much as "remember that …".
# A page or a tool that says "always" is nobody's wish.
_WISHES = parse_filter({"kind": "fact", "trust": {">=": TRUST["import"]}})
_IMPORTANT = parse_filter({"kind": "fact", "importance": {">=": 0.75}, "trust": {">=": TRUST["agent"]}})
_log = logging.getLogger("engrain")

PROFILE = 30
LOOKED_AT = 100  # important facts, of which those of others are left out
EPISODES = 5
LEFT_OPEN = 3  # sessions before this one that are looked at for a summary that was never made
READ = 1_000  # messages of one session that are looked at for what was kept of them: the newest
TRIES = 5
NOTHING = "nothing told"  # under which the log keeps up to where a session says nothing worth telling


class Sessions:
    """The sessions of one scope, from the outside; what is said in them is the conversation's."""

    def __init__(self, services: Services, scope: Scope) -> None:
        self._services = services
        self._scope = scope

    def open(self, session: str) -> SessionStart:
        """A session that was never ended, because its process died, gets its summary now, and so does one whose summary
        went with something that was forgotten."""
        ended = [self._left_open(name) for name in self.before(session)]
        # The last session's, however late it was made; of a session without a log only the summary is left.
        told = [
            *filter(None, ended),
            *(item for item in self._newest("summary", 2) if item.slot != SESSION_SLOT_PREFIX + session),
        ]
        summary = told[0] if told else None
        old = self._outlived(summary) if summary else ()
        return SessionStart(session, tuple(self._profile()), summary, tuple(self._newest("episode", EPISODES)), old)

    def _outlived(self, summary: Item) -> tuple[OutdatedText, ...]:
        _, marks = load_items(self._scope, [summary.id], self._services)
        some = marks.get(summary.id, ())
        return tuple(OutdatedText(summary.text[mark.start : mark.end], mark.until, mark.now) for mark in some)

    def before(self, session: str) -> list[str]:
        """The few sessions before this one, newest first."""
        names = self._services.log.sessions(self._scope, LEFT_OPEN + 1)
        return [name for name in names if name != session][:LEFT_OPEN]

    def close(self, session: str) -> SessionEnd:
        summary = self._summed_up(session)
        start = summary.metadata.get("from", 0) if summary else 0
        return SessionEnd(session, summary, tuple(self._kept(session, start)))

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

    def listed(self, limit: int) -> list[SessionInfo]:
        """The sessions last added to, newest first."""
        return [self._listed(name) for name in self._services.log.sessions(self._scope, check_count(limit, "limit"))]

    def _listed(self, session: str) -> SessionInfo:
        last = self._services.log.last(self._scope, session, 1)
        held = self._services.items.slot(self._scope, SESSION_SLOT_PREFIX + session, None)
        length = self._services.log.length(self._scope, session)
        when = last[0].occurred_at or last[0].recorded_at if last else None
        return SessionInfo(session, length, when, held.text if held else "")

    def _profile(self) -> list[Item]:
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

    def _kept(self, session: str, start: int) -> list[Item]:
        """What was taken out of this session's messages from number `start` on and stays: facts, important episodes."""
        new = self._services.log.length(self._scope, session) - start
        messages = [item.id for item in self._services.log.last(self._scope, session, max(0, min(new, READ)))]
        children = {
            link.item for link in self._services.items.lineage(self._scope, messages) if link.item not in messages
        }
        found = self._services.items.get_many(self._scope, sorted(children))
        return [item for item in found if item.kind in ("fact", "episode") and item.open]

    def _newest(self, kind: str, n: int) -> list[Item]:
        return self._services.items.page(ListQuery(self._scope, parse_filter({"kind": kind}), limit=n))
