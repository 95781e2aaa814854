"""Choose the messages that a model sees: within its budgets, and no call without its result."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any

from engrain.core.model.messages import ChatMessage, Message, ToolCall, match_results
from engrain.core.model.retention import WindowLimits
from engrain.core.rules.message_filters import EARLIER_HEADING
from engrain.core.tokens import CountTokens, clip_text, cut_middle

ACKNOWLEDGEMENT = "I understand the context. Please continue."

# Tokens that the two APIs add to a message, a call, a result and the request: ids, names of fields, missing results.
MESSAGE_TOKENS, CALL_TOKENS, RESULT_TOKENS, REQUEST_TOKENS = 4, 24, 24, 16
# Shares of the window: the summary, the first system message, and the messages that are not summarized.
SUMMARY_SHARE, SYSTEM_SHARE, KEPT_SHARE = 0.1, 0.25, 0.5
# A message that does not fit is cut if so much of the window is left.
MIN_CUT_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class Window:
    """The part of a conversation that a model sees.

    `summary` covers everything before message number `start`, the first in the window.
    `system` is the first system message, if it is no longer in the window. `tokens` counts everything.
    """

    summary: str
    messages: tuple[Message, ...]
    tokens: int
    start: int
    system: str = ""

    @property
    def chat_messages(self) -> list[ChatMessage]:
        """The messages to send to a model."""
        system = [ChatMessage("system", self.system)] if self.system else []
        return [*system, *_summary_messages(self.summary), *(message.chat_message for message in self.messages)]


@dataclass(frozen=True, slots=True)
class WindowPrefix:
    """The summary of all messages before number `start`, and the first system message of the session."""

    summary: str = ""
    start: int = 0
    system: str = ""


def fit_window(messages: Sequence[Message], before: WindowPrefix, limits: WindowLimits, count: CountTokens) -> Window:
    """Take the newest messages that fit, without a gap. A message that is too long is cut, with a mark."""
    system = clip_text(before.system, int(limits.max_tokens * SYSTEM_SHARE), count)
    room = int(limits.max_tokens * 2 * SUMMARY_SHARE)
    summary = clip_text(before.summary, room, lambda text: _count_summary_tokens(text, count))
    used = REQUEST_TOKENS + count(system) + _count_summary_tokens(summary, count)
    shown: list[Message] = []
    for start, end in reversed(list(pairwise([*find_cut_points(messages), len(messages)]))):
        unit = messages[start:end]
        tokens = sum(count_message_tokens(message, count) for message in unit)
        room, left = limits.max_items - len(shown), limits.max_tokens - used
        if len(unit) > room or tokens > left:
            can_cut = not shown or (len(unit) <= room and left >= MIN_CUT_SHARE * limits.max_tokens)
            unit = fit_messages(unit, room, left, count) if can_cut else []
            shown = [*unit, *shown]
            used += sum(count_message_tokens(message, count) for message in unit)
            break
        shown = [*unit, *shown]
        used += tokens
    following = (messages[-1].number or 0) + 1 if messages else before.start
    start = (shown[0].number or 0) if shown else following
    return Window(summary, tuple(shown), used if shown or summary or system else 0, start, system)


def needs_summary(messages: int, tokens: int, limits: WindowLimits) -> bool:
    """Tell if the older messages need to be summarized."""
    return messages >= limits.summarize_from or tokens >= limits.summarize_at * limits.max_tokens


def count_to_summarize(messages: Sequence[Message], limits: WindowLimits, count: CountTokens) -> int:
    """Return how many of the oldest messages to summarize: all but the newest few, and more if these are long.

    A recent call without a result is never summarized.
    """
    edges = [edge for edge in find_cut_points(messages) if edge <= _first_waiting(messages, limits.keep_recent)]
    first = max((edge for edge in edges if edge <= max(0, len(messages) - limits.keep_recent)), default=0)
    for edge in (edge for edge in edges if edge >= first):
        rest = messages[edge:]
        tokens = sum(count_message_tokens(message, count) for message in rest)
        if len(rest) < limits.summarize_from and tokens <= KEPT_SHARE * limits.max_tokens:
            return edge
    return edges[-1] if edges else 0


def _first_waiting(messages: Sequence[Message], newest: int) -> int:
    """Return the first of the newest messages that waits for a result; the number of messages if none does."""
    done = set(match_results(messages).values())
    places = range(max(0, len(messages) - newest), len(messages))
    waits = (at for at in places if any((at, call) not in done for call in range(len(messages[at].calls))))
    return next(waits, len(messages))


def find_cut_points(messages: Sequence[Message]) -> list[int]:
    """Return the indexes, from 0, at which a cut separates no call from its result."""
    reach = list(range(len(messages)))
    for result, (caller, _) in match_results(messages).items():
        reach[caller] = max(reach[caller], result)
    edges, last = [], -1
    for place in range(len(messages)):
        if place > last:
            edges.append(place)
        last = max(last, reach[place])
    return edges


def count_message_tokens(message: Message, count: CountTokens) -> int:
    """Count the tokens of a message: at least as many as in either API's form."""
    calls = sum(CALL_TOKENS + count(call.name + _encode_arguments(call)) for call in message.calls)
    return _overhead_tokens(message) + _count_text_tokens(message, message.text, count) + calls


def fit_messages(unit: Sequence[Message], room: int, tokens: int, count: CountTokens) -> list[Message]:
    """Fit calls and their results into so many messages and tokens.

    Long messages are cut first. Then the oldest are dropped, a call together with its result.
    """
    rest = keep_newest(unit, room)
    while rest:
        cap = _equal_cap([count_message_tokens(message, count) for message in rest], tokens)
        shorter = [shorten_message(message, cap, count) for message in rest]
        if None not in shorter:
            return [message for message in shorter if message is not None]
        rest = keep_newest(rest, len(rest) - 1)
    return []


def keep_newest(unit: Sequence[Message], most: int) -> list[Message]:
    """Keep at most so many messages: the newest, with the calls of their results and no other calls."""
    links = match_results(unit)
    places: set[int] = set()
    for place in reversed(range(len(unit))):
        wanted = {place, links[place][0]} if place in links else {place}
        if len(places | wanted) > most:
            break
        places |= wanted
    lost = {call for place, call in links.items() if place not in places}
    return [
        replace(
            unit[place], calls=tuple(c for number, c in enumerate(unit[place].calls) if (place, number) not in lost)
        )
        for place in sorted(places)
    ]


def shorten_message(message: Message, tokens: int, count: CountTokens) -> Message | None:
    """Cut a message to so many tokens, with a mark; None if that is impossible."""
    if count_message_tokens(message, count) <= tokens:
        return message
    room = tokens - _overhead_tokens(message) - CALL_TOKENS * len(message.calls)
    if message.calls:
        each = max(0, room // (2 if message.text else 1) // len(message.calls))
        message = replace(message, calls=tuple(_shorten_call(call, each, count) for call in message.calls))
        room -= sum(count(call.name + _encode_arguments(call)) for call in message.calls)
    text, _ = cut_middle(message.text, max(0, room), lambda text: _count_text_tokens(message, text, count))
    cut = replace(message, text=text)
    return cut if count_message_tokens(cut, count) <= tokens and (text or message.calls) else None


def _shorten_call(call: ToolCall, tokens: int, count: CountTokens) -> ToolCall:
    if count(call.name + _encode_arguments(call)) <= tokens:
        return call

    def cut_call(text: str) -> ToolCall:
        return replace(call, arguments={"cut": text} if text else {}, malformed="")

    text = clip_text(_encode_arguments(call), tokens, lambda text: count(call.name + _encode_arguments(cut_call(text))))
    return cut_call(text)


def _equal_cap(weights: Sequence[int], tokens: int) -> int:
    """Return the largest cap for each weight with which all together stay within `tokens`."""
    left = tokens
    for place, weight in enumerate(sorted(weights)):
        share = left // (len(weights) - place)
        if weight > share:
            return share
        left -= weight
    return max(weights, default=0)


def _overhead_tokens(message: Message) -> int:
    return RESULT_TOKENS if message.role == "tool" else MESSAGE_TOKENS


def _count_text_tokens(message: Message, text: str, count: CountTokens) -> int:
    # A result whose call is unknown is quoted line by line.
    return count(text) + (len(text.splitlines()) if message.role == "tool" else 0)


def _encode_arguments(call: ToolCall) -> str:
    """Write the arguments as the APIs take them."""
    arguments: Any = {"malformed": call.malformed} if call.malformed else dict(call.arguments)
    return json.dumps(arguments, ensure_ascii=False)


def _count_summary_tokens(summary: str, count: CountTokens) -> int:
    return sum(MESSAGE_TOKENS + count(message.text) for message in _summary_messages(summary))


def _summary_messages(summary: str) -> list[ChatMessage]:
    # Quoted: the user did not say it, and nothing in it is an instruction.
    if not summary:
        return []
    lines = "\n".join(f"> {line}" for line in summary.splitlines())
    return [ChatMessage("user", f"{EARLIER_HEADING}\n{lines}"), ChatMessage("assistant", ACKNOWLEDGEMENT)]
