"""Summarize sessions: a rolling summary in front of the window, and a recap of an ended session."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime

from engrain.core.chat.window import (
    SUMMARY_SHARE,
    count_message_tokens,
    count_to_summarize,
    find_cut_points,
    needs_summary,
)
from engrain.core.errors import Conflict
from engrain.core.identity import Scope
from engrain.core.model.items import Item
from engrain.core.model.messages import Message, item_to_message
from engrain.core.model.queries import Summary
from engrain.core.model.retention import WindowLimits
from engrain.core.rules.empty_talk import says_nothing
from engrain.core.rules.own_words import blank_code, drop_pasted, find_own_words
from engrain.core.rules.quotation_frames import HIDDEN_LETTER
from engrain.core.secrets.redact import contains_secret
from engrain.core.text.summarize import (
    SUMMARY_KIND,
    DigestLine,
    DigestPart,
    join_lines,
    select_lines,
    split_lines,
    write_digest,
)
from engrain.ports import Services

BY_DIGEST = "digest"  # value of "by" for a summary made without a model
CLEARED_PROGRESS = "window"  # name of the log's progress mark: where the window was last cleared
ROLL_BATCH_SIZE = 200  # messages
MAX_ATTEMPTS = 5
MAX_RECAP_TOKENS = 400
RECAP_BATCH_SIZE = 1_000  # messages

Origins = dict[str, tuple[str, ...]]  # line of a recap -> ids of the items that it comes from

_log = logging.getLogger("engrain")


@dataclass(frozen=True, slots=True)
class WindowSummary:
    """The summary of the messages before number `start`, which is where the window begins.

    `stored` is the log's summary; it may cover messages that were cleared since.
    """

    text: str
    start: int
    stored: Summary | None = None


def load_summary(services: Services, scope: Scope, session: str) -> WindowSummary:
    stored = services.log.summary(scope, session)
    # The mark is separate from the summary, which a forget deletes: cleared messages must not come back then.
    cleared = services.log.progress(scope, session, CLEARED_PROGRESS)
    if stored is None or stored.upto < cleared:
        return WindowSummary("", cleared, stored)
    return WindowSummary(stored.text, stored.upto, stored)


def load_version(services: Services, scope: Scope, session: str) -> int:
    """Return the version of the session's summary, which every forget in the session raises.

    Read it before the messages and write only while it is unchanged: then no forgotten text is stored again.
    """
    stored = services.log.summary(scope, session)
    return stored.version if stored else 0


@dataclass(frozen=True, slots=True)
class OpenWindow:
    """The size of the window: the messages that no summary covers."""

    messages: int
    tokens: int
    following: int  # number of the next message


def roll_summary(
    services: Services, scope: Scope, session: str, limits: WindowLimits, always: bool = False
) -> OpenWindow:
    """Summarize the older messages if the window is too large, or `always`; return the window that is left."""
    for _ in range(MAX_ATTEMPTS):
        before = load_summary(services, scope, session)
        rows = services.log.read(scope, session, before.start, ROLL_BATCH_SIZE)
        messages = [item_to_message(row) for row in rows]
        weights = [count_message_tokens(message, services.count_tokens) for message in messages]
        cut = _choose_cut(messages, limits, services, always or needs_summary(len(messages), sum(weights), limits))
        if cut == 0:
            break
        parts = [
            DigestPart(before.text, kind=SUMMARY_KIND),
            *(build_part(one) for one in messages[:cut] if not is_opening_message(one)),
        ]
        text = write_digest(parts, int(limits.max_tokens * SUMMARY_SHARE), services.count_tokens)
        version = before.stored.version + 1 if before.stored else 1
        summary = Summary(text, messages[cut].number or 0, version, BY_DIGEST)
        if store_summary(services, scope, session, summary) and len(rows) < ROLL_BATCH_SIZE:
            break
    following = (messages[-1].number or 0) + 1 if messages else before.start
    return OpenWindow(len(messages) - cut, sum(weights[cut:]), following)


def store_summary(services: Services, scope: Scope, session: str, summary: Summary) -> bool:
    """Store a summary. False if another came first, or something in the session was forgotten since its version."""
    try:
        services.log.summarize(scope, session, summary)
    except Conflict:
        _log.debug("the summary of session %r is outdated and was not stored", session)
        return False
    return True


def clear_window(services: Services, scope: Scope, session: str) -> None:
    """Start the window after the last message. The log stays."""
    length = services.log.length(scope, session)
    services.log.advance(scope, session, CLEARED_PROGRESS, length)
    for _ in range(MAX_ATTEMPTS):
        version = load_version(services, scope, session) + 1
        if store_summary(services, scope, session, Summary("", length, version, BY_DIGEST)):
            return


def is_opening_message(message: Message) -> bool:
    """Check for the system message that opens a session: it is always shown and never summarized."""
    return message.number == 0 and message.role == "system"


def _choose_cut(messages: Sequence[Message], limits: WindowLimits, services: Services, now: bool) -> int:
    if len(messages) == ROLL_BATCH_SIZE:
        # Far behind, for example after the summary was deleted: catch up in batches.
        return find_cut_points(messages)[-1] or ROLL_BATCH_SIZE - 1
    return count_to_summarize(messages, limits, services.count_tokens) if now else 0


def build_part(message: Message, day: str = "") -> DigestPart:
    """Build the digest's input of a message. A decision or a resolved error is one line that names its kind itself.

    Code is left out, and so are the words of others in a user's message.
    """
    kind = "error" if message.failed and not message.event else ""
    if message.calls:
        names = ", ".join(call.name for call in message.calls)
        return DigestPart(f"{message.text}\nCalled {names}.".strip(), message.speaker or message.role, kind, day)
    speaker, event = message.speaker or message.tool or message.role, bool(message.event)
    text = message.text
    if not event and says_nothing(text):
        return DigestPart("", speaker, kind, day)
    if not event and message.role in ("user", "assistant"):
        text = _drop_words_of_others(text) if message.role == "user" else blank_code(text)
    return DigestPart(text, speaker, kind, day, event, message.role == "tool" and not event)


def _drop_words_of_others(text: str) -> str:
    """Return the speaker's own words, without the lines that only quote somebody.

    A message of one line may be a title or a motto: it stays.
    """
    kept = drop_pasted(text)
    if "\n" not in text.strip():
        return kept
    shown, lines, start = find_own_words(text).text, [], 0
    for line in kept.splitlines(keepends=True):
        own = shown[start : start + len(line)]
        start += len(line)
        quotes = HIDDEN_LETTER in own and not any(mark.isalnum() and mark != HIDDEN_LETTER for mark in own)
        lines.append("\n" if quotes else line)
    return "".join(lines)


@dataclass(frozen=True, slots=True)
class Recap:
    """The summary of a whole session."""

    text: str
    sources: tuple[str, ...]  # ids of the items that it comes from
    start: int  # number of the first message that the previous recap does not cover
    upto: int  # number after the last covered message
    since: str  # day of the first message
    at: datetime  # time of the last message


def build_recap(services: Services, scope: Scope, session: str, previous: Item | None, length: int) -> Recap | None:
    """Extend the previous recap by the messages since, a thousand at a time. None if there are no messages.

    So the beginning of a long session is covered too, and ending a session again costs only its new messages.
    """
    start = count_covered(previous)
    text, since, at = previous.text if previous else "", _first_day(previous), previous.valid_from if previous else None
    origins = _find_origins(services, scope, previous) if previous else {}
    place = start
    while rows := [
        row for row in services.log.read(scope, session, place, RECAP_BATCH_SIZE) if (row.place or 0) < length
    ]:
        since = since or _day_of(rows[0])
        parts = [DigestPart(text, kind=SUMMARY_KIND), *_build_parts(rows, since)]
        selected = select_lines(parts, MAX_RECAP_TOKENS, services.count_tokens)
        selected = [one for one in selected if not contains_secret(one.text)]
        origins = {one.text: _find_line_sources(one, origins, rows, previous) for one in selected}
        text, place = join_lines(selected), (rows[-1].place or 0) + 1
        at = max(_time_of(rows[-1]), at or _time_of(rows[-1]))
    if at is None:
        return None
    sources = dict.fromkeys(source for ids in origins.values() for source in ids)
    latest = max(services.clock(), previous.valid_from if previous else at)
    return Recap(text, tuple(sources), start, length, since, min(at, latest))


def count_covered(recap: Item | None) -> int:
    """Return the number of the first message that a stored recap does not cover."""
    upto = recap.metadata.get("upto") if recap else 0
    return upto if isinstance(upto, int) else 0


def _find_origins(services: Services, scope: Scope, recap: Item) -> Origins:
    """Find the origins of a recap's lines, as far as the cited messages have them word for word."""
    cited = [cite.item for source in recap.sources for cite in source.cites]
    found: Origins = {}
    for row in services.items.get_many(scope, cited):
        for part in _build_parts([row], _first_day(recap)) if row.kind == "message" else ():
            found |= {one.text: (row.id,) for one in split_lines(part, len)}
    return found


def _find_line_sources(line: DigestLine, known: Origins, rows: Sequence[Item], recap: Item | None) -> tuple[str, ...]:
    """Return the message that a line was taken from.

    A line that no message has, such as a model's or half of a long one, may come from any of them: return all.
    """
    if line.part > 0:
        return (rows[line.part - 1].id,)
    if line.text in known:
        return known[line.text]
    before = [source for ids in known.values() for source in ids]
    new = [] if line.part == 0 else [row.id for row in rows]
    return tuple(dict.fromkeys([*([recap.id] if recap else []), *before, *new]))


def _build_parts(rows: Sequence[Item], since: str) -> list[DigestPart]:
    messages = [(item_to_message(row), _day_of(row)) for row in rows]
    return [
        DigestPart("") if is_opening_message(message) else build_part(message, "" if day == since else day)
        for message, day in messages
    ]


def _first_day(recap: Item | None) -> str:
    since = recap.metadata.get("since", "") if recap else ""
    return since if isinstance(since, str) else ""


def _time_of(row: Item) -> datetime:
    return row.occurred_at or row.recorded_at


def _day_of(row: Item) -> str:
    return f"{_time_of(row):%Y-%m-%d}"
