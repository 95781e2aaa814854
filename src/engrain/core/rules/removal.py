"""Plan a removal: which items go or are repaired, and which words are cut out of the items that stay."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

from engrain.core.model.erasure import Subject
from engrain.core.model.items import FORGOTTEN, SESSION_SLOT_PREFIX, TRUST
from engrain.core.model.messages import ToolCall, get_answered_call, read_calls
from engrain.core.text.passages import Span, merge_spans
from engrain.core.validation import encode_json

# The model's own tool for keeping something: its call holds nothing but the model's words.
REMEMBER_TOOL = "remember"
_SPACE = re.compile(r"\s")
_WORD = re.compile(r"[^\s\"'`<>|]+")


@dataclass(frozen=True, slots=True)
class MessageRow:
    """A message of the log. `named`: the message itself names the source that is removed."""

    id: str
    session: str
    role: str | None
    text: str
    metadata: Mapping[str, Any]
    named: bool = False


@dataclass(frozen=True, slots=True)
class ToolDerived:
    """Messages that rest on a removed source.

    `deleted` are removed. `callers` call tools whose answers stay, and so do they; facts taken from them are removed.
    """

    deleted: frozenset[str] = frozenset()
    callers: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class SourceLineage:
    """One source of an item: its number and the items that it cites."""

    number: int
    kind: str
    name: str | None
    cites: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ItemLineage:
    """The links of an item to its session, sources and successor. Times are only passed on."""

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
    """A version that is valid again, with its new end and its new successor."""

    id: str
    valid_to: object
    replaced_by: str | None


@dataclass(frozen=True, slots=True)
class RemovalPlan:
    deleted: tuple[str, ...] = ()
    tombstoned: frozenset[str] = frozenset()  # of the deleted: their words must not be stored again
    lost_sources: Mapping[str, tuple[int, ...]] = field(default_factory=dict)  # numbers of removed sources, by item
    trust: Mapping[str, float] = field(default_factory=dict)  # of items that lost sources, by the sources left
    restored: tuple[RestoredVersion, ...] = ()
    repointed: Mapping[str, str] = field(default_factory=dict)  # corrected items, by their new correction
    reprocess_from: Mapping[str, int] = field(default_factory=dict)  # by session: the first place to process again


NO_TOOL_DERIVED = ToolDerived()


def plan_removal(subject: Subject, items: Iterable[ItemLineage], derived: ToolDerived = NO_TOOL_DERIVED) -> RemovalPlan:
    """Plan the removal. `items` is everything in the subject's scope, ordered by id."""
    known = {item.id: item for item in items}
    gone = _find_gone(subject, known, derived)
    dead = {id: _find_dead_sources(subject, item, gone, derived) for id, item in known.items() if id not in gone}
    lost_sources = {id: numbers for id, numbers in dead.items() if numbers}
    mixed = {id for id in gone if any(cite in known and cite not in gone for cite in _cited_by(known[id]))}
    closed = (item for item in known.values() if item.retracted or item.valid_to is not None)
    orphans = [item for item in closed if item.id not in gone and item.replaced_by in gone]
    heirs = {
        successor: item.id
        for item in orphans
        if item.retracted and (successor := _first_valid_successor(item, known, gone)) in gone and successor
    }
    repairs = [_repair(item, known, gone, heirs) for item in orphans]
    return RemovalPlan(
        deleted=tuple(id for id in known if id in gone),
        # The remaining items may lead to the same summary or conclusion, in the same words.
        tombstoned=frozenset(id for id in gone if known[id].kind != "summary" and id not in mixed),
        lost_sources=lost_sources,
        trust={
            id: max(TRUST[origin.kind] for origin in known[id].origins if origin.number not in numbers)
            for id, numbers in lost_sources.items()
        },
        restored=tuple(repair for repair in repairs if isinstance(repair, RestoredVersion)),
        repointed=dict(repair for repair in repairs if not isinstance(repair, RestoredVersion)),
        reprocess_from=_first_places(
            [known[cite] for id in mixed for cite in _cited_by(known[id]) if cite in known and cite not in gone]
        ),
    )


def find_tool_derived(name: str, rows: Iterable[MessageRow]) -> ToolDerived:
    """Find the messages that rest on a source: answers of tools called with its address, or that name it.

    The agent's messages after such an answer belong to it, until the user speaks again.
    `rows` are whole sessions, each in order.
    """
    gone: set[str] = set()
    callers: set[str] = set()
    for _, session in groupby(rows, lambda row: row.session):
        calls: dict[str, bool] = {}  # by id: its answer goes
        in_view = False
        for row in session:
            made = read_calls(row.text, row.metadata) if row.role == "assistant" else ()
            if row.role == "user":
                in_view = False
            elif row.role == "assistant":
                own_words = in_view and all(call.name == REMEMBER_TOOL for call in made)
                calls |= {call.id: own_words or name in find_addresses(call) for call in made}
                if in_view:
                    (gone if own_words else callers).add(row.id)
            elif row.role == "tool" and (row.named or calls.get(get_answered_call(row.metadata) or "")):
                gone.add(row.id)
                in_view = True
    return ToolDerived(frozenset(gone), frozenset(callers))


def find_addresses(call: ToolCall) -> set[str]:
    """Collect the addresses in a call's arguments, at any depth.

    A plain word such as `search` is no address. A longer text, such as a command, gives only its URLs.
    """
    found: set[str] = set()
    pending: list[Any] = [call.malformed or dict(call.arguments)]
    while pending:
        value = pending.pop()
        if isinstance(value, str):
            found |= {value} if is_address(value) else {word for word in _WORD.findall(value) if "://" in word}
        elif isinstance(value, (dict, list)):
            pending += value.values() if isinstance(value, dict) else value
    return found


def is_address(name: str) -> bool:
    return ("/" in name or "." in name) and not _SPACE.search(name)


def escape_argument(name: str) -> str:
    """Write a name as it stands in the JSON text of a call."""
    return encode_json(name, "a source")[1:-1]


def _find_gone(subject: Subject, known: Mapping[str, ItemLineage], derived: ToolDerived) -> set[str]:
    gone: set[str] = set()
    if subject.by == "session":
        summary = f"{SESSION_SLOT_PREFIX}{subject.name}"
        gone = {item.id for item in known.values() if item.session == subject.name or item.slot == summary}
    citing: dict[str, list[str]] = {}
    for item in known.values():
        for cite in _cited_by(item):
            citing.setdefault(cite, []).append(item.id)
    pending = [id for removed in gone for id in citing.get(removed, ())]
    if subject.by == "source":
        pending = [item.id for item in known.values() if any(origin.name == subject.name for origin in item.origins)]
        pending += [id for id in derived.deleted if id in known]
        pending += [id for caller in derived.callers for id in citing.get(caller, ())]
    while pending:
        item = known[pending.pop()]
        if item.id in gone or not item.origins:
            continue
        if len(_find_dead_sources(subject, item, gone, derived)) == len(item.origins):
            gone.add(item.id)
            pending += citing.get(item.id, ())
    return gone


def _find_dead_sources(subject: Subject, item: ItemLineage, gone: set[str], derived: ToolDerived) -> tuple[int, ...]:
    """Return the numbers of the sources that no longer count: the removed one, and those that cite removed items."""
    removed = subject.name if subject.by == "source" else None
    return tuple(
        origin.number
        for origin in item.origins
        if (removed is not None and origin.name == removed)
        or item.id in derived.deleted
        or any(cite in gone or cite in derived.callers for cite in origin.cites)
    )


def _cited_by(item: ItemLineage) -> Iterable[str]:
    return (cite for origin in item.origins for cite in origin.cites)


def _first_valid_successor(item: ItemLineage, known: Mapping[str, ItemLineage], gone: set[str]) -> str | None:
    """Return the first successor that was ever valid. A corrected version was valid at no time."""
    successor, seen = item.replaced_by, {item.id}
    while successor in gone and successor not in seen and known[successor].retracted:
        seen.add(successor)
        successor = known[successor].replaced_by
    return successor


def _repair(
    item: ItemLineage, known: Mapping[str, ItemLineage], gone: set[str], heirs: Mapping[str, str]
) -> RestoredVersion | tuple[str, str]:
    """Restore a version whose successor is gone, or point it at the correction of its correction.

    A restored version is valid until its last removed successor ended, or until a corrected version is valid again.
    """
    successor = _first_valid_successor(item, known, gone)
    if item.retracted and successor is not None and successor in known and successor not in gone:
        return item.id, successor
    ends, seen = item.valid_to, {item.id}
    while successor and successor in gone and successor not in seen and heirs.get(successor, item.id) == item.id:
        seen.add(successor)
        ends = known[successor].valid_to
        successor = _first_valid_successor(known[successor], known, gone)
    heir = heirs.get(successor or "", successor)
    return RestoredVersion(item.id, ends, heir if heir in known else None)


def _first_places(cited: Iterable[ItemLineage]) -> dict[str, int]:
    first: dict[str, int] = {}
    for item in cited:
        if item.session is not None and item.place is not None:
            first[item.session] = min(item.place, first.get(item.session, item.place))
    return first


def cut_spans(text: str, spans: Sequence[Span]) -> str:
    """Put the FORGOTTEN mark in the place of each span."""
    kept: list[str] = []
    at = 0
    for start, end in merge_spans(spans):
        kept.append(text[at:start])
        at = end
    return FORGOTTEN.join([*kept, text[at:]])


def shift_offset(offset: int | None, spans: Sequence[Span]) -> int | None:
    """Return the offset of a citation after the cut. It lies in no span: citations that overlap one are removed."""
    if offset is None:
        return None
    return offset + sum(len(FORGOTTEN) - (end - start) for start, end in merge_spans(spans) if end <= offset)


def cites_any_span(start: int | None, end: int | None, spans: Sequence[Span]) -> bool:
    """Tell if a citation overlaps a span. A citation without offsets, or of 0:0, covers the whole text."""
    if (start, end) == (0, 0):
        return bool(spans)
    return any((start or 0) < right and (end is None or left < end) for left, right in spans)
