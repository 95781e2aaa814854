"""Decide what goes and what is put right when a session or a source is taken out of a memory."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from engrain.core.model.chat import ToolCall
from engrain.core.model.erasure import Subject
from engrain.core.model.items import TRUST
from engrain.core.model.messages import get_answered_call, read_calls
from engrain.core.model.sessions import SESSION_SLOT_PREFIX as SESSION_SLOT
from engrain.core.validation import encode_json

# The model's own tool for keeping something: its call holds nothing but the model's words.
REMEMBER_TOOL = "remember"
_SPACE = re.compile(r"\s")
_WORD = re.compile(r"[^\s\"'`<>|]+")


@dataclass(frozen=True, slots=True)
class MessageRow:
    """A message of the log. `named`: the source that is looked for is its own."""

    id: str
    session: str
    role: str | None
    text: str
    metadata: Mapping[str, Any]
    named: bool = False


@dataclass(frozen=True, slots=True)
class ToolDerived:
    """Messages that go, and those that stay because they call tools whose answers stay: what was kept of their words
    goes."""

    gone: frozenset[str] = frozenset()
    seen: frozenset[str] = frozenset()


NO_TOOL_DERIVED = ToolDerived()


def find_tool_derived(name: str, lines: Iterable[MessageRow]) -> ToolDerived:
    """The answers of tools that were called with this address, or that have this name, and what the agent said after
    them until the user spoke again. The lines are those of whole sessions, each in its order."""
    gone: set[str] = set()
    seen: set[str] = set()
    for _, session in groupby(lines, lambda line: line.session):
        calls: dict[str, bool] = {}  # whether what answers them goes
        in_view = False
        for line in session:
            made = read_calls(line.text, line.metadata) if line.role == "assistant" else ()
            if line.role == "user":
                in_view = False
            elif line.role == "assistant":
                own = in_view and all(call.name == REMEMBER_TOOL for call in made)
                calls |= {call.id: own or name in find_addresses(call) for call in made}
                if in_view:
                    (gone if own else seen).add(line.id)
            elif line.role == "tool" and (line.named or calls.get(get_answered_call(line.metadata) or "")):
                gone.add(line.id)
                in_view = True
    return ToolDerived(frozenset(gone), frozenset(seen))


def find_addresses(call: ToolCall) -> set[str]:
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


def escape_argument(name: str) -> str:
    """How it stands in the text of a call."""
    return encode_json(name, "a source")[1:-1]


@dataclass(frozen=True, slots=True)
class SourceLineage:
    """One source of an item, by its number, and the items that it cites."""

    number: int
    kind: str
    name: str | None
    cites: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ItemLineage:
    """What there is to know of an item here. Times are only passed on."""

    id: str
    kind: str
    session: str | None = None
    place: int | None = None
    slot: str | None = None
    origins: tuple[SourceLineage, ...] = ()
    replaced_by: str | None = None
    valid_to: object = None
    retracted: bool = False


@dataclass(frozen=True, slots=True)
class RestoredVersion:
    """A version that stands again: until when, and by what it was replaced after all."""

    id: str
    valid_to: object
    replaced_by: str | None


@dataclass(frozen=True, slots=True)
class RemovalPlan:
    gone: tuple[str, ...] = ()
    entombed: frozenset[str] = frozenset()  # of the gone: those whose words must not come in again
    stripped: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # the numbers of the sources that go, by item
    trust: Mapping[str, float] = field(default_factory=dict)  # of the stripped, by what is left
    restored: tuple[RestoredVersion, ...] = ()
    pointed: Mapping[str, str] = field(default_factory=dict)  # corrected still, by what corrected the correction
    back: Mapping[str, int] = field(default_factory=dict)  # by session: the place from which it is worked on again


def plan_removal(subject: Subject, items: Iterable[ItemLineage], brought: ToolDerived = NO_TOOL_DERIVED) -> RemovalPlan:
    """Everything of the subject's scope is given, in the order of ids; and what tools brought from a source."""
    parts = {one.id: one for one in items}
    gone = _gone(subject, parts, brought)
    dead = {id: _dead(subject, part, gone, brought) for id, part in parts.items() if id not in gone}
    stripped = {id: numbers for id, numbers in dead.items() if numbers}
    mixed = {id for id in gone if any(cite in parts and cite not in gone for cite in _cites(parts[id]))}
    losing = [one for one in parts.values() if _loses(one, gone)]
    heirs = {by: one.id for one in losing if one.retracted and (by := _first(one, parts, gone)) in gone and by}
    put_right = [_put_right(one, parts, gone, heirs) for one in losing]
    return RemovalPlan(
        gone=tuple(id for id in parts if id in gone),
        # What is left may be summed up, or lead to the same conclusion, in the same words.
        entombed=frozenset(id for id in gone if parts[id].kind != "summary" and id not in mixed),
        stripped=stripped,
        trust={id: _trust(parts[id], numbers) for id, numbers in stripped.items()},
        restored=tuple(one for one in put_right if isinstance(one, RestoredVersion)),
        pointed=dict(one for one in put_right if not isinstance(one, RestoredVersion)),
        back=_back([parts[cite] for id in mixed for cite in _cites(parts[id]) if cite in parts and cite not in gone]),
    )


def _gone(subject: Subject, parts: Mapping[str, ItemLineage], brought: ToolDerived) -> set[str]:
    gone = {one.id for one in parts.values() if subject.by == "session" and _of_session(one, subject.name)}
    citing: dict[str, list[str]] = {}
    for one in parts.values():
        for cite in _cites(one):
            citing.setdefault(cite, []).append(one.id)
    waiting = [id for one in gone for id in citing.get(one, ())] if gone else []
    if subject.by == "source":
        waiting = [one.id for one in parts.values() if any(origin.name == subject.name for origin in one.origins)]
        waiting += [id for id in brought.gone if id in parts]
        waiting += [id for one in brought.seen for id in citing.get(one, ())]
    while waiting:
        id = waiting.pop()
        part = parts[id]
        if id not in gone and part.origins and len(_dead(subject, part, gone, brought)) == len(part.origins):
            gone.add(id)
            waiting += citing.get(id, ())
    return gone


def _of_session(part: ItemLineage, session: str) -> bool:
    return part.session == session or part.slot == f"{SESSION_SLOT}{session}"


def _dead(subject: Subject, part: ItemLineage, gone: set[str], brought: ToolDerived) -> tuple[int, ...]:
    """The sources that no longer count: those of that name, and those that rest on what is gone."""
    named = subject.name if subject.by == "source" else None
    return tuple(
        origin.number
        for origin in part.origins
        if (named is not None and origin.name == named)
        or part.id in brought.gone
        or any(cite in gone or cite in brought.seen for cite in origin.cites)
    )


def _cites(part: ItemLineage) -> Iterable[str]:
    return (cite for origin in part.origins for cite in origin.cites)


def _trust(part: ItemLineage, dead: tuple[int, ...]) -> float:
    return max(TRUST[origin.kind] for origin in part.origins if origin.number not in dead)


def _loses(part: ItemLineage, gone: set[str]) -> bool:
    """What took its place is gone."""
    closed = part.retracted or part.valid_to is not None
    return closed and part.id not in gone and part.replaced_by in gone


def _first(part: ItemLineage, parts: Mapping[str, ItemLineage], gone: set[str]) -> str | None:
    """The first after it that held: one that was corrected held at no time."""
    following, seen = part.replaced_by, {part.id}
    while following in gone and following not in seen and parts[following].retracted:
        seen.add(following)
        following = parts[following].replaced_by
    return following


def _put_right(
    part: ItemLineage, parts: Mapping[str, ItemLineage], gone: set[str], heirs: Mapping[str, str]
) -> RestoredVersion | tuple[str, str]:
    """It holds until the last of those that are gone did, or until one that a correction had taken the place of stands
    again. What was corrected by one that was itself corrected since stays so."""
    following = _first(part, parts, gone)
    if part.retracted and following is not None and following in parts and following not in gone:
        return part.id, following
    ends, seen = part.valid_to, {part.id}
    while following and following in gone and following not in seen and heirs.get(following, part.id) == part.id:
        seen.add(following)
        ends = parts[following].valid_to
        following = _first(parts[following], parts, gone)
    left = heirs.get(following or "", following)
    return RestoredVersion(part.id, ends, left if left in parts else None)


def _back(cited: Iterable[ItemLineage]) -> dict[str, int]:
    first: dict[str, int] = {}
    for one in cited:
        if one.session is not None and one.place is not None:
            first[one.session] = min(one.place, first.get(one.session, one.place))
    return first
