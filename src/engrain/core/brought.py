"""Find what tools brought from a source, and what the agent said with that in view."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from engrain.core.chat import ToolCall
from engrain.core.messages import answered, calls_of
from engrain.core.plain import json_text

# The model's own tool for keeping something: its call holds nothing but the model's words.
REMEMBER = "remember"
_SPACE = re.compile(r"\s")
_WORD = re.compile(r"[^\s\"'`<>|]+")


@dataclass(frozen=True, slots=True)
class Line:
    """A message of the log. `named`: the source that is looked for is its own."""

    id: str
    session: str
    role: str | None
    text: str
    metadata: Mapping[str, Any]
    named: bool = False


@dataclass(frozen=True, slots=True)
class Brought:
    """Messages that go, and those that stay because they call tools whose answers stay: what was kept of their words
    goes."""

    gone: frozenset[str] = frozenset()
    seen: frozenset[str] = frozenset()


NOTHING = Brought()


def brought(name: str, lines: Iterable[Line]) -> Brought:
    """The answers of tools that were called with this address, or that have this name, and what the agent said after
    them until the user spoke again. The lines are those of whole sessions, each in its order."""
    gone: set[str] = set()
    seen: set[str] = set()
    for _, session in groupby(lines, lambda line: line.session):
        calls: dict[str, bool] = {}  # whether what answers them goes
        in_view = False
        for line in session:
            made = calls_of(line.text, line.metadata) if line.role == "assistant" else ()
            if line.role == "user":
                in_view = False
            elif line.role == "assistant":
                own = in_view and all(call.name == REMEMBER for call in made)
                calls |= {call.id: own or name in addresses(call) for call in made}
                if in_view:
                    (gone if own else seen).add(line.id)
            elif line.role == "tool" and (line.named or calls.get(answered(line.metadata) or "")):
                gone.add(line.id)
                in_view = True
    return Brought(frozenset(gone), frozenset(seen))


def addresses(call: ToolCall) -> set[str]:
    """What in its arguments, however deep, may say where something is: a word such as `search` is none. Of a longer
    text, such as a command, the URLs in it."""
    found: set[str] = set()
    left: list[Any] = [call.malformed or dict(call.arguments)]
    while left:
        one = left.pop()
        if isinstance(one, str):
            found |= {one} if is_address(one) else {word for word in _WORD.findall(one) if "://" in word}
        elif isinstance(one, (dict, list)):
            left += one.values() if isinstance(one, dict) else one
    return found


def is_address(name: str) -> bool:
    return ("/" in name or "." in name) and not _SPACE.search(name)


def as_argument(name: str) -> str:
    """How it stands in the text of a call."""
    return json_text(name, "a source")[1:-1]
