"""Start a session with what matters, and end it with a summary."""

from __future__ import annotations

import builtins
import logging
import threading
from dataclasses import replace
from functools import partial
from itertools import chain

from engrain.core.errors import Conflict, NotFound, StoreError, tolerate
from engrain.core.identity import Scope, SortableIds
from engrain.core.model.filters import parse_filter
from engrain.core.model.items import SESSION_SLOT_PREFIX, TRUST, Citation, Item, Note, Source
from engrain.core.model.messages import Message, item_to_message
from engrain.core.model.plans import Add, Applied, Change, Outcome, Plan, Step, make_request
from engrain.core.model.queries import ListQuery
from engrain.core.model.recall import OutdatedText
from engrain.core.model.sessions import SessionEnd, SessionInfo, SessionStart
from engrain.core.rules.passed_dates import is_over
from engrain.core.rules.profile import HEALTH_TOPICS, bears_on, is_about_user, is_earlier, is_standing_wish
from engrain.core.rules.slot_names import SPEAKER_KEY, USER_NAME_SLOT, find_user_names
from engrain.core.rules.statements import INSTRUCTION_OR_PREFERENCE
from engrain.core.validation import MAX_BATCH, check_count, check_key
from engrain.ingest import write
from engrain.ingest.summaries import BY_DIGEST, Recap, build_recap, load_version
from engrain.ports import Services
from engrain.retrieval.search import load_items

# Instructions and preferences count only from a trusted source: a page that says "always" is nobody's wish.
_IMPORTANT = parse_filter({"kind": "fact", "importance": {">=": 0.75}, "trust": {">=": TRUST["agent"]}})
_TRUSTED = parse_filter({"kind": "fact", "trust": {">=": TRUST["agent"]}})
_KNOWN = parse_filter({"kind": "fact", "trust": {">=": TRUST["import"]}})
_PINNED = parse_filter({"kind": "fact", "pinned": True})
_log = logging.getLogger("engrain")
new_session = SortableIds()

MAX_PROFILE_ITEMS = 40
MAX_IMPORTANT_FACTS = 100  # read before facts about others are left out
MAX_NEWEST_FACTS = 200
MAX_EPISODES = 5
MAX_EARLIER_SESSIONS = 3  # checked for a missing summary
MAX_MESSAGES_READ = 1_000  # the newest of a session, whose derived items are collected
MAX_SUMMARY_ATTEMPTS = 5
NOT_SUMMARIZED = "session %r is not summarised yet: %s"
NOTHING_TO_TELL = "nothing told"  # the log's progress up to which a session has nothing to summarise


class CurrentSession:
    """The session that is used if none is named. It starts with the first message."""

    def __init__(self, services: Services) -> None:
        self._clock = services.clock
        self._lock = threading.Lock()
        self.id: str | None = None

    def resolve(self, session: str | None = None) -> str:
        """Return the named session; without a name the current one, which starts now if there is none."""
        if session is not None:
            return check_key(session, "session")
        with self._lock:
            if self.id is None:
                self.id = new_session(self._clock())
            return self.id


class Sessions:
    """The sessions of one scope: their start, end and summaries."""

    def __init__(self, services: Services, scope: Scope) -> None:
        self._services = services
        self._scope = scope

    def start(self, session: str) -> SessionStart:
        """Return what to know at the start of a session.

        Earlier sessions without a summary get it now: their process died, or the summary was forgotten with an item.
        """
        names = self._services.log.sessions(self._scope, MAX_EARLIER_SESSIONS + 1)
        earlier = [name for name in names if name != session][:MAX_EARLIER_SESSIONS]
        summarized = [self._try_to_summarize(name) for name in earlier]
        # The newest session's summary, whenever it was made. A session without a log has only its summary left.
        own_slot = SESSION_SLOT_PREFIX + session
        stored = (item for item in self._list_newest("summary", 2) if item.slot != own_slot)
        summary = next(filter(None, (*summarized, *stored)), None)
        outdated = self._find_outdated(summary) if summary else ()
        for name in earlier:
            self._enrich(name)
        episodes = tuple(self._list_newest("episode", MAX_EPISODES))
        return SessionStart(session, tuple(self.collect_profile()), summary, episodes, outdated)

    def _find_outdated(self, summary: Item) -> tuple[OutdatedText, ...]:
        marks = load_items(self._scope, [summary.id], self._services)[1].get(summary.id, ())
        return tuple(OutdatedText(summary.text[mark.start : mark.end], mark.until, mark.now) for mark in marks)

    def end(self, session: str, *, request_id: str | None = None) -> SessionEnd:
        """Summarise a session, and return the items that were kept of it."""
        check_key(session, "session")
        if first := self.find_end(request_id):
            if first.session != session:
                raise Conflict(f"this request id was used to end session {first.session!r}. Give this one its own.")
            return first
        summary = self._summarize(session)
        start = summary.metadata.get("from", 0) if summary else 0
        derived = tuple(self._collect_derived(session, start))
        # A repeat that comes before this answer only finds the same summary again.
        ids = [summary.id if summary else None, *(item.id for item in derived)]
        outcomes = tuple(Outcome(id, "added") for id in ids)
        request = make_request(request_id, "end")
        self._services.items.once(self._scope, request, lambda: Applied(outcomes, value=session))
        self._enrich(session)
        return SessionEnd(session, summary, derived)

    def find_end(self, request_id: str | None) -> SessionEnd | None:
        """Internal: return the first answer of a repeated `end`, with those of its items that are still there."""
        first = self._services.items.answer(self._scope, make_request(request_id, "end"))
        if first is None:
            return None
        summary, *derived = (outcome.id or "" for outcome in first.outcomes)
        found = {item.id: item for item in self._services.items.get_many(self._scope, [summary, *derived])}
        return SessionEnd(first.value, found.get(summary), tuple(found[id] for id in derived if id in found))

    def _enrich(self, session: str) -> None:
        if self._services.background is not None:
            self._services.background.enrich(self._scope, session, to_the_end=True)

    def end_if_writable(self, session: str) -> None:
        """Internal: end a session before another starts. If the store cannot be written now, the summary waits."""
        with tolerate(StoreError, report=partial(_log.warning, NOT_SUMMARIZED, session)):
            self.end(session)

    def _try_to_summarize(self, session: str) -> Item | None:
        """Summarise a session if the store can be written: starting a session needs only reading."""
        with tolerate(StoreError, report=partial(_log.warning, NOT_SUMMARIZED, session)):
            return self._summarize(session)
        return self._find_summary(session)

    def _find_summary(self, session: str) -> Item | None:
        return self._services.items.slot(self._scope, SESSION_SLOT_PREFIX + session, None)

    def _summarize(self, session: str) -> Item | None:
        """Summarise a session once for each length: ending it again without a new message changes nothing."""
        log = self._services.log
        for _ in range(MAX_SUMMARY_ATTEMPTS):
            version = load_version(self._services, self._scope, session)  # first: a later change is a Conflict
            length = log.length(self._scope, session)
            stored = self._find_summary(session)
            if stored is not None and stored.metadata.get("upto") == length:
                return stored
            if stored is None and log.progress(self._scope, session, NOTHING_TO_TELL) >= length:
                return None
            recap = build_recap(self._services, self._scope, session, stored, length)
            if recap is None or not recap.text:
                with tolerate(StoreError):  # it only saves the next call from reading everything again
                    log.advance(self._scope, session, NOTHING_TO_TELL, length)
                return stored
            try:
                return self._store_summary(session, recap, stored, version)
            except (Conflict, NotFound):
                _log.debug("session %r has changed while it was summarised", session)
        return self._find_summary(session)

    def _store_summary(self, session: str, recap: Recap, stored: Item | None, version: int) -> Item | None:
        metadata = {"upto": recap.upto, "from": recap.start, "since": recap.since, "by": BY_DIGEST}
        step: Step
        if stored is not None and stored.text == recap.text:
            step = Change(stored.id, metadata={**stored.metadata, "upto": recap.upto})
        else:
            source = Source(kind="agent", cites=tuple(map(Citation, recap.sources)))
            note = Note(recap.text, 0.6, SESSION_SLOT_PREFIX + session, metadata, source, recap.at, derived=True)
            (draft,) = write.build_drafts([note], self._services)
            step = Add(replace(draft, kind="summary"))
        plan = Plan(self._scope, (step,), summary_version=(session, version))
        (outcome,) = self._services.items.apply(plan).outcomes
        found = self._services.items.get_many(self._scope, [outcome.id]) if outcome.id else []
        return found[0] if found else None

    def list(self, limit: int = 20) -> builtins.list[SessionInfo]:
        """Return the sessions last added to, newest first, each with its length and its summary."""
        log, found = self._services.log, []
        for name in log.sessions(self._scope, check_count(limit, "limit")):
            last, summary = log.last(self._scope, name, 1), self._find_summary(name)
            when = last[0].occurred_at or last[0].recorded_at if last else None
            length = log.length(self._scope, name)
            found.append(SessionInfo(name, length, when, summary.text if summary else ""))
        return found

    def messages(self, session: str, n: int = 20) -> builtins.list[Message]:
        """Return the newest n messages of a session, oldest of them first."""
        check_count(n, "n", 1, MAX_BATCH)
        rows = self._services.log.last(self._scope, check_key(session, "session"), n)
        return [item_to_message(row) for row in rows]

    def collect_profile(self) -> builtins.list[Item]:
        """Return the user's slots, pinned and important facts, standing wishes, then what they said of themselves.

        Each is newest first. Facts that others said about themselves are left out. A long profile is cut at its end,
        but keeps allergies and other facts about food and health.
        """
        facts = collect_user_facts(self._services, self._scope)
        shown = {
            item.id for item in sorted(facts, key=lambda item: not bears_on(item, HEALTH_TOPICS))[:MAX_PROFILE_ITEMS]
        }
        return [item for item in facts if item.id in shown]

    def _collect_derived(self, session: str, start: int) -> builtins.list[Item]:
        """Return the facts and important episodes that were derived from messages from number `start` on."""
        count = max(0, min(self._services.log.length(self._scope, session) - start, MAX_MESSAGES_READ))
        messages = {item.id for item in self._services.log.last(self._scope, session, count)}
        links = self._services.items.lineage(self._scope, sorted(messages))
        derived = {link.item for link in links} - messages
        found = self._services.items.get_many(self._scope, sorted(derived))
        return [item for item in found if item.kind in ("fact", "episode") and item.open]

    def _list_newest(self, kind: str, n: int) -> builtins.list[Item]:
        return self._services.items.page(ListQuery(self._scope, parse_filter({"kind": kind}), limit=n))


def collect_wishes(services: Services, scope: Scope) -> builtins.list[Item]:
    """Return the user's standing wishes."""
    items = services.items
    important = items.short_page(ListQuery(scope, _IMPORTANT, limit=MAX_IMPORTANT_FACTS))
    ids = items.having(scope, INSTRUCTION_OR_PREFERENCE, _TRUSTED, MAX_PROFILE_ITEMS, None)
    found = {item.id: item for item in (*important, *(items.get_many(scope, ids) if ids else ()))}
    return [item for item in found.values() if is_standing_wish(item) and not is_earlier(item)]


def collect_user_facts(services: Services, scope: Scope) -> builtins.list[Item]:
    """Return the facts about the user in the order of a profile: the ones that may be left out come last.

    Imported facts that name the user come after all others.
    """
    items, few = services.items, MAX_PROFILE_ITEMS
    slots = [item for item in items.slots(scope, "user.", None) if item.kind == "fact"]
    trusted = [item for item in slots if not _is_imported(item)]
    pinned = items.short_page(ListQuery(scope, _PINNED, limit=few))
    important = items.short_page(ListQuery(scope, _IMPORTANT, limit=MAX_IMPORTANT_FACTS))
    wishes = items.having(scope, INSTRUCTION_OR_PREFERENCE, _TRUSTED, few, None)
    # A page of imported facts alone would read the whole scope to find that there are none.
    newest = items.short_page(ListQuery(scope, _KNOWN, limit=MAX_NEWEST_FACTS))
    if any(map(_is_imported, newest)):
        newest = [*items.short_page(ListQuery(scope, _TRUSTED, limit=MAX_NEWEST_FACTS)), *newest]
    named = (find_user_names(item.text) for item in trusted if item.slot == USER_NAME_SLOT)
    names = (scope.user or "", *chain.from_iterable(named))
    about = sorted((item for item in (*newest, *slots) if is_about_user(item, names)), key=_is_imported)
    found = (*important, *items.get_many(scope, wishes), *about)
    own = (item for item in found if SPEAKER_KEY not in item.metadata and not is_earlier(item))
    today = services.clock().date()
    own = (item for item in own if not is_over(item.text, (item.occurred_at or item.recorded_at).date(), today))
    return list({item.id: item for item in (*trusted, *pinned, *own)}.values())


def _is_imported(item: Item) -> bool:
    return item.trust < TRUST["agent"]
