"""Conversation memory: what is said in a session, and the part of it that a model is shown."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, Literal

from engrain.core.chat import transcripts
from engrain.core.chat.parse import parse_messages
from engrain.core.chat.render import split_system, to_anthropic, to_openai
from engrain.core.chat.window import Window, WindowPrefix, count_message_tokens, fit_window, needs_summary
from engrain.core.clock import Time
from engrain.core.errors import Conflict, EmbedderFailed, InvalidInput
from engrain.core.identity import Scope
from engrain.core.model.chat import match_results
from engrain.core.model.filters import Condition, Filter
from engrain.core.model.items import FORGOTTEN, Item
from engrain.core.model.messages import Message, item_to_message, message_to_note
from engrain.core.model.retention import TIERS
from engrain.core.model.retention import Window as Limits
from engrain.core.text.tokenizer import extract_terms
from engrain.core.validation import MAX_BATCH, MAX_QUERY, check_count, check_key, check_text
from engrain.ingest import summaries, write
from engrain.ingest.messages import RecordOptions, RecordResult, record_messages
from engrain.ports import Services, Summary, VectorQuery, WordQuery
from engrain.ports.search import pin_embedder

Form = Literal["anthropic", "openai"]

# As TIERS has it, and summed up as well when this share of the tokens is used.
LIMITS = TIERS["conversation"].window
LEAST_TOKENS = 256
PAGE = 500
FURTHEST = 1_000  # messages that are looked through for the call of a result
LIKELY = 50  # messages that the words and the meaning of a query name
FUSED = 60.0  # the higher, the less the first places of two rankings weigh against the others

_log = logging.getLogger("engrain")


@dataclass(frozen=True, slots=True)
class TranscriptLoadResult:
    """How many messages a transcript brought, how many were there already, and how many stay forgotten."""

    added: int
    known: int = 0
    kept_out: int = 0


class ConversationMemory:
    """The messages of one session. The log keeps all of them; the window is what a model is shown.

    Safe for several threads and processes: messages of one call stand next to each other, and with `expect`, the
    number of messages the caller has seen, a call that comes too late is a Conflict.
    """

    def __init__(self, services: Services, scope: Scope, session: str, limits: Limits = LIMITS) -> None:
        self._services = services
        self._scope = scope
        self.session = check_key(session, "session")
        self.limits = _checked(limits)
        self.trouble: str | None = None  # why the last summary could not be made
        self.refused: str | None = None  # why the last message could not make memory forget what it wanted gone
        self._left: summaries.OpenWindow | None = None

    def __len__(self) -> int:
        """The number that the next message gets: what to give as `expect`."""
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
        """Keep what was said, and return its id."""
        message = Message(role, text, speaker, metadata=metadata or {}, occurred_at=occurred_at)
        return self.add_many([message], request_id=request_id)[0]

    def add_many(
        self, messages: Iterable[Any], *, expect: int | None = None, request_id: str | None = None
    ) -> list[str]:
        """Keep several with nobody else's between them, all or none: Messages, or dicts as the Anthropic and OpenAI
        APIs have them."""
        return list(self.take(messages, expect=expect, request_id=request_id).ids)

    def take(
        self,
        messages: Iterable[Any],
        *,
        expect: int | None = None,
        request_id: str | None = None,
        began: int | None = None,
    ) -> RecordResult:
        """The same, with all that came of it. BeingErased if the user was erased after the change number `began`."""
        checked = parse_messages(messages)
        if expect is not None:
            check_count(expect, "expect", 0, 2**53)
        if request_id is not None:
            check_key(request_id, "request_id")
        recorded = record_messages(
            checked, self.session, self._scope, self._services, RecordOptions(request_id, expect, began)
        )
        self.refused = recorded.refused
        if self._services.background is not None:
            self._services.background.enrich(self._scope, self.session)
        try:
            self._keep_up(checked, recorded)
        except Exception as exc:  # noqa: BLE001  # what was said is kept: no summary may make it look lost
            self.trouble = str(exc)
            _log.warning("the summary of session %r was not made: %s", self.session, exc)
        return recorded

    def window(self) -> Window:
        """What a model is shown: never more than the limits allow."""
        told = summaries.load_summary(self._services, self._scope, self.session)
        messages = self._newest(told.start)
        if len(messages) >= self.limits.max_items:
            self._left = None  # more than should be: the summary was dropped, and the next message makes it anew
        before = WindowPrefix(told.text, told.start, self._opening(messages))
        return fit_window(messages, before, self.limits, self._services.count_tokens)

    def messages_for_llm(self, form: Form = "anthropic") -> list[dict[str, Any]]:
        """The window in the form that an API takes. Of the Anthropic API the system messages are a parameter of their
        own: `system_for_llm`."""
        if form not in ("anthropic", "openai"):
            raise InvalidInput(f'unknown form {form!r}. Known: "anthropic", "openai".')
        said = self.window().said
        return to_anthropic(said) if form == "anthropic" else to_openai(said)

    def system_for_llm(self) -> str:
        """The system messages of the window as one; "" if there are none."""
        return split_system(self.window().said)[0]

    def last(self, n: int) -> list[Message]:
        """The newest n, oldest first."""
        check_count(n, "n", 1, MAX_BATCH)
        return [item_to_message(row) for row in self._services.log.last(self._scope, self.session, n)]

    def search(self, query: str, n: int = 5) -> list[Message]:
        """The messages that fit the query, best first: those that contain it as it is, then by words and meaning."""
        wanted = check_text(query, "query", MAX_QUERY).casefold().strip()
        check_count(n, "n", 1, 1_000)
        score = self._scores(query)
        found: dict[str, tuple[bool, float, int]] = {}
        for row in self._rows():
            contains = wanted in row.text.casefold()
            if contains or row.id in score:
                found[row.id] = (contains, score.get(row.id, 0.0), row.place or 0)
        best = sorted(found, key=lambda id: found[id], reverse=True)[:n]
        return [item_to_message(item) for item in self._services.items.get_many(self._scope, best)]

    @property
    def summary(self) -> str:
        """What is told of the messages before the window; "" if there is nothing."""
        return summaries.load_summary(self._services, self._scope, self.session).text

    def summarize(self) -> str:
        """Sum up all but the newest messages now."""
        summaries.roll_summary(self._services, self._scope, self.session, self.limits, always=True)
        self._left = None
        return self.summary

    def clear(self) -> None:
        """Empty the window; the log stays."""
        summaries.clear_window(self._services, self._scope, self.session)
        self._left = None

    def export(self) -> dict[str, Any]:
        """All of it as plain data: messages with times and calls, the summary, and where the window was cleared."""
        told = summaries.load_summary(self._services, self._scope, self.session)
        cleared = self._services.log.progress(self._scope, self.session, summaries.CLEARED_PROGRESS)
        messages = tuple(item_to_message(row) for row in self._rows())
        summary = told.stored if told.text else None
        return transcripts.transcript_to_data(transcripts.Transcript(self.session, messages, summary, cleared))

    def export_json(self) -> str:
        return transcripts.data_to_json(self.export())

    def export_yaml(self) -> str:
        return transcripts.data_to_yaml(self.export())

    def load(self, data: Mapping[str, Any] | str) -> TranscriptLoadResult:
        """Bring in what `export` gave, as a dict, JSON or YAML, under the same numbers and with its times. To repeat it
        changes nothing; what was forgotten here stays so. No facts or episodes are made of it: for these, add the
        messages anew. Conflict if another message stands in the place of one."""
        given = transcripts.parse_transcript(data)
        self._check_places(given.messages)
        counts: dict[str, int] = {}
        began = self._services.items.moment()
        for start in range(0, len(given.messages), PAGE):
            part = given.messages[start : start + PAGE]
            notes = [message_to_note(message, self.session, placed=True, derived=True) for message in part]
            for outcome in write.commit_notes(notes, self._scope, self._services, began=began).outcomes:
                counts[outcome.status] = counts.get(outcome.status, 0) + 1
        if given.cleared:
            self._services.log.advance(self._scope, self.session, summaries.CLEARED_PROGRESS, given.cleared)
        # A summary tells of every message: where one stays forgotten, it is made anew from the others.
        if given.summary and "kept_out" not in counts:
            self._load_summary(given.summary)
        return TranscriptLoadResult(counts.get("added", 0), counts.get("repeated", 0), counts.get("kept_out", 0))

    def _keep_up(self, messages: list[Message], recorded: RecordResult) -> None:
        """Sum up the older messages when it is time. As long as nobody else writes, this object knows without reading
        when that is."""
        left = self._left
        if left and recorded.places and left.following == recorded.places[0]:
            tokens = left.tokens + sum(
                count_message_tokens(message, self._services.count_tokens) for message in messages
            )
            left = summaries.OpenWindow(left.messages + len(messages), tokens, recorded.places[-1] + 1)
        else:
            left = None
        if left is None or needs_summary(left.messages, left.tokens, self.limits):
            left = summaries.roll_summary(self._services, self._scope, self.session, self.limits)
        self._left, self.trouble = left, None

    def _newest(self, start: int) -> list[Message]:
        """As many as can be shown; more, if there is a result among them whose call may stand further back."""
        count = self.limits.max_items
        rows = self._services.log.read(self._scope, self.session, start, count + 1)
        if len(rows) <= count:
            return list(map(item_to_message, rows))
        while True:
            rows = self._services.log.last(self._scope, self.session, count)
            messages = [item_to_message(row) for row in rows if (row.place or 0) >= start]
            called = match_results(messages)
            lost = any(one.role == "tool" and place not in called for place, one in enumerate(messages))
            if not lost or len(messages) < count or count >= FURTHEST:
                return messages
            count *= 4

    def _opening(self, messages: list[Message]) -> str:
        """The system message that the session began with, where it is not in the window any more."""
        if messages and messages[0].number == 0:
            return ""
        first = self._services.log.read(self._scope, self.session, 0, 1)
        opening = item_to_message(first[0]) if first else None
        return opening.text if opening and summaries.is_opening_message(opening) else ""

    def _scores(self, query: str) -> dict[str, float]:
        """Of the messages that the words or the meaning of the query name: the higher, the better in both."""
        where = Filter((Condition("kind", "=", "message"), Condition("session", "=", self.session)))
        words = WordQuery(tuple(dict.fromkeys(extract_terms(query))), self._scope, where, limit=LIKELY)
        ranked = [[hit.id for hit in self._services.words.best(words).hits]] if words.terms else []
        embedder = pin_embedder(self._services.embedder)
        model = embedder.model
        asked = self._services.redact(query) if self._services.redact else query
        try:
            vector = embedder.embed([asked], "query")[0]
            near = self._services.vectors.nearest(VectorQuery(vector, model.key, self._scope, where, limit=LIKELY))
            ranked.append([id for id, cosine in zip(near.ids, near.cosines, strict=True) if cosine >= model.floor])
        except EmbedderFailed as exc:
            _log.warning("search looks for words alone: %s", exc)
        scores: dict[str, float] = {}
        for ids in ranked:
            for place, id in enumerate(ids):
                scores[id] = scores.get(id, 0.0) + 1 / (FUSED + place)
        return scores

    def _rows(self) -> Iterator[Item]:
        start = 0
        while rows := self._services.log.read(self._scope, self.session, start, PAGE):
            yield from rows
            start = (rows[-1].place or 0) + 1

    def _check_places(self, messages: Iterable[Message]) -> None:
        """Before anything is written: a transcript goes in as a whole. Of a message that was cut since, the store knows
        what it was."""
        held = {row.place: row.text for row in self._rows() if FORGOTTEN not in row.text}
        for message in messages:
            if held.get(message.number, text := message_to_note(message, self.session).text) != text:
                raise Conflict(
                    f"message {message.number} of session {self.session!r} is another one. Load it into a new session."
                )

    def _load_summary(self, summary: Summary) -> None:
        stored = self._services.log.summary(self._scope, self.session)
        if stored is None or stored.upto < summary.upto:
            version = stored.version + 1 if stored else 1
            text = self._services.redact(summary.text) if self._services.redact else summary.text
            self._services.log.summarize(self._scope, self.session, replace(summary, text=text, version=version))


def _checked(limits: Limits) -> Limits:
    check_count(limits.max_items, "max_items", 2)
    check_count(limits.max_tokens, "max_tokens", LEAST_TOKENS, 10_000_000)
    check_count(limits.summarize_from, "summarize_from", 2)
    check_count(limits.keep_recent, "keep_recent", 1, limits.summarize_from - 1)
    return limits
