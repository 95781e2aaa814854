"""Keep a session's rolling summary: what was said before its cut-off, each message summed up once."""

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
from engrain.core.model.retention import Window as Limits
from engrain.core.secrets.personal import contains_secret
from engrain.core.text.summarize import (
    SUMMARY_KIND,
    DigestLine,
    DigestPart,
    join_lines,
    select_lines,
    split_lines,
    write_digest,
)
from engrain.ports import Services, Summary

BY_DIGEST = "digest"  # who made a summary without a model
CLEARED_PROGRESS = "window"  # the work under which the log keeps where the window was last cleared
ROLL_BATCH_SIZE = 200  # messages that are summed up at a time
MAX_ATTEMPTS = 5

_log = logging.getLogger("engrain")


@dataclass(frozen=True, slots=True)
class WindowSummary:
    """What stands in front of the window: the summary of the messages before number `start`. `stored` is what the log
    has, which may be of messages that were cleared since."""

    text: str
    start: int
    stored: Summary | None = None

    @property
    def next_version(self) -> int:
        return self.stored.version + 1 if self.stored else 1


def load_summary(services: Services, scope: Scope, session: str) -> WindowSummary:
    stored = services.log.summary(scope, session)
    # Kept apart from the summary, which goes when something in it is forgotten: what was cleared must not come back.
    cleared = services.log.progress(scope, session, CLEARED_PROGRESS)
    if stored is None or stored.upto < cleared:
        return WindowSummary("", cleared, stored)
    return WindowSummary(stored.text, stored.upto, stored)


def load_version(services: Services, scope: Scope, session: str) -> int:
    """Whatever is forgotten in a session raises it: who reads it before the messages, and writes only while it is the
    same, keeps nothing that was forgotten meanwhile."""
    stored = services.log.summary(scope, session)
    return stored.version if stored else 0


@dataclass(frozen=True, slots=True)
class OpenWindow:
    """The messages from a session's cut-off on: how many, their tokens, and the number that comes next."""

    messages: int
    tokens: int
    following: int


def roll_summary(services: Services, scope: Scope, session: str, limits: Limits, always: bool = False) -> OpenWindow:
    """Sum up the older messages if it is time, or `always`; what is left word for word."""
    for _ in range(MAX_ATTEMPTS):
        before = load_summary(services, scope, session)
        rows = services.log.read(scope, session, before.start, ROLL_BATCH_SIZE)
        messages = [item_to_message(row) for row in rows]
        weights = [count_message_tokens(message, services.count_tokens) for message in messages]
        at = _choose_cut(messages, limits, services, always or needs_summary(len(messages), sum(weights), limits))
        if at == 0:
            break
        parts = [
            DigestPart(before.text, kind=SUMMARY_KIND),
            *(build_part(one) for one in messages[:at] if not is_opening_message(one)),
        ]
        text = write_digest(parts, int(limits.max_tokens * SUMMARY_SHARE), services.count_tokens)
        summary = Summary(text, messages[at].number or 0, before.next_version, BY_DIGEST)
        if store_summary(services, scope, session, summary) and len(rows) < ROLL_BATCH_SIZE:
            break
    following = (messages[-1].number or 0) + 1 if messages else before.start
    return OpenWindow(len(messages) - at, sum(weights[at:]), following)


def store_summary(services: Services, scope: Scope, session: str, summary: Summary) -> bool:
    """Store a summary of what was read after its version. False if another one came first, or if something was
    forgotten in the session meanwhile: it might tell of that."""
    try:
        services.log.summarize(scope, session, summary)
    except Conflict:
        _log.debug("the summary of session %r came too late", session)
        return False
    return True


def clear_window(services: Services, scope: Scope, session: str) -> None:
    """The window begins after the last message; the log stays."""
    length = services.log.length(scope, session)
    services.log.advance(scope, session, CLEARED_PROGRESS, length)
    for _ in range(MAX_ATTEMPTS):
        stored = services.log.summary(scope, session)
        try:
            services.log.summarize(scope, session, Summary("", length, stored.version + 1 if stored else 1, BY_DIGEST))
            return
        except Conflict:
            continue


def is_opening_message(message: Message) -> bool:
    """The system message with which a session begins is always shown, and never summed up."""
    return message.number == 0 and message.role == "system"


def _choose_cut(messages: Sequence[Message], limits: Limits, services: Services, now: bool) -> int:
    if len(messages) == ROLL_BATCH_SIZE:
        # Far behind, as after the summary was dropped: in parts.
        return find_cut_points(messages)[-1] or ROLL_BATCH_SIZE - 1
    return count_to_summarize(messages, limits, services.count_tokens) if now else 0


def build_part(message: Message, day: str = "") -> DigestPart:
    """A decision with its reasons, or an error with what helped, says itself what it is, and is one line."""
    kind = "error" if message.failed and not message.event else ""
    if message.calls:
        names = ", ".join(call.name for call in message.calls)
        return DigestPart(f"{message.text}\nCalled {names}.".strip(), message.speaker or message.role, kind, day)
    speaker, event = message.speaker or message.tool or message.role, bool(message.event)
    return DigestPart(message.text, speaker, kind, day, event, message.role == "tool" and not event)


MAX_RECAP_TOKENS = 400  # tokens
RECAP_BATCH_SIZE = 1_000  # messages of one stage

Origins = dict[str, tuple[str, ...]]  # the items that a line rests on


@dataclass(frozen=True, slots=True)
class Recap:
    """What is told of a session up to message number `upto`, what was new in it from number `start` on, the items that
    it rests on, the day of the first message and the time of the last."""

    text: str
    sources: tuple[str, ...]
    start: int
    upto: int
    since: str
    at: datetime


def build_recap(services: Services, scope: Scope, session: str, held: Item | None, length: int) -> Recap | None:
    """The summary that is held with what was said since, a thousand messages at a time: the beginning of a long session
    is told of too, and to end a session again costs no more than what is new in it. None if nobody said anything."""
    start = count_covered(held)
    text, since, at = held.text if held else "", _first_day(held), held.valid_from if held else None
    origins = _find_origins(services, scope, held) if held else {}
    place = start
    while rows := [
        row for row in services.log.read(scope, session, place, RECAP_BATCH_SIZE) if (row.place or 0) < length
    ]:
        since = since or _day_of(rows[0])
        parts = [DigestPart(text, kind=SUMMARY_KIND), *_build_parts(rows, since)]
        found = [
            one for one in select_lines(parts, MAX_RECAP_TOKENS, services.count_tokens) if not contains_secret(one.text)
        ]
        origins = {one.text: _find_line_sources(one, origins, rows, held) for one in found}
        text, place = join_lines(found), (rows[-1].place or 0) + 1
        at = max(_time_of(rows[-1]), at or _time_of(rows[-1]))
    if at is None:
        return None
    sources = dict.fromkeys(source for some in origins.values() for source in some)
    return Recap(
        text, tuple(sources), start, length, since, min(at, max(services.clock(), held.valid_from if held else at))
    )


def count_covered(held: Item | None) -> int:
    """The number of the first message that a session's summary does not tell of."""
    upto = held.metadata.get("upto") if held else 0
    return upto if isinstance(upto, int) else 0


def _find_origins(services: Services, scope: Scope, held: Item) -> Origins:
    """Where the lines come from that are word for word in what the summary cites."""
    cited = [cite.item for source in held.sources for cite in source.cites]
    found: Origins = {}
    for row in services.items.get_many(scope, cited):
        for part in _build_parts([row], _first_day(held)) if row.kind == "message" else ():
            found |= {one.text: (row.id,) for one in split_lines(part, len)}
    return found


def _find_line_sources(one: DigestLine, known: Origins, rows: Sequence[Item], held: Item | None) -> tuple[str, ...]:
    """The message that a line was taken from. Of words that no line before had, such as a model's, or half of a long
    line: all that they may be of."""
    if one.part > 0:
        return (rows[one.part - 1].id,)
    if one.text in known:
        return known[one.text]
    before = [source for some in known.values() for source in some]
    new = [] if one.part == 0 else [row.id for row in rows]
    return tuple(dict.fromkeys([*([held.id] if held else []), *before, *new]))


def _build_parts(rows: Sequence[Item], since: str) -> list[DigestPart]:
    messages = [(item_to_message(row), _day_of(row)) for row in rows]
    return [
        DigestPart("") if is_opening_message(message) else build_part(message, "" if day == since else day)
        for message, day in messages
    ]


def _first_day(held: Item | None) -> str:
    since = held.metadata.get("since", "") if held else ""
    return since if isinstance(since, str) else ""


def _time_of(row: Item) -> datetime:
    return row.occurred_at or row.recorded_at


def _day_of(row: Item) -> str:
    return f"{_time_of(row):%Y-%m-%d}"
