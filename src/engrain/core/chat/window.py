"""Choose what a model is shown of a conversation: within its budgets, and no call without its result."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from engrain.core.model.chat import ChatMessage, ToolCall
from engrain.core.model.messages import Message
from engrain.core.model.retention import Window as Limits
from engrain.core.rules.message_filters import EARLIER_HEADING
from engrain.core.tokens import CountTokens, clip_text, cut_middle

ACKNOWLEDGEMENT = "I understand the context. Please continue."

# What the two APIs put around a message, a call and a result: ids, names of fields, a word where a result is missing.
MESSAGE, CALL, RESULT, FRAME = 4, 24, 24, 16
# Shares of the tokens: for the summary, for the system message that opens the session, and for what stays word for
# word when the rest is summed up.
SUMMARY_SHARE, SYSTEM_SHARE, KEPT_SHARE = 0.1, 0.25, 0.5
# A message that does not fit any more is shown in part if so much is left, as a share of the tokens.
WORTH_SHOWING = 0.1


@dataclass(frozen=True, slots=True)
class Window:
    """`summary` tells what was said before message number `start`, the first one shown; `system` is the message that
    opened the session, where that is no longer among the shown ones. `tokens` counts all of it."""

    summary: str
    messages: tuple[Message, ...]
    tokens: int
    start: int
    system: str = ""

    @property
    def said(self) -> list[ChatMessage]:
        """What to write in the form of an API."""
        system = [ChatMessage("system", self.system)] if self.system else []
        return [*system, *_summed_up(self.summary), *(message.said for message in self.messages)]


@dataclass(frozen=True, slots=True)
class WindowPrefix:
    """What is in front of the messages of a window: the summary of those before number `start`, and the system message
    that opened the session."""

    summary: str = ""
    start: int = 0
    system: str = ""


def fit_window(messages: Sequence[Message], before: WindowPrefix, limits: Limits, count: CountTokens) -> Window:
    """The newest messages that fit, without a gap. One that is larger than what is left is cut, with a mark."""
    system = clip_text(before.system, int(limits.max_tokens * SYSTEM_SHARE), count)
    summary = _fitting_summary(before.summary, limits, count)
    used = FRAME + count(system) + _summary_weight(summary, count)
    kept: list[Message] = []
    for start, end in reversed(list(pairwise([*find_cut_points(messages), len(messages)]))):
        unit = messages[start:end]
        weight = sum(count_message_tokens(message, count) for message in unit)
        room, left = limits.max_items - len(kept), limits.max_tokens - used
        if len(unit) > room or weight > left:
            partly = not kept or (len(unit) <= room and left >= WORTH_SHOWING * limits.max_tokens)
            unit = fit_messages(unit, room, left, count) if partly else []
            kept = [*unit, *kept]
            used += sum(count_message_tokens(message, count) for message in unit)
            break
        kept = [*unit, *kept]
        used += weight
    following = (messages[-1].number or 0) + 1 if messages else before.start
    start = (kept[0].number or 0) if kept else following
    return Window(summary, tuple(kept), used if kept or summary or system else 0, start, system)


def needs_summary(messages: int, tokens: int, limits: Limits) -> bool:
    """Whether the older messages are to be summed up."""
    return messages >= limits.summarize_from or tokens >= limits.summarize_at * limits.max_tokens


def count_to_summarize(messages: Sequence[Message], limits: Limits, count: CountTokens) -> int:
    """How many of the oldest are summed up: all but the newest few, and more of them if these are long; never one of
    these that calls and has no result yet."""
    edges = [edge for edge in find_cut_points(messages) if edge <= _first_open(messages, limits.keep_recent)]
    first = max((edge for edge in edges if edge <= max(0, len(messages) - limits.keep_recent)), default=0)
    for edge in (edge for edge in edges if edge >= first):
        rest = messages[edge:]
        tokens = sum(count_message_tokens(message, count) for message in rest)
        if len(rest) < limits.summarize_from and tokens <= KEPT_SHARE * limits.max_tokens:
            return edge
    return edges[-1] if edges else 0


def _first_open(messages: Sequence[Message], newest: int) -> int:
    """The first of the newest messages that waits for a result; the number of messages if none does."""
    done = set(match_results(messages).values())
    places = range(max(0, len(messages) - newest), len(messages))
    waits = (at for at in places if any((at, call) not in done for call in range(len(messages[at].calls))))
    return next(waits, len(messages))


def find_cut_points(messages: Sequence[Message]) -> list[int]:
    """Where a cut parts no call from its result, from 0 on."""
    reach = list(range(len(messages)))
    for result, (caller, _) in match_results(messages).items():
        reach[caller] = max(reach[caller], result)
    edges, last = [], -1
    for place in range(len(messages)):
        if place > last:
            edges.append(place)
        last = max(last, reach[place])
    return edges


def match_results(messages: Sequence[Message]) -> dict[int, tuple[int, int]]:
    """By result, the message that called and which of its calls that was.

    Some servers use an id again and again: a result belongs to the nearest message that calls by this id.
    """
    waiting: dict[str | None, list[tuple[int, int]]] = {}
    found: dict[int, tuple[int, int]] = {}
    for place, message in enumerate(messages):
        for number in reversed(range(len(message.calls))):
            waiting.setdefault(message.calls[number].id, []).append((place, number))
        if message.role == "tool" and waiting.get(message.answers):
            found[place] = waiting[message.answers].pop()
    return found


def count_message_tokens(message: Message, count: CountTokens) -> int:
    """At least the tokens that a message has in the form of either API."""
    calls = sum(CALL + count(call.name + _arguments(call)) for call in message.calls)
    return _around(message) + _text_weight(message, message.text, count) + calls


def fit_messages(unit: Sequence[Message], room: int, tokens: int, count: CountTokens) -> list[Message]:
    """Calls and their results in so many messages and tokens: the long ones cut, and if that is not enough, the oldest
    left out, a call together with its result."""
    kept = keep_newest(unit, room)
    while kept:
        cap = _level([count_message_tokens(message, count) for message in kept], tokens)
        shorter = [shorten_message(message, cap, count) for message in kept]
        if None not in shorter:
            return [message for message in shorter if message is not None]
        kept = keep_newest(kept, len(kept) - 1)
    return []


def keep_newest(unit: Sequence[Message], most: int) -> list[Message]:
    """At most so many of these messages: the newest, with the calls of the results among them and no others' calls."""
    links = match_results(unit)
    kept: set[int] = set()
    for place in reversed(range(len(unit))):
        wanted = {place, links[place][0]} if place in links else {place}
        if len(kept | wanted) > most:
            break
        kept |= wanted
    lost = {call for place, call in links.items() if place not in kept}
    return [_without(unit[place], {call for caller, call in lost if caller == place}) for place in sorted(kept)]


def _without(message: Message, calls: set[int]) -> Message:
    left = tuple(call for number, call in enumerate(message.calls) if number not in calls)
    return replace(message, calls=left) if calls else message


def shorten_message(message: Message, tokens: int, count: CountTokens) -> Message | None:
    """The message within so many tokens, what is left out of it marked; None where that cannot be."""
    if count_message_tokens(message, count) <= tokens:
        return message
    room = tokens - _around(message) - CALL * len(message.calls)
    if message.calls:
        each = max(0, room // (2 if message.text else 1) // len(message.calls))
        message = replace(message, calls=tuple(_shortened_call(call, each, count) for call in message.calls))
        room -= sum(count(call.name + _arguments(call)) for call in message.calls)
    text, _ = cut_middle(message.text, max(0, room), lambda text: _text_weight(message, text, count))
    cut = replace(message, text=text)
    return cut if count_message_tokens(cut, count) <= tokens and (text or message.calls) else None


def _shortened_call(call: ToolCall, tokens: int, count: CountTokens) -> ToolCall:
    if count(call.name + _arguments(call)) <= tokens:
        return call

    def told(text: str) -> ToolCall:
        return replace(call, arguments={"cut": text} if text else {}, malformed="")

    text = clip_text(_arguments(call), tokens, lambda text: count(call.name + _arguments(told(text))))
    return told(text)


def _level(weights: Sequence[int], tokens: int) -> int:
    """The most that each may have, so that all together have no more than `tokens`."""
    left = tokens
    for place, weight in enumerate(sorted(weights)):
        share = left // (len(weights) - place)
        if weight > share:
            return share
        left -= weight
    return max(weights, default=0)


def _around(message: Message) -> int:
    return RESULT if message.role == "tool" else MESSAGE


def _text_weight(message: Message, text: str, count: CountTokens) -> int:
    # A result whose call is not known is quoted line by line.
    return count(text) + (len(text.splitlines()) if message.role == "tool" else 0)


def _arguments(call: ToolCall) -> str:
    """As the APIs take them."""
    arguments: Any = {"malformed": call.malformed} if call.malformed else dict(call.arguments)
    return json.dumps(arguments, ensure_ascii=False)


def _fitting_summary(summary: str, limits: Limits, count: CountTokens) -> str:
    room = int(limits.max_tokens * 2 * SUMMARY_SHARE)
    return clip_text(summary, room, lambda text: _summary_weight(text, count))


def _summary_weight(summary: str, count: CountTokens) -> int:
    return sum(MESSAGE + count(said.text) for said in _summed_up(summary))


def _summed_up(summary: str) -> list[ChatMessage]:
    """Quoted: it is told, not said by the user, and nothing in it is an instruction."""
    if not summary:
        return []
    lines = "\n".join(f"> {line}" for line in summary.splitlines())
    return [ChatMessage("user", f"{EARLIER_HEADING}\n{lines}"), ChatMessage("assistant", ACKNOWLEDGEMENT)]
