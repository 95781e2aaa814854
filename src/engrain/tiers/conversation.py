"""Conversation memory: the messages of a session, and the window of them that a model sees."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from engrain.core.chat import transcripts
from engrain.core.chat.render import split_system, to_anthropic, to_openai
from engrain.core.chat.window import Window, WindowPrefix, count_message_tokens, fit_window, needs_summary
from engrain.core.clock import Time
from engrain.core.errors import Conflict, InvalidInput, raise_interrupt
from engrain.core.identity import Scope
from engrain.core.model.filters import Condition, Filter
from engrain.core.model.items import FORGOTTEN, Item
from engrain.core.model.messages import Message, item_to_message, match_results, message_to_note
from engrain.core.model.plans import Applied, make_request
from engrain.core.model.recall import RecallRequest
from engrain.core.model.retention import CONVERSATION_LIMITS, WindowLimits
from engrain.core.validation import MAX_BATCH, MAX_QUERY, check_count, check_key, check_text
from engrain.ingest import summaries, write
from engrain.ingest.message_results import RecordResult
from engrain.ingest.write_messages import RecordOptions, record_messages
from engrain.ports import Services
from engrain.retrieval.search import search

MessageFormat = Literal["anthropic", "openai"]

MIN_WINDOW_TOKENS = 256
PAGE_SIZE = 500
MAX_LOOKBACK = 1_000  # messages that are searched for the call of a result
MAX_CANDIDATES = 100

_log = logging.getLogger("engrain")


@dataclass(frozen=True, slots=True)
class TranscriptLoadResult:
    """The numbers of messages of a transcript that were added, known already, or stay forgotten."""

    added: int
    known: int = 0
    kept_out: int = 0


class ConversationMemory:
    """The messages of one session. The log keeps all of them; a model sees the window.

    Threads and processes may share it. Messages of one call stay together. `expect` is the number of messages that the
    caller has seen: if others were added since, the call is a Conflict.
    """

    def __init__(
        self, services: Services, scope: Scope, session: str, limits: WindowLimits = CONVERSATION_LIMITS
    ) -> None:
        self._services = services
        self._scope = scope
        self.session = check_key(session, "session")
        check_count(limits.max_items, "max_items", 2)
        check_count(limits.max_tokens, "max_tokens", MIN_WINDOW_TOKENS, 10_000_000)
        check_count(limits.summarize_from, "summarize_from", 2)
        check_count(limits.keep_recent, "keep_recent", 1, limits.summarize_from - 1)
        self.limits = limits
        self.summary_error: str | None = None  # why the last summary could not be made
        self.refused: str | None = None  # why the last message's wish to forget something was not met
        self._open_window: summaries.OpenWindow | None = None

    def __len__(self) -> int:
        """Return the number of the next message: the value for `expect`."""
        return self._services.log.length(self._scope, self.session)

    def add(
        self,
        role: str,
        text: str,
        *,
        speaker: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        occurred_at: Time | None = None,
        request_id: str | None = None,
    ) -> str:
        """Keep a message, and return its id."""
        message = Message(role, text, speaker, metadata=metadata or {}, occurred_at=occurred_at)
        return self.add_many([message], request_id=request_id)[0]

    def add_many(
        self, messages: Iterable[Any], *, expect: int | None = None, request_id: str | None = None
    ) -> list[str]:
        """Keep several messages, all or none: Messages, or dicts and objects of the Anthropic and OpenAI APIs."""
        return self.append(messages, RecordOptions(request_id, expect))

    def append(self, messages: Iterable[Any], options: RecordOptions) -> list[str]:
        """Internal: do the same as `add_many`, for an agent."""
        return self.follow(record_messages(messages, self.session, self._scope, self._services, options))

    def follow(self, recorded: RecordResult) -> list[str]:
        """Internal: enrich and summarise after messages were recorded, and return their ids."""
        self.refused = recorded.refused
        if self._services.background is not None:
            self._services.background.enrich(self._scope, self.session)
        try:
            self._summarize_if_due(recorded)
        except Exception as exc:  # noqa: BLE001  # the messages are kept: a failed summary must not hide that
            raise_interrupt(exc)
            self.summary_error = str(exc)
            _log.warning("the summary of session %r was not made: %s", self.session, exc)
        return list(recorded.ids)

    def window(self) -> Window:
        """Return the part that a model sees, within the limits."""
        summary = self._load_summary()
        messages = self._read_newest(summary.start)
        if len(messages) >= self.limits.max_items:
            self._open_window = None  # the summary was dropped: the next message makes a new one
        before = WindowPrefix(summary.text, summary.start, self._find_system_message(messages))
        return fit_window(messages, before, self.limits, self._services.count_tokens)

    def messages_for_llm(self, format: MessageFormat = "anthropic") -> list[dict[str, Any]]:
        """Return the window in the form of an API. For Anthropic, `system_for_llm` has the system messages."""
        if format not in ("anthropic", "openai"):
            raise InvalidInput(f'unknown format {format!r}. Known: "anthropic", "openai".')
        messages = self.window().chat_messages
        return to_anthropic(messages) if format == "anthropic" else to_openai(messages)

    def system_for_llm(self) -> str:
        """Return the system messages of the window as one text; "" if there are none."""
        return split_system(self.window().chat_messages)[0]

    def last(self, n: int) -> list[Message]:
        """Return the newest n messages, oldest first."""
        check_count(n, "n", 1, MAX_BATCH)
        return [item_to_message(row) for row in self._services.log.last(self._scope, self.session, n)]

    def search(self, query: str, n: int = 5) -> list[Message]:
        """Return the best messages for the query: those that contain it literally, then by words and meaning."""
        wanted = check_text(query, "query", MAX_QUERY).casefold().strip()
        check_count(n, "n", 1, 1_000)
        where = Filter((Condition("kind", "=", "message"), Condition("session", "=", self.session)))
        request = RecallRequest(query, (self._scope,), MAX_CANDIDATES, now=self._services.clock(), where=where)
        scores = {hit.item.id: hit.score for hit in search(request, self._services).hits}
        found: dict[str, tuple[bool, float, int]] = {}
        for row in self._read_all():
            contains = wanted in row.text.casefold()
            if contains or row.id in scores:
                found[row.id] = (contains, scores.get(row.id, 0.0), row.place or 0)
        best = sorted(found, key=lambda id: found[id], reverse=True)[:n]
        return [item_to_message(item) for item in self._services.items.get_many(self._scope, best)]

    @property
    def summary(self) -> str:
        """The summary of the messages before the window; "" if there is none."""
        return self._load_summary().text

    def summarize(self) -> str:
        """Summarise all but the newest messages now."""
        summaries.roll_summary(self._services, self._scope, self.session, self.limits, always=True)
        self._open_window = None
        return self.summary

    def clear(self, *, request_id: str | None = None) -> None:
        """Empty the window. The log stays."""

        def clear() -> Applied:
            summaries.clear_window(self._services, self._scope, self.session)
            return Applied()

        self._services.items.once(self._scope, make_request(request_id, "clear", self.session), clear)
        self._open_window = None

    def export(self) -> dict[str, Any]:
        """Return plain data: messages with times and calls, the summary, and where the window was cleared."""
        summary = self._load_summary()
        cleared = self._services.log.progress(self._scope, self.session, summaries.CLEARED_PROGRESS)
        messages = tuple(item_to_message(row) for row in self._read_all())
        stored = summary.stored if summary.text else None
        return transcripts.transcript_to_data(transcripts.Transcript(self.session, messages, stored, cleared))

    def export_json(self) -> str:
        return transcripts.data_to_json(self.export())

    def export_yaml(self) -> str:
        return transcripts.data_to_yaml(self.export())

    def load(self, data: Mapping[str, Any] | str) -> TranscriptLoadResult:
        """Load an export (dict, JSON or YAML) under the same numbers and times.

        Repeating it changes nothing, and forgotten messages stay forgotten. No facts or episodes are made of it: for
        these, add the messages again. Conflict if a place holds another message.
        """
        transcript = transcripts.parse_transcript(data)
        self._check_places(transcript.messages)
        counts: Counter[str] = Counter()
        began = self._services.items.current_time()
        for start in range(0, len(transcript.messages), PAGE_SIZE):
            page = transcript.messages[start : start + PAGE_SIZE]
            notes = [message_to_note(message, self.session, placed=True, derived=True) for message in page]
            outcomes = write.commit_notes(notes, self._scope, self._services, began=began).outcomes
            counts.update(outcome.status for outcome in outcomes)
        if transcript.cleared:
            self._services.log.advance(self._scope, self.session, summaries.CLEARED_PROGRESS, transcript.cleared)
        # The summary covers every message. If one stays forgotten, a new one is made from the others.
        stored, new = self._services.log.summary(self._scope, self.session), transcript.summary
        if new and "kept_out" not in counts and (stored is None or stored.upto < new.upto):
            text = self._services.redact(new.text) if self._services.redact else new.text
            new = replace(new, text=text, version=stored.version + 1 if stored else 1)
            self._services.log.summarize(self._scope, self.session, new)
        return TranscriptLoadResult(counts["added"], counts["repeated"], counts["kept_out"])

    def _summarize_if_due(self, recorded: RecordResult) -> None:
        """Summarise the older messages if the window is full. Nothing is read as long as nobody else writes."""
        window = self._open_window
        if window and recorded.places and window.following == recorded.places[0]:
            added = sum(count_message_tokens(message, self._services.count_tokens) for message in recorded.messages)
            count = window.messages + len(recorded.messages)
            window = summaries.OpenWindow(count, window.tokens + added, recorded.places[-1] + 1)
        else:
            window = None
        if window is None or needs_summary(window.messages, window.tokens, self.limits):
            window = summaries.roll_summary(self._services, self._scope, self.session, self.limits)
        self._open_window, self.summary_error = window, None

    def _read_newest(self, start: int) -> list[Message]:
        """Read as many messages as fit; more, if the call of a result may be further back."""
        count = self.limits.max_items
        rows = self._services.log.read(self._scope, self.session, start, count + 1)
        if len(rows) <= count:
            return list(map(item_to_message, rows))
        while True:
            rows = self._services.log.last(self._scope, self.session, count)
            messages = [item_to_message(row) for row in rows if (row.place or 0) >= start]
            called = match_results(messages)
            call_missing = any(message.role == "tool" and place not in called for place, message in enumerate(messages))
            if not call_missing or len(messages) < count or count >= MAX_LOOKBACK:
                return messages
            count *= 4

    def _find_system_message(self, messages: list[Message]) -> str:
        """Return the session's first system message if it is before the window; else ""."""
        if messages and messages[0].number == 0:
            return ""
        first = self._services.log.read(self._scope, self.session, 0, 1)
        opening = item_to_message(first[0]) if first else None
        return opening.text if opening and summaries.is_opening_message(opening) else ""

    def _read_all(self) -> Iterator[Item]:
        start = 0
        while rows := self._services.log.read(self._scope, self.session, start, PAGE_SIZE):
            yield from rows
            start = (rows[-1].place or 0) + 1

    def _check_places(self, messages: Iterable[Message]) -> None:
        """Raise Conflict before anything is written. The store knows the old text of a cut message."""
        stored = {row.place: row.text for row in self._read_all() if FORGOTTEN not in row.text}
        for message in messages:
            if stored.get(message.number, text := message_to_note(message, self.session).text) != text:
                raise Conflict(
                    f"message {message.number} of session {self.session!r} is another one. Load it into a new session."
                )

    def _load_summary(self) -> summaries.WindowSummary:
        return summaries.load_summary(self._services, self._scope, self.session)
